"""A store that answers as a test says: it reads commands as a real one does and sends whatever bytes it is told to."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import hiredis

Answer = Callable[[list[bytes]], bytes | None]
"""The bytes for a command; `None`: the connection ends."""
OK = b"+OK\r\n"
PONG = b"+PONG\r\n"


@dataclass(slots=True)
class ScriptedStore:
    """A running one. `connects`: how often somebody came; `commands`: what was asked, greetings included."""

    answer: Answer
    port: int = 0
    connects: int = 0
    commands: list[list[bytes]] = field(default_factory=list)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connects += 1
        self.writers.add(writer)
        parser = hiredis.Reader()
        try:
            while data := await reader.read(2**16):
                parser.feed(data)
                while (command := parser.gets()) is not False:
                    self.commands.append(command)
                    reply = self.answer(command)
                    if reply is None:
                        return
                    writer.write(reply)
        except ConnectionError:
            pass
        finally:
            self.writers.discard(writer)
            writer.transport.abort()


@asynccontextmanager
async def scripted_store(answer: Answer) -> AsyncIterator[ScriptedStore]:
    """One on a free port until the block ends."""
    running = ScriptedStore(answer)
    server = await asyncio.start_server(running.serve, "127.0.0.1", 0)
    running.port = server.sockets[0].getsockname()[1]
    try:
        yield running
    finally:
        server.close()
        for writer in list(running.writers):
            writer.transport.abort()


def slots(*ports: int) -> bytes:
    """The answer to `CLUSTER SLOTS`: the slots are dealt out evenly."""
    size = 16_384 // len(ports)
    rows = []
    for number, port in enumerate(ports):
        last = 16_383 if number == len(ports) - 1 else (number + 1) * size - 1
        node = b"*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n" % port
        rows.append(b"*3\r\n:%d\r\n:%d\r\n" % (number * size, last) + node)
    return b"*%d\r\n" % len(rows) + b"".join(rows)
