"""The rest of the benchmark that decides something: the search, the readers of other programs, the entries of peers."""

import json
from pathlib import Path

import pytest

from bench import cap
from bench.gateways import BENCH, choose, known
from bench.machine import BenchError
from bench.rig import figures, with_store
from bench.scenarios import FULL, QUICK, chat_body, scenarios
from bench.strace import counts, data_calls
from config.load import parse

STRACE = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.600000          60     10000           write
 30.00    0.300000          30      9000        17 read
 10.00    0.100000          10       500           epoll_wait
------ ----------- ----------- --------- --------- ----------------
100.00    1.000000          51     19500        17 total
"""


@pytest.mark.parametrize(("limit", "start"), [(1331, 700), (28, 100), (1700, 1500), (3, 8)])
def test_the_search_comes_close_to_the_limit_from_below(limit: int, start: int) -> None:
    tried: list[int] = []

    def passes(count: int) -> bool:
        tried.append(count)
        return count <= limit

    found = cap.most_streams(passes, start)
    assert found <= limit
    assert limit - found <= max(2, 0.15 * limit)
    assert len(tried) <= cap.TRIES


def test_nothing_carried_is_zero() -> None:
    assert cap.most_streams(lambda _: False, 100) == 0


def test_the_search_ends_at_the_most_that_is_tried() -> None:
    assert cap.most_streams(lambda _: True, 1500) == cap.MOST_STREAMS


@pytest.mark.parametrize(
    ("change", "passes"),
    [({}, True), ({"cps": 900.0}, False), ({"dly_p99_us": 10_600.0}, False), ({"errs": 2.0}, False)],
)
def test_carried_means_in_time_and_without_errors(change: dict[str, float], passes: bool) -> None:
    good = {"cps": 1000.0, "want_cps": 1000.0, "dly_p99_us": 10_400.0, "ok": 1000.0, "errs": 1.0}
    assert cap.carried(good | change, direct_p99_us=500.0) is passes


def test_the_summary_of_strace_is_read_by_name_with_and_without_errors() -> None:
    calls = counts(STRACE)
    assert calls == {"write": 10000, "read": 9000, "epoll_wait": 500}
    assert data_calls(calls) == 19000


def test_what_the_load_generator_says_is_numbers_only() -> None:
    assert figures('{"ok": 5, "rps": 2.5, "err": "status 500"}') == {"ok": 5.0, "rps": 2.5}


def test_a_time_to_first_token_of_no_stream_is_absent_not_zero() -> None:
    assert figures('{"ok": 1, "ttft_n": 0, "ttft_p50_us": 0.0}') == {"ok": 1.0, "ttft_n": 0.0}
    assert figures('{"ok": 1, "ttft_n": 2, "ttft_p50_us": 90.5}')["ttft_p50_us"] == 90.5


def test_a_load_without_any_success_is_a_failure_in_its_own_words() -> None:
    with pytest.raises(BenchError, match="status 401"):
        figures('{"ok": 0, "chunks": 0, "err": "status 401"}')
    with pytest.raises(BenchError, match="bind"):
        figures("bind: in use")


def test_the_store_is_added_to_the_gateway_and_taken_from_the_neighbours() -> None:
    found = with_store({"run_s_per_1k": 0.04, "other_cpu": 0.3}, store_seconds=0.8, calls=40_000, elapsed_seconds=4.0)
    assert found["all_s_per_1k"] == pytest.approx(0.06)
    assert found["neighbours"] == pytest.approx(0.1)


def test_the_engine_alone_has_no_gateway_to_add_to() -> None:
    assert "all_s_per_1k" not in with_store({"rps": 1.0}, 0.0, 10, 1.0)


def test_peers_are_pinned_to_a_version() -> None:
    packages = [package for gateway in known().values() for package in gateway.packages]
    assert {"vllm-router"} <= {package.partition("==")[0] for package in packages}
    assert all("==" in package for package in packages)


def test_an_unknown_peer_is_named_with_those_that_are_known() -> None:
    with pytest.raises(BenchError, match=r"nobody.*vllm-router"):
        choose(["kvgate", "nobody"])


def test_the_measured_gateway_has_everything_on() -> None:
    config = parse((BENCH / "kvgate.yaml").read_text())
    tier = config.tiers[config.tenants["bench"].tier]
    assert [policy.kind for policy in tier.policies] == ["trim_tool_output", "keep_recent_turns"]
    assert tier.budgets
    assert tier.context is not None
    assert tier.max_tokens is not None


def test_streams_live_once_before_they_are_measured(tmp_path: Path) -> None:
    (streams,) = (each for each in scenarios(tmp_path) if each.stream)
    assert streams.command(FULL)[-2:] == ["-w", "3.0"]
    assert streams.command(QUICK)[-2:] == ["-w", "2.5"]


def test_a_chat_is_messages_of_a_thousand_characters_in_turn(tmp_path: Path) -> None:
    scenarios(tmp_path)
    messages = json.loads((tmp_path / "chat.json").read_text())["messages"]
    assert {len(message["content"]) for message in messages} == {1000}
    assert [message["role"] for message in messages[:3]] == ["user", "assistant", "user"]
    assert len({message["content"] for message in messages}) == len(messages) == 20
    assert chat_body(1)["max_tokens"] == 64
