"""The union of all policies: what a tier may list. A new policy is one file and one member here."""

from typing import Annotated

from pydantic import Field

from policies.cap_context import CapContext
from policies.clear_old_reasoning import ClearOldReasoning
from policies.dedupe_tool_output import DedupeToolOutput
from policies.drop_stale_turns import DropStaleTurns
from policies.keep_recent_tokens import KeepRecentTokens
from policies.keep_recent_turns import KeepRecentTurns
from policies.pin import Pin
from policies.repair import Repair
from policies.strip import Strip
from policies.summarize_older_turns import SummarizeOlderTurns
from policies.trim_tool_output import TrimToolOutput

KeepsOriginals = (
    TrimToolOutput | DedupeToolOutput | DropStaleTurns | KeepRecentTurns | KeepRecentTokens | SummarizeOlderTurns
)
"""Those that take something away which `keep_original` keeps."""

Policy = Annotated[
    KeepsOriginals | ClearOldReasoning | CapContext | Pin | Strip | Repair,
    Field(discriminator="kind"),
]
