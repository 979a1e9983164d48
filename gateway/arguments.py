"""Conversations that an engine would refuse for the arguments of a call in their history.

Rule: a message is read once; what was sound stays sound under its digest. Without tool calls nothing is read.
"""

from collections.abc import Sequence

from gateway.call import Call
from gateway.dialects.openai_messages import calls_of, decoded
from gateway.kept import NOBODY, Kept, Owner
from policies.arguments import is_object
from policies.repair import Repair

MENDED = Repair(parts=("arguments",))
_CALLS = b'"tool_calls"'


class SoundArguments:
    """Remembers which messages carry none but arguments that an engine takes; without `kept` by itself."""

    __slots__ = ("_owner", "_sound")

    def __init__(self, kept: Kept | None = None, owner: Owner = NOBODY) -> None:
        self._owner = owner
        self._sound = (kept or Kept()).sound

    def repair(self, call: Call, digests: Sequence[bytes]) -> Repair | None:
        """What must be repaired before an engine takes the call; None if nothing."""
        if _CALLS not in call.body:
            return None
        for message, digest in zip(call.messages, digests, strict=True):
            if _CALLS in message and self._sound.get(key := (self._owner, digest)) is None:
                if is_broken(message):
                    return MENDED
                self._sound.keep(key, True)
        return None


def is_broken(message: bytes) -> bool:
    """Whether a call in a message has arguments that are no JSON object; without any it takes none, which is sound."""
    return any(call.arguments.strip() and not is_object(call.arguments) for call in calls_of(decoded(message)))
