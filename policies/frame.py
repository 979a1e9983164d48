"""What does not change while policies speak: the conversation, what is put right in it, and what none may touch.

Rule: everything here is worked out once for each plan.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

import msgspec
import xxhash

from policies import covering, record, window
from policies.conversation import Conversation, ToolCall
from policies.covering import Cover
from policies.extract_facts import Read, read
from policies.mends import Mends


class Called(NamedTuple):
    """A call, and the message that made it."""

    caller: int
    call: ToolCall


class Frame(msgspec.Struct, frozen=True, dict=True):
    """`untouched` are the messages that `pin` names: no policy edits them, and their turns are not dropped.

    `read` finds the facts of a message.
    """

    conversation: Conversation
    untouched: frozenset[int] = frozenset()
    mends: Mends = msgspec.field(default_factory=Mends)
    read: Read = read

    @cached_property
    def pinned(self) -> frozenset[int]:
        """What no window drops."""
        turns = (turn for turn in self.conversation.turns() if not self.untouched.isdisjoint(turn))
        return window.pinned(self.conversation).union(*turns) if self.untouched else window.pinned(self.conversation)

    @cached_property
    def borders(self) -> tuple[int, ...]:
        """Where a window may begin."""
        return window.borders(self.conversation, self.pinned)

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        """Where a window may move to."""
        return window.cuts(self.conversation, self.borders)

    @cached_property
    def task(self) -> int | None:
        """The message behind whose text we may say something: the last one of the task."""
        return covering.task(self.conversation)

    @cached_property
    def head(self) -> frozenset[int]:
        """What a summary never covers."""
        return covering.head(self.conversation)

    @cached_property
    def covers(self) -> tuple[Cover, ...]:
        """What a summary can cover, ascending."""
        return covering.covers(self.conversation, self.untouched, record.BEGIN)

    def cover_at(self, stop: int) -> Cover | None:
        """The one of them that ends at `stop`."""
        return covering.cover_at(self.conversation, self.untouched, record.BEGIN, stop)

    @cached_property
    def cover_digests(self) -> Mapping[int, bytes]:
        """`prefix_digest` of the stop of every cover, in one pass."""
        stops, hashed, at = {}, xxhash.xxh3_128(), 0
        digests = list(self._digests(len(self.conversation.messages)))
        for cover in self.covers:
            hashed.update(b"".join(digests[at : cover.stop]))
            at = cover.stop
            stops[at] = hashed.digest()
        return stops

    def called(self, outputs: Iterable[int]) -> Mapping[int, Called]:
        """The call that each of these tool messages answers, if any."""
        messages, callers = self.conversation.messages, self.conversation.callers
        found: dict[int, Called] = {}
        for at in outputs:
            if (caller := callers.get(at)) is not None:
                answered = (messages[at].answers or "").strip()
                calls = [call for call in messages[caller].calls if call.id.strip() == answered]
                found[at] = Called(caller, calls[-1])
        return found

    def prefix_digest(self, stop: int) -> bytes:
        """16 bytes that name the first `stop` messages, in order; stripped ones by what is left of them."""
        return xxhash.xxh3_128_digest(b"".join(self._digests(stop)))

    def _digests(self, stop: int) -> Iterator[bytes]:
        texts = self.mends.texts
        for at, message in enumerate(self.conversation.messages[:stop]):
            stripped = at in texts and texts[at].policy == "strip"
            yield _of_text(texts[at].text) if stripped else message.digest


def _of_text(text: str) -> bytes:
    return xxhash.xxh3_128_digest(text.encode("utf-8", "surrogatepass"))
