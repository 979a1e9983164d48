"""What a call that has ended leaves in the metrics."""

import json

import pytest

from backends.frames import Usage as Told
from budgets.cost import kv_read_bytes
from gateway.call import Call
from gateway.context import Planned
from gateway.counting import Counter
from gateway.measure import Measure
from gateway.metrics import Metrics
from gateway.passage import Passage
from gateway.service import Service
from policies.memory import EMPTY
from tests.unit.gateway.samples import call as chat
from tests.unit.gateway.samples import caller, model
from tests.unit.gateway.scraping import labels, scraped


def said(**fields: object) -> Call:
    return chat(json.dumps({"model": "demo", "messages": [{"role": "user", "content": "Hi"}]} | fields).encode())


def passage(call: Call | None = None) -> Passage:
    made = Passage(call or said(), Service(caller(), model(), (), Counter(len)), "r-1", started_at=10.0)
    made.delivery.pool = "main"
    return made


def ended(made: Passage, now: float = 20.0) -> Metrics:
    metrics = Metrics()
    Measure(metrics, lambda: now).ended(made, made.delivery.outcome, made.bill(33))
    return metrics


def test_an_answered_call() -> None:
    made = passage()
    made.phase = "prefill"
    made.delivery.outcome, made.delivery.sent = "ok", True
    made.delivery.usage, made.delivery.first_at = Told(100, 60, 11), 12.0
    metrics = ended(made, now=17.0)
    found, who = scraped(metrics), {"tenant": "acme", "model": "demo", "pool": "main"}
    assert metrics.requests.values == {("acme", "standard", "main", "ok"): 1}
    for kind, tokens in (("prefill", 40), ("cached", 60), ("decode", 11)):
        assert found["kvgate_tokens_total", labels(**who, kind=kind)] == tokens
    read = kv_read_bytes(made.service.model.geometry, 100, 11)
    assert found["kvgate_kv_read_bytes_total", labels(**who)] == read
    assert metrics.ttft.of("prefill", "main").total == 2.0
    assert metrics.tpot.of("prefill", "main").total == 0.5
    assert metrics.estimated.values == {}


def test_choices_read_the_prompt_each_for_itself() -> None:
    made = passage(said(n=4))
    made.delivery.usage = Told(100, None, 40)
    found = scraped(ended(made))
    read = found["kvgate_kv_read_bytes_total", labels(tenant="acme", model="demo", pool="main")]
    assert read == 4 * kv_read_bytes(made.service.model.geometry, 100, 10)


def test_a_refused_call_is_a_request_and_nothing_else() -> None:
    made = passage()
    made.delivery.pool, made.delivery.outcome = "", "denied"
    metrics = ended(made)
    assert metrics.requests.values == {("acme", "standard", "", "denied"): 1}
    assert not any(name.startswith(("kvgate_tokens", "kvgate_kv", "kvgate_time")) for name, _ in scraped(metrics))


def test_one_token_has_no_time_per_token() -> None:
    made = passage()
    made.delivery.usage, made.delivery.first_at = Told(10, None, 1), 12.0
    metrics = ended(made)
    assert metrics.ttft.series
    assert metrics.tpot.series == {}


@pytest.mark.parametrize("outcome", ["ok", "broken", "client_gone"])
def test_without_a_report_the_frames_count_and_it_is_said(outcome: str) -> None:
    made = passage()
    made.delivery.outcome, made.delivery.sent, made.delivery.counted_tokens = outcome, True, 7  # type: ignore[assignment]
    used = made.usage(33)
    assert used is not None
    assert (used.prompt_tokens, used.decode_tokens, used.source) == (33, 7, "estimated")
    assert ended(made).estimated.values == {("acme",): 1}


def test_a_counted_prompt_goes_before_an_expected_one() -> None:
    made = passage()
    made.delivery.outcome, made.delivery.sent = "client_gone", True
    made.planned = Planned((), 500, 400, EMPTY, counted=True)
    used = made.usage(33)
    assert used is not None
    assert (used.prompt_tokens, used.decode_tokens) == (400, 0)
    made.planned = Planned((), 500, 400, EMPTY, counted=False)
    assert made.usage(33) is not None and made.usage(33) != used


@pytest.mark.parametrize("outcome", ["engine_failed", "engine_refused", "failed", "refused"])
def test_a_call_that_no_engine_worked_for_is_not_charged(outcome: str) -> None:
    made = passage()
    made.delivery.outcome, made.delivery.sent, made.delivery.counted_tokens = outcome, True, 7  # type: ignore[assignment]
    assert made.usage(33) is None


def test_a_client_that_left_before_anything_was_sent_is_not_charged() -> None:
    made = passage()
    made.delivery.outcome = "client_gone"
    assert made.usage(33) is None
