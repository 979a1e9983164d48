"""A link to one server: a connection that is made again whenever it is lost, and the breaker that follows from it.

Rule: there are two states only. Connected: calls go out. Not connected: calls fail at once, while one attempt after
the other, ever further apart, tries to reach the server. An attempt counts when the server has answered a PING
within the time that a call gets; this is the half-open probe. A connection whose calls time out is dropped, so a slow
store leads to the same state as a dead one.
"""

import asyncio
import random
from collections.abc import Callable

from gateway.store_address import Address, Locate, Node
from gateway.store_call import (
    PASSING,
    Call,
    StoreCounters,
    StoreError,
    StoreRejected,
    StoreSettings,
    StoreUnavailable,
)
from gateway.store_connection import Connection
from gateway.tasks import Tasks

OnError = Callable[["Link", Call, str], None]


class Link:
    """Calls to one server. `locate` is asked before every attempt, so a new primary is found by itself."""

    def __init__(
        self,
        address: Address,
        locate: Locate,
        settings: StoreSettings,
        counters: StoreCounters,
        tasks: Tasks,
        on_error: OnError,
    ) -> None:
        self._address = address
        self._locate = locate
        self._settings = settings
        self._counters = counters
        self._tasks = tasks
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._backoff_seconds = 0.0
        self._connected_at = 0.0
        self._closed = False
        self.node: Node | None = None

    @property
    def connected(self) -> bool:
        return self._connection is not None

    async def open(self) -> None:
        """Connect for the first time. Raises StoreUnavailable or StoreRejected."""
        await self._connect(self._settings.connect_timeout_seconds)

    def send(self, call: Call, key: str | None = None, /) -> None:
        """Of one server every key is as good as another."""
        if self._connection is None:
            self._counters.failures += 1
            call.fail(StoreUnavailable("the store is not connected"))
        else:
            self._connection.send(call)

    def drop(self) -> None:
        """End the connection because its server is no longer the right one; a new one is made by itself."""
        if self._connection is not None:
            self._connection.abort()

    def close(self) -> None:
        self._closed = True
        self.drop()

    async def _connect(self, probe_seconds: float) -> None:
        node = await self._locate()
        connection = Connection(self._loop, self._counters, self._failed, self._lost, self._settings)
        try:
            async with asyncio.timeout(self._settings.connect_timeout_seconds):
                await self._dial(node, connection)
            await self._greet(connection, probe_seconds)
        except StoreError:
            connection.abort()
            raise
        except Exception as error:
            # Whatever it is, it must not end the attempts: nobody else would make another one.
            connection.abort()
            raise StoreUnavailable(f"no store at {node}: {_reason(error)}") from error
        except asyncio.CancelledError:
            connection.abort()
            raise
        if not connection.alive:
            raise StoreUnavailable(f"no store at {node}: the connection ended at once")
        self.node, self._connection = node, connection
        self._connected_at = self._loop.time()
        self._counters.connects += 1

    async def _dial(self, node: Node, connection: Connection) -> None:
        if node.path is not None:
            await self._loop.create_unix_connection(lambda: connection, node.path)
        else:
            await self._loop.create_connection(lambda: connection, node.host, node.port, ssl=self._address.tls)

    async def _greet(self, connection: Connection, probe_seconds: float) -> None:
        address, limit = self._address, self._settings.connect_timeout_seconds
        if address.password is not None:
            login = (address.username, address.password) if address.username else (address.password,)
            await self._ask(connection, limit, "AUTH", *login)
        if address.db:
            await self._ask(connection, limit, "SELECT", str(address.db))
        if address.kind == "sentinel":
            role = await self._ask(connection, limit, "ROLE")
            if not (isinstance(role, list) and role[0] == b"master"):
                raise StoreUnavailable("the sentinels name a primary that is not one yet")
        await self._ask(connection, probe_seconds, "PING")

    async def _ask(self, connection: Connection, seconds: float, *command: str) -> object:
        call = Call(command, self._loop.create_future(), self._loop.time() + seconds)
        connection.send(call)
        return await call.future

    def _failed(self, call: Call, message: str) -> None:
        if self._connection is not None:
            self._on_error(self, call, message)
        elif message.partition(" ")[0] in PASSING:
            call.fail(StoreUnavailable(f"the store cannot answer now: {message}"))
        else:  # a wrong password, a database that does not exist
            call.fail(StoreRejected(f"the store refused the login: {message}"))

    def _lost(self) -> None:
        if self._connection is None:
            return  # an attempt that failed; whoever made it knows
        self._connection = None
        if self._loop.time() - self._connected_at > self._settings.longest_backoff_seconds:
            self._backoff_seconds = 0.0
        if not self._closed:
            self._tasks.start(self._reconnect(), name="store reconnect")

    async def _reconnect(self) -> None:
        while not self._closed:
            await asyncio.sleep(self._backoff_seconds * random.uniform(0.5, 1.0))
            self._backoff_seconds = min(
                max(2 * self._backoff_seconds, self._settings.first_backoff_seconds),
                self._settings.longest_backoff_seconds,
            )
            try:
                await self._connect(self._settings.call_timeout_seconds)
            except StoreError:
                continue
            if self._closed:
                self.drop()
            return


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or type(error).__name__
