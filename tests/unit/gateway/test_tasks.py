"""Tasks end together, and a failure is heard of."""

import asyncio

import pytest

from gateway.tasks import Tasks


async def test_a_failure_is_reported_with_its_name() -> None:
    heard: list[tuple[str, str]] = []
    tasks = Tasks(lambda name, error: heard.append((name, type(error).__name__)))

    async def fails() -> None:
        raise ValueError

    task = tasks.start(fails(), name="probe main/a")
    with pytest.raises(ValueError):
        await task
    assert heard == [("probe main/a", "ValueError")]
    assert len(tasks) == 0


async def test_an_end_and_a_cancellation_are_no_failures() -> None:
    heard: list[str] = []
    tasks = Tasks(lambda name, _: heard.append(name))
    ended = tasks.start(asyncio.sleep(0), name="a")
    tasks.start(asyncio.sleep(600), name="b")
    await ended
    await tasks.close()
    assert (heard, len(tasks)) == ([], 0)


async def test_draining_waits_and_cancels_nothing() -> None:
    tasks = Tasks()
    go = asyncio.Event()
    task = tasks.start(go.wait(), name="a")
    assert await tasks.drain(0.0) is False
    assert not task.done()
    go.set()
    assert await tasks.drain(30.0) is True


async def test_closing_waits_for_what_a_task_does_last() -> None:
    tasks, done = Tasks(), asyncio.Event()

    async def works() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(0)
            done.set()

    tasks.start(works(), name="a")
    await asyncio.sleep(0)
    await tasks.close()
    assert done.is_set()


async def test_a_task_may_close_the_group_it_belongs_to() -> None:
    tasks = Tasks()
    other = tasks.start(asyncio.sleep(600), name="other")
    await tasks.start(tasks.close(), name="closer")
    assert other.cancelled()
