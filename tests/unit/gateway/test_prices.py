"""Prices: none where marks decide, else from the pool's hardware, the model's geometry and what was learned."""

import pytest

from gateway.clock import monotonic
from gateway.counting import Counter
from gateway.forecast import Forecast
from gateway.pools import ServedPool
from gateway.prices import pricing
from gateway.service import Service
from gateway.sessions import Session
from tests.unit.gateway.samples import caller, config

KNOWN = Session("acme", "s", "known", known_messages=4, calls=5)


def service(steps: str, *, served: bool = True) -> Service:
    whole = config(("tiers/standard/context", {"steps": steps}))
    pools = tuple(ServedPool(pool, whole.routing, monotonic, {}) for pool in whole.pools.values() if served)
    return Service(caller(("tiers/standard/context", {"steps": steps})), whole.models["demo"], pools, Counter(len))


def test_strict_steps_have_no_prices() -> None:
    assert pricing(service("strict"), KNOWN, Forecast(), 100) is None
    assert pricing(service("economic", served=False), KNOWN, Forecast(), 100) is None


def test_prices_are_those_of_the_pool_and_the_model() -> None:
    at = service("economic")
    found = pricing(at, KNOWN, Forecast(), 100)
    assert found is not None
    hardware = at.pools[0].settings.hardware
    assert found.kv_bytes_per_token == at.model.geometry.kv_bytes_per_token
    assert found.memory_bytes_per_second == pytest.approx(
        hardware.total_memory_bytes_per_second * hardware.efficiencies.kv_read
    )
    assert found.expected_decode_tokens == 500
    assert found.prefill_tokens_per_second > 0
    assert found.warm_probability == 1.0


def test_a_prefix_no_engine_holds_costs_nothing() -> None:
    at, forecast = service("economic"), Forecast()
    new = pricing(at, Session("acme", "s", "new"), forecast, 100)
    assert new is not None and new.warm_probability == 0.0 and new.expected_decode_tokens == 100
    forecast.learn_warmth("demo", 1_000, 0)
    learned = pricing(at, KNOWN, forecast, 100)
    assert learned is not None and learned.warm_probability == pytest.approx(0.95)
