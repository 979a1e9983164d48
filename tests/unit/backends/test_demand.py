"""Phase is decided by time."""

from backends.demand import phase
from tests.unit.backends.demands import demand


def test_phase_compares_predicted_seconds() -> None:
    assert phase(demand(3.0, 2.0), prefill_heavy_above=1.0) == "prefill"
    assert phase(demand(2.0, 2.0), prefill_heavy_above=1.0) == "decode"
    assert phase(demand(3.0, 2.0), prefill_heavy_above=2.0) == "decode"


def test_a_call_that_decodes_nothing_is_prefill() -> None:
    assert phase(demand(0.1, 0.0), prefill_heavy_above=5.0) == "prefill"
