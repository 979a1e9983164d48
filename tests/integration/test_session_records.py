"""What a session's record costs: bytes in the store and on the wire, appended and not rewritten."""

import pytest

from budgets.script import Step
from gateway.digests import Chain, of_messages
from gateway.sessions import Progress, Saved, Session, SessionLimits, Sessions, loading, saving
from gateway.store import Store

LIMITS = SessionLimits()
KEY = "kvgate:1:{acme}:s:chat"
EDITS = b"e" * 200


@pytest.fixture
def sessions(store: Store) -> Sessions:
    return Sessions(store)


def chain(count: int, *, other_from: int | None = None) -> Chain:
    """A conversation of so many messages; from `other_from` on they are not those of the others."""
    at = count if other_from is None else other_from
    return Chain(of_messages(b"%d%s" % (n, b"" if n < at else b"x") for n in range(count)))


async def said(sessions: Sessions, told: Chain, memory: bytes | None = None) -> Session:
    session = await sessions.load("acme", "chat", told)
    progress = Progress(told, tokens=[9] * len(told), roles=["user"] * len(told), memory=memory, home="replica-1")
    assert await sessions.save(session, progress, LIMITS)
    return session


async def fields(store: Store) -> dict[str, bytes]:
    found = await store.command("HGETALL", KEY)
    assert isinstance(found, list)
    return {name.decode(): value for name, value in zip(found[::2], found[1::2], strict=True)}


def on_the_wire(step: Step[Session] | Step[Saved]) -> int:
    """Bytes of the arguments, as RESP frames them."""
    parts = [part if isinstance(part, bytes) else str(part).encode() for part in (*step.keys, *step.args)]
    return sum(len(part) + len(str(len(part))) + 5 for part in parts)


async def test_at_most_24_bytes_a_message_and_no_text(sessions: Sessions, store: Store) -> None:
    await said(sessions, chain(200))
    stored = await fields(store)
    records = [value for name, value in stored.items() if name.startswith("c0.")]
    assert sum(map(len, records)) == 200 * 21 <= 200 * 24
    assert {name for name in stored if not name.startswith("c")} == {"begun", "m0"}, "no edits, no field for them"


async def test_a_thousand_messages_cost_less_than_64_kb(sessions: Sessions, store: Store) -> None:
    for count in range(2, 1001, 2):
        await said(sessions, chain(count), EDITS if count % 10 == 0 else None)
    cost = await store.command("MEMORY", "USAGE", KEY, "SAMPLES", 0)
    assert isinstance(cost, int) and cost < 40_000
    assert (await sessions.load("acme", "chat", chain(1001))).known_messages == 1000


@pytest.mark.parametrize("step", [1, 2, 5, 12, 31, 32, 33, 64, 100])
async def test_appended_in_any_steps_it_reads_as_written_at_once(sessions: Sessions, store: Store, step: int) -> None:
    before = 0
    for count in (*range(step, 200, step), 200):
        assert (await said(sessions, chain(count))).known_messages == before
        before = count
    in_steps = {name: value for name, value in (await fields(store)).items() if name.startswith("c")}
    await store.command("FLUSHALL")
    await said(sessions, chain(200))
    assert in_steps == {name: value for name, value in (await fields(store)).items() if name.startswith("c")}


@pytest.mark.parametrize("shared", [1, 5, 31, 32, 33, 64, 96, 99])
@pytest.mark.parametrize("more", [1, 2, 40])
async def test_a_fork_knows_what_it_shares_however_deep(sessions: Sessions, shared: int, more: int) -> None:
    await said(sessions, chain(100), EDITS)
    fork = chain(shared + more, other_from=shared)
    session = await said(sessions, fork)
    assert (session.status, session.known_messages) == ("fork", shared)
    for told in (fork, chain(100)):
        again = await sessions.load("acme", "chat", told)
        assert (again.status, again.known_messages, again.memory) == ("known", len(told), EDITS)
    deeper = await sessions.load("acme", "chat", chain(90, other_from=min(shared, 89)))
    assert deeper.known_messages >= min(shared, 89), "a fork has all of what it shares, in its own place"


async def test_a_turn_of_many_messages_is_found_too(sessions: Sessions) -> None:
    await said(sessions, chain(20))
    assert (await said(sessions, chain(120))).known_messages == 20
    assert (await sessions.load("acme", "chat", chain(121))).known_messages == 120


async def test_what_leaves_is_what_is_new(sessions: Sessions) -> None:
    """However long a conversation is, a turn costs the wire the same."""
    costs = []
    for count in (20, 200, 2000):
        await said(sessions, chain(count), EDITS)
        told = chain(count + 2)
        session = await sessions.load("acme", "chat", told)
        costs.append((on_the_wire(loading("acme", "chat", told)), on_the_wire(saving(session, Progress(told), LIMITS))))
    assert max(load for load, _ in costs) - min(load for load, _ in costs) <= 2
    assert max(load for load, _ in costs) < 330
    assert max(save for _, save in costs) < 220


@pytest.mark.parametrize("known", [1, 20, 32, 33, 70])
async def test_a_session_evicted_meanwhile_begins_with_what_is_new(
    sessions: Sessions, store: Store, known: int
) -> None:
    await said(sessions, chain(known), EDITS)
    told = chain(known + 3)
    session = await sessions.load("acme", "chat", told)
    await store.command("ZREM", "kvgate:1:{acme}:sessions", "chat")
    saved = await sessions.save(session, Progress(told), LIMITS)
    assert saved == Saved("begun", 0, 1)
    again = await sessions.load("acme", "chat", chain(known + 5))
    assert (again.status, again.known_messages, again.memory) == ("known", known + 3, b"")
    other = await sessions.load("acme", "chat", chain(known + 6, other_from=known + 2))
    assert other.known_messages in (0, known + 2), "unknown at worst, never wrong"
    assert (await sessions.load("acme", "chat", chain(2, other_from=0))).status == "new"


async def test_the_place_of_an_old_branch_is_left_clean(sessions: Sessions, store: Store) -> None:
    await said(sessions, chain(100), EDITS)
    for number in range(32):
        await said(sessions, Chain(of_messages(b"%d.%d" % (number, n) for n in range(3))))
    stored = await fields(store)
    assert sorted(name for name in stored if name.startswith("c")) == sorted(f"c{number}.0" for number in range(32))
    assert not [name for name in stored if name.startswith("e")]
