"""Who bears what: every piece of work of an engine is recorded once, under the label that the rule gives it."""

from typing import Any

import pytest

from budgets.record import Record, decoded
from gateway.embedded import EmbeddedServer
from tests.house import House, gateway
from tests.upstream import (
    CHUNKED,
    answers,
    chunk,
    frame,
    reply,
    resets_after,
    stalls_after,
    streams,
    upstream,
)

USAGE = {"prompt_tokens": 40, "completion_tokens": 2}
WELL = streams(frame("one"), frame("two", finish="stop"), frame(usage=USAGE), b"data: [DONE]\n\n")
FAILS = answers(reply(500, b'{"error":{"message":"no"}}'))


async def records(running: House) -> list[Record]:
    await running.quiet()
    found = await running.gateway.store.command("XRANGE", "kvgate:1:{acme}:usage:acme", "-", "+")
    assert isinstance(found, list)
    return [decoded(fields[1]) for _, fields in found]


@pytest.mark.parametrize("fails", [FAILS, resets_after(CHUNKED)], ids=["500", "broke before a byte"])
async def test_a_retry_is_charged_once_and_the_attempt_before_it_is_the_operators(
    valkey: EmbeddedServer, fails: Any
) -> None:
    async with (
        upstream(fails) as up,
        upstream(WELL) as other,
        gateway({"any": {"one": up.url, "two": other.url}}, valkey.url) as running,
    ):
        while not up.requests:
            assert (await running.chat(stream=True)).status_code == 200
        found = await records(running)
        clients = [record for record in found if record.label == "client"]
        operators = [record for record in found if record.label == "operator"]
        assert len(found) == len(clients) + len(operators) and operators
        assert {(each.prefill_tokens, each.decode_tokens, each.source) for each in clients} == {(40, 2, "engine")}
        assert {(each.decode_tokens, each.outcome, each.source) for each in operators} == {
            (0, "engine_failed", "estimated")
        }
        assert all(each.prefill_tokens > 0 and each.gpu_microseconds > 0 for each in operators)
        assert await running.charged() == 42 * len(clients)
        assert await running.metric("kvgate_tokens_total") == 42 * len(clients)


async def test_a_call_that_no_engine_answered_costs_its_client_nothing(valkey: EmbeddedServer) -> None:
    async with (
        upstream(FAILS) as up,
        gateway({"any": {"one": up.url}}, valkey.url) as running,
    ):
        assert (await running.chat()).status_code == 502
        (record,) = await records(running)
        assert (record.label, record.outcome) == ("operator", "engine_failed")
        assert await running.charged() == 0
        await running.nothing_left()


async def test_what_no_engine_worked_for_is_nobodys(valkey: EmbeddedServer) -> None:
    """One that is busy, one that found the request wrong, nobody there."""
    for script in (answers(reply(429, b"{}")), answers(reply(400, b'{"error":{"message":"no"}}'))):
        async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url) as running:
            await nothing(running)
    async with gateway({"any": {"one": "http://127.0.0.1:1"}}, valkey.url) as running:
        await nothing(running)


async def nothing(running: House) -> None:
    assert (await running.chat()).status_code >= 400
    assert await records(running) == []
    assert await running.charged() == 0


async def test_a_client_that_left_pays_for_what_it_was_sent(valkey: EmbeddedServer) -> None:
    script = stalls_after(CHUNKED, chunk(frame("")), chunk(frame("one")), chunk(frame("two")))
    async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url) as running:
        reader, writer = await running.send(stream=True)
        await reader.readuntil(b"two")
        writer.close()
        (record,) = await records(running)
        assert (record.label, record.outcome, record.source, record.decode_tokens) == (
            "client",
            "client_gone",
            "estimated",
            2,
        )
        assert await running.charged() == record.prefill_tokens + 2
