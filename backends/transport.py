"""The connections to one replica: open, keep alive, time out, close.

Rule: what can go wrong on a socket is mapped here and in `connection.py`, once, to `UpstreamFailed`. Raw protocols and
llhttp, because a general client's layers cost more per chunk than everything else we do (docs/adr/0006).
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from urllib.parse import urlsplit

from backends.connection import Connection
from backends.exchange import Exchange, UpstreamFailed


class Transport:
    """The connections to one replica at `url` (scheme, host, port). Times in seconds."""

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], float],
        connect_seconds: float = 2.0,
        first_byte_seconds: float = 600.0,
        idle_seconds: float = 120.0,
        keep_alive_seconds: float = 4.0,
    ) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or "127.0.0.1"
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self.authority = parts.netloc.encode()
        self._clock = clock
        self._connect_seconds = connect_seconds
        self._first_byte_seconds = first_byte_seconds
        self._idle_seconds = idle_seconds
        self._keep_alive_seconds = keep_alive_seconds  # shorter than the engine's own 5 s
        self._idle: deque[Connection] = deque()
        self._busy: set[Connection] = set()

    def idle_deadline(self) -> float:
        return self._clock() + self._idle_seconds

    async def open(self, data: bytes) -> Exchange:
        """Send a whole request and wait for the head of its answer.

        A kept-alive connection that dies before any byte was stale: the request goes out once more on a fresh one.
        Raises `UpstreamFailed`; cancelling closes the connection.
        """
        kept = self._kept()
        while True:
            connection = kept or await self._connected()
            exchange = Exchange(connection, connection.loop, reused=kept is not None)
            self._busy.add(connection)
            connection.send(exchange, data, self._clock() + self._first_byte_seconds)
            try:
                await exchange.head
                return exchange
            except asyncio.CancelledError:
                exchange.abort()
                raise
            except UpstreamFailed as failure:
                if not failure.stale:
                    raise
                failure.with_traceback(None)
            kept = None

    def _kept(self) -> Connection | None:
        oldest = self._clock() - self._keep_alive_seconds
        while self._idle:
            connection = self._idle.pop()  # the most recently used: the others may go stale and be closed
            if connection.usable and connection.idle_since > oldest:
                return connection
            connection.fail("aborted")
        return None

    async def _connected(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, connection = await loop.create_connection(
                    lambda: Connection(self, loop), self._host, self._port, ssl=self._tls
                )
        except TimeoutError as error:
            raise UpstreamFailed("unconnected", before_reply=True) from error
        except OSError as error:
            raise UpstreamFailed("unreachable", before_reply=True) from error
        return connection

    def freed(self, connection: Connection) -> None:
        self._busy.discard(connection)
        connection.idle_since = self._clock()
        self._idle.append(connection)

    def lost(self, connection: Connection) -> None:
        self._busy.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def sweep(self) -> None:
        """End exchanges past their deadline and idle connections past their time; called about twice a second."""
        now = self._clock()
        for connection in [busy for busy in self._busy if busy.late(now)]:
            connection.fail("timeout")
        while self._idle and self._idle[0].idle_since < now - self._keep_alive_seconds:
            self._idle[0].fail("aborted")

    def close(self) -> None:
        for connection in [*self._busy, *self._idle]:
            connection.fail("aborted")

    @property
    def open_connections(self) -> int:
        return len(self._busy) + len(self._idle)
