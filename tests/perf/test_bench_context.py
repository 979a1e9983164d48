"""The context bench: its own arithmetic, and the bars that the shipped policies hold."""

from pathlib import Path

import pytest

from bench.context_figures import Figures, figures
from bench.context_plot import svg
from bench.context_replay import Machine, Served, Tier, replayed
from bench.context_sessions import Session, forty_steps, forty_turns, real
from bench.context_table import costs, table
from bench.context_tiers import FORTY, NONE, REAL, SLIDING_TURNS, TOGETHER, Scale, tiers
from bench.probes import Kept
from budgets.cost import kv_read_bytes
from config import catalogue
from gateway.tokens import counter
from policies.cap_context import CapContext
from policies.keep_recent_turns import KeepRecentTurns


@pytest.fixture(scope="module")
def machine() -> Machine:
    model, gpu = catalogue.model("llama-3.1-8b"), catalogue.gpu("h100-sxm")
    assert model is not None and gpu is not None
    return Machine(model.geometry, gpu)


def named(scale: Scale, name: str) -> Tier:
    return next(tier for tier in tiers(scale) if tier.name == name)


def run(session: Session, tier: Tier, machine: Machine) -> list[Served]:
    return [answer for answer in replayed(session, tier, machine) if isinstance(answer, Served)]


def test_without_a_policy_every_token_is_computed_once(machine: Machine) -> None:
    calls = run(forty_turns(200, turns=5), named(FORTY, NONE), machine)
    last = calls[-1]
    assert len(calls) == 10 and not any(call.broken for call in calls)
    assert last.sent == last.original and last.prompt_tokens == last.original.total_tokens
    computed = sum(call.prompt_tokens - call.cached_tokens for call in calls)
    replies = sum(call.decode_tokens for call in calls[:-1])
    assert 0 <= computed + replies - last.prompt_tokens < 16 * len(calls)
    assert last.read_bytes(machine) == kv_read_bytes(machine.geometry, last.prompt_tokens, last.decode_tokens)


def test_a_window_that_slides_breaks_the_prefix_whenever_a_turn_is_added(machine: Machine) -> None:
    calls = run(forty_turns(200, turns=8), named(FORTY, SLIDING_TURNS), machine)
    assert sum(call.broken for call in calls) == 4  # a turn less is kept beside the first one and the latest three


def test_outputs_are_as_long_as_they_are_said_to_be() -> None:
    outputs = [message for message in forty_turns().wire if message["role"] == "tool"]
    count = counter()
    assert len({output["content"] for output in outputs}) == len(outputs) == 40
    assert all(1950 <= count(output["content"]) <= 2000 for output in outputs)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{}", "line 1 is no session"),
        ('{"name": "a", "messages": []}', "line 1 is no session"),
        ('{"name": "a", "messages": [{"role": "user", "content": "Hi."}]}', "line 1: a session needs"),
    ],
)
def test_a_file_that_is_no_session_is_told_with_its_line(line: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are no sessions"):
        real(tmp_path)
    (tmp_path / "mine.jsonl").write_text(line)
    with pytest.raises(ValueError, match=f"mine.jsonl, {told}"):
        real(tmp_path)


def test_a_session_ends_where_a_call_is_refused(machine: Machine) -> None:
    tier = Tier("capped", (CapContext(limit_tokens=1000),))
    found = figures([forty_turns(300, turns=5)], tier, machine)
    assert (found.calls, found.refused) == (5, 1)
    assert found.largest_tokens <= 1000


@pytest.mark.parametrize("session", [forty_turns(), forty_steps()], ids=["turns", "steps"])
@pytest.mark.parametrize("name", [TOGETHER, f"{TOGETHER}, economic"])
def test_forty_outputs_break_the_prefix_at_most_four_times_below_the_trigger(
    session: Session, name: str, machine: Machine
) -> None:
    calls = run(session, named(FORTY, name), machine)
    assert len(calls) == len(list(session.calls()))
    assert sum(call.broken for call in calls) <= 4
    assert max(call.prompt_tokens for call in calls) <= FORTY.trigger_tokens


def test_a_deep_window_alone_breaks_it_no_oftener(machine: Machine) -> None:
    calls = run(forty_turns(), named(FORTY, "window to 1/4"), machine)
    assert sum(call.broken for call in calls) <= 4
    assert max(call.prompt_tokens for call in calls) <= FORTY.trigger_tokens


def test_real_sessions_read_forty_percent_less_and_compute_no_more(machine: Machine) -> None:
    sessions = real()
    assert len(sessions) == 20
    none, together = (figures(sessions, named(REAL, name), machine) for name in (NONE, TOGETHER))
    assert together.kv_read_bytes <= 0.6 * none.kv_read_bytes
    assert together.prefill_tokens <= none.prefill_tokens
    assert none.kept.share("retained") == 1.0 > together.kept.share("retained") > 0.3


def row(tier: str, **changes: int) -> Figures:
    sizes = {"calls": 3, "refused": 0, "breaks": 0, "largest_tokens": 9, "prompt_tokens": 20, "prefill_tokens": 10}
    kept = Kept({("number", "retained"): 3, ("number", "lost"): 1})
    return Figures(tier=tier, kv_read_bytes=4 * 10**12, seconds=1.0, kept=kept, **sizes | changes)


def test_the_table_tells_shares_of_the_first_row() -> None:
    lines = costs([row("none"), row("half & half", prefill_tokens=5, breaks=2)]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert " 5 (0.50) |" in lines[3] and "0.75 |" in lines[3] and "75% |" in lines[3]
    assert table(["a", "b"], [["x", "1"]]).splitlines()[1] == "| - | : |"


def test_the_plot_names_every_tier_and_leaves_out_what_was_refused() -> None:
    drawn = svg({"sessions": [row("none"), row("a & b", prefill_tokens=11), row("stopped", refused=1)]})
    assert "a &amp; b" in drawn and "stopped" not in drawn
    assert (drawn.count('class="dear" cx'), drawn.count('class="good" cx')) == (2, 1)


def test_an_economic_step_waits_until_it_pays(machine: Machine) -> None:
    window = (KeepRecentTurns(high_water_tokens=4000, low_water_tokens=3000),)
    session = forty_turns(500, turns=16)
    eager, patient = (run(session, Tier("", window, economic=economic), machine) for economic in (False, True))
    assert sum(call.broken for call in patient) < sum(call.broken for call in eager)


def test_with_all_kept_nothing_is_lost_that_a_window_drops(machine: Machine) -> None:
    for name, keeps in ((f"{TOGETHER}, all kept", True), (TOGETHER, False)):
        kept = figures([forty_turns(700, turns=24)], named(Scale(6_000, 300, 64, 300, capped=True), name), machine).kept
        assert (kept.share("lost") == 0) is keeps and (kept.share("recoverable") > 0.3) is keeps
