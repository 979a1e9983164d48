"""A scripted engine on a raw socket: keeps every byte it is sent and answers byte by byte as a test says.

Rule: the gateway's own probes (GET) are answered plainly, kept out of the record, and leave no connection behind for
calls to find; every POST is answered by the next script, the last one for ever.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec

PROBES: Mapping[bytes, bytes] = {
    b"/health": b"",
    b"/v1/models": b'{"data":[{"id":"demo","max_model_len":32768}]}',
    b"/metrics": b"",
}
CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it arrived: its head lines without the first, names in lower case, and its body."""

    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def get(self, name: bytes) -> list[bytes]:
        """Every value of a header."""
        return [value for key, value in self.headers if key == name]


Script = Callable[["Peer"], Awaitable[None]]


@dataclass(slots=True)
class Peer:
    """The gateway's connection, while one request is answered. `gone` is set when the gateway closes it."""

    request: Received
    writer: asyncio.StreamWriter
    gone: asyncio.Event

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    def reset(self) -> None:
        """End the connection at once, as a process that dies does."""
        self.writer.transport.abort()


class _Reader(asyncio.StreamReader):
    """Tells at once when the other side is gone, also while nobody reads."""

    def __init__(self) -> None:
        super().__init__(limit=2**24)
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.gone.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.gone.set()


@dataclass(slots=True)
class Upstream:
    """A running one. `arrived` is set by the first POST; `connections` are those that the gateway holds."""

    url: str
    scripts: list[Script]
    peers: list[Peer] = field(default_factory=list)
    connections: set[asyncio.StreamWriter] = field(default_factory=set)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    server: asyncio.Server | None = None
    _serving: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def requests(self) -> list[Received]:
        """Every POST, in order."""
        return [peer.request for peer in self.peers]

    def protocol(self) -> asyncio.Protocol:
        reader = _Reader()

        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(reader, writer)

        return asyncio.StreamReaderProtocol(reader, serve)

    async def stop(self) -> None:
        """Go away before the end: the port is free again."""
        assert self.server is not None
        self.server.close()
        await self.close()

    async def close(self) -> None:
        """End every connection, whatever its script is at."""
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        if serving:
            await asyncio.wait(serving)

    async def _serve(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.connections.add(writer)
        self._serving.add(task)
        try:
            while (received := await read_request(reader)) is not None:
                if (probed := PROBES.get(received.target)) is not None:
                    writer.write(reply(200, probed, b"connection: close"))
                    return
                await self._answer(Peer(received, writer, reader.gone))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.connections.discard(writer)
            self._serving.discard(task)
            writer.transport.abort() if task.cancelling() else writer.close()

    async def _answer(self, peer: Peer) -> None:
        self.peers.append(peer)
        self.arrived.set()
        await (self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0])(peer)


async def read_request(reader: asyncio.StreamReader) -> Received | None:
    """The next request; `None` when there is none any more."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head[:-4].split(b"\r\n")
    headers = tuple([(name.lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)])
    length = int(dict(headers).get(b"content-length", b"0"))
    return Received(first.split(b" ")[1], headers, await reader.readexactly(length))


@asynccontextmanager
async def upstream(*scripts: Script, port: int = 0) -> AsyncIterator[Upstream]:
    """One on a free port, or on that one, until the block ends."""
    running = Upstream("", list(scripts))
    server = await asyncio.get_running_loop().create_server(running.protocol, "127.0.0.1", port)
    running.server = server
    running.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield running
    finally:
        server.close()
        await running.close()


# What scripts are made of.


def reply(status: int, body: bytes, *headers: bytes, media: bytes = b"application/json") -> bytes:
    """A whole answer."""
    lines = [b"HTTP/1.1 %d X" % status, b"content-type: " + media, b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


END = chunk(b"")


def frame(content: str = "", *, finish: str | None = None, usage: Mapping[str, object] | None = None) -> bytes:
    """One frame of a chat stream; with `usage` the frame that carries nothing else."""
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    value = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "demo"}
    more: dict[str, object] = {"choices": [choice]} if usage is None else {"choices": [], "usage": usage}
    return b"data: " + msgspec.json.encode(value | more) + b"\n\n"


def answers(*pieces: bytes) -> Script:
    """Sends these bytes and keeps the connection."""

    async def script(peer: Peer) -> None:
        await peer.send(*pieces)

    return script


def streams(*frames: bytes) -> Script:
    """A whole stream: these frames, each a chunk of its own, and the proper end."""
    return answers(CHUNKED, *map(chunk, frames), END)


def resets_after(*pieces: bytes) -> Script:
    """Sends these bytes, then the connection dies."""

    async def script(peer: Peer) -> None:
        await peer.send(*pieces)
        peer.reset()

    return script


def stalls_after(*pieces: bytes) -> Script:
    """Sends these bytes, then nothing until the gateway lets go."""

    async def script(peer: Peer) -> None:
        await peer.send(*pieces)
        await peer.gone.wait()

    return script
