"""Conversations that an engine would refuse for the arguments of a call in their history.

Rule: a message is read once; what was sound stays sound under its digest. Without tool calls nothing is read.
"""

from collections.abc import Sequence

from gateway.call import Call
from gateway.dialects.openai_messages import calls_of, decoded
from policies.arguments import is_object
from policies.repair import Repair

MENDED = Repair(parts=("arguments",))
MAX_KNOWN = 65_536
_CALLS = b'"tool_calls"'


class SoundArguments:
    """Remembers which messages carry none but arguments that an engine takes."""

    __slots__ = ("_sound",)

    def __init__(self) -> None:
        self._sound: set[bytes] = set()

    def repair(self, call: Call, digests: Sequence[bytes]) -> Repair | None:
        """What must be repaired before an engine takes the call; None if nothing."""
        if _CALLS not in call.body:
            return None
        for message, digest in zip(call.messages, digests, strict=True):
            if digest not in self._sound and _CALLS in message:
                if is_broken(message):
                    return MENDED
                self._remember(digest)
        return None

    def _remember(self, digest: bytes) -> None:
        if len(self._sound) >= MAX_KNOWN:
            self._sound.clear()
        self._sound.add(digest)


def is_broken(message: bytes) -> bool:
    """Whether a call in a message has arguments that are no JSON object; without any it takes none, which is sound."""
    return any(call.arguments.strip() and not is_object(call.arguments) for call in calls_of(decoded(message)))
