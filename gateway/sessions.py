"""Sessions in the store: what each conversation has been so far, in digests and numbers, never in text.

Rule: a session id is a claim and the messages decide. A session holds up to 32 branches; a request continues the
branch whose messages it begins with, whatever id it came under. Saving merges: two turns that ran at the same time
are both kept, as one branch if one continues the other, else as two.

The keys and their sizes are described in docs/redis.md.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import repeat
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import structs

from budgets.script import Argument, Script, Step
from gateway.digests import Chain
from gateway.store import Store

_LOAD = Script.load("gateway", "session_load")
_SAVE = Script.load("gateway", "session_save")
_DELETE = Script.load("gateway", "session_delete")
_REMEMBER = Script.load("gateway", "session_memory")
_RECENT = 12
"""How many digests are sent to find a session that goes on: a turn mostly adds fewer messages."""
_MOST_TOKENS = 2**32 - 1
_RECORD = struct.Struct(">16sIB")
_ROLES = {role: number for number, role in enumerate(("", "system", "developer", "user", "assistant", "tool"))}

Status = Literal["new", "known", "fork", "part", "unread", "recalled"]
SavedStatus = Literal["extended", "held", "begun", "forked", "deleted"]


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How long a session lives, untouched and at all, and how many of a tenant live at once (longest idle go).

    `stored_bytes`: text of all the tenant's sessions together (gateway/texts.py).
    """

    idle_seconds: float = 3600.0
    absolute_seconds: float = 7 * 86400.0
    live_sessions: int = 10_000
    stored_bytes: int = 256 * 1024 * 1024


class Session(msgspec.Struct, frozen=True, gc=False):
    """What is known of a session when a request opens it.

    `status`: `known`, the request continues a branch; `fork`, it shares its first `known_messages` with one and then
    parts; `new`, nothing fits; `part`, only the whole conversation can tell; `unread`, the store was not asked or did
    not answer; `recalled`, it did not, but this process remembers the session (gateway/recalled.py). Numbers are of
    the branch. `memory` holds the edits in force as `policies` wrote them, at `memory_revision`. `originals`: those of
    the session that are in the store, by handle, and seconds left; empty where nobody asked. `read_ms`: when it was
    read, by the store's clock; 0 where it was not, which would have been at `unread_at`, by the monotonic one.
    """

    tenant: str
    id: str
    status: Status
    known_messages: int = 0
    branch: int | None = None
    revision: int = 0
    turns: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    kv_read_bytes: int = 0
    age_seconds: float = 0.0
    idle_seconds: float = 0.0
    home: str | None = None
    memory: bytes = b""
    memory_revision: int = 0
    organisation: str | None = None
    originals: Mapping[str, float] = MappingProxyType({})
    read_ms: int = 0
    unread_at: float = 0.0


class Progress(msgspec.Struct, frozen=True, gc=False):
    """What one call adds to its session.

    `chain` is of the request's messages as the client sent them. `tokens` go with it message by message and may be left
    out; 0 means not counted. `roles` are of the last so many messages. `memory` None: as it was read.
    """

    chain: Chain
    tokens: Sequence[int] = ()
    roles: Sequence[str] = ()
    memory: bytes | None = None
    home: str | None = None
    prompt_tokens: int = 0
    kv_read_bytes: int = 0
    begins_turn: bool = True

    def records(self, known: int = 0) -> bytes:
        """21 bytes a message, for the last of those `known` and all behind it: digest, tokens (big-endian), role."""
        size, roles = len(self.chain), [_ROLES.get(role, 0) for role in self.roles]
        if len(self.tokens) not in (0, size) or len(roles) > size:
            raise ValueError("tokens and roles go with the chain, message by message")
        links = self.chain.links(known - 1 if known else 0)
        if len(roles) != len(links):
            roles = ([0] * len(links) + roles)[len(roles) :]
        tokens = [min(n, _MOST_TOKENS) for n in self.tokens[size - len(links) :]] if self.tokens else repeat(0)
        return b"".join(map(_RECORD.pack, links, tokens, roles))


class Saved(msgspec.Struct, frozen=True, eq=False):
    """`extended` a branch; `held`: a branch had it all already; `begun`: the first branch; `forked`: one more;
    `deleted`: the session was deleted after it was read, and nothing was written.

    `live`: how many sessions the tenant has now, which is nothing of this one's. `other`: memory that another call has
    written since ours was read, so that ours was not; the two are to be joined.
    """

    status: SavedStatus
    branch: int
    revision: int
    evicted: tuple[str, ...] = ()
    other: "Other | None" = None
    live: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Saved) and structs.astuple(self)[:-1] == structs.astuple(other)[:-1]

    def __hash__(self) -> int:
        return hash(structs.astuple(self)[:-1])


class Other(NamedTuple):
    """Memory as another call left it; `revision` -1: its branch is gone."""

    revision: int
    memory: bytes


class Sessions:
    """Reads and writes sessions of all tenants. Raises StoreUnavailable or StoreRejected."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self, tenant: str, id: str, chain: Chain) -> Session:
        """`loading` on its own, and `loading_whole` where that is needed: one round trip, rarely two."""
        session = await self._store.ask(loading(tenant, id, chain))
        return await self._store.ask(loading_whole(session, chain)) if session.status == "part" else session

    async def save(self, session: Session, progress: Progress, limits: SessionLimits) -> Saved | None:
        """`saving` on its own: one round trip; None for a session that was not read."""
        if session.status == "unread":
            return None
        saved = await self._store.ask(saving(session, progress, limits))
        await self.forget(session.tenant, saved.evicted, session.organisation)
        return saved

    async def delete(self, tenant: str, id: str, organisation: str | None = None) -> bool:
        """Remove all of a session; false if there was none. What was read of it before is not written any more."""
        return bool(await self._store.run(_DELETE, _written_keys(tenant, id, organisation), (id,)))

    async def forget(self, tenant: str, ids: Sequence[str], organisation: str | None = None) -> None:
        """Free the memory of sessions that a save took off the list; they were gone from that moment."""
        if ids:
            keys = [_keys(tenant, id, organisation)[0] for id in ids]
            await self._store.command("UNLINK", *keys, key=keys[0])


def memory_place(session: Session) -> str:
    """Where the edits in force of a session lie, for the vault: any of its branches."""
    return f"{_keys(session.tenant, session.id, session.organisation)[0]} e"


def loading(tenant: str, id: str, chain: Chain, organisation: str | None = None) -> Step[Session]:
    """The branch that a conversation continues, found by its last few links. Gives `part` where those show nothing."""
    count = len(chain)
    return _loading(tenant, id, organisation, count, chain.links(count - _RECENT if count > _RECENT else 0))


def loading_whole(part: Session, chain: Chain) -> Step[Session]:
    """The same by all links: tells a fork, and how far it shares, from a new conversation."""
    return _loading(part.tenant, part.id, part.organisation, len(chain), chain.links(0))


def _loading(tenant: str, id: str, organisation: str | None, count: int, links: Sequence[bytes]) -> Step[Session]:
    keys = _keys(tenant, id, organisation)
    return Step(_LOAD, keys, (id, count, b"".join(links)), partial(_loaded, tenant, id, organisation))


def saving(session: Session, progress: Progress, limits: SessionLimits, now: float = 0.0) -> Step[Saved]:
    """Record a call that has ended, of a session that was read: what is new, and what has changed.

    `now`, by the monotonic clock, tells how long ago one was not read.
    """
    inside = session.status == "fork" and session.known_messages == len(progress.chain)
    numbers = (
        session.known_messages,
        int(progress.begins_turn),
        progress.prompt_tokens,
        progress.kv_read_bytes,
        -1 if session.branch is None else session.branch,
        session.memory_revision,
        int(limits.idle_seconds * 1000),
        int(limits.absolute_seconds * 1000),
        limits.live_sessions,
        session.read_ms or -int(max(0.0, now - session.unread_at) * 1000),
        int(inside and progress.memory is not None),
    )
    records = progress.records(session.known_messages)
    args: tuple[Argument, ...] = (session.id, msgspec.msgpack.encode(numbers), records, progress.home or "")
    if progress.memory is not None:
        args = (*args, progress.memory)
    return Step(_SAVE, _written_keys(session.tenant, session.id, session.organisation), args, _saved)


def remembering(session: Session, branch: int, revision: int, memory: bytes) -> Step[Other | None]:
    """Replace the memory of a branch if it is still the one of `revision`, else say what is there."""
    key = _keys(session.tenant, session.id, session.organisation)[0]
    return Step(_REMEMBER, (key,), (branch, revision, memory), _other)


def _saved(reply: Any) -> Saved:
    status, branch, revision, evicted, other, live = reply
    return Saved(status.decode(), branch, revision, tuple(map(bytes.decode, evicted)), _other(other), live)


def _other(reply: Any) -> Other | None:
    return Other(*reply) if reply else None


def _keys(tenant: str, id: str, organisation: str | None) -> tuple[str, str]:
    """Under the hash tag of the tenant's budgets, so that one script may use both."""
    begin, live, _ = _shared_keys(tenant, organisation)
    return begin + id, live


def _written_keys(tenant: str, id: str, organisation: str | None) -> tuple[str, str, str]:
    begin, live, deleted = _shared_keys(tenant, organisation)
    return begin + id, live, deleted


@lru_cache(maxsize=1_024)
def _shared_keys(tenant: str, organisation: str | None) -> tuple[str, str, str]:
    """How the keys of all sessions of a tenant begin, and the keys that they share."""
    place = f"kvgate:1:{{{tenant}}}" if organisation is None else f"kvgate:1:{{{organisation}}}:tenant:{tenant}"
    return f"{place}:s:", f"{place}:sessions", f"{place}:deleted"


def _loaded(tenant: str, id: str, organisation: str | None, reply: Any) -> Session:
    status, now_ms, *told = reply
    if not told:
        return Session(tenant, id, status.decode(), organisation=organisation, read_ms=now_ms)
    branch, known, revision, turns, calls, prompt_tokens, kv_read_bytes, begun_ms, seen_ms, remembered = told[:10]
    home, memory = told[10:]
    return Session(
        tenant,
        id,
        status.decode(),
        known_messages=known,
        branch=branch,
        revision=revision,
        turns=turns,
        calls=calls,
        prompt_tokens=prompt_tokens,
        kv_read_bytes=kv_read_bytes,
        age_seconds=(now_ms - begun_ms) / 1000,
        idle_seconds=(now_ms - seen_ms) / 1000,
        home=home.decode() or None,
        memory=memory,
        memory_revision=remembered,
        organisation=organisation,
        read_ms=now_ms,
    )
