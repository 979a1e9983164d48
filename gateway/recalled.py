"""Sessions as this process left them: for a turn that the store does not answer, or has not heard the last one of.

Rule: what is remembered here is as good as what was read then, for whatever is written compares revisions and merges.
So a turn that missed the store goes on to the same bytes, and a record that could not be written waits and lends its
edits to the turns that follow. Bounded by number and by time; what is forgotten is read from the store again, or begins
anew where the store never had it.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import structs

from gateway.digests import Chain
from gateway.recent import Recent
from gateway.sessions import Progress, Saved, Session, SessionLimits
from policies.joined import joined
from policies.memory import EMPTY, Memory

SECONDS: Final = 600.0
"""How long a session is remembered here at most; never beyond its tier's idle time."""
MOST_EDITS: Final = 50_000
"""Of all sessions that the store has, together: some 300 bytes each."""
EDITS_A_SESSION: Final = 8
"""What a session weighs beside its edits, in edits."""
MOST_UNSAVED_MESSAGES: Final = 100_000
"""Of all records that wait, together: some 150 bytes each."""

Key = tuple[str, str]


class Left(msgspec.Struct, frozen=True):
    """How a call left its session. So many `messages` have been sent, which `head` names, with the edits in `memory`.

    `session` is that of the store, as far as it has heard. `unsaved` is what it has not heard, `limits` go with it.
    Good until `until`, by the monotonic clock, and left at `at`.
    """

    session: Session
    messages: int
    head: bytes
    memory: Memory
    home: str | None
    at: float
    until: float
    limits: SessionLimits
    unsaved: Progress | None = None

    @property
    def key(self) -> Key:
        return self.session.tenant, self.session.id

    def precedes(self, chain: Chain, now: float) -> bool:
        """Whether a conversation goes on from there."""
        return now <= self.until and self.messages <= len(chain) and chain.link(self.messages) == self.head


class Recalled(msgspec.Struct, frozen=True):
    """What a call goes on with: the session as it is to be written, how many messages were sent, the edits in force.

    `unsaved`: what the store has not heard of them.
    """

    session: Session
    messages: int
    memory: Memory
    unsaved: Progress | None


class Recollections:
    """What this process remembers of sessions. Times by the monotonic clock."""

    def __init__(self, most_edits: int = MOST_EDITS, most_messages: int = MOST_UNSAVED_MESSAGES) -> None:
        self.saved_ones: Recent[Key, Left] = Recent(most_edits, _edits)
        self._unsaved: OrderedDict[Key, Left] = OrderedDict()
        self.most = most_messages
        self.weight = 0
        """Messages of the records that wait."""

    @property
    def unsaved(self) -> int:
        """How many records wait for the store."""
        return len(self._unsaved)

    def of(self, read: Session, chain: Chain, theirs: Memory | None, now: float) -> Recalled | None:
        """What a call goes on with, where that is more than what was `read`; `theirs` are the edits read with it."""
        key = read.tenant, read.id
        unread = read.status == "unread"
        left = self._unsaved.get(key) or (self.saved_ones.get(key) if unread else None)
        if left is None or not left.precedes(chain, now) or (not unread and left.messages <= read.known_messages):
            return None
        base, memory = (left.session if unread else read), left.memory
        if not unread and theirs is not None and _revision(read) != _revision(left.session):
            memory = joined(memory, theirs)
        session = structs.replace(
            base,
            status="recalled" if unread else read.status,
            home=left.home,
            idle_seconds=now - left.at,
            read_ms=left.session.read_ms,  # of what it builds on: should that have been deleted, this goes with it
            unread_at=left.session.unread_at,
        )
        return Recalled(session, left.messages, memory, left.unsaved)

    def saved(
        self, session: Session, progress: Progress, saved: Saved, limits: SessionLimits, memory: Memory, now: float
    ) -> None:
        """A call's record is in the store. Without edits there is nothing that the next turn could lose."""
        self.forget(session.tenant, session.id)
        if memory is EMPTY or saved.other is not None or saved.status in ("held", "deleted"):
            return
        known = structs.replace(
            session,
            status="known",
            branch=saved.branch,
            revision=saved.revision,
            known_messages=len(progress.chain),
            memory=b"",
            memory_revision=session.memory_revision if progress.memory is None else saved.revision,
            originals={},
        )
        left = _left(known, progress, limits, memory, now)
        self.saved_ones.keep(left.key, left)

    def unwritten(
        self,
        session: Session,
        progress: Progress,
        limits: SessionLimits,
        memory: Memory,
        now: float,
    ) -> int:
        """A call's record could not be written; how many others are lost for it."""
        self.forget(session.tenant, session.id)
        base = structs.replace(session, memory=b"", originals={})
        left = structs.replace(_left(base, progress, limits, memory, now), unsaved=progress)
        self._unsaved[left.key] = left
        self.weight += left.messages
        lost = 0
        while self.weight > self.most:
            self.weight -= self._unsaved.popitem(last=False)[1].messages
            lost += 1
        return lost

    def waiting(self, now: float) -> Iterator[Left]:
        """Records to be written, the oldest first; those whose time is over are forgotten."""
        for left in list(self._unsaved.values()):
            if now > left.until:
                self.forget(*left.key)
            elif self._unsaved.get(left.key) is left:
                yield left

    def forget(self, tenant: str, id: str) -> bool:
        """The session was deleted, or what was left is over. Whether a record of it waited."""
        self.saved_ones.forget((tenant, id))
        if (left := self._unsaved.pop((tenant, id), None)) is None:
            return False
        self.weight -= left.messages
        return True

    def still(self, left: Left) -> bool:
        """Whether this very record still waits."""
        return self._unsaved.get(left.key) is left


def _left(session: Session, progress: Progress, limits: SessionLimits, memory: Memory, now: float) -> Left:
    count, until = len(progress.chain), now + min(SECONDS, limits.idle_seconds)
    return Left(session, count, progress.chain.link(count), memory, progress.home, now, until, limits)


def _revision(session: Session) -> tuple[int | None, int]:
    return session.branch, session.memory_revision


def _edits(left: Left) -> int:
    lanes = left.memory.enforced, left.memory.shadow
    return EDITS_A_SESSION + sum(len(lane.trims) for lane in lanes)
