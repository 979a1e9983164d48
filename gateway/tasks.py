"""Background tasks that somebody holds: the one place where a task is created.

Rule: a task is referenced until it ends and its failure is reported, never lost to the garbage collector.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
OnFailure = Callable[[str, BaseException], None]


class Tasks:
    """A group of tasks that ends together. `on_failure(name, error)` hears of every task that raised."""

    def __init__(self, on_failure: OnFailure | None = None) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None  # held: asking which one runs is not free
        self.on_failure = on_failure

    def __len__(self) -> int:
        return len(self._running)

    def start(self, work: Coroutine[Any, Any, T], *, name: str) -> "asyncio.Task[T]":
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        task = self._loop.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def drain(self, seconds: float) -> bool:
        """Wait for all tasks at most `seconds`; true when none is left."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=seconds)
        return not self._running

    async def close(self) -> None:
        """Cancel what still runs and wait until it is gone."""
        while running := [task for task in self._running if task is not asyncio.current_task()]:
            for task in running:
                task.cancel()
            await asyncio.wait(running)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self.on_failure is not None:
            self.on_failure(task.get_name(), error)
