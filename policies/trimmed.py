"""A trim together with the text that it renders to."""

import msgspec

from policies.memory import Trim

TRIM = "trim_tool_output"
DEDUPE = "dedupe_tool_output"


class Trimmed(msgspec.Struct, frozen=True, gc=False):
    """`again` if it was in force before, and so stands."""

    trim: Trim
    text: str
    again: bool = False

    @property
    def policy(self) -> str:
        """The policy whose edit this is, whether made now or again."""
        return DEDUPE if self.trim.form in ("same", "superseded") else TRIM
