"""What holds for every load: nothing is lost, nothing is computed twice without cause, no limit is passed."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.scheduler import Limits, Scheduler
from loadtest.sequence import Sequence
from tests.unit.loadtest.stepping import sequence

BLOCK_TOKENS = 4


@dataclass(frozen=True)
class Arrival:
    step: int
    prompt: tuple[int, ...]
    output_tokens: int
    salt: str | None
    priority: int
    leaves_after: int | None


@st.composite
def arrivals(draw: st.DrawFn) -> Arrival:
    """Prompts over a tiny alphabet, so that prefixes meet often."""
    prompt = draw(st.lists(st.sampled_from([1, 1, 1, 2]), min_size=1, max_size=24))
    return Arrival(
        draw(st.integers(0, 12)),
        tuple(prompt),
        draw(st.integers(1, 12)),
        draw(st.sampled_from([None, None, "a", "b"])),
        draw(st.integers(-1, 1)),
        draw(st.none() | st.integers(0, 10)),
    )


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    return Limits(
        max_batched_tokens=draw(st.integers(4, 40)),
        max_sequences=draw(st.integers(1, 4)),
        block_tokens=BLOCK_TOKENS,
        blocks=draw(st.integers(10, 24)),
        prefix_caching=draw(st.booleans()),
        by_priority=draw(st.booleans()),
    )


@settings(max_examples=200, deadline=None)
@given(limits(), st.lists(arrivals(), min_size=1, max_size=8))
def test_every_load_ends_within_the_limits(sizes: Limits, load: list[Arrival]) -> None:
    scheduler = Scheduler(sizes)
    works = [
        sequence(str(at), each.prompt, each.output_tokens, each.salt, each.priority, float(each.step))
        for at, each in enumerate(load)
    ]
    tokens = dict.fromkeys(works, 0)
    gone: set[Sequence] = set()
    for now in range(2_000):
        for each, work in zip(load, works, strict=True):
            if each.step == now:
                scheduler.add(work)
            if each.leaves_after is not None and each.step + each.leaves_after == now and not work.finished:
                scheduler.abort(work.key)
                gone.add(work)
        step = scheduler.begin(float(now))
        check_step(scheduler, step.tokens, [share.sequence for share in step.shares])
        for token in scheduler.finish(step, now + 1.0):
            assert token.index == tokens[token.sequence], "tokens come in order, none twice"
            tokens[token.sequence] += 1
        if scheduler.idle and now > 12:
            break
    assert all(work.finished for work in works if work not in gone), "everybody who stays is served"
    assert all(tokens[work] == work.output_tokens for work in works if work not in gone)
    assert scheduler.pool.used == 0, "every block came back"


def check_step(scheduler: Scheduler, step_tokens: int, in_step: list[Sequence]) -> None:
    sizes, running = scheduler.limits, scheduler.running
    assert step_tokens <= sizes.max_batched_tokens
    assert len(running) <= sizes.max_sequences
    assert len(set(map(id, in_step))) == len(in_step), "one share each"
    held = {block for work in running for block in work.blocks}
    assert len(held) == scheduler.pool.used <= sizes.blocks
    for work in running:
        assert len(work.blocks) == len(set(work.blocks))
        assert len(work.blocks) * BLOCK_TOKENS >= work.computed_tokens
    for work in scheduler.waiting:
        assert not work.blocks


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([1, 2]), min_size=1, max_size=30), st.lists(st.sampled_from([1, 2]), max_size=30))
def test_a_hit_is_the_common_prefix_in_whole_blocks(first: list[int], second: list[int]) -> None:
    scheduler = Scheduler(Limits(64, 8, BLOCK_TOKENS, 100))
    scheduler.add(sequence("first", first, 1))
    while not scheduler.idle:
        scheduler.finish(scheduler.begin(0.0), 0.0)
    again = sequence("second", [*second, 9], 1)
    scheduler.add(again)
    while not scheduler.idle:
        scheduler.finish(scheduler.begin(0.0), 0.0)
    common = next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
    assert again.cached_tokens == common // BLOCK_TOKENS * BLOCK_TOKENS
