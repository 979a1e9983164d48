"""Sessions on a real server: continuing, forking, merging, expiring, making room."""

import asyncio
import itertools
import random
import string
import time

import pytest
from redis.crc import key_slot

from gateway.digests import Chain, of_messages
from gateway.sessions import Other, Progress, Saved, Session, SessionLimits, Sessions, saving
from gateway.store import Store

LIMITS = SessionLimits()
KEY = "kvgate:1:{acme}:s:chat"


@pytest.fixture
def sessions(store: Store) -> Sessions:
    return Sessions(store)


def chain(text: str) -> Chain:
    """The chain of a conversation whose messages are single letters."""
    return Chain(of_messages(letter.encode() for letter in text))


def in_common(one: str, other: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


async def say(sessions: Sessions, text: str, id: str = "chat", limits: SessionLimits = LIMITS) -> Saved:
    """One whole call: load, then save what was loaded."""
    session = await sessions.load("acme", id, chain(text))
    saved = await sessions.save(session, Progress(chain(text), memory=text.encode()), limits)
    assert saved is not None
    return saved


async def test_an_unknown_session_is_new_and_writes_nothing(sessions: Sessions, store: Store) -> None:
    session = await sessions.load("acme", "chat", chain("ab"))
    assert session == Session("acme", "chat", "new", read_ms=session.read_ms)
    assert await store.command("DBSIZE") == 0


async def test_the_next_turn_knows_the_last_one(sessions: Sessions) -> None:
    first = await sessions.load("acme", "chat", chain("a"))
    progress = Progress(
        chain("a"), tokens=(7,), roles=("user",), memory=b"m1", home="r1", prompt_tokens=7, kv_read_bytes=10**15
    )
    assert await sessions.save(first, progress, LIMITS) == Saved("begun", 0, 1)
    second = await sessions.load("acme", "chat", chain("abc"))
    assert (second.status, second.known_messages, second.branch, second.revision) == ("known", 1, 0, 1)
    assert (second.memory, second.home, second.turns, second.calls) == (b"m1", "r1", 1, 1)
    assert (second.prompt_tokens, second.kv_read_bytes) == (7, 10**15)
    assert second.age_seconds >= second.idle_seconds >= 0
    more = Progress(chain("abc"), memory=b"m2", home="r2", prompt_tokens=9, kv_read_bytes=1, begins_turn=False)
    assert await sessions.save(second, more, LIMITS) == Saved("extended", 0, 2)
    third = await sessions.load("acme", "chat", chain("abcd"))
    assert (third.known_messages, third.memory, third.home) == (3, b"m2", "r2")
    assert (third.turns, third.calls, third.prompt_tokens, third.kv_read_bytes) == (1, 2, 16, 10**15 + 1)


async def test_another_conversation_under_the_same_id_is_not_taken_for_it(sessions: Sessions) -> None:
    await say(sessions, "abc")
    assert (await sessions.load("acme", "chat", chain("xyz"))).status == "new"
    assert (await sessions.load("other", "chat", chain("abcd"))).status == "new"
    assert await say(sessions, "xyz") == Saved("forked", 1, 1)
    for text, branch in (("abcd", 0), ("xyzw", 1)):
        session = await sessions.load("acme", "chat", chain(text))
        assert (session.status, session.branch, session.memory) == ("known", branch, text[:3].encode())


async def test_an_edited_message_is_a_fork_that_knows_what_it_shares(sessions: Sessions) -> None:
    await say(sessions, "abcdefgh")
    for shared in range(1, 8):
        session = await sessions.load("acme", "chat", chain("abcdefgh"[:shared] + "XY"))
        assert (session.status, session.known_messages, session.memory) == ("fork", shared, b"abcdefgh")


async def test_each_branch_is_found_by_its_own_messages(sessions: Sessions) -> None:
    await say(sessions, "ab")
    await say(sessions, "aX")
    await say(sessions, "abcd")
    session = await sessions.load("acme", "chat", chain("abcdef"))
    assert (session.branch, session.known_messages) == (0, 4)
    assert (await sessions.load("acme", "chat", chain("aXY"))).branch == 1


async def test_a_repeated_call_adds_no_branch(sessions: Sessions) -> None:
    await say(sessions, "abc")
    assert await say(sessions, "abc") == Saved("extended", 0, 2)
    early = await sessions.load("acme", "late", chain("ab"))
    assert await say(sessions, "abc", "late") == Saved("begun", 0, 1)
    assert await say(sessions, "abc", "late") == Saved("extended", 0, 2)
    held = await sessions.save(early, Progress(chain("ab"), memory=b"ab"), LIMITS)
    assert held is not None
    assert (held.status, held.branch, held.revision) == ("held", 0, 3)
    assert held.other == Other(2, b"abc"), "what a longer conversation remembers is not replaced by its beginning's"
    session = await sessions.load("acme", "late", chain("abcd"))
    assert (session.known_messages, session.memory, session.calls) == (3, b"abc", 3)


@pytest.mark.parametrize("length", [3, 20, 32, 50, 64])
async def test_who_goes_the_same_way_again_has_edits_of_its_own(sessions: Sessions, length: int) -> None:
    """A conversation that lies inside a longer branch, and is continued as that was: each turn goes on with its own."""
    text = "".join(chr(0x4E00 + at) for at in range(100))
    await say(sessions, text[:90])
    first = await sessions.load("acme", "chat", chain(text[:length]))
    assert (first.status, first.branch, first.known_messages) == ("fork", 0, length)
    assert (await say(sessions, text[:length])).status == "forked"
    for more in range(length + 2, 88, 7):
        session = await sessions.load("acme", "chat", chain(text[:more]))
        assert (session.status, session.branch, session.known_messages) == ("known", 1, length)
        assert session.memory == text[:length].encode()
        assert (await say(sessions, text[:more])).status == "extended"
        length = more
    longer = await sessions.load("acme", "chat", chain(text))
    assert (longer.status, longer.branch, longer.known_messages) == ("known", 0, 90)
    other = await sessions.load("acme", "chat", chain(text[:60] + "X"))
    assert (other.status, other.known_messages) == ("fork", 60)


async def test_without_edits_of_its_own_it_gets_no_branch(sessions: Sessions) -> None:
    await say(sessions, "abcdef")
    session = await sessions.load("acme", "chat", chain("abc"))
    saved = await sessions.save(session, Progress(chain("abc")), LIMITS)
    assert saved is not None
    assert (saved.status, saved.branch) == ("held", 0)


async def test_who_idled_out_is_on_no_list(sessions: Sessions, store: Store) -> None:
    """Also while others keep the list itself."""
    for id in ("first", "second", "third"):
        saved = await say(sessions, "a", id, SessionLimits(idle_seconds=0.3))
        await asyncio.sleep(0.2 if id != "third" else 0)
    listed = await store.command("ZRANGE", "kvgate:1:{acme}:sessions", 0, -1)
    assert isinstance(listed, list)
    assert b"first" not in listed
    assert saved.live < 3


async def test_what_was_deleted_after_a_call_would_have_been_read_is_not_written_however_late(
    sessions: Sessions, store: Store
) -> None:
    """Seconds later too; and what was deleted before has begun anew."""
    deleted, now_ms = "kvgate:1:{acme}:deleted", round(1000 * time.time())
    unread = Session("acme", "chat", "unread", unread_at=100.0)
    written = []
    for deleted_seconds_ago in (5, 60):
        await store.command("ZADD", deleted, now_ms - 1000 * deleted_seconds_ago, "chat")
        saved = await store.ask(saving(unread, Progress(chain("ab")), LIMITS, 130.0))
        written.append(saved.status)
    assert written == ["deleted", "begun"]


async def test_of_more_than_thirty_two_forks_those_used_last_are_left(sessions: Sessions) -> None:
    letters = string.ascii_letters[:32]
    for letter in letters:
        await say(sessions, "." + letter)
        await asyncio.sleep(0.002)  # the server's clock tells them apart by milliseconds
    await say(sessions, ".a!")
    await asyncio.sleep(0.002)
    assert (await say(sessions, ".9")).branch == 1
    assert (await sessions.load("acme", "chat", chain(".bx"))).status == "fork"
    for letter in (*letters[2:], "9"):
        assert (await sessions.load("acme", "chat", chain(f".{letter}"))).status == "known"
    assert (await sessions.load("acme", "chat", chain(".a!"))).status == "known"


async def test_each_of_many_branches_goes_on_and_forks_by_itself(sessions: Sessions) -> None:
    """Twenty agents with the same task at once."""
    letters = string.ascii_lowercase[:20]
    for turn in range(4):
        for letter in letters:
            saved = await say(sessions, "the task" + letter * (1 + 3 * turn))
            assert saved.status == ("extended" if turn else "begun" if letter == "a" else "forked")
    for letter in letters:
        session = await sessions.load("acme", "chat", chain("the task" + letter * 7 + "!?"))
        assert (session.status, session.known_messages) == ("fork", 15)
        assert session.memory == ("the task" + letter * 10).encode()
        session = await sessions.load("acme", "chat", chain("the task" + letter * 30))
        assert (session.status, session.known_messages) == ("known", 18)
        assert session.memory == ("the task" + letter * 10).encode()


@pytest.mark.parametrize("seed", range(6))
async def test_of_many_branches_the_one_that_shares_most_is_found(sessions: Sessions, seed: int) -> None:
    """Also by the few links that are sent at first, and while each is saved."""
    generator = random.Random(seed)
    texts = ["a"]
    while len(texts) < 30:
        start = generator.choice(texts)
        start = start[: generator.randint(1, len(start))]
        texts.append(start + "".join(generator.choices("ab", k=generator.randint(1, 30))))
    for text in texts:
        await say(sessions, text)
    for _ in range(60):
        start = generator.choice(texts)
        asked = start[: generator.randint(1, len(start))] + "".join(generator.choices("ab", k=generator.randint(0, 20)))
        session = await sessions.load("acme", "chat", chain(asked))
        most = max(in_common(asked, text) for text in texts)
        if most == len(asked) and asked not in texts:
            assert session.status == "known" or session.known_messages == most
            continue  # inside a longer one: one of its own may go before
        assert session.known_messages == most
        assert session.status == ("known" if session.memory.decode() == asked[:most] else "fork")
        assert session.memory.decode()[:most] == asked[:most]


@pytest.mark.parametrize("seed", range(8))
async def test_turns_at_the_same_time_never_lose_each_other(sessions: Sessions, seed: int) -> None:
    """Calls that all loaded before any saved, saved in any order: each conversation is known afterwards."""
    texts = ["ab", "abcd", "abX", "aY", "abcdef", "abcdeZ"]
    await say(sessions, "a")
    loaded = [(text, await sessions.load("acme", "chat", chain(text))) for text in texts]
    random.Random(seed).shuffle(loaded)
    saved = await asyncio.gather(
        *(sessions.save(session, Progress(chain(text), memory=text.encode()), LIMITS) for text, session in loaded)
    )
    assert all(saved)
    for text in texts:
        session = await sessions.load("acme", "chat", chain(text + "n"))
        assert session.known_messages == len(text), text


async def test_every_order_of_three_concurrent_turns(sessions: Sessions) -> None:
    for number, order in enumerate(itertools.permutations(["abc", "abcde", "abX"])):
        id = f"order-{number}"
        await say(sessions, "a", id)
        loaded = [(text, await sessions.load("acme", id, chain(text))) for text in order]
        for text, session in loaded:
            await sessions.save(session, Progress(chain(text)), LIMITS)
        for text in order:
            assert (await sessions.load("acme", id, chain(text + "n"))).known_messages == len(text)


async def test_a_session_that_was_not_read_is_not_written(sessions: Sessions, store: Store) -> None:
    assert await sessions.save(Session("acme", "chat", "unread"), Progress(chain("a")), LIMITS) is None
    assert await store.command("DBSIZE") == 0


async def test_both_lifetimes_are_set(sessions: Sessions, store: Store) -> None:
    await say(sessions, "a", limits=SessionLimits(idle_seconds=100, absolute_seconds=1000))
    left = await store.command("PTTL", KEY)
    assert isinstance(left, int)
    assert 90_000 < left <= 100_000
    await store.command("HINCRBY", KEY, "begun", -950_000)
    await say(sessions, "ab", limits=SessionLimits(idle_seconds=100, absolute_seconds=1000))
    left = await store.command("PTTL", KEY)
    assert isinstance(left, int)
    assert 40_000 < left <= 50_000


async def test_a_session_past_its_lifetime_begins_anew(sessions: Sessions, store: Store) -> None:
    await say(sessions, "a")
    await store.command("HINCRBY", KEY, "begun", -int(LIMITS.absolute_seconds * 1000))
    assert await say(sessions, "ab") == Saved("begun", 0, 1)


async def test_the_longest_idle_sessions_make_room(sessions: Sessions, store: Store) -> None:
    limits = SessionLimits(live_sessions=3)
    for number in range(5):
        await say(sessions, "a", f"chat-{number}", limits)
        await asyncio.sleep(0.002)
    statuses = [(await sessions.load("acme", f"chat-{n}", chain("ab"))).status for n in range(5)]
    assert statuses == ["new", "new", "known", "known", "known"]
    assert await store.command("DBSIZE") == 4, "three sessions and the list"


async def test_a_new_session_does_not_make_room_by_leaving(sessions: Sessions, store: Store) -> None:
    await store.command("ZADD", "kvgate:1:{acme}:sessions", 10**15, "from-a-clock-that-ran-ahead")
    await say(sessions, "a", limits=SessionLimits(live_sessions=1))
    assert await store.command("ZRANGE", "kvgate:1:{acme}:sessions", 0, -1) == [b"chat"]


async def test_many_new_sessions_at_once_stay_within_the_cap(sessions: Sessions, store: Store) -> None:
    limits = SessionLimits(live_sessions=5)
    await asyncio.gather(*(say(sessions, "a", f"chat-{number}", limits) for number in range(40)))
    assert await store.command("ZCARD", "kvgate:1:{acme}:sessions") == 5
    assert await store.command("DBSIZE") == 6


async def test_an_evicted_session_is_gone_even_while_its_record_is_there(sessions: Sessions, store: Store) -> None:
    await say(sessions, "a")
    await store.command("ZREM", "kvgate:1:{acme}:sessions", "chat")
    assert (await sessions.load("acme", "chat", chain("ab"))).status == "new"
    assert await say(sessions, "xy") == Saved("begun", 0, 1)
    assert (await sessions.load("acme", "chat", chain("ab"))).status == "new"


async def test_what_was_read_before_a_deletion_is_not_written_after_it(sessions: Sessions, store: Store) -> None:
    """Calls under way, whether the session is there, has begun anew, or never was."""
    never = await sessions.load("acme", "chat", chain("a"))
    await say(sessions, "a")
    known = await sessions.load("acme", "chat", chain("ab"))
    assert await sessions.delete("acme", "chat")
    for session in (never, known):
        saved = await sessions.save(session, Progress(chain("ab"), memory=b"edits"), LIMITS)
        assert saved == Saved("deleted", -1, 0)
    assert await store.command("KEYS", "*") == [b"kvgate:1:{acme}:deleted"]
    await asyncio.sleep(0.002)  # the server's clock tells the deletion from what is read after it by milliseconds
    assert (await say(sessions, "xy")).status == "begun"
    assert (await sessions.save(known, Progress(chain("ab")), LIMITS)) == Saved("deleted", -1, 0)
    assert (await say(sessions, "xyz")).status == "extended"


async def test_deletions_are_remembered_for_a_day_and_the_latest_ten_thousand(sessions: Sessions, store: Store) -> None:
    deleted = "kvgate:1:{acme}:deleted"
    old = (await store.command("TIME"))[0]  # type: ignore[index]
    await store.command("ZADD", deleted, int(old) * 1000 - 25 * 3_600_000, "long-ago", key=deleted)
    await asyncio.gather(*(sessions.delete("acme", f"chat-{number}") for number in range(10_003)))
    assert await store.command("ZCARD", deleted, key=deleted) == 10_000
    assert await store.command("ZSCORE", deleted, "long-ago", key=deleted) is None
    left_ms = await store.command("PTTL", deleted, key=deleted)
    assert isinstance(left_ms, int) and 86_000_000 < left_ms <= 86_400_000


def test_all_keys_of_a_call_share_a_slot() -> None:
    keys = (KEY, "kvgate:1:{acme}:sessions", "kvgate:1:{acme}:deleted")
    assert len({key_slot(key.encode()) for key in keys}) == 1
