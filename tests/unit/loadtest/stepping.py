"""Sequences with tokens made up for a test, and a scheduler run to its end without a clock."""

from array import array
from collections.abc import Iterable
from zlib import crc32

from loadtest.scheduler import Scheduler, Step
from loadtest.sequence import Key, Sequence


def sequence(
    name: str, prompt: Iterable[int], output_tokens: int, salt: str | None = None, priority: int = 0, at: float = 0.0
) -> Sequence:
    """A sequence whose generated tokens differ from every other's."""
    start = array("I", prompt)
    first = 1_000_000 + crc32(name.encode()) % 1_000_000
    said = array("I", range(first, first + output_tokens))
    return Sequence(Key(name), start + said, len(start), at, salt=salt, priority=priority)


def run(scheduler: Scheduler, limit: int = 10_000) -> list[Step]:
    """Steps until nothing waits or runs; fails when that takes more than `limit`."""
    steps: list[Step] = []
    while not scheduler.idle:
        assert len(steps) < limit, "the scheduler makes no progress"
        steps.append(scheduler.begin(float(len(steps))))
        scheduler.finish(steps[-1], float(len(steps)))
    return steps
