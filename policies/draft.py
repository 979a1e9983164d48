"""A plan in the making: what has been done so far, and what waits for a step.

Rule: a draft only grows. What has been sent before changes only in a step, when the engine's prefix is lost anyway or
the loss pays; until then such edits are due and wait. In the end all is folded into edits over the original.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Literal

import msgspec
from msgspec.structs import replace

from policies import window
from policies.conversation import Message
from policies.copies import Copy, families, promoted
from policies.frame import Frame
from policies.left_out import Note
from policies.summary import SUMMARIZE, Ahead, Summary, Wanted
from policies.trimmed import Trimmed

WINDOW = "keep_recent_turns"


Step = Literal["", "cold", "pause", "age", "mark", "limit", "gain"]
"""Why what was sent before may change: nothing (it may not), the engine holds none of it, the session has rested, turns
are too old, a mark was passed, a limit would be, it gains more than it costs."""


class Due(msgspec.Struct, frozen=True, eq=False):
    """Edits that wait for a step: about how many tokens each message would lose, and how it is done.

    `make` takes the draft and where the step begins, and edits only what lies behind.
    """

    savings: tuple[tuple[int, int], ...]
    make: Callable[["Draft", int], "Draft"]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Due) and self.savings == other.savings

    def __hash__(self) -> int:
        return hash(self.savings)


class Draft(msgspec.Struct, frozen=True, dict=True):
    """`cut` is the first message of the window, 0 while nothing is dropped; reasoning before `cleared` is left out.
    What falls out is kept if `cut_keeps`, and `note` says where.

    The first `known` messages have been sent before. `open`: a step is being taken, or the engine holds nothing; `step`
    says why, also of one that is taken in part. `ahead` is what a record was asked for that is not used yet, `wanted`
    one that a policy asks for now.
    """

    frame: Frame
    known: int = 0
    open: bool = False
    trimmed: Mapping[int, Trimmed] = msgspec.field(default_factory=dict)
    copies: Mapping[int, Copy] = msgspec.field(default_factory=dict)
    cut: int = 0
    cut_policy: str = WINDOW
    cut_keeps: bool = False
    cleared: int = 0
    dues: tuple[Due, ...] = ()
    summary: Summary | None = None
    ahead: Ahead | None = None
    wanted: Wanted | None = None
    note: Note | None = None
    step: Step = ""

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """The original's."""
        return self.frame.conversation.messages

    def keeps(self, at: int) -> bool:
        """Whether message `at` is still sent."""
        return self.in_window(at) and at not in self.frame.mends.orphans

    def in_window(self, at: int) -> bool:
        """Whether the window leaves message `at`."""
        return at >= self.cut or at in self.pinned

    @cached_property
    def pinned(self) -> frozenset[int]:
        """What no window drops: of what a summary covers nothing but the task and the bridge behind it."""
        pinned = self.frame.pinned
        if self.cut:
            pinned = pinned.union(window.opening(self.frame.conversation, self.cut))
        if self.summary is None:
            return pinned
        cover = self.summary.cover
        bridge = () if cover.bridge is None else (cover.bridge,)
        return self.frame.head.union(bridge, (at for at in pinned if at >= cover.stop))

    @property
    def summarized(self) -> int:
        """Before which message everything is in a summary; 0 for none."""
        return 0 if self.summary is None else self.summary.cover.stop

    def stands(self, at: int) -> bool:
        """Whether message `at` is trimmed as it was sent before."""
        done = self.text_of(at)
        return done is not None and done.again

    def is_free(self, at: int) -> bool:
        """Whether message `at` may be edited now, for it was never sent."""
        return at >= self.known and not self.stands(at)

    @cached_property
    def texts(self) -> Mapping[int, Trimmed]:
        """What is sent in place of the outputs of messages."""
        if not self.copies:
            return self.trimmed
        return {**self.trimmed, **{at: copy.pointer for at, copy in self.copies.items()}}

    def text_of(self, at: int) -> Trimmed | None:
        """What is sent in place of the output of message `at`, if anything."""
        return self.texts.get(at)

    @cached_property
    def cleared_messages(self) -> frozenset[int]:
        """Messages that are sent without their reasoning: whole turns, but for those with a message none may touch."""
        by_summary = frozenset() if self.summary is None else frozenset(self.summary.cover.cleared)
        if not self.cleared:
            return by_summary
        turns = (turn for turn in self.frame.conversation.turns() if turn.start < self.cleared)
        return by_summary.union(at for turn in turns for at in reasoning_in(self.frame, turn))

    @cached_property
    def heads(self) -> frozenset[int]:
        """Messages that others point to as their copies."""
        return frozenset(copy.head for copy in self.copies.values())

    def tokens(self, at: int) -> int:
        """Tokens that message `at` costs as it is sent, were it sent, with the answers added behind it."""
        tokens = self.output_tokens(at) + self.frame.mends.added_tokens(at)
        if self.summary is not None and at == self.summary.cover.at:
            tokens += self.summary.tokens
        if self.note is not None and at == self.note.at:
            tokens += self.note.tokens
        return tokens - self.messages[at].reasoning_tokens if at in self.cleared_messages else tokens

    def output_tokens(self, at: int) -> int:
        """Tokens of message `at` with the text that is sent, be it shorter."""
        return self.messages[at].tokens - self._removed.get(at, 0)

    def removed_tokens(self, at: int) -> int:
        """What a shorter text of message `at` saves, in the measure by which tokens are counted now."""
        return self._removed.get(at, 0)

    @cached_property
    def _removed(self) -> Mapping[int, int]:
        messages, mended = self.messages, self.frame.mends.texts
        removed = {at: done.trim.saved_of(messages[at].tokens) for at, done in self.texts.items()}
        return {**{at: edit.removed_tokens for at, edit in mended.items()}, **removed} if mended else removed

    def in_full(self, at: int) -> int:
        """What the copy at `at` would cost more if it stood in for its head."""
        head = self.trimmed.get(self.copies[at].head)
        tokens = self.messages[at].tokens
        return self.removed_tokens(at) - (head.trim.saved_of(tokens) if head else 0)

    @cached_property
    def total_tokens(self) -> int:
        """Tokens of the prompt as it is sent; only what is edited is looked at."""
        mends = self.frame.mends
        gone = mends.orphans.union([at for at in range(self.cut) if at not in self.pinned])
        task = [self.summary.cover.at] if self.summary is not None else []
        task += [self.note.at] if self.note is not None else []
        edited = self.cleared_messages.union(self.trimmed, self.copies, mends.texts, mends.calls, task) - gone
        messages = self.messages
        total = self.frame.conversation.total_tokens - sum([messages[at].tokens for at in gone])
        return total - sum([messages[at].tokens - self.tokens(at) for at in edited])

    def tokens_between(self, start: int, stop: int) -> int:
        """Tokens of the messages that are sent of a range."""
        return sum([self.tokens(at) for at in range(start, stop) if self.keeps(at)])

    def with_trims(self, more: Mapping[int, Trimmed]) -> "Draft":
        """With `more` messages trimmed."""
        return replace(self, trimmed={**self.trimmed, **more}) if more else self

    def with_late_trims(self, more: Mapping[int, Trimmed], spares: Callable[[int], bool]) -> "Draft":
        """With `more` trimmed in a step; of the copies of each message the first that `spares` stands in for it."""
        if not more:
            return self
        stood_in = self._promoted(self.heads & more.keys(), spares)
        copies = {at: copy for at, copy in stood_in.copies.items() if at not in more}
        return replace(stood_in, copies=copies, trimmed={**stood_in.trimmed, **more})

    def _promoted(self, lost: Iterable[int], may_stand_in: Callable[[int], bool]) -> "Draft":
        members = families(self.copies)
        stand_ins = {head: next((at for at in members[head] if may_stand_in(at)), None) for head in lost}
        copies, trimmed = promoted(self.messages, stand_ins, self.copies, self.trimmed)
        return replace(self, copies=copies, trimmed=trimmed)

    def with_copies(self, more: Mapping[int, Copy]) -> "Draft":
        """With `more` messages pointing to the ones they repeat."""
        return replace(self, copies={**self.copies, **more}) if more else self

    def with_cut(self, cut: int, policy: str = WINDOW, *, keeps: bool = False) -> "Draft":
        """With the window moved forward to `cut`; the first copy left of an output that is dropped takes its place."""
        if cut <= self.cut:
            return self
        return self._moved(replace(self, cut=cut, cut_policy=policy, cut_keeps=keeps, note=None))

    def with_summary(self, summary: Summary) -> "Draft":
        """With a summary in place of what it covers, and of the summary before it."""
        draft = replace(self, summary=summary, wanted=None, note=None)
        if summary.cover.stop > self.cut:
            draft = replace(draft, cut=summary.cover.stop, cut_policy=SUMMARIZE)
        return self._moved(draft)

    def wanting(self, wanted: Wanted) -> "Draft":
        """With a record asked for."""
        return replace(self, wanted=wanted, ahead=Ahead(wanted.cover, wanted.key) if wanted.make else self.ahead)

    def _moved(self, moved: "Draft") -> "Draft":
        lost = {head for head in self.heads if not moved.keeps(head)}
        moved = moved._promoted(lost, moved.keeps)
        left = {at: copy for at, copy in moved.copies.items() if moved.keeps(at)}
        return replace(moved, copies=left)

    def with_cleared(self, border: int) -> "Draft":
        """Without the reasoning of the turns before `border`."""
        return replace(self, cleared=border) if border > self.cleared else self

    def propose(self, due: Due) -> "Draft":
        """With `due` waiting for a step, or done if one is being taken."""
        if not due.savings:
            return self
        return due.make(self, 0) if self.open else replace(self, dues=(*self.dues, due))

    def stepped(self, start: int = 0, step: Step = "mark") -> "Draft":
        """With a step taken: all that is due from `start` on is done."""
        draft = replace(self, dues=(), open=self.open or not start, step=self.step or step)
        for due in self.dues:
            draft = due.make(draft, start)
        return draft


def reasoning_in(frame: Frame, turn: range) -> list[int]:
    """The messages of a turn whose reasoning may go: all that carry any, or none.

    None of them may be touched where one is pinned, and where it is the reasoning that keeps the first turn whole.
    """
    conversation = frame.conversation
    if turn == conversation.turns()[0] and window.is_kept_by_reasoning(conversation, turn):
        return []
    found = [at for at in turn if conversation.messages[at].reasoning]
    return found if frame.untouched.isdisjoint(found) else []
