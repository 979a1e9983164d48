"""Originals of shortened outputs: whoever reads a handle in a prompt can have what it stands for, and nobody else."""

import base64
import itertools
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from gateway.embedded import EmbeddedServer
from gateway.store import Store
from gateway.texts import Place
from tests.fault.store_proxy import store_proxy
from tests.house import KEY, OTHER_KEY, House, gateway
from tests.integration.test_gateway_edits import ANSWER, LONG, asked, call, messages_of, result, wire
from tests.upstream import Upstream, answers, reply, upstream

ACME = Place("acme")
HANDLE = re.compile(r"kvo_[a-z2-7]{16}")
TURNS = re.compile(r"kvt_[a-z2-7]{16}")
STORE_KEYS = "k:" + base64.b64encode(bytes(32)).decode()
ROWS = json.dumps([{"id": number, "name": f"row {number} of the table"} for number in range(1_500)])
START = [wire("user", "Read the file."), call(1), result(1, LONG)]


@pytest.fixture
async def up() -> AsyncIterator[Upstream]:
    async with upstream(answers(reply(200, ANSWER))) as running:
        yield running


def keeping(data: dict[str, Any], **session: Any) -> None:
    policy = {"kind": "trim_tool_output", "max_tokens": 1_000, "keep_original": "24h"}
    data["tiers"]["standard"] |= {"policies": [policy], "session": session}


def unlimited(data: dict[str, Any]) -> None:
    """Budgets are SET too, and a session is not read without them."""
    keeping(data)
    data["tiers"]["standard"]["budgets"] = []


def tight(data: dict[str, Any]) -> None:
    keeping(data, stored_bytes=len(LONG) * 3 // 2)


async def artifact(house: House, handle: str, key: str = KEY, **query: str) -> httpx.Response:
    return await house.http.get(f"/artifacts/{handle}", params=query, headers={"authorization": f"Bearer {key}"})


def handles(body: bytes) -> list[str]:
    return HANDLE.findall(body.decode())


async def redeemed(house: House, up: Upstream) -> list[str]:
    """The handles of the last request; each is good for the very text that was shortened."""
    shown = handles(up.requests[-1].body)
    for handle in shown:
        answer = await artifact(house, handle)
        assert answer.status_code == 200, answer.text
    return shown


async def expire(store: Store, handle: str, left_ms: int = 0) -> None:
    """Let time pass for an original: the store's own clock cannot be moved."""
    key = ACME.key(f"o:{handle}")
    await store.command("PEXPIRE", key, max(1, left_ms), key=key)
    ends = await store.command("TIME")
    assert isinstance(ends, list)
    now_ms = int(ends[0]) * 1000 + int(ends[1]) // 1000
    await store.command("ZADD", ACME.texts[1], now_ms + left_ms, f"o:{handle}", key=key)


async def keys(store: Store) -> set[str]:
    found = await store.command("KEYS", "*")
    assert isinstance(found, list)
    return {key.decode() for key in found}


async def test_a_handle_gives_the_output_back_as_it_came(valkey: EmbeddedServer, up: Upstream) -> None:
    async with gateway({"any": {"one": up.url}}, valkey.url, keeping) as house:
        await asked(house, [*START, call(2), result(2, ROWS), call(3), result(3, "Zürich 🙂" + LONG)])
        shown = handles(up.requests[0].body)
        assert len(set(shown)) == 3
        for handle, original in zip(dict.fromkeys(shown), (LONG, ROWS, "Zürich 🙂" + LONG), strict=True):
            answer = await artifact(house, handle)
            assert answer.status_code == 200
            told = answer.json()
            assert (told["id"], told["object"], told["content"]) == (handle, "artifact", original)
            assert answer.headers["cache-control"] == "no-store"


async def test_parts_of_it_can_be_read(valkey: EmbeddedServer, up: Upstream) -> None:
    async with gateway({"any": {"one": up.url}}, valkey.url, keeping) as house:
        await asked(house, START)
        (handle,) = handles(up.requests[0].body)
        part = (await artifact(house, handle, start="100", characters="50")).json()
        assert (part["content"], part["start"], part["characters"]) == (LONG[100:150], 100, len(LONG))
        found = (await artifact(house, handle, contains="17: the")).json()
        assert found["content"].split("\n")[:2] == [
            "18: 17: the quick brown fox jumps over the lazy dog",
            "118: 117: the quick brown fox jumps over the lazy dog",
        ]
        assert (await artifact(house, handle, start="999999999")).json()["content"] == ""
        for wrong in ({"start": "-1"}, {"characters": "many"}, {"lines": "3"}):
            answer = await artifact(house, handle, **wrong)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(wrong)))


async def test_nobody_else_has_it(valkey: EmbeddedServer, up: Upstream) -> None:
    async with gateway({"any": {"one": up.url}}, valkey.url, keeping) as house:
        await asked(house, START)
        (handle,) = handles(up.requests[0].body)
        for written, key in ((handle, OTHER_KEY), ("kvo_" + "a" * 16, KEY), (handle + ":sessions", KEY), ("..", KEY)):
            answer = await artifact(house, written, key)
            assert answer.status_code == 404
            assert answer.json()["error"]["code"] in ("artifact_not_found", "unknown_url")
        assert (await artifact(house, handle, "sk-nobody")).status_code == 401
        assert (await house.http.delete(f"/artifacts/{handle}")).status_code == 405


async def test_turns_that_go_on_cost_no_more_trips_and_say_the_same(valkey: EmbeddedServer, up: Upstream) -> None:
    messages = list(START)
    async with gateway({"any": {"one": up.url}}, valkey.url, keeping) as house:
        trips = []
        for number in range(4):
            before = await house.metric("kvgate_store_calls_total")
            await asked(house, messages, session_id="chat")
            trips.append(await house.metric("kvgate_store_calls_total") - before)
            assert await redeemed(house, up)
            messages += [wire("assistant", f"Answer {number}."), wire("user", f"Question {number}?")]
        # What was learned of replies goes to the store every five seconds: that may fall into any turn.
        assert min(trips[1:]) < trips[0], "the first turn wrote the original"
    sent = [messages_of(request.body) for request in up.requests]
    for earlier, later in itertools.pairwise(sent):
        assert later[: len(earlier)] == earlier


async def test_a_fork_of_a_session_finds_its_originals(valkey: EmbeddedServer, up: Upstream) -> None:
    """Also where only the whole conversation tells that it is one."""
    messages = list(START)
    for number in range(20):
        messages += [wire("assistant", f"Answer {number}."), wire("user", f"Question {number}?")]
    async with gateway({"any": {"one": up.url}}, valkey.url, keeping) as house:
        await asked(house, messages, session_id="chat")
        await asked(house, [*messages[:5], wire("assistant", "Otherwise."), *messages[6:]], session_id="chat")
        assert await house.metric("kvgate_sessions_total", found="fork") == 1
        assert len(await redeemed(house, up)) == 1
        assert await house.metric("kvgate_originals_total", outcome="written") == 1, "by the first call only"


@pytest.mark.parametrize("left_ms", [0, 60_000])
async def test_what_has_expired_or_soon_will_is_kept_anew_and_shown_as_before(
    valkey: EmbeddedServer, store: Store, up: Upstream, left_ms: int
) -> None:
    messages = list(START)
    async with gateway({"any": {"one": up.url}}, valkey.url, keeping) as house:
        await asked(house, messages, session_id="chat")
        (handle,) = await redeemed(house, up)
        await expire(store, handle, left_ms)
        if not left_ms:
            answer = await artifact(house, handle)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "artifact_not_found")
        messages += [wire("assistant", "Yes."), wire("user", "And?")]
        await asked(house, messages, session_id="chat")
        assert await redeemed(house, up) == [handle]
        left = await store.command("PTTL", ACME.key(f"o:{handle}"), key=ACME.key(f"o:{handle}"))
        assert isinstance(left, int) and left > 24 * 3_600_000
    assert messages_of(up.requests[1].body)[:3] == messages_of(up.requests[0].body)


async def test_two_sessions_and_two_gateways_share_one_original(
    valkey: EmbeddedServer, store: Store, up: Upstream
) -> None:
    urls = {"any": {"one": up.url}}
    async with gateway(urls, valkey.url, keeping) as one, gateway(urls, valkey.url, keeping, flush=False) as two:
        await asked(one, START, session_id="one")
        await asked(two, START, session_id="two")
        (handle,) = {*await redeemed(one, up), *await redeemed(two, up)}
        assert up.requests[0].body.partition(b"]")[0] == up.requests[1].body.partition(b"]")[0], "one prefix"
        headers = {"authorization": f"Bearer {KEY}"}
        assert (await one.http.delete("/sessions/one", headers=headers)).status_code == 200
        assert (await artifact(two, handle)).status_code == 200, "it is the other session's too"
        assert (await two.http.delete("/sessions/two", headers=headers)).status_code == 200
        assert (await artifact(one, handle)).status_code == 404
    left = {key for key in await keys(store) if ":usage:" not in key}
    assert not [key for key in left if ":o:" in key or ":kept:" in key or ":texts" in key or ":s:" in key], left


async def test_a_session_that_is_gone_leaves_originals_that_can_be_deleted(
    valkey: EmbeddedServer, store: Store, up: Upstream
) -> None:
    async with gateway({"any": {"one": up.url}}, valkey.url, keeping) as house:
        await asked(house, START, session_id="chat")
        (handle,) = handles(up.requests[0].body)
        await store.command("DEL", ACME.key("s:chat"), ACME.key("sessions"), key=ACME.key("s:chat"))
        headers = {"authorization": f"Bearer {KEY}"}
        assert (await house.http.delete("/sessions/chat", headers=headers)).status_code == 200
        assert (await artifact(house, handle)).status_code == 404
        assert (await house.http.delete("/sessions/chat", headers=headers)).status_code == 404


@pytest.mark.parametrize("sealed", [False, True])
async def test_with_keys_the_store_holds_no_plain_text(
    valkey: EmbeddedServer, store: Store, up: Upstream, sealed: bool
) -> None:
    async with gateway(
        {"any": {"one": up.url}}, valkey.url, keeping, store_keys=STORE_KEYS if sealed else None
    ) as house:
        await asked(house, START, session_id="chat")
        (handle,) = await redeemed(house, up)
        stored = b"".join([await dumped(store, key) for key in await keys(store)])
        assert (b"quick brown fox" in stored) is not sealed
        await store.command("SET", ACME.key(f"o:{handle}"), b"\x01\x01kforged", key=ACME.key(f"o:{handle}"))
        assert (await artifact(house, handle)).status_code == 404
        assert await house.metric("kvgate_store_unopened_total", what="original") == 1


async def dumped(store: Store, key: str) -> bytes:
    """Everything under a key, whatever its type."""
    reading = {
        b"string": ("GET",),
        b"hash": ("HGETALL",),
        b"zset": ("ZRANGE", "0", "-1"),
        b"stream": ("XRANGE", "-", "+"),
    }
    kind = await store.command("TYPE", key, key=key)
    assert isinstance(kind, str | bytes)
    command, *rest = reading[kind.encode() if isinstance(kind, str) else kind]
    return repr(await store.command(command, key, *rest, key=key)).encode()


async def test_a_store_that_is_away_means_a_text_without_a_handle(valkey: EmbeddedServer, up: Upstream) -> None:
    messages = list(START)
    async with store_proxy(valkey.url) as proxy, gateway({"any": {"one": up.url}}, proxy.url, keeping) as house:
        await asked(house, messages, session_id="chat")
        (handle,) = await redeemed(house, up)
        proxy.away()
        messages += [wire("assistant", "Yes."), wire("user", "And?")]
        await asked(house, messages, session_id="chat")
        assert not handles(up.requests[-1].body) and b"not recoverable" in up.requests[-1].body
        assert (await artifact(house, handle)).json()["error"]["code"] == "store_unavailable"


async def test_an_original_that_cannot_be_written_is_not_promised(
    valkey: EmbeddedServer, store: Store, up: Upstream
) -> None:
    """The session can be read and the write is refused: an account that may not SET."""
    await store.command("ACL", "SETUSER", "reader", "reset", "on", ">pw", "~*", "+@all", "-set")
    try:
        url = valkey.url.replace("unix://", "unix://reader:pw@")
        async with gateway({"any": {"one": up.url}}, url, unlimited) as house:
            await asked(house, START, session_id="chat")
            assert not handles(up.requests[0].body) and b"not recoverable" in up.requests[0].body
            assert await house.metric("kvgate_originals_total", outcome="refused") == 1
            assert await house.metric("kvgate_context_edits_total", mode="enforce") == 1
    finally:
        await store.command("ACL", "DELUSER", "reader")


async def test_what_has_no_room_is_shown_without_a_handle(valkey: EmbeddedServer, store: Store, up: Upstream) -> None:
    """Room for one output and a half: of the handles that are shown each is good, turn after turn."""
    messages = list(START)
    async with gateway({"any": {"one": up.url}}, valkey.url, tight) as house:
        for number in range(2, 6):
            await asked(house, messages, session_id="chat")
            assert len(await redeemed(house, up)) == 1
            messages += [wire("assistant", "More."), call(number), result(number, f"{number}\n{LONG}")]
        size = await store.command("HGET", ACME.texts[2], "", key=ACME.texts[2])
        assert isinstance(size, bytes) and len(LONG) < int(size) <= len(LONG) * 3 // 2
        assert await house.metric("kvgate_stored_text_bytes", tenant="acme") == int(size)


async def test_another_session_that_needs_the_room_takes_it_from_the_idle_one(
    valkey: EmbeddedServer, up: Upstream
) -> None:
    messages = list(START)
    async with gateway({"any": {"one": up.url}}, valkey.url, tight) as house:
        await asked(house, messages, session_id="idle")
        (first,) = await redeemed(house, up)
        await asked(house, [wire("user", "Another."), call(1), result(1, "x" + LONG)], session_id="busy")
        (second,) = await redeemed(house, up)
        assert (await artifact(house, first)).status_code == 404 and first != second
        messages += [wire("assistant", "Yes."), wire("user", "And?")]
        await asked(house, messages, session_id="idle")
        assert await redeemed(house, up) == [first], "and comes back with its session, in the same bytes"
        assert (await artifact(house, second)).status_code == 404
    assert messages_of(up.requests[2].body)[:3] == messages_of(up.requests[0].body)


async def test_handles_in_force_hold_although_no_policy_keeps_any_more(valkey: EmbeddedServer, up: Upstream) -> None:
    messages = list(START)
    urls = {"any": {"one": up.url}}
    async with gateway(urls, valkey.url, keeping) as house:
        await asked(house, messages, session_id="chat")
    async with gateway(urls, valkey.url, flush=False) as house:
        for _ in range(2):
            messages += [wire("assistant", "Yes."), wire("user", "And?")]
            await asked(house, messages, session_id="chat")
            assert len(await redeemed(house, up)) == 1


def dropping(data: dict[str, Any], **session: Any) -> None:
    policy = {"kind": "keep_recent_turns", "turns": 2, "high_water_turns": 4, "keep_original": "24h"}
    data["tiers"]["standard"] |= {"policies": [policy], "session": session}


def question(at: int) -> str:
    return f"Question {at}? {LONG[:900]}"


def turns(count: int) -> list[bytes]:
    said = [(wire("user", question(at)), wire("assistant", f"Answer {at}.")) for at in range(count)]
    return [message for pair in said for message in pair][:-1]


async def test_turns_that_a_window_drops_can_be_read_again_under_one_handle(
    valkey: EmbeddedServer, up: Upstream
) -> None:
    async with gateway({"any": {"one": up.url}}, valkey.url, dropping) as house:
        shown: list[str] = []
        for count in range(5, 13):
            await asked(house, turns(count), session_id="chat")
            shown.append("".join(TURNS.findall(up.requests[-1].body.decode())))
            if shown[-1]:
                first, *_ = messages_of(up.requests[-1].body)
                assert json.loads(first)["content"].endswith(f"kept as {shown[-1]}]"), "behind the task"
                text = (await artifact(house, shown[-1])).json()["content"]
                gone = [at for at in range(count) if f"Question {at}?".encode() not in up.requests[-1].body]
                assert gone and text.count("[user]") == len(gone)
                assert all(question(at) in text for at in gone)
                found = (await artifact(house, shown[-1], contains=f"Question {gone[-1]}?")).json()["content"]
                assert found.partition(": ")[2].startswith(f"Question {gone[-1]}?")
        assert shown[0] == "" and len(set(shown)) == 4, "one handle from move to move"
        assert await house.metric("kvgate_context_violations_total") == 0
        assert (await artifact(house, shown[-1], OTHER_KEY)).status_code == 404
        headers = {"authorization": f"Bearer {KEY}"}
        assert (await house.http.delete("/sessions/chat", headers=headers)).status_code == 200
        assert {(await artifact(house, handle)).status_code for handle in set(shown) - {""}} == {404}


async def test_a_note_goes_on_where_a_part_was_lost_and_where_the_store_is_away_none_is_sent(
    valkey: EmbeddedServer, store: Store, up: Upstream
) -> None:
    many = [*turns(40)]
    async with store_proxy(valkey.url) as proxy, gateway({"any": {"one": up.url}}, proxy.url, dropping) as house:
        await asked(house, many, session_id="chat")
        (handle,) = TURNS.findall(up.requests[-1].body.decode())
        parts = [key.rpartition(":")[2] for key in await keys(store) if re.search(r":o:kvo_[a-z2-7]+$", key)]
        assert len(parts) == 3, "74 messages in parts of 32"
        await expire(store, parts[0])
        assert (await artifact(house, handle)).status_code == 404
        many += [wire("assistant", "Yes."), wire("user", "And?")]
        await asked(house, many, session_id="chat")
        assert TURNS.findall(up.requests[-1].body.decode()) == [handle], "written again, from the request"
        assert len((await artifact(house, handle)).json()["content"]) > 30_000
        proxy.away()
        await asked(house, [*many, wire("assistant", "Yes."), wire("user", "And?")], session_id="chat")
        assert b"kvt_" not in up.requests[-1].body


async def test_a_record_of_facts_names_what_it_stands_for(valkey: EmbeddedServer, up: Upstream) -> None:
    def recording(data: dict[str, Any]) -> None:
        marks = {"high_water_tokens": 1_500, "low_water_tokens": 700, "max_tokens": 256}
        policy = {"kind": "summarize_older_turns", "by": "facts", **marks, "keep_original": "1h"}
        data["tiers"]["standard"] |= {"policies": [policy]}

    async with gateway({"any": {"one": up.url}}, valkey.url, recording) as house:
        await asked(house, turns(9), session_id="chat")
        body = up.requests[-1].body.decode()
        (handle,) = set(TURNS.findall(body))
        assert f"left out here, kept as {handle}. It is kept as data" in body
        text = (await artifact(house, handle)).json()["content"]
        assert question(1) in text
        await asked(house, [*turns(9), wire("assistant", "Yes."), wire("user", "And?")], session_id="chat")
        later = messages_of(up.requests[-1].body)
        assert later[: len(messages_of(up.requests[-2].body))] == messages_of(up.requests[-2].body)


async def test_what_has_no_room_leaves_no_note(valkey: EmbeddedServer, up: Upstream) -> None:
    def full(data: dict[str, Any]) -> None:
        dropping(data, stored_bytes=2_000)

    async with gateway({"any": {"one": up.url}}, valkey.url, full) as house:
        await asked(house, turns(9), session_id="chat")
        assert b"kvt_" not in up.requests[-1].body and b"Question 3?" not in up.requests[-1].body
        await asked(house, [*turns(9), wire("assistant", "Yes."), wire("user", "And?")], session_id="chat")
        later = messages_of(up.requests[-1].body)
        assert later[: len(messages_of(up.requests[-2].body))] == messages_of(up.requests[-2].body)
