"""Histories on the gateway's side: a client sends what is new, the engine gets the whole conversation."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import httpx
import msgspec
import pytest
from openai import AsyncOpenAI
from redis.crc import key_slot

from gateway.embedded import EmbeddedServer
from gateway.histories import Key
from gateway.store import Store
from gateway.texts import Place
from tests.house import ANY, GENEROUS, KEY, OTHER_KEY, Change, House, gateway, house
from tests.upstream import CHUNKED, Peer, Upstream, answers, chunk, frame, reply, stalls_after, streams, upstream

Message = dict[str, Any]
HELLO: Message = {"role": "user", "content": "My name is Ada."}
NEXT: Message = {"role": "user", "content": "What is my name?"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at":"me"}'}}


def storing(data: dict[str, Any]) -> None:
    data["tiers"]["standard"]["session"] = {"history": "stored"}


def says(content: str | None, **fields: Any) -> bytes:
    """A whole reply of an engine, as vLLM writes it: with fields that say nothing."""
    nothing: Message = {"refusal": None, "annotations": None, "audio": None, "function_call": None, "tool_calls": []}
    message = {"role": "assistant", "content": content, **nothing, "reasoning": None} | fields
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "demo"}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return reply(200, msgspec.json.encode(body | {"choices": choices, "usage": usage}))


@asynccontextmanager
async def scripted(
    valkey: EmbeddedServer, *scripts: Any, change: Change = storing, **settings: Any
) -> AsyncIterator[tuple[House, Upstream]]:
    async with (
        upstream(*scripts) as up,
        gateway({"any": {"one": up.url}}, valkey.url, change, **settings) as running,
    ):
        yield running, up


async def told(
    running: House, messages: Sequence[Message], context: str | None = "stored", key: str = KEY, **fields: Any
) -> httpx.Response:
    """A call in the session `chat`, read to its end, its turn written."""
    headers = {"authorization": f"Bearer {key}", "x-session-id": "chat"}
    if context is not None:
        headers["x-context"] = context
    body = {"model": "demo", "messages": messages, "max_tokens": 8} | fields
    answer = await running.http.post("/chat/completions", json=body, headers=headers)
    await running.quiet()
    return answer


def sent(up: Upstream, number: int = -1) -> list[Message]:
    """The messages that the engine got with a call."""
    messages = msgspec.json.decode(up.requests[number].body)["messages"]
    assert isinstance(messages, list)
    return messages


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_the_engine_gets_what_a_client_with_a_memory_would_send(valkey: EmbeddedServer) -> None:
    async with scripted(valkey, answers(says("Hello, Ada.")), answers(says("Ada."))) as (running, up):
        first = await told(running, [HELLO], "stored; new")
        assert (first.status_code, first.headers["x-kvgate-history"]) == (200, "2")
        assert sent(up) == [HELLO]
        second = await told(running, [NEXT])
        assert (second.status_code, second.headers["x-kvgate-history"]) == (200, "4")
        assert sent(up) == [HELLO, {"role": "assistant", "content": "Hello, Ada."}, NEXT]
        third = await told(running, [{"role": "user", "content": "Thanks."}])
        assert third.headers["x-kvgate-history"] == "6"
        assert len(sent(up)) == 5 and sent(up)[3] == {"role": "assistant", "content": "Ada."}
        assert await running.metric("kvgate_sessions_total", found="known") == 2
        assert await running.metric("kvgate_histories_total", what="continued") == 2


async def test_a_streamed_reply_is_stored_as_a_whole_one(valkey: EmbeddedServer) -> None:
    frames = [frame(""), *map(frame, ("Hel", "lo, ", "Zoë 🙂.")), frame(finish="stop"), b"data: [DONE]\n\n"]
    whole = answers(says("Hello, Zoë 🙂."))
    for script, stream in ((streams(*frames), True), (whole, False)):
        async with scripted(valkey, script, whole) as (running, up):
            await told(running, [HELLO], "stored; new", stream=stream)
            await told(running, [NEXT])
            assert sent(up) == [HELLO, {"role": "assistant", "content": "Hello, Zoë 🙂."}, NEXT]


async def test_a_client_answers_a_call_by_its_result_alone(valkey: EmbeddedServer) -> None:
    calls = answers(says(None, tool_calls=[CALL], reasoning="It asks for a look."))
    async with scripted(valkey, calls, answers(says("You are Ada."))) as (running, up):
        await told(running, [HELLO], "stored; new")
        result = {"role": "tool", "tool_call_id": "call_1", "content": "Ada"}
        assert (await told(running, [result])).status_code == 200
        call = {"role": "assistant", "content": None, "reasoning": "It asks for a look.", "tool_calls": [CALL]}
        assert sent(up) == [HELLO, call, result]


async def test_what_is_not_there_is_said_and_never_taken_for_empty(valkey: EmbeddedServer) -> None:
    async with scripted(valkey, answers(says("Hello."))) as (running, up):
        assert refusal(await told(running, [NEXT])) == (404, "history_not_found")
        assert refusal(await told(running, [NEXT], "stored; at=2")) == (404, "history_not_found")
        assert up.requests == []
        await told(running, [HELLO], "stored; new")
        again = await told(running, [HELLO], "stored; new")
        assert refusal(again) == (409, "history_exists")
        assert again.json()["error"]["stored_messages"] == 2
        assert again.headers["x-should-retry"] == "false"
        moved = await told(running, [NEXT], "stored; at=4")
        assert (refusal(moved), moved.json()["error"]["stored_messages"]) == ((409, "history_moved"), 2)
        assert (await told(running, [NEXT], "stored; at=2")).status_code == 200
        assert refusal(await told(running, [NEXT], "stored; at=2")) == (409, "history_moved"), "sent twice, stored once"
        other = await told(running, [NEXT], key=OTHER_KEY)
        assert refusal(other) == (404, "history_not_found"), "another tenant's is not there"
        assert len(up.requests) == 2


async def test_what_an_sdk_sends_again_by_itself_is_not_stored_twice(valkey: EmbeddedServer) -> None:
    """It does so when a connection breaks, and cannot know that all but its end had arrived."""
    async with scripted(valkey, answers(says("Fine."))) as (running, up):
        auth = {"authorization": f"Bearer {KEY}", "x-session-id": "chat", "x-context": "stored"}
        body = {"model": "demo", "messages": [NEXT]}
        await told(running, [HELLO], "stored; new")
        first = await running.http.post("/chat/completions", json=body, headers=auth)
        await running.quiet()
        again = await running.http.post("/chat/completions", json=body, headers=auth | {"x-stainless-retry-count": "1"})
        assert (refusal(again), again.json()["error"]["stored_messages"]) == ((409, "history_moved"), 4)
        assert (first.status_code, len(up.requests)) == (200, 2)
        said = await running.http.post("/chat/completions", json=body, headers=auth | {"x-stainless-retry-count": "0"})
        assert said.status_code == 200, "a user may well say the same twice"
        await running.quiet()
        other = {"model": "demo", "messages": [{"role": "user", "content": "And this?"}]}
        late = await running.http.post("/chat/completions", json=other, headers=auth | {"x-stainless-retry-count": "2"})
        assert late.status_code == 200, "what never arrived is no repetition"


@pytest.mark.parametrize("context", ["", "kept", "stored; old", "stored; at=", "stored; at=x", "stored new", "new"])
async def test_a_wish_that_is_not_understood_is_refused(valkey: EmbeddedServer, context: str) -> None:
    async with scripted(valkey, answers(says("Hello."))) as (running, up):
        answer = await told(running, [HELLO], context)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "X-Context")
        assert up.requests == []


async def test_where_it_does_not_go_it_is_refused(valkey: EmbeddedServer) -> None:
    auth = {"authorization": f"Bearer {KEY}", "x-context": "stored; new"}
    body = {"model": "demo", "messages": [HELLO]}
    async with scripted(valkey, answers(says("Hello."))) as (running, up):
        for id in ("", "a b", "x" * 257, "parent|agent"):
            answer = await running.http.post("/chat/completions", json=body, headers=auth | {"x-session-id": id})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "X-Session-Id")
        for path, more in (("/completions", {"prompt": "Hi"}), ("/embeddings", {"input": "Hi"})):
            answer = await running.http.post(path, json={"model": "demo"} | more, headers=auth | {"x-session-id": "a"})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "X-Context")
        assert (await told(running, [HELLO], "stored; new", n=2)).status_code == 400
        begun = await told(running, [HELLO, {"role": "assistant", "content": "Well, "}], "stored; new")
        assert begun.status_code == 400 and "assistant" in begun.json()["error"]["message"]
        assert up.requests == []
    async with scripted(valkey, answers(says("Hello.")), change=lambda data: None) as (running, up):
        for context in ("stored; new", "Stored", "stored; at=1"):
            answer = await told(running, [HELLO], context)
            assert (answer.status_code, up.requests) == (400, []), "not for a tier that does not store"
        assert (await told(running, [HELLO], "somebody else's header")).status_code == 200


@pytest.mark.parametrize("status", [400, 500])
async def test_a_turn_that_failed_leaves_the_history_as_it_was(valkey: EmbeddedServer, status: int) -> None:
    fails = answers(reply(status, b'{"error":{"message":"no"}}'))
    async with scripted(valkey, fails) as (running, up):
        assert (await told(running, [HELLO], "stored; new")).status_code >= 400
        up.scripts[:] = [answers(says("Hello."))]
        assert (await told(running, [HELLO], "stored; new")).status_code == 200, "it never began"
        up.scripts[:] = [fails]
        assert (await told(running, [NEXT])).status_code >= 400
        up.scripts[:] = [answers(says("Ada."))]
        assert (await told(running, [NEXT], "stored; at=2")).status_code == 200
        assert [message["content"] for message in sent(up)] == [HELLO["content"], "Hello.", NEXT["content"]]


async def test_a_turn_whose_client_left_can_be_sent_again(valkey: EmbeddedServer) -> None:
    stalls = stalls_after(CHUNKED, chunk(frame("one")))
    async with scripted(valkey, answers(says("Hello.")), stalls, answers(says("Ada."))) as (running, up):
        await told(running, [HELLO], "stored; new")
        body = msgspec.json.encode({"model": "demo", "messages": [NEXT], "stream": True})
        lines = [f"authorization: Bearer {KEY}", "x-session-id: chat", "x-context: stored"]
        reader, writer = await running.send_raw(body, *lines)
        await reader.readuntil(b"one")
        busy = await running.http.post(
            "/chat/completions",
            json={"model": "demo", "messages": [NEXT]},
            headers={"authorization": f"Bearer {KEY}", "x-session-id": "chat", "x-context": "stored"},
        )
        assert (refusal(busy), busy.headers["retry-after"]) == ((409, "history_busy"), "1")
        writer.close()
        await running.quiet()
        assert (await told(running, [NEXT])).status_code == 200
        assert [message["content"] for message in sent(up)] == [HELLO["content"], "Hello.", NEXT["content"]]


async def test_a_stream_that_broke_off_is_not_stored(valkey: EmbeddedServer) -> None:
    error = b'data: {"error":{"message":"out of memory"}}\n\n'
    for script in (streams(frame("one"), error), streams(frame("one"))):
        async with scripted(valkey, answers(says("Hello.")), script, answers(says("Ada."))) as (running, up):
            await told(running, [HELLO], "stored; new")
            await told(running, [NEXT], stream=True)
            await told(running, [NEXT], "stored; at=2")
            assert [message["content"] for message in sent(up)] == [HELLO["content"], "Hello.", NEXT["content"]]


async def test_a_reply_that_cannot_be_read_is_no_reason_to_go_on(valkey: EmbeddedServer) -> None:
    strange = answers(reply(200, b'{"choices":[]}'))
    async with scripted(valkey, answers(says("Hello.")), strange, answers(says("Ada."))) as (running, _):
        await told(running, [HELLO], "stored; new")
        assert (await told(running, [NEXT])).status_code == 200
        unsure = await told(running, [NEXT])
        assert (refusal(unsure), unsure.json()["error"]["stored_messages"]) == ((409, "history_unsettled"), 2)
        assert "at=2" in unsure.json()["error"]["message"]
        assert (await told(running, [NEXT], "stored; at=2")).status_code == 200
        assert (await told(running, [NEXT])).status_code == 200, "settled"


async def test_policies_and_budgets_see_the_whole_conversation(valkey: EmbeddedServer) -> None:
    def bounded(data: dict[str, Any]) -> None:
        storing(data)
        tier = data["tiers"]["standard"]
        tier["policies"] = [{"kind": "keep_recent_turns", "turns": 1, "high_water_turns": 2}]
        tier["context"] = {"limit_tokens": 400}

    async with scripted(valkey, answers(says("Fine.")), change=bounded) as (running, up):
        await told(running, [{"role": "system", "content": "Be brief."}, HELLO], "stored; new")
        for number in range(4):
            answer = await told(running, [{"role": "user", "content": f"{number}. And on."}])
            assert answer.status_code == 200
        assert "edits=1" in answer.headers["x-kvgate-context"]
        contents = [message["content"] for message in sent(up)]
        assert contents[:3] == ["Be brief.", HELLO["content"], "Fine."], "instructions and the task stay"
        assert contents[-1] == "3. And on." and len(contents) < 10
        long = await told(running, [{"role": "user", "content": "word " * 1000}])
        assert refusal(long) == (400, "context_length_exceeded")
        assert (await told(running, [NEXT], "stored; at=11")).status_code == 200, "and the history is as it was"


async def test_a_dry_run_sees_the_history_and_leaves_it_alone(valkey: EmbeddedServer) -> None:
    async with scripted(valkey, answers(says("Hello."))) as (running, up):
        await told(running, [HELLO], "stored; new")
        dry = {"authorization": f"Bearer {KEY}", "x-session-id": "chat", "x-kvgate-dry-run": "1"}
        for context in ("stored", "stored; at=2"):
            body = {"model": "demo", "messages": [NEXT]}
            shown = await running.http.post("/chat/completions", json=body, headers=dry | {"x-context": context})
            assert shown.json()["session"] == {"status": "known", "known_messages": 1}
            await running.quiet()
        assert (await told(running, [NEXT], "stored; at=2")).status_code == 200
        assert len(up.requests) == 2


async def test_a_turn_that_a_budget_denies_is_none(valkey: EmbeddedServer) -> None:
    def few(data: dict[str, Any]) -> None:
        storing(data)
        data["tiers"]["standard"]["budgets"] = [GENEROUS | {"name": "rate", "dimension": "requests", "amount": 1}]

    async with scripted(valkey, answers(says("Hello.")), change=few) as (running, up):
        await told(running, [HELLO], "stored; new")
        for _ in range(2):
            assert (await told(running, [NEXT])).status_code == 429, "and not busy, the second time"
        assert len(up.requests) == 1


async def test_what_is_too_large_is_refused_before_it_is_sent(valkey: EmbeddedServer) -> None:
    def small(data: dict[str, Any]) -> None:
        data["tiers"]["standard"]["session"] = {"history": "stored", "history_bytes": 1000}

    async with scripted(valkey, answers(says("Hello.")), change=small) as (running, up):
        await told(running, [HELLO], "stored; new")
        full = await told(running, [{"role": "user", "content": "x" * 1000}])
        assert (refusal(full), full.json()["error"]["limit"]) == ((413, "history_full"), 1000)
        assert (await told(running, [NEXT])).status_code == 200
        assert len(up.requests) == 2


async def test_text_beyond_the_tenant_s_cap_goes_and_is_not_found(valkey: EmbeddedServer) -> None:
    def small(data: dict[str, Any]) -> None:
        storing(data)
        data["tiers"]["standard"]["session"] |= {"history_bytes": 3000, "stored_bytes": 3000}

    async with scripted(valkey, answers(says("Hello.")), change=small) as (running, _):
        await told(running, [{"role": "user", "content": "x" * 2000}], "stored; new")
        headers = {"authorization": f"Bearer {KEY}", "x-session-id": "other", "x-context": "stored; new"}
        body = {"model": "demo", "messages": [{"role": "user", "content": "y" * 2000}]}
        assert (await running.http.post("/chat/completions", json=body, headers=headers)).status_code == 200
        await running.quiet()
        assert refusal(await told(running, [NEXT])) == (404, "history_not_found")
        assert await running.metric("kvgate_stored_texts_evicted_total") == 1


async def test_a_session_that_makes_room_takes_its_history_along(valkey: EmbeddedServer, store: Store) -> None:
    def one(data: dict[str, Any]) -> None:
        storing(data)
        data["tiers"]["standard"]["session"] |= {"max_sessions": 1}

    async with scripted(valkey, answers(says("Hello.")), change=one) as (running, _):
        await told(running, [HELLO], "stored; new")
        headers = {"authorization": f"Bearer {KEY}", "x-session-id": "other"}
        await running.http.post("/chat/completions", json={"model": "demo", "messages": [HELLO]}, headers=headers)
        await running.quiet()
        assert await store.command("EXISTS", "kvgate:1:{acme}:h:chat") == 0
        assert refusal(await told(running, [NEXT])) == (404, "history_not_found")


async def test_deleting_a_session_deletes_its_text(valkey: EmbeddedServer, store: Store) -> None:
    async with scripted(valkey, answers(says("Hello.")), store_keys=None) as (running, _):
        await told(running, [HELLO], "stored; new")
        assert await store.command("EXISTS", "kvgate:1:{acme}:h:chat") == 1
        auth = {"authorization": f"Bearer {KEY}"}
        assert (await running.http.delete("/sessions/chat", headers=auth)).status_code == 200
        assert await store.command("EXISTS", "kvgate:1:{acme}:h:chat") == 0
        assert await store.command("HGET", "kvgate:1:{acme}:texts:bytes", "h:chat") is None
        assert (await running.http.delete("/sessions/chat", headers=auth)).status_code == 404
        assert refusal(await told(running, [NEXT])) == (404, "history_not_found")
        assert (await told(running, [HELLO], "stored; new")).status_code == 200


async def test_a_client_reads_what_is_stored(valkey: EmbeddedServer) -> None:
    """As it must where it is not certain that its last turn is: also while another one is under way."""
    reads: list[httpx.Response] = []
    auth = {"authorization": f"Bearer {KEY}"}

    async def looks(peer: Peer) -> None:
        reads.append(await running.http.get("/sessions/chat", headers=auth))
        await peer.send(says("Ada."))

    async with scripted(valkey, answers(says("Hello.")), looks) as (running, _):
        missing = await running.http.get("/sessions/chat", headers=auth)
        assert refusal(missing) == (404, "history_not_found")
        await told(running, [HELLO], "stored; new")
        await told(running, [NEXT])
        reads.append(await running.http.get("/sessions/chat", headers=auth))
        assert [read.json()["stored_messages"] for read in reads] == [2, 4]
        reply = {"role": "assistant", "content": "Ada."}
        assert reads[1].json()["messages"] == [HELLO, {"role": "assistant", "content": "Hello."}, NEXT, reply]
        assert reads[1].headers["cache-control"] == "no-store"
        others = await running.http.get("/sessions/chat", headers={"authorization": f"Bearer {OTHER_KEY}"})
        assert refusal(others) == (404, "history_not_found")
        assert (await running.http.get("/sessions/chat")).status_code == 401
        assert (await running.http.get("/sessions/a%20b", headers=auth)).status_code == 404


KEYS = "one:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="


async def test_text_is_sealed_and_an_unreadable_history_is_said_to_be(valkey: EmbeddedServer, store: Store) -> None:
    async with scripted(valkey, answers(says("Hello, Ada.")), store_keys=KEYS) as (running, _):
        await told(running, [HELLO], "stored; new")
        stored = await store.command("HGETALL", "kvgate:1:{acme}:h:chat")
        assert isinstance(stored, list) and b"Ada" not in b"".join(stored)
    async with scripted(valkey, answers(says("Hello.")), flush=False) as (running, up):
        for _ in range(2):
            assert refusal(await told(running, [NEXT])) == (409, "history_unreadable")
        read = await running.http.get("/sessions/chat", headers={"authorization": f"Bearer {KEY}"})
        assert refusal(read) == (409, "history_unreadable")
        assert up.requests == []


async def test_both_lifetimes_hold_for_a_history(valkey: EmbeddedServer, store: Store) -> None:
    def short(data: dict[str, Any]) -> None:
        storing(data)
        data["tiers"]["standard"]["session"] |= {"ttl": "100s", "absolute_ttl": "1000s"}

    key = "kvgate:1:{acme}:h:chat"
    async with scripted(valkey, answers(says("Hello.")), change=short) as (running, _):
        await told(running, [HELLO], "stored; new")
        left = await store.command("PTTL", key)
        assert isinstance(left, int) and 60_000 < left <= 100_000
        await store.command("HINCRBY", key, "begun", -950_000)
        await told(running, [NEXT])
        left = await store.command("PTTL", key)
        assert isinstance(left, int) and 1 < left <= 50_000
        await store.command("HINCRBY", key, "begun", -950_000)
        await told(running, [NEXT])
        await asyncio.sleep(0.01)
        assert refusal(await told(running, [NEXT])) == (404, "history_not_found")


async def test_a_conversation_on_two_gateways_by_the_openai_sdk(valkey: EmbeddedServer) -> None:
    """Against emulated engines: each turn's prompt is in the prefix cache but for what is new."""
    async with house(valkey.url, change=storing) as first:
        urls = {"any": {name: first.engines[name].url for name in ANY["any"]}}
        async with gateway(urls, valkey.url, storing, flush=False) as second:
            clients = [AsyncOpenAI(base_url=each.url, api_key=KEY, max_retries=0) for each in (first, second)]
            prompts = []
            for number in range(6):
                running, sdk = (first, second)[number % 2], clients[number % 2]
                extra = {"X-Session-Id": "sdk", "X-Context": "stored; new" if number == 0 else "stored"}
                content = f"{number}. " + "A sentence that fills some blocks. " * 20
                options: Any = {"model": "demo", "messages": [{"role": "user", "content": content}], "max_tokens": 16}
                if number % 3:
                    stream = await sdk.chat.completions.create(
                        **options, extra_headers=extra, stream=True, stream_options={"include_usage": True}
                    )
                    usage = [chunk.usage async for chunk in stream][-1]
                else:
                    usage = (await sdk.chat.completions.create(**options, extra_headers=extra)).usage
                await running.quiet()
                assert usage is not None and usage.prompt_tokens_details is not None
                prompts.append(usage.prompt_tokens)
                cached = usage.prompt_tokens_details.cached_tokens or 0
                assert number == 0 or cached > prompts[-2] - 32, "the reply was stored as the engine knows it"
            steps = [later - earlier for earlier, later in pairwise(prompts)]
            assert max(steps) - min(steps) <= 8, "linear: nothing lost, nothing twice"
            for sdk in clients:
                await sdk.close()


async def test_turns_at_the_same_time_are_one_after_the_other_or_refused(valkey: EmbeddedServer) -> None:
    async with house(valkey.url, change=storing) as first:
        urls = {"any": {name: first.engines[name].url for name in ANY["any"]}}
        async with gateway(urls, valkey.url, storing, flush=False) as second:
            second.engines = first.engines
            await told(first, [HELLO], "stored; new")
            calls = [told((first, second)[n % 2], [{"role": "user", "content": f"turn {n}"}]) for n in range(12)]
            found = await asyncio.gather(*calls)
            passed = [answer for answer in found if answer.status_code == 200]
            refused = {refusal(answer) for answer in found if answer.status_code != 200}
            assert passed and refused <= {(409, "history_busy")}
            counts = sorted(int(answer.headers["x-kvgate-history"]) for answer in passed)
            assert counts == list(range(4, 4 + 2 * len(passed), 2))
            last = await told(second, [NEXT], f"stored; at={counts[-1]}")
            assert last.headers["x-kvgate-history"] == str(counts[-1] + 2)


def test_all_keys_of_a_history_share_the_tenant_s_slot() -> None:
    for place in (Place("acme"), Place("acme", "group")):
        keys = (*Key(place, "chat").keys, place.key("s:chat"), place.key("sessions"))
        assert len({key_slot(key.encode()) for key in keys}) == 1


async def test_a_call_without_the_wish_leaves_the_history_alone(valkey: EmbeddedServer) -> None:
    async with scripted(valkey, answers(says("Hello."))) as (running, up):
        await told(running, [HELLO], "stored; new")
        plain = await told(running, [HELLO, NEXT], None)
        assert plain.status_code == 200 and "x-kvgate-history" not in plain.headers
        await told(running, [NEXT], "stored; at=2")
        assert len(sent(up)) == 3


LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


async def replied(sdk: AsyncOpenAI, messages: list[Message], extra: dict[str, str], *, stream: bool) -> Message:
    """One reply as the SDK puts it together, in the form in which a client sends it back."""
    options: Any = {"model": "demo", "messages": messages, "max_tokens": 2000, "tools": [LOOK], "extra_headers": extra}
    if not stream:
        reply = (await sdk.chat.completions.create(**options)).choices[0].message
    else:
        async with sdk.chat.completions.stream(**options) as events:
            reply = (await events.get_final_completion()).choices[0].message
    return dict(reply.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_replies_the_same_to_both_kinds_of_clients(valkey: EmbeddedServer, stream: bool) -> None:
    """The emulated engine's replies follow from the prompt to the last token: equal replies, equal prompts."""
    async with (
        house(valkey.url, change=storing) as running,
        AsyncOpenAI(base_url=running.url, api_key=KEY, max_retries=0) as sdk,
    ):
        memory: list[Message] = []
        for number, said in enumerate(["Hello.", "Please look around.", None, "And now?", "Have a look again.", None]):
            calls = memory[-1].get("tool_calls") or [] if memory else []
            results = [{"role": "tool", "tool_call_id": call["id"], "content": "a wall"} for call in calls]
            new = results if said is None else [{"role": "user", "content": said}]
            assert new, "the engine calls where it is asked to look"
            memory += new
            stateless = await replied(sdk, memory, {"X-Session-Id": "stateless"}, stream=stream)
            wish = {"X-Session-Id": "kept", "X-Context": "stored; new" if number == 0 else "stored"}
            kept = await replied(sdk, new, wish, stream=stream)
            await running.quiet()
            ids = [[call.pop("id") for call in each.get("tool_calls", [])] for each in (stateless, kept)]
            assert kept == stateless, said
            for call, id in zip(stateless.get("tool_calls", []), ids[1], strict=True):
                call["id"] = id  # random, and part of no prompt
            memory.append(stateless)
