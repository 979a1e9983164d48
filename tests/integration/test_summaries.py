"""Records of older turns, from end to end: written once, behind the same prefix, used at the mark, charged once."""

import asyncio
from typing import Any

import httpx

from budgets.record import Record, decoded, stream_of
from gateway.embedded import EmbeddedServer
from tests.house import KEY, Change, House, house, until

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
