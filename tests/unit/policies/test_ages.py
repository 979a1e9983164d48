"""Since when messages are there."""

from hypothesis import given
from hypothesis import strategies as st

from policies.ages import STEPS, Ages, noted
from policies.memory import Memory, Seen

calls = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 4)), max_size=300)


@given(calls, st.integers(1, 5_000))
def test_no_message_is_taken_for_older_than_it_is_and_little_is_kept(calls: list[tuple[int, int]], keep: int) -> None:
    seen: tuple[Seen, ...] = ()
    now, messages, truth = 1_000_000, 0, list[int]()
    for later, more in calls:
        now, messages = now + later, messages + more
        truth += [now] * more
        seen = noted(seen, messages, now, keep)
        assert len(seen) <= STEPS + 4 or keep < 2 * STEPS
        for seconds in (keep, keep // 2):
            old = Ages(seen, now).older_than(seconds)
            really = sum(at <= now - seconds for at in truth)
            assert old <= really
        sure = sum(at <= now - keep - keep // STEPS - 1 for at in truth)
        assert Ages(seen, now).older_than(keep) >= sure


def test_what_was_seen_is_remembered() -> None:
    memory = Memory(seen=noted((), 5, 1_000.0, 60))
    assert Memory.loads(memory.dumps()) == memory


def test_without_memory_nothing_is_old() -> None:
    assert Ages((), 1e9).older_than(1) == 0
