"""Every engine fails: retries stay a part of what was sent, and no call goes to one engine twice."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from backends.retry import RetryBudget
from gateway.embedded import EmbeddedServer
from tests.house import gateway
from tests.upstream import Script, answers, reply, resets_after, upstream

WAVES, WAVE = 6, 25
CALLS = WAVES * WAVE
BUSY = reply(503, b'{"error":{"message":"busy","code":503}}')


def three_attempts(data: dict[str, Any]) -> None:
    data["routing"]["attempts"] = 3


@pytest.mark.parametrize(
    ("script", "status", "outcome"),
    [(answers(reply(500, b"")), 502, "failure"), (resets_after(), 502, "failure"), (answers(BUSY), 503, "neutral")],
    ids=["500", "reset", "busy"],
)
async def test_attempts_are_counted_at_the_engines(
    valkey: EmbeddedServer, script: Script, status: int, outcome: str
) -> None:
    async with (
        upstream(script) as one,
        upstream(script) as two,
        upstream(script) as three,
        gateway({"any": {"one": one.url, "two": two.url, "three": three.url}}, valkey.url, three_attempts) as house,
    ):
        found = []
        for wave in range(WAVES):
            calls = (house.chat(f"call {wave} {number}") for number in range(WAVE))
            found += await asyncio.gather(*calls)
        assert {answer.status_code for answer in found} <= {status, 503}
        await house.nothing_left()
        sent = [up.requests for up in (one, two, three)]
        attempts = sum(map(len, sent))
        budget = RetryBudget()
        earned = budget.share * CALLS
        least = budget.balance + earned / 2 if outcome == "neutral" else 1  # engines that fail are soon taken out
        assert CALLS + least <= attempts <= CALLS + budget.balance + earned
        for requests in sent:
            ids = Counter(request.get(b"x-request-id")[0] for request in requests)
            assert max(ids.values()) == 1, "nobody is asked twice for one call"
        assert await house.metric("kvgate_attempts_total", outcome=outcome) == attempts
        assert await house.metric("kvgate_attempts_total") == attempts
        assert await house.metric("kvgate_requests_total", outcome="engine_failed") == CALLS
        assert await house.charged() == 0
        assert (await house.metric("kvgate_replica_up") < 3) == (outcome == "failure")
        assert await house.metric("kvgate_replica_up") >= 1
