"""Public reports about identity and concurrency, each as what a session must do. Named for what they guard."""

from typing import Any

from gateway.embedded import EmbeddedServer
from gateway.store import Store
from tests.house import KEY, House, gateway
from tests.integration.test_histories import CALL, says, scripted, sent, told
from tests.upstream import answers, upstream

Message = dict[str, Any]
SYSTEM: Message = {"role": "system", "content": "You are a coding agent."}
LONG = "\n".join(f"{n}: a line of a long output, different from all the others" for n in range(400))


def trimming(data: dict[str, Any]) -> None:
    data["tiers"]["standard"]["policies"] = [{"kind": "trim_tool_output", "max_tokens": 200}]


def user(content: str) -> Message:
    return {"role": "user", "content": content}


def assistant(content: str = "Fine.") -> Message:
    return {"role": "assistant", "content": content}


def output(content: str = LONG) -> list[Message]:
    call = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    return [call, {"role": "tool", "tool_call_id": "call_1", "content": content}]


async def said(running: House, messages: list[Message], **headers: str) -> None:
    body = {"model": "demo", "messages": messages, "max_tokens": 4}
    answer = await running.http.post(
        "/chat/completions", json=body, headers={"authorization": f"Bearer {KEY}"} | headers
    )
    assert answer.status_code == 200
    await running.quiet()


async def sessions(store: Store) -> list[bytes]:
    listed = await store.command("ZRANGE", "kvgate:1:{acme}:sessions", 0, -1)
    assert isinstance(listed, list)
    return listed


async def found(running: House, what: str) -> float:
    return await running.metric("kvgate_sessions_total", found=what)


async def test_a_reminder_in_mid_conversation_rotates_no_session(valkey: EmbeddedServer, store: Store) -> None:
    """headroom PR 2193: hashing every system message made a new id when a reminder came at message 5."""
    async with upstream(answers(says("Fine."))) as up, gateway({"any": {"one": up.url}}, valkey.url) as running:
        messages = [SYSTEM, user("Mend the build.")]
        for reminder in (None, "Be brief.", "Tests first."):
            await said(running, messages)
            messages += [assistant(), *([{"role": "system", "content": reminder}] if reminder else []), user("Go on.")]
        await said(running, messages)
        assert len(await sessions(store)) == 1
        assert (await found(running, "new"), await found(running, "known")) == (1, 3)


async def test_chats_of_one_application_do_not_collide(valkey: EmbeddedServer, store: Store) -> None:
    """headroom 1808, PR 2070: hashing only the system prompt made one session of all chats."""
    async with upstream(answers(says("Fine."))) as up, gateway({"any": {"one": up.url}}, valkey.url) as running:
        for number in range(4):
            await said(running, [SYSTEM, user(f"Question {number}")])
        assert len(await sessions(store)) == 4


async def test_chats_that_open_alike_and_part_get_nothing_of_each_other(valkey: EmbeddedServer, store: Store) -> None:
    """Templated fan-outs open alike: what one of them has had cut must not be cut in the other by its memory."""
    async with (
        upstream(answers(says("Fine."))) as up,
        gateway({"any": {"one": up.url}}, valkey.url, trimming) as running,
    ):
        opener = [SYSTEM, user("Do your part.")]
        await said(running, opener)
        one, other = [*opener, *output()], [*opener, *output(LONG[::-1])]
        await said(running, one)
        await said(running, other)
        for messages in (one, other):
            await said(running, [*messages, assistant(), user("And?")])
        assert len(await sessions(store)) == 1
        assert await found(running, "known") == 3 and await found(running, "fork") == 1
        bodies = [sent(up, number)[3] for number in (1, 2, 3, 4)]
        assert bodies[0] == bodies[2] and bodies[1] == bodies[3], "each to its own bytes again"


async def test_sub_agents_under_one_session_id_have_states_of_their_own(valkey: EmbeddedServer, store: Store) -> None:
    """claude-code-proxy 95: two sub-agents shared `x-claude-code-session-id` and overwrote each other."""
    async with upstream(answers(says("Fine."))) as up, gateway({"any": {"one": up.url}}, valkey.url) as running:
        for agent in ("", "agent-1", "agent-2"):
            named = {"x-claude-code-session-id": "abc"} | ({"x-claude-code-agent-id": agent} if agent else {})
            await said(running, [SYSTEM, user(f"I am {agent or 'the parent'}.")], **named)
        assert sorted(await sessions(store)) == [b"abc", b"abc|agent-1", b"abc|agent-2"]


async def test_a_person_is_no_session(valkey: EmbeddedServer, store: Store) -> None:
    """Higress keys a history by credential by default, so every chat of a key would be one."""
    async with upstream(answers(says("Fine."))) as up, gateway({"any": {"one": up.url}}, valkey.url) as running:
        for number in range(2):
            body = {"model": "demo", "user": "jane", "messages": [user(f"Question {number}")]}
            await running.http.post("/chat/completions", json=body, headers={"authorization": f"Bearer {KEY}"})
        await running.quiet()
        assert len(await sessions(store)) == 2


async def test_a_stored_chain_keeps_its_calls_and_grows_by_what_is_said(valkey: EmbeddedServer) -> None:
    """vllm 43244 lost function calls of a stored chain, lmstudio 2074 doubled it with every turn."""
    calls = answers(says(None, tool_calls=[CALL]))
    async with scripted(valkey, calls) as (running, up):
        await told(running, [SYSTEM, user("Look.")], "stored; new")
        for turn in range(1, 6):
            await told(running, [{"role": "tool", "tool_call_id": "call_1", "content": f"seen {turn}"}])
            messages = sent(up)
            assert len(messages) == 2 + 2 * turn
            assert [message["tool_calls"] for message in messages[2::2]] == [[CALL]] * turn
            assert [message["content"] for message in messages[3::2]] == [f"seen {n}" for n in range(1, turn + 1)]


async def test_stored_chains_are_bounded_in_number_and_in_time(valkey: EmbeddedServer, store: Store) -> None:
    """vllm PR 48454: thousands of stored responses stayed in memory for ever."""

    def few(data: dict[str, Any]) -> None:
        data["tiers"]["standard"] |= {"session": {"history": "stored", "ttl": "10m", "max_sessions": 3}}

    async with scripted(valkey, answers(says("Fine.")), change=few) as (running, _):
        for number in range(7):
            headers = {"authorization": f"Bearer {KEY}", "x-session-id": f"chat-{number}", "x-context": "stored; new"}
            body = {"model": "demo", "messages": [user("Hello.")], "max_tokens": 4}
            assert (await running.http.post("/chat/completions", json=body, headers=headers)).status_code == 200
            await running.quiet()
        assert len(await sessions(store)) == 3
        stored = await store.command("KEYS", "kvgate:1:{acme}:h:*")
        assert isinstance(stored, list)
        assert {key.rpartition(b":")[2] for key in stored} == {b"chat-4", b"chat-5", b"chat-6"}
        for key in stored:
            left = await store.command("PTTL", key.decode(), key=key.decode())
            assert isinstance(left, int) and 0 < left <= 600_000


async def test_what_is_recorded_of_a_message(valkey: EmbeddedServer, store: Store) -> None:
    """Digest, tokens where they were counted, and role: nothing that was said."""
    async with (
        upstream(answers(says("Fine."))) as up,
        gateway({"any": {"one": up.url}}, valkey.url, trimming) as running,
    ):
        messages = [SYSTEM, user("Look."), *output()]
        await said(running, messages[:2])
        await said(running, messages)
        (id,) = await sessions(store)
        records = await store.command("HGET", "kvgate:1:{acme}:s:" + id.decode(), "c0.0")
        assert isinstance(records, bytes) and len(records) == 4 * 21
        assert [records[at + 20] for at in range(0, len(records), 21)] == [1, 3, 4, 5]
        tokens = [int.from_bytes(records[at + 16 : at + 20]) for at in range(0, len(records), 21)]
        assert tokens[:2] == [0, 0] and tokens[3] > 200, "not counted while far from every limit"
        assert b"agent" not in records and len(up.requests) == 2
