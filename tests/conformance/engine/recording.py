"""Recorded HTTP exchanges: read them, send the same bytes again, and compare by shape.

Rule: the request goes out as it was recorded, byte for byte, except where a test says what it changes.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

SAMPLES = Path(__file__).parent.parent / "samples"


@dataclass(frozen=True, slots=True)
class Message:
    """One HTTP request or response; `chunks` are the pieces of a chunked body as they were framed."""

    start: str
    headers: Mapping[str, str]
    body: bytes
    chunks: tuple[bytes, ...] = ()

    @property
    def status(self) -> int:
        return int(self.start.split()[1])

    @property
    def json(self) -> object:
        return json.loads(self.body) if self.body else None

    @property
    def events(self) -> list[object]:
        """The data of every Server-Sent Event; `[DONE]` as that text."""
        lines = [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]


def parse(raw: bytes) -> Message:
    head, _, body = raw.partition(b"\r\n\r\n")
    start, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        chunks = tuple(_chunks(body))
        return Message(start, headers, b"".join(chunks), chunks)
    return Message(start, headers, body)


def _chunks(body: bytes) -> list[bytes]:
    chunks: list[bytes] = []
    while True:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return chunks
        chunks.append(rest[:length])
        body = rest[length + 2 :]


def request(folder: str, name: str) -> bytes:
    return (SAMPLES / folder / f"{name}.request.http").read_bytes()


def response(folder: str, name: str) -> Message:
    return parse((SAMPLES / folder / f"{name}.response.http").read_bytes())


def changed(raw: bytes, **fields: object) -> bytes:
    """The same request with some fields of its JSON body replaced."""
    head, _, body = raw.partition(b"\r\n\r\n")
    new = json.dumps({**json.loads(body), **fields}).encode()
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length:")]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(new), b"", b""]) + new


async def send(port: int, raw: bytes) -> Message:
    """The reply to these bytes; the recorded requests ask for the connection to be closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(raw)
        await writer.drain()
        return parse(await reader.read())
    finally:
        writer.close()


@asynccontextmanager
async def begun(port: int, raw: bytes) -> AsyncIterator[asyncio.StreamReader]:
    """A request whose reply has begun: its head is read, its body is not; the connection closes with the block."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(raw)
        await writer.drain()
        await reader.readuntil(b"\r\n\r\n")
        yield reader
    finally:
        writer.close()


def shape(value: object) -> object:
    """Keys in their order and types instead of values; equal neighbours in a list count once."""
    if isinstance(value, Mapping):
        return tuple((key, shape(item)) for key, item in value.items())
    if isinstance(value, list):
        return [*squeezed([shape(item) for item in value])]
    return type(value).__name__


def squeezed(items: Sequence[object]) -> list[object]:
    """Without immediate repetitions."""
    return [item for at, item in enumerate(items) if at == 0 or item != items[at - 1]]


def frames_by_choice(events: Sequence[object]) -> dict[object, list[object]]:
    """The shapes of a stream's frames, repetitions once, for each choice apart; None: frames without a choice."""
    frames: dict[object, list[object]] = {}
    for event in events:
        choices = event.get("choices") if isinstance(event, dict) else None
        index = choices[0]["index"] if choices else None
        frames.setdefault(index, []).append("[DONE]" if event == "[DONE]" else shape(event))
    return {index: squeezed(shapes) for index, shapes in frames.items()}
