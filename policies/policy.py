"""The union of all policies: what a tier may list. A new policy is one file and one member here."""

from typing import Annotated

from pydantic import Field

from policies.cap_context import CapContext
from policies.keep_recent_turns import KeepRecentTurns
from policies.trim_tool_output import TrimToolOutput

Policy = Annotated[TrimToolOutput | KeepRecentTurns | CapContext, Field(discriminator="kind")]
