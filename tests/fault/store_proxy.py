"""Between the gateway and its store: a proxy that can hold replies back, break off, and refuse."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.house import until


@dataclass(slots=True)
class StoreProxy:
    """`answering` cleared: nothing comes back. `reachable` false: new connections end at once."""

    url: str
    answering: asyncio.Event = field(default_factory=asyncio.Event)
    reachable: bool = True
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def busy(self) -> bool:
        return bool(self._writers)

    def away(self) -> None:
        """The store goes: every connection breaks and no new one comes about."""
        self.reachable = False
        for writer in list(self._writers):
            writer.transport.abort()

    def back(self) -> None:
        self.reachable = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
        self._writers.add(writer)
        try:
            if self.reachable:
                await self._joined(reader, writer, path)
        finally:
            writer.transport.abort()
            self._writers.discard(writer)

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
        store_reader, store_writer = await asyncio.open_unix_connection(path)
        ways = [
            asyncio.create_task(_copied(reader, store_writer)),
            asyncio.create_task(_copied(store_reader, writer, self.answering)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.wait(ways)
            store_writer.close()


async def _copied(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event | None = None
) -> None:
    try:
        while data := await reader.read(2**16):
            if gate is not None:
                await gate.wait()
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass


@asynccontextmanager
async def store_proxy(store_url: str) -> AsyncIterator[StoreProxy]:
    """One in front of the store at a `unix://` URL."""
    path = store_url.removeprefix("unix://")
    server = await asyncio.start_server(lambda r, w: proxy.serve(r, w, path), "127.0.0.1", 0)
    proxy = StoreProxy(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    proxy.answering.set()
    try:
        yield proxy
    finally:
        server.close()
        proxy.away()
        await until(lambda: not proxy.busy)
