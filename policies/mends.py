"""What is put right before any policy speaks: volatile lines stripped, broken calls repaired.

Rule: it hangs on the messages alone, never on what was sent before; so the same conversation is mended to the same
bytes on every turn without being remembered. Nothing is counted: what a mend costs is taken high.
"""

from collections.abc import Mapping

import msgspec

from policies.edit import InsertAnswer, ReplaceArguments, ReplaceText


class Mends(msgspec.Struct, frozen=True):
    """Texts and calls replaced, answers added and tool messages dropped because they answer nothing, by message."""

    texts: Mapping[int, ReplaceText] = msgspec.field(default_factory=dict)
    calls: Mapping[int, tuple[ReplaceArguments | InsertAnswer, ...]] = msgspec.field(default_factory=dict)
    orphans: frozenset[int] = frozenset()

    def added_tokens(self, at: int) -> int:
        """What calls mended and answers added cost at message `at`."""
        return -sum(edit.removed_tokens for edit in self.calls[at]) if at in self.calls else 0
