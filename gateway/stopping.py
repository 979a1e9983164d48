"""When a process is to end: by a signal, or with the process that started it.

Rule: told once, what runs may end within its time; told again, it is cut short.
"""

import asyncio
import signal
from collections.abc import Callable


class Stopping:
    """SIGINT or SIGTERM: what runs may end, within its time. Once more: it is cut short."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.hurry: Callable[[], object] = lambda: None
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(signum, self._ask)

    def with_the_end_of(self, pipe: int) -> None:
        """Stop also when a pipe ends, which nobody writes to."""

        def ended() -> None:
            self._loop.remove_reader(pipe)  # it stays readable
            self._asked.set()

        self._loop.add_reader(pipe, ended)

    async def wait(self) -> None:
        await self._asked.wait()

    def _ask(self) -> None:
        if self._asked.is_set():
            self.hurry()
        self._asked.set()
