"""How a prefix broke, and that nothing is claimed where an engine says nothing."""

from typing import Any, cast

import pytest
from msgspec import structs

from backends.frames import Usage
from gateway.context import Planned
from gateway.delivery import Delivery
from gateway.metrics import Metrics
from gateway.pools import ServedPool
from gateway.prefixes import COLD_SECONDS, REPLAN, Break, Prefix, break_of, found, is_cold, prefix_of
from gateway.sessions import Session
from policies.edit import ClearReasoning, DropMessages
from policies.memory import EMPTY

DROP = DropMessages("keep_recent_turns", 1, 3, b"", 500)
CLEAR = ClearReasoning("clear_old_reasoning", 1, b"", 500)
SESSION = Session("acme", "s", "known", known_messages=9, home="one", idle_seconds=5.0)


def planned(*, again: int, drops: bool = False, reason: str = "mark") -> Planned:
    made = (DROP if drops else CLEAR,) if again else ()
    return Planned(made, 5000, 4500, EMPTY, counted=True, reasons=(reason,) * len(made), again_tokens=again)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prefix", "replica", "cached", "kind"),
    [
        (Prefix(4000, "one", 5.0), "one", 3990, None),
        (Prefix(4000, "one", 5.0), "one", 3760, None),
        (Prefix(4000, "one", 5.0), "one", 3000, "unexpected"),
        (Prefix(4000, "one", 5.0), "one", None, None),
        (Prefix(4000, "one", 900.0), "one", 0, "ttl"),
        (Prefix(4000, "one", 5.0), "two", 0, "expected"),
        (Prefix(4000, None, 5.0), "two", 0, None),
        (Prefix(4000, "one", 5.0, counted=False), "one", 3100, None),
        (Prefix(4000, "one", 5.0, counted=False), "one", 2900, "unexpected"),
        (Prefix(200, "one", 5.0), "one", 0, None),
        (Prefix(4000, "one", 5.0, broken="compacted"), "one", 4000, "compacted"),
    ],
)
def test_the_kind_of_a_break(prefix: Prefix, replica: str, cached: int | None, kind: Break | None) -> None:
    assert break_of(prefix, replica, cached, prefix.tokens) == kind


def test_what_we_broke_ourselves_is_known_before() -> None:
    assert prefix_of(planned(again=0), Session("acme", "s", "new"), 0) is None
    made = [
        prefix_of(planned(again=0), SESSION, 4000),
        prefix_of(planned(again=900), SESSION, 4000),
        prefix_of(planned(again=900, drops=True), SESSION, 4000),
        prefix_of(planned(again=900, drops=True, reason="again"), SESSION, 4000),
    ]
    assert [prefix and prefix.broken for prefix in made] == [None, "expected", "compacted", "expected"]


@pytest.mark.parametrize(("cached", "breaks"), [(4990, {}), (4800, {}), (100, {("main", "unexpected"): 1})])
def test_what_a_template_leaves_out_of_earlier_turns_is_no_break(
    cached: int, breaks: dict[tuple[str, str], int]
) -> None:
    """We count 9,000 tokens as sent before and 500 as new; the engine's prompt has 5,480."""
    metrics = Metrics()
    prefix = prefix_of(planned(again=0), SESSION, 4000)
    assert prefix is not None and prefix.new_tokens == 500
    larger = structs.replace(prefix, tokens=9000)
    found(metrics, larger, Delivery(pool="main", replica="one", usage=Usage(5480, cached, 7)))
    assert metrics.breaks.values == breaks
    assert (larger.of(5480), larger.of(20_000), larger.of(10)) == (4980, 9000, 0)


def test_predicted_and_measured_stand_side_by_side() -> None:
    metrics = Metrics()
    delivery = Delivery(pool="main", replica="one", usage=Usage(5000, 3990, 7))
    found(metrics, Prefix(4000, "one", 5.0), delivery)
    found(metrics, Prefix(4000, "two", 5.0), delivery)
    delivery.usage = Usage(5000, None, 7)
    found(metrics, Prefix(4000, "one", 5.0), delivery)
    assert metrics.prefix.values == {("main", "predicted"): 4000, ("main", "measured"): 3990}
    assert metrics.breaks.values == {("main", "expected"): 1}


class Pool:
    """As much of a pool as is asked."""

    def has(self, replica: str) -> bool:
        return replica == "one"


@pytest.mark.parametrize(
    ("session", "headers", "cold"),
    [
        ({"home": "one"}, {}, False),
        ({"home": None}, {}, False),
        ({"home": "two"}, {}, True),
        ({"home": "one", "idle_seconds": COLD_SECONDS - 1}, {}, False),
        ({"home": "one", "idle_seconds": COLD_SECONDS}, {}, True),
        ({"home": "one"}, {REPLAN: b"1"}, True),
        ({"home": "one"}, {REPLAN: b"0"}, False),
    ],
)
def test_a_prefix_is_cold_where_no_engine_holds_it_or_the_client_says_so(
    session: dict[str, Any], headers: dict[bytes, bytes], cold: bool
) -> None:
    pools = [cast(ServedPool, Pool())]
    assert is_cold(Session("acme", "chat", "known", **session), pools, headers) is cold
