"""Event: gateways, engines and the store are killed in the middle of calls. Twenty schedules; `make soak` has 1,000."""

import pytest

from bench.kills import run


@pytest.mark.timeout(600)
async def test_the_books_are_right_whoever_is_killed() -> None:
    cluster = await run(range(20))
    assert min(cluster.killed[victim] for victim in ("store", "gateway", "engine")) >= 3, "all of them were"
    assert cluster.outcomes["done"] > cluster.begun / 3, "and most calls were answered all the same"
