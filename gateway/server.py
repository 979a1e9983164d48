"""The front: listens, holds the clients' connections, ends those that are past their time, drains.

Rule: a server that drains accepts no more and lets what runs end.
"""

import asyncio
import ssl
from email.utils import formatdate
from typing import Final

from gateway.client_connection import ClientConnection, Handle, Limits, Refuse
from gateway.clock import Clock
from gateway.tasks import Tasks

LOOK_EVERY_SECONDS: Final = 0.05
"""How often a server that drains looks whether requests are still coming in."""


class Server:
    """Listens, holds the connections, ends those that are past their time."""

    def __init__(self, handle: Handle, refuse: Refuse, tasks: Tasks, clock: Clock, limits: Limits):
        self.handle = handle
        self.refuse = refuse
        self.tasks = tasks
        self.clock = clock
        self.limits = limits
        self.connections: set[ClientConnection] = set()
        self.draining = False
        self.date = date_line()
        self.port = 0
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int, *, tls: ssl.SSLContext | None = None, shared: bool = False) -> int:
        """Begin to accept; gives the port (the one asked for, or a free one for 0). Raises `OSError` if it is taken.

        `shared`: other processes listen on the same port, and the system deals connections out among them.
        """
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: ClientConnection(self), host, port, ssl=tls, reuse_address=True, reuse_port=shared, backlog=4096
        )
        self.port = int(self._listener.sockets[0].getsockname()[1])
        return self.port

    def sweep(self) -> None:
        """Called about twice a second."""
        now = self.clock()
        self.date = date_line()
        for connection in [late for late in self.connections if late.deadline < now]:
            connection.timed_out()
        oldest = now - self.limits.unread_seconds
        for connection in [slow for slow in self.connections if slow.unread_since < oldest]:
            connection.unread()

    async def drain(self, seconds: float) -> bool:
        """Accept no more, let what runs end; true when all ended within `seconds`."""
        self.draining = True
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.drain()
        until = self.clock() + seconds
        await self.tasks.drain(seconds)
        while (left := until - self.clock()) > 0 and self._receiving():
            await asyncio.sleep(min(left, LOOK_EVERY_SECONDS))
            await self.tasks.drain(max(0.0, until - self.clock()))
        return not self.tasks

    def _receiving(self) -> bool:
        return any(each.receiving for each in self.connections)

    def close(self) -> None:
        for connection in list(self.connections):
            connection.cut()


def date_line() -> bytes:
    """The `date` header line of now; renewed with every sweep, which is as exact as its whole seconds."""
    return b"date: %b\r\n" % formatdate(usegmt=True).encode("ascii")
