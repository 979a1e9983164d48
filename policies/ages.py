"""How old the messages of a session are. They carry no times on the wire, so it is noted when they were first seen.

Rule: a message is never taken for older than it is; times are kept coarsely, some thirty for a session.
"""

from collections.abc import Sequence

import msgspec

from policies.memory import Seen

STEPS = 32
"""Into so many steps the longest time that matters is divided."""


class Ages(msgspec.Struct, frozen=True):
    """What was seen of a session and when, and what time it is now, in seconds."""

    seen: tuple[Seen, ...] = ()
    now_seconds: float = 0.0

    def older_than(self, seconds: float) -> int:
        """How many messages, from the first on, were there so long ago."""
        return max((each.messages for each in self.seen if each.at_seconds <= self.now_seconds - seconds), default=0)


def noted(seen: Sequence[Seen], messages: int, now_seconds: float, longest_seconds: float) -> tuple[Seen, ...]:
    """With `messages` there now. What is older than `longest_seconds` need not be told apart."""
    now, step = int(now_seconds), max(1, int(longest_seconds / STEPS))
    old = [each for each in seen if each.at_seconds <= now - longest_seconds]
    kept = [*old[-1:], *(each for each in seen if each.at_seconds > now - longest_seconds)]
    if kept and messages <= kept[-1].messages:
        return tuple(kept)
    if kept and kept[-1] not in old and kept[-1].at_seconds // step == now // step:
        kept.pop()
    return (*kept, Seen(messages, now))
