"""A plan made on the event loop as long as that is short, and in a thread as soon as it is not.

Rule: how long a plan takes hangs on how much text must be counted or read for it, and that shows only while it is made.
So it is begun on the loop with an allowance of characters; what would go beyond begins anew in a thread, where it has
no bound but its own. Where much is new it begins there (docs/adr/0024).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gateway.counting import THREAD_CHARACTERS, Scaled
from gateway.rendered import Rendered
from policies.conversation import Message
from policies.extract_facts import Line
from policies.keeping import Keeping
from policies.measuring import Marks, Measure
from policies.plan import Plan, Refuse

ALLOWED_CHARACTERS: Final = 32_768
"""Some three milliseconds of counting or reading."""

Make = Callable[..., Plan | Refuse]
"""Plans, with `count`, `read`, `keeping` and `records` as they are given."""


class Beyond(Exception):
    """More text must be counted or read than is allowed on the loop."""


class Allowance(Measure):
    """Counts and reads up to so many characters. Raises `Beyond`."""

    __slots__ = ("_count", "_left", "_rendered")

    def __init__(self, count: Scaled, rendered: Rendered, characters: int = ALLOWED_CHARACTERS) -> None:
        self._count = count
        self._rendered = rendered
        self._left = characters

    def __call__(self, text: str, /) -> int:
        self._take(len(text))
        return self._count(text)

    def marks(self, digest: bytes, text: str) -> Marks:
        if not self._count.has_marks(digest):
            self._take(len(text))
        return self._count.marks(digest, text)

    def read(self, message: Message) -> Sequence[Line]:
        """The facts of a message; what was read before costs nothing."""
        if (known := self._rendered.known(message)) is not None:
            return known
        self._take(len(message.text))
        return self._rendered.read(message)

    def _take(self, characters: int) -> None:
        self._left -= characters
        if self._left < 0:
            raise Beyond


async def made(
    make: Make, count: Scaled, rendered: Rendered, new_bytes: int, keeping: Keeping, records: Mapping[bytes, str]
) -> Plan | Refuse:
    """The plan; `new_bytes` were never sent before."""
    if new_bytes <= THREAD_CHARACTERS:
        allowed = Allowance(count, rendered)
        try:
            return make(count=allowed, read=allowed.read, keeping=keeping, records=records)
        except Beyond:
            pass
    return await asyncio.to_thread(make, count=count, read=rendered.read, keeping=keeping, records=records)


def read_ahead(rendered: Rendered, arrived: Sequence[Message]) -> None:
    """Read the facts of messages as they arrive, so that a step which needs those of all finds them; but not of many at
    once."""
    if sum([len(message.text) for message in arrived]) <= ALLOWED_CHARACTERS:
        for message in arrived:
            rendered.read(message)
