"""Edited conversations as the engine sees them: what is cut stays cut in the same bytes, so its prefix cache holds."""

import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest

from gateway.embedded import EmbeddedServer
from gateway.tokens import counter
from tests.house import KEY, House, gateway
from tests.upstream import Peer, Script, Upstream, answers, reply, upstream

ANSWER = b'{"choices":[]}'
"""Without usage: an engine that counted otherwise would teach the gateway another measure."""
HIGH_WATER = 20_000
WORDS = "alpha beta gamma delta " * 240
LONG = "\n".join(f"{number}: the quick brown fox jumps over the lazy dog" for number in range(1_200))


@pytest.fixture
async def up() -> AsyncIterator[Upstream]:
    async with upstream(answers(reply(200, ANSWER))) as running:
        yield running


@pytest.fixture
async def house(valkey: EmbeddedServer, up: Upstream) -> AsyncIterator[House]:
    def change(data: dict[str, Any]) -> None:
        tier = data["tiers"]["standard"]
        tier["policies"] = [{"kind": "trim_tool_output", "max_tokens": 1_000}, {"kind": "keep_recent_turns"}]
        tier["context"] = {"limit_tokens": "24k", "high_water_tokens": HIGH_WATER, "low_water_tokens": "4k"}

    async with gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        yield running


class Raw(msgspec.Struct):
    """A body's messages as the bytes they are."""

    messages: list[msgspec.Raw]


def messages_of(body: bytes) -> list[bytes]:
    return [bytes(message) for message in msgspec.json.decode(body, type=Raw).messages]


async def asked(house: House, messages: list[bytes], **fields: object) -> httpx.Response:
    """A chat request whose messages are these very bytes."""
    rest = b"".join(b',"%b":%b' % (name.encode(), json.dumps(value).encode()) for name, value in fields.items())
    body = b'{"model":"demo", "messages" :[%b]%b}' % (b" , ".join(messages), rest)
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    answer = await house.http.post("/chat/completions", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    await house.quiet()
    return answer


def wire(role: str, content: object, **more: object) -> bytes:
    """A message with the odd spaces that clients are free to write."""
    return json.dumps({"role": role, "content": content} | more, separators=(" ,", " : ")).encode()


def call(number: int) -> bytes:
    function = {"name": "read_file", "arguments": '{"path": "a"}'}
    return wire("assistant", None, tool_calls=[{"id": f"c{number}", "type": "function", "function": function}])


def result(number: int, text: str) -> bytes:
    return wire("tool", text, tool_call_id=f"c{number}")


START = [wire("system", "Be brief."), wire("user", "Read the file."), call(1), result(1, LONG)]


async def test_only_the_message_that_is_cut_changes(house: House, up: Upstream) -> None:
    answer = await asked(house, START, top_p=0.5, seed=7)
    assert answer.headers["x-kvgate-context"].endswith("edits=1")
    sent = up.requests[0].body
    before, after = messages_of(sent)[:3], json.loads(messages_of(sent)[3])
    assert before == START[:3]
    assert (after["role"], after["tool_call_id"]) == ("tool", "c1")
    assert len(after["content"]) < len(LONG) / 5
    assert LONG.startswith(after["content"][:200]) and LONG.endswith(after["content"][-200:])
    rest = {name: value for name, value in json.loads(sent).items() if name not in ("messages", "cache_salt")}
    assert rest == {"model": "demo", "top_p": 0.5, "seed": 7}


async def test_what_was_cut_stays_cut_in_the_same_bytes(house: House, up: Upstream) -> None:
    messages = list(START)
    await asked(house, messages)
    for number in range(3):
        messages += [wire("assistant", f"Answer {number}."), wire("user", f"Question {number}?")]
        await asked(house, messages)
    sent = [messages_of(request.body) for request in up.requests]
    for earlier, later in itertools.pairwise(sent):
        assert later[: len(earlier)] == earlier, "the engine's cache of the prefix holds"
    assert await house.metric("kvgate_context_violations_total") == 0


async def test_another_client_s_copy_of_the_conversation_is_cut_alike(house: House, up: Upstream) -> None:
    """The memory of a session is a help: without it the same output is cut to the same bytes."""
    await asked(house, START, session_id="one")
    await asked(house, START, session_id="another")
    first, second = (messages_of(request.body) for request in up.requests)
    assert first == second


def counts(ratio: float) -> Script:
    """An engine whose tokenizer makes `ratio` times as many tokens as ours, and says so."""
    count = counter()

    async def script(peer: Peer) -> None:
        tokens = int(ratio * sum(count(message.decode()) for message in messages_of(peer.request.body)))
        usage = b'{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":2}}' % tokens
        await peer.send(reply(200, usage))

    return script


@pytest.mark.parametrize("ratio", [1.0, 1.4, 0.7])
async def test_a_long_session_breaks_its_prefix_seldom_and_never_passes_the_mark(
    house: House, up: Upstream, ratio: float
) -> None:
    """Forty turns of some two thousand tokens, the window between 20k and 4k of the engine's own tokens."""
    up.scripts = [counts(ratio)]
    messages = [wire("system", "Be brief."), wire("user", "The task."), wire("assistant", "Yes?")]
    marks = []
    for number in range(40):
        messages += [wire("user", f"Step {number}."), call(number), result(number, f"{number} {WORDS[:4_000]}")]
        answer = await asked(house, messages)
        marks.append(int(answer.headers["x-kvgate-context"].partition("sent=")[2].partition(";")[0].lstrip("~")))
        messages.append(wire("assistant", f"Done {number}. {WORDS[:3_000]}"))
    assert HIGH_WATER * 3 / 4 < max(marks) <= HIGH_WATER
    sent = [messages_of(request.body) for request in up.requests]
    breaks = sum(later[: len(earlier)] != earlier for earlier, later in itertools.pairwise(sent))
    assert 1 <= breaks <= 4
    assert await house.metric("kvgate_prefix_breaks_total", kind="compacted") == breaks
    assert await house.metric("kvgate_prefix_breaks_total", kind="unexpected") == 0
    assert await house.metric("kvgate_context_removed_tokens_total", reason="mark") > 0
    assert await house.metric("kvgate_sessions_live", tenant="acme") == 1
    assert await house.metric("kvgate_context_violations_total") == 0
    assert sent[-1][:3] == messages[:3], "instructions and task stay"


async def test_a_conversation_that_is_held_again_breaks_its_prefix_no_more_often(house: House, up: Upstream) -> None:
    """A run that is repeated, or a second agent that does the same a little later."""
    up.scripts = [counts(1.0)]
    for _ in range(2):
        messages = [wire("system", "Be brief."), wire("user", "The task.")]
        for number in range(30):
            await asked(house, messages)
            messages += [wire("assistant", f"Done {number}. {WORDS[:3_000]}"), wire("user", f"Step {number}?")]
            messages += [call(number), result(number, f"{number} {WORDS[:4_000]}")]
    sent = [messages_of(request.body) for request in up.requests]
    broken = [later[: len(earlier)] != earlier for earlier, later in itertools.pairwise(sent)]
    assert 1 <= sum(broken[:29]) <= 4
    assert sum(broken[30:]) <= sum(broken[:29])
    assert await house.metric("kvgate_prefix_breaks_total", kind="unexpected") == 0


async def test_shadow_counts_and_changes_nothing(valkey: EmbeddedServer, up: Upstream) -> None:
    def change(data: dict[str, Any]) -> None:
        data["tiers"]["standard"]["policies"] = [{"kind": "trim_tool_output", "max_tokens": 1_000, "mode": "shadow"}]

    async with gateway({"any": {"one": up.url}}, valkey.url, change) as house:
        answer = await asked(house, START)
        assert answer.headers["x-kvgate-context"].endswith("edits=0")
        assert messages_of(up.requests[0].body) == START
        assert await house.metric("kvgate_context_removed_tokens_total", mode="shadow") > 5_000
        assert await house.metric("kvgate_context_removed_tokens_total", mode="enforce") == 0


async def test_a_clock_that_is_left_out_makes_no_new_session(valkey: EmbeddedServer, up: Upstream) -> None:
    def change(data: dict[str, Any]) -> None:
        data["tiers"]["standard"]["policies"] = [{"kind": "strip"}]

    def talk(minute: int, *more: bytes) -> list[bytes]:
        return [wire("system", f"Be brief.\nCurrent time: 10:{minute:02}"), wire("user", "Hi"), *more]

    async with gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        await asked(running, talk(1))
        before = await running.metric("kvgate_sessions_total", found="known")
        await asked(running, talk(2, wire("assistant", "Hello"), wire("user", "More")))
        assert await running.metric("kvgate_sessions_total", found="known") == before + 1
    first, second = (messages_of(request.body) for request in up.requests)
    assert second[: len(first)] == first, "the engine's cache of the prefix holds"


@pytest.mark.parametrize(("steps", "late"), [("strict", False), ("economic", True)])
async def test_economic_steps_wait_while_they_do_not_pay(
    valkey: EmbeddedServer, up: Upstream, steps: str, *, late: bool
) -> None:
    """With one token to decode, nothing is gained by a window that moves: only the limit moves it."""

    def change(data: dict[str, Any]) -> None:
        tier = data["tiers"]["standard"]
        tier["policies"] = [{"kind": "keep_recent_turns"}]
        tier["context"] = {"limit_tokens": "24k", "high_water_tokens": HIGH_WATER, "low_water_tokens": "4k"}
        tier["context"]["steps"] = steps

    up.scripts = [counts(1.0)]
    messages, most = [wire("system", "Be brief."), wire("user", "The task.")], 0
    async with gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        for number in range(16):
            answer = await asked(running, messages, max_tokens=1)
            sent = answer.headers["x-kvgate-context"].partition("sent=")[2].partition(";")[0]
            most = max(most, int(sent.lstrip("~")))
            messages += [wire("assistant", f"Done {number}. {WORDS}"), wire("user", f"Step {number}. {WORDS[:4_000]}")]
    assert (HIGH_WATER < most <= 24_000) is late
    assert most > HIGH_WATER / 2


async def test_a_reply_is_clamped_to_what_the_prompt_leaves(valkey: EmbeddedServer, up: Upstream) -> None:
    def change(data: dict[str, Any]) -> None:
        tier = data["tiers"]["standard"]
        tier["policies"] = [{"kind": "cap_context", "limit_tokens": 2_000, "reply": "clamp"}]
        tier["max_tokens"] = {}

    async with gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        answer = await asked(running, [wire("user", WORDS)], max_tokens=5_000)
        prompt = int(answer.headers["x-kvgate-context"].partition("sent=")[2].partition(";")[0])
        await asked(running, [wire("user", "Hi")], max_tokens=50)
    clamped, free = (json.loads(request.body)["max_tokens"] for request in up.requests)
    assert clamped == 2_000 - prompt
    assert free == 50


async def test_half_a_character_never_leaves_and_is_reported(house: House, up: Upstream) -> None:
    """claude-code 56064: an error text cut inside an emoji was a 400 for ever."""
    half = rb'{"role": "user", "content": "cut \ud83d"}'
    answer = await asked(house, [wire("system", "Be brief."), half], user=None)
    assert answer.headers["x-kvgate-context"].endswith("edits=1")
    sent = up.requests[0].body
    assert messages_of(sent)[0] == wire("system", "Be brief.")
    assert json.loads(sent.decode())["messages"][1]["content"] == "cut \ufffd"


async def test_half_a_character_among_edits_never_leaves_either(valkey: EmbeddedServer, up: Upstream) -> None:
    def change(data: dict[str, Any]) -> None:
        data["tiers"]["standard"]["policies"] = [{"kind": "repair"}]

    half = b'{"role": "user", "content": "\xed\xa0\xbd"}'
    dangling = wire("assistant", None, tool_calls=[{"id": "c", "type": "function", "function": {"name": "f"}}])
    async with gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        await asked(running, [half, dangling, wire("user", "More")])
    sent = json.loads(up.requests[0].body.decode())["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "user"]
    assert sent[0]["content"] == "\ufffd"


@pytest.mark.parametrize("tolerant", [False, True])
async def test_broken_arguments_are_mended_for_engines_that_choke_on_them(
    valkey: EmbeddedServer, up: Upstream, *, tolerant: bool
) -> None:
    """vllm PR 48922: one call cut off in the history, and the engine refuses the conversation for ever."""

    def change(data: dict[str, Any]) -> None:
        data["pools"]["any"]["features"] = {"broken_arguments": tolerant}

    function = {"name": "read_file", "arguments": '{"path": '}
    cut = wire("assistant", None, tool_calls=[{"id": "c1", "type": "function", "function": function}])
    talk = [wire("user", "Read."), cut, result(1, "no such file"), wire("user", "Again.")]
    async with gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        for _ in range(2):
            answer = await asked(running, talk)
            assert answer.headers["x-kvgate-context"].endswith(f"edits={int(not tolerant)}")
    first, second = (messages_of(request.body) for request in up.requests)
    assert first == second and first[0] == talk[0]
    arguments = json.loads(first[1])["tool_calls"][0]["function"]["arguments"]
    assert arguments == ('{"path": ' if tolerant else '{"kvgate_invalid_arguments": "{\\"path\\": "}')


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
async def test_c59_rolling_cache_markers_change_neither_the_session_nor_the_prompt(
    valkey: EmbeddedServer, up: Upstream, engine: str
) -> None:
    """sglang 36877: markers that move to the last message on every turn were rendered into the prompt."""

    def change(data: dict[str, Any]) -> None:
        data["pools"]["any"]["engine"] = engine
        data["tiers"]["standard"]["policies"] = [{"kind": "trim_tool_output", "max_tokens": 1_000}]

    def part(text: str, **marker: object) -> list[dict[str, object]]:
        return [{"type": "text", "text": text} | marker]

    marker = {"cache_control": {"type": "ephemeral"}}
    system = wire("system", part("Be brief.", **marker))
    first = [system, wire("user", part("Read.")), call(1), result(1, LONG), wire("user", part("Now?", **marker))]
    second = [*first[:-1], wire("user", part("Now?")), wire("assistant", "So."), wire("user", part("And?", **marker))]
    async with gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        await asked(running, first)
        before = await running.metric("kvgate_sessions_total", found="known")
        await asked(running, second)
        assert await running.metric("kvgate_sessions_total", found="known") == before + 1
    sent = [messages_of(request.body) for request in up.requests]
    if engine == "sglang":
        assert b"cache_control" not in b"".join(request.body for request in up.requests)
        assert sent[1][: len(sent[0])] == sent[0], "the engine's cache of the prefix holds"
    else:
        assert sent[0][0] == system and sent[1][-1] == second[-1]
        assert sent[1][3] == sent[0][3]
