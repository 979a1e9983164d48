"""Records of older turns, from end to end: written once, behind the same prefix, used at the mark, charged once."""

import asyncio
import itertools
import json
from typing import Any

import httpx

from budgets.record import Record, decoded, stream_of
from gateway.embedded import EmbeddedServer
from gateway.store import Store
from policies import record
from tests.house import KEY, Change, House, gateway, house, until
from tests.integration.test_gateway_edits import messages_of
from tests.upstream import Peer, Script, Upstream, reply, upstream

WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa " * 16
HIGH, LOW = 3_000, 1_200
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


def summarised(**fields: Any) -> Change:
    """A tier whose older turns are summarised, the window behind as what is left without a record."""

    def change(data: dict[str, Any]) -> None:
        tier = data["tiers"]["standard"]
        policy = {"kind": "summarize_older_turns", "max_tokens": 400} | fields
        tier["policies"] = [policy, {"kind": "keep_recent_turns"}]
        tier["context"] = {"limit_tokens": "8k", "high_water_tokens": HIGH, "low_water_tokens": LOW}

    return change


def talk(turns: int) -> list[dict[str, str]]:
    """Some 190 tokens a turn; the last one is not answered yet."""
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Move the service to port 8443."},
    ]
    for number in range(turns):
        messages += [
            {"role": "assistant", "content": f"Step {number} is done, we will use host-{number}.example. {WORDS}"},
            {"role": "user", "content": f"Now step {number + 1}."},
        ]
    return messages


async def asked(house: House, turns: int, session: str = "one", **fields: Any) -> httpx.Response:
    answer = await house.http.post(
        "/chat/completions",
        json={"model": "demo", "messages": talk(turns), "max_tokens": 8} | fields,
        headers={"authorization": f"Bearer {KEY}", "x-session-id": session},
    )
    assert answer.status_code == 200, answer.text
    await house.quiet()
    return answer


async def made(house: House) -> None:
    """Wait until no record is in the making."""
    await until(lambda: "summary" not in [task.get_name() for task in asyncio.all_tasks()])
    await house.quiet()


async def records(house: House) -> list[Record]:
    """What was charged to the tenant."""
    found = await house.gateway.store.command("XRANGE", stream_of("acme", None), "-", "+")
    assert isinstance(found, list)
    return [decoded(fields[1]) for _, fields in found]


def told(answer: httpx.Response) -> dict[str, str]:
    """The context report."""
    return dict(part.split("=") for part in answer.headers["x-kvgate-context"].split(";"))


async def test_a_record_is_written_ahead_behind_the_same_prefix_and_used_at_the_mark(valkey: EmbeddedServer) -> None:
    async with house(valkey.url, change=summarised()) as running:
        for turns in (10, 13):  # the second is beyond four fifths of the high water
            answer = await asked(running, turns, tools=TOOLS)
            assert told(answer)["edits"] == "0"
        await made(running)
        assert await running.metric("kvgate_summaries_total", result="made") == 1
        cached = await running.metric("kvgate_summary_tokens_total", kind="cached")
        computed = await running.metric("kvgate_summary_tokens_total", kind="prefill")
        assert cached > 1_000 and computed < 500, "the engine computed the question and not the conversation"
        answer = await asked(running, 16, tools=TOOLS)
        report = told(answer)
        assert int(report["summarized"]) > 10 and int(report["sent"]) < HIGH < int(report["original"])
        assert await running.metric("kvgate_summaries_total", result="used") == 1
        assert await running.metric("kvgate_context_violations_total") == 0
        await running.nothing_left()


async def test_the_record_is_asked_of_the_replica_that_has_just_answered(valkey: EmbeddedServer) -> None:
    async with house(valkey.url, {"any": ["one", "two", "three"]}, summarised()) as running:
        for number in range(8):
            messages = [{"role": "system", "content": f"{number}: {WORDS}"}, *talk(13)[1:]]
            await asked(running, 13, f"session-{number}", messages=messages, tools=TOOLS)
            await made(running)
        assert await running.metric("kvgate_summaries_total", result="made") == 8
        assert await running.metric("kvgate_summary_tokens_total", kind="cached") > 8 * 1_000
        assert await running.metric("kvgate_summary_tokens_total", kind="prefill") < 8 * 500


async def test_what_a_record_stands_for_can_be_read_again_until_the_session_is_deleted(valkey: EmbeddedServer) -> None:
    async with house(valkey.url, change=summarised(keep_original="1h")) as running:
        for turns in (10, 13, 16):
            await asked(running, turns)
            await made(running)
        assert await running.metric("kvgate_summaries_total", result="used") == 1
        assert await running.metric("kvgate_context_violations_total") == 0
        kept = await running.gateway.store.command("ZRANGE", "kvgate:1:{acme}:kept:one", "0", "-1")
        assert isinstance(kept, list)
        (handle,) = [each.decode() for each in kept if each.startswith(b"kvt_")]
        headers = {"authorization": f"Bearer {KEY}"}
        text = (await running.http.get(f"/artifacts/{handle}", headers=headers)).json()["content"]
        assert talk(2)[2]["content"] in text and "[user]\nNow step 1." in text
        assert (await running.http.delete("/sessions/one", headers=headers)).status_code == 200
        assert (await running.http.get(f"/artifacts/{handle}", headers=headers)).status_code == 404


async def test_it_is_charged_once_to_the_tenant_under_its_own_label(valkey: EmbeddedServer) -> None:
    async with house(valkey.url, change=summarised()) as running:
        for turns in (13, 13, 14):
            await asked(running, turns)
            await made(running)
        settled = await records(running)
        labels = [each.label for each in settled]
        assert labels.count("summary") == 1 and labels.count("client") == 3
        (one,) = [each for each in settled if each.label == "summary"]
        assert (one.tenant, one.session, one.outcome, one.source) == ("acme", "one", "ok", "engine")
        used = sum(each.prefill_tokens + each.cached_tokens + each.decode_tokens for each in settled)
        assert await running.charged() == used
        assert await running.leases() == 0


async def both(first: House, second: House, name: str, **labels: str) -> float:
    return await first.metric(name, **labels) + await second.metric(name, **labels)


async def test_two_gateways_write_one_record_and_send_the_same_bytes(valkey: EmbeddedServer) -> None:
    async with upstream(recording()) as up:
        urls = {"any": {"one": up.url}}
        async with (
            gateway(urls, valkey.url, summarised()) as first,
            gateway(urls, valkey.url, summarised(), flush=False) as second,
        ):
            await asyncio.gather(asked(first, 13), asked(second, 13))
            await made(first)
            assert await both(first, second, "kvgate_summaries_total", result="made") == 1
            assert len(questions(up)) == 1
            for at, turns in ((second, 16), (first, 17), (second, 18)):
                assert "summarized" in told(await asked(at, turns))
            await made(first)
            sent = [messages_of(request.body) for request in up.requests if not is_question(request.body)][2:]
            for earlier, later in itertools.pairwise(sent):
                assert later[: len(earlier)] == earlier, "the engine's cache of the prefix holds"
            labels = [each.label for each in await records(first)]
            assert labels.count("summary") == 1


async def test_the_second_record_is_made_of_the_first_and_holds_its_facts(valkey: EmbeddedServer) -> None:
    async with upstream(recording()) as up, gateway({"any": {"one": up.url}}, valkey.url, summarised()) as running:
        for turns in range(13, 30):
            await asked(running, turns)
            await made(running)
        one, two = questions(up)[:2]
        assert "fact 1001" in one_of(two)[1]["content"], "the first record stands in the second question"
        assert "fact 1001" not in json.dumps(one_of(one))
        last = messages_of(up.requests[-1].body if not is_question(up.requests[-1].body) else up.requests[-2].body)
        task = json.loads(last[1])["content"]
        assert task.count(record.BEGIN) == 1
        assert "fact 1002" in task and "fact 1001" in task, "carried over although the model left it out"


async def test_deletion_takes_the_records_and_they_are_not_used_again(valkey: EmbeddedServer) -> None:
    async with house(valkey.url, change=summarised()) as running:
        await asked(running, 13)
        await made(running)
        assert await running.gateway.store.command("EXISTS", "kvgate:1:{acme}:sum:one") == 1
        deleted = await running.http.delete("/sessions/one", headers={"authorization": f"Bearer {KEY}"})
        assert deleted.status_code == 200
        found = await running.gateway.store.command("KEYS", "kvgate:1:{acme}:*one*")
        assert found == []
        assert "summarized" not in told(await asked(running, 16))
        await made(running)


async def test_a_cheap_model_in_a_pool_of_its_own_writes_from_a_transcript(valkey: EmbeddedServer) -> None:
    async with upstream(recording()) as large, upstream(recording()) as small:

        def change(data: dict[str, Any]) -> None:
            summarised(model="small", pool="cheap")(data)
            data["models"]["small"] = {"geometry": "llama-3.1-8b"}
            data["pools"]["any"]["models"] = ["demo"]
            cheap = {"models": ["small"], "hardware": "h100-sxm", "replicas": [{"name": "tiny", "url": small.url}]}
            data["pools"]["cheap"] = cheap
            data["tenants"]["acme"]["models"] = ["demo"]

        async with gateway({"any": {"one": large.url}}, valkey.url, change) as running:
            await asked(running, 13, tools=TOOLS)
            await made(running)
            assert questions(large) == [] and len(questions(small)) == 1
            body = json.loads(questions(small)[0])
            assert body["model"] == "small" and "tools" not in body and len(body["messages"]) == 2
            assert "host-3.example" in body["messages"][1]["content"]
            (one,) = [each for each in await records(running) if each.label == "summary"]
            assert (one.model, one.pool) == ("small", "cheap")
            assert "summarized" in told(await asked(running, 16, tools=TOOLS))
            direct = {"model": "small", "messages": talk(1)}
            answer = await running.http.post(
                "/chat/completions", json=direct, headers={"authorization": f"Bearer {KEY}"}
            )
            assert answer.status_code == 404, "what writes records is not open to the tenant by that"


async def test_a_call_that_needs_a_record_waits_for_it_as_long_as_it_may(valkey: EmbeddedServer) -> None:
    async with upstream(recording()) as up:
        change = summarised(deadline_seconds=30)
        async with gateway({"any": {"one": up.url}}, valkey.url, change) as running:
            report = told(await asked(running, 17))
            assert "summarized" in report and int(report["sent"]) < LOW + 400
            assert [is_question(request.body) for request in up.requests] == [True, False]
            await made(running)


async def test_a_prompt_beyond_the_limit_is_saved_by_a_record_that_comes_in_time(valkey: EmbeddedServer) -> None:
    def change(data: dict[str, Any]) -> None:
        summarised(deadline_seconds=30)(data)
        data["tiers"]["standard"]["policies"].pop()  # no window behind

    async with upstream(recording()) as up, gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        assert "summarized" in told(await asked(running, 60))
        await made(running)


async def test_who_has_no_time_goes_on_without_and_uses_it_the_next_time(valkey: EmbeddedServer) -> None:
    let = asyncio.Event()

    async def slowly(peer: Peer) -> None:
        if is_question(peer.request.body):
            await let.wait()
        await recording()(peer)

    def change(data: dict[str, Any]) -> None:
        summarised(deadline_seconds=0.05)(data)
        data["tiers"]["standard"]["policies"].pop()

    async with upstream(slowly) as up, gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        assert "summarized" not in told(await asked(running, 17))
        assert await running.metric("kvgate_summaries_failed_total", reason="deadline") == 1
        let.set()
        await made(running)
        assert "summarized" in told(await asked(running, 18))
        assert len(questions(up)) == 1
        await made(running)


async def test_a_session_leaves_a_record_before_it_is_forgotten_and_comes_back_to_it(valkey: EmbeddedServer) -> None:
    def change(data: dict[str, Any]) -> None:
        summarised(idle_at_tokens=500)(data)
        data["tiers"]["standard"]["session"] = {"ttl": "8s", "expire": "summarize"}

    async with upstream(recording()) as up, gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        assert told(await asked(running, 8))["edits"] == "0"
        await until(lambda: bool(questions(up)))
        await made(running)
        store = running.gateway.store
        await until_gone(store, "kvgate:1:{acme}:s:one")
        assert await store.command("EXISTS", "kvgate:1:{acme}:sum:one") == 1
        new = await running.metric("kvgate_sessions_total", found="new")
        report = told(await asked(running, 9))
        assert await running.metric("kvgate_sessions_total", found="new") == new + 1
        assert "summarized" in report and int(report["sent"]) < int(report["original"]) / 2


async def test_a_session_that_is_used_elsewhere_leaves_none(valkey: EmbeddedServer) -> None:
    def change(data: dict[str, Any]) -> None:
        summarised(idle_at_tokens=500)(data)
        data["tiers"]["standard"]["session"] = {"ttl": "3s", "expire": "summarize"}

    async with upstream(recording()) as up, gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        await asked(running, 8)
        store = running.gateway.store
        await store.command("ZADD", "kvgate:1:{acme}:sessions", 10**15, "one")  # as if another gateway had served it
        await until(lambda: "resting sessions" not in [task.get_name() for task in asyncio.all_tasks()])
        await made(running)
        assert questions(up) == []


async def test_facts_need_no_call_and_no_store(valkey: EmbeddedServer) -> None:
    def change(data: dict[str, Any]) -> None:
        summarised(by="facts")(data)

    async with upstream(recording()) as up, gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        for turns in (13, 16, 17, 18):
            answer = await asked(running, turns)
        assert "summarized" in told(answer) and questions(up) == []
        sent = [messages_of(request.body) for request in up.requests][1:]
        for earlier, later in itertools.pairwise(sent):
            assert later[: len(earlier)] == earlier
        assert "host-3.example" in json.loads(sent[-1][1])["content"]
        assert await running.gateway.store.command("EXISTS", "kvgate:1:{acme}:sum:one") == 0


def recording() -> Script:
    """Answers clients plainly, and questions for a record with a record of one fact, a new one each time."""
    asked = itertools.count(1001)

    async def script(peer: Peer) -> None:
        text = f"INTENT\nMove it.\nFACTS\nfact {next(asked)}" if is_question(peer.request.body) else "Done."
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        await peer.send(reply(200, json.dumps({"choices": [choice]}).encode()))

    return script


def is_question(body: bytes) -> bool:
    return record.ASKED.encode() in body


def questions(up: Upstream) -> list[bytes]:
    return [request.body for request in up.requests if is_question(request.body)]


def one_of(body: bytes) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = json.loads(body)["messages"]
    return messages


async def until_gone(store: Store, key: str) -> None:
    while await store.command("EXISTS", key):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
