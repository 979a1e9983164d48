"""Continuous batching: who computes what in which step."""

import pytest

from loadtest.scheduler import Limits, Scheduler
from tests.unit.loadtest.stepping import run, sequence


def limits(**changes: int | bool) -> Limits:
    sizes = {"max_batched_tokens": 64, "max_sequences": 8, "block_tokens": 4, "blocks": 100, **changes}
    return Limits(**sizes)  # type: ignore[arg-type]  # ints and bools by name


def test_a_prompt_and_then_one_token_a_step() -> None:
    scheduler, work = Scheduler(limits()), sequence("a", range(10), 3)
    scheduler.add(work)
    steps = run(scheduler)
    assert [[(share.new_tokens, share.context_tokens) for share in step.shares] for step in steps] == [
        [(10, 0)],
        [(1, 10)],
        [(1, 11)],
    ]
    assert [step.decode_contexts for step in steps] == [(), (10,), (11,)]
    assert work.finished and scheduler.pool.used == 0


def test_a_long_prompt_is_computed_in_chunks_that_leave_room_for_running_ones() -> None:
    scheduler = Scheduler(limits(max_batched_tokens=8))
    scheduler.add(sequence("short", range(4), 3))
    scheduler.add(sequence("long", range(100, 115), 1))
    steps = run(scheduler)
    assert [[share.new_tokens for share in step.shares] for step in steps] == [[4, 4], [1, 7], [1, 4]]


def test_first_come_first_served_within_the_sequence_limit() -> None:
    scheduler = Scheduler(limits(max_sequences=2))
    for name in "abc":
        scheduler.add(sequence(name, range(4), 2))
    steps = run(scheduler)
    assert [[work.key.request for work in step.admitted] for step in steps] == [["a", "b"], [], ["c"], []]


def test_a_head_that_does_not_fit_holds_back_those_behind_it() -> None:
    scheduler = Scheduler(limits(blocks=6))
    scheduler.add(sequence("first", range(12), 4))
    scheduler.add(sequence("large", range(100, 116), 4))
    scheduler.add(sequence("small", range(200, 202), 1))
    assert [work.key.request for work in scheduler.begin(0.0).admitted] == ["first"]


def test_the_second_of_two_equal_prompts_is_served_from_the_cache() -> None:
    scheduler = Scheduler(limits())
    first, second = sequence("a", range(10), 1), sequence("b", range(10), 1)
    scheduler.add(first)
    run(scheduler)
    scheduler.add(second)
    steps = run(scheduler)
    assert (first.cached_tokens, second.cached_tokens) == (0, 8)
    assert steps[0].prefill == ((2, 8),)


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    scheduler = Scheduler(limits())
    for name in "ab":
        scheduler.add(sequence(name, range(8), 1))
        run(scheduler)
    scheduler.add(again := sequence("c", range(8), 1))
    run(scheduler)
    assert again.cached_tokens == 4, "the block that holds the last token is not taken from the cache"


def test_generated_tokens_are_cached_too() -> None:
    scheduler = Scheduler(limits())
    scheduler.add(first := sequence("a", range(4), 9))
    run(scheduler)
    scheduler.add(second := sequence("b", [*first.tokens[:13], 7], 1))
    run(scheduler)
    assert second.cached_tokens == 12


def test_another_salt_finds_nothing() -> None:
    scheduler = Scheduler(limits())
    works = [
        sequence("a", range(10), 1, salt="one"),
        sequence("b", range(10), 1, salt="two"),
        sequence("c", range(10), 1),
    ]
    for work in works:
        scheduler.add(work)
        run(scheduler)
    assert [work.cached_tokens for work in works] == [0, 0, 0]


def test_without_prefix_caching_nothing_is_found() -> None:
    scheduler = Scheduler(limits(prefix_caching=False))
    works = [sequence("a", range(10), 1), sequence("b", range(10), 1)]
    for work in works:
        scheduler.add(work)
        run(scheduler)
    assert [work.cached_tokens for work in works] == [0, 0]


def test_the_tail_is_preempted_and_computes_everything_anew() -> None:
    scheduler = Scheduler(limits(blocks=5, prefix_caching=False))
    first, last = sequence("first", range(8), 8), sequence("last", range(100, 108), 8)
    scheduler.add(first)
    scheduler.add(last)
    steps = run(scheduler)
    preempting = next(step for step in steps if step.preempted)
    assert preempting.preempted == (last,)
    assert preempting.admitted == (), "a step that preempted admits nobody"
    assert (first.preemptions, last.preemptions) == (0, 1)
    again = [share for step in steps for share in step.shares if share.sequence is last and share.context_tokens == 0]
    assert again[-1].new_tokens > last.prompt_tokens, "prompt and what was generated"
    assert last.finished


def test_nobody_is_admitted_on_a_step_that_preempted_even_if_there_is_room() -> None:
    scheduler = Scheduler(limits(blocks=4, max_sequences=2, by_priority=True, prefix_caching=False))
    scheduler.add(sequence("first", range(8), 4))
    scheduler.add(last := sequence("last", range(100, 108), 4, priority=5))
    scheduler.finish(scheduler.begin(0.0), 1.0)
    scheduler.add(urgent := sequence("urgent", range(2), 1, priority=-1))
    preempting = scheduler.begin(1.0)
    assert (preempting.preempted, preempting.admitted) == ((last,), ())
    assert scheduler.pool.fits(1), "there was room for the urgent one"
    scheduler.finish(preempting, 2.0)
    assert scheduler.begin(2.0).admitted == (urgent,)


def test_the_preempted_comes_back_before_those_who_wait() -> None:
    scheduler = Scheduler(limits(blocks=5, max_sequences=2, prefix_caching=False))
    for name, start in (("first", 0), ("last", 100), ("waiting", 200)):
        scheduler.add(sequence(name, range(start, start + 8), 8))
    admitted = [work.key.request for step in run(scheduler) for work in step.admitted]
    assert admitted[:4] == ["first", "last", "last", "waiting"]


def test_priorities_decide_who_comes_first_and_who_gives_way() -> None:
    scheduler = Scheduler(limits(max_sequences=1, by_priority=True))
    for name, priority in (("late", 5), ("soon", -1), ("normal", 0)):
        scheduler.add(sequence(name, range(4), 1, priority=priority))
    admitted = [work.key.request for step in run(scheduler) for work in step.admitted]
    assert admitted == ["soon", "normal", "late"]


def test_an_abort_frees_the_blocks_at_once() -> None:
    scheduler, work = Scheduler(limits()), sequence("a", range(10), 5)
    scheduler.add(work)
    step = scheduler.begin(0.0)
    assert scheduler.abort(work.key) is work
    assert scheduler.pool.used == 0
    assert scheduler.finish(step, 1.0) == [], "a step that was under way brings it nothing"
    assert scheduler.idle


def test_an_abort_of_something_unknown_is_nothing() -> None:
    assert Scheduler(limits()).abort(sequence("a", range(4), 1).key) is None


def test_tokens_from_elsewhere_are_not_computed() -> None:
    scheduler, work = Scheduler(limits()), sequence("a", range(20), 2)
    work.external_tokens = 19
    scheduler.add(work)
    steps = run(scheduler)
    assert [step.tokens for step in steps] == [1, 1]
    assert (work.cached_tokens, work.known_tokens) == (0, 19)


def test_pinned_blocks_stay_until_they_are_let_go() -> None:
    scheduler, work = Scheduler(limits()), sequence("a", range(8), 1)
    work.pinned = True
    scheduler.add(work)
    run(scheduler)
    assert scheduler.pool.used == 2
    scheduler.unpin(work)
    assert scheduler.pool.used == 0


def test_what_could_never_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="never fit"):
        Scheduler(limits(blocks=2)).add(sequence("a", range(8), 1))


def test_gaps_are_counted_from_the_token_before_and_from_arrival() -> None:
    scheduler, work = Scheduler(limits()), sequence("a", range(4), 2, at=1.0)
    scheduler.add(work)
    first = scheduler.finish(scheduler.begin(2.0), 3.0)
    second = scheduler.finish(scheduler.begin(3.0), 3.5)
    assert [(token.index, token.gap_seconds) for token in first + second] == [(0, 2.0), (1, 0.5)]
