"""What one caller gets of one model: limits and policies, worked out once."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.clock import monotonic
from gateway.counting import Counter
from gateway.pools import ServedPool
from gateway.service import Service
from policies.cap_context import CapContext, EngineWindow
from policies.sizes import may_act
from tests.unit.gateway.samples import caller, config


def service(*changes: tuple[str, object]) -> Service:
    loaded = config(*changes)
    pools = [ServedPool(pool, loaded.routing, monotonic, {}) for pool in loaded.pools.values()]
    return Service(caller(*changes), loaded.models["demo"], pools, Counter(len))


def test_the_models_limit_is_what_all_engines_can_take_once_they_said_so() -> None:
    at = service(("pools/main/replicas", ["http://127.0.0.1:1", "http://127.0.0.1:2"]))
    before = at.policies
    assert at.context_limit_tokens is None
    pool = at.pools[0].pool
    for replica, tokens in zip(pool.replicas, (8_192, 4_096), strict=True):
        pool.learn(replica.name, load=None, max_model_len=tokens)
    assert at.context_limit_tokens == 4_096
    assert list(at.policies) == [*before, EngineWindow(limit_tokens=4_096)]


def test_a_configured_limit_goes_before_what_engines_say() -> None:
    at = service(("models/demo/context_limit_tokens", 2_000))
    at.pools[0].pool.learn(at.pools[0].pool.replicas[0].name, load=None, max_model_len=4_096)
    assert at.context_limit_tokens == 2_000
    assert at.policies[-1] == CapContext(limit_tokens=2_000), "the operator's own word, and our own count"


def test_what_was_quiet_is_asked_again_when_an_engine_reports_its_limit() -> None:
    at = service(("tiers/standard/context", {}), ("tiers/standard/policies", []))
    assert at.quiet((10_000, 5_000, 3, 0), 0.0)
    at.pools[0].pool.learn(at.pools[0].pool.replicas[0].name, load=None, max_model_len=4_096)
    assert not at.quiet((10_000, 5_000, 3, 0), 0.0)
    assert at.quiet((1_000, 500, 3, 0), 0.0)


SIZES = st.lists(
    st.tuples(st.integers(0, 60_000), st.integers(0, 20_000), st.integers(0, 4_000), st.integers(0, 120)),
    min_size=1,
    max_size=12,
)


@given(sizes=SIZES)
def test_quiet_is_what_the_policies_say_whatever_was_asked_before(sizes: list[tuple[int, int, int, int]]) -> None:
    policies = [{"kind": "trim_tool_output", "max_tokens": 2_000}, {"kind": "drop_stale_turns", "gap_seconds": 60}]
    at = service(("tiers/standard/context", {"limit_tokens": 30_000}), ("tiers/standard/policies", policies))
    for *size, idle in sizes:
        total, largest, messages = size
        acts = may_act(at.policies, total, largest, messages, idle_seconds=float(idle))
        assert at.quiet((total, largest, messages, 0), float(idle)) is not acts
