"""Random calls against engines that answer at random, whole, cut, damaged: none ends in silence, none leaves anything.

What each of them must come to stands in the other files here; this one looks for what nobody thought of.
"""

import asyncio
import json
import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from gateway.embedded import EmbeddedServer
from tests.house import KEY, House, gateway
from tests.upstream import CHUNKED, DONE, END, Peer, Script, chunk, frame, reply, upstream

CALLS, AT_ONCE = 250, 16
SEED = 20261130
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
TEXTS = ["a", "b c", "\u00e9", '"x"', '"usage":{}', "x" * 100_000]


class Fate:
    """What happens to one answer or one client; seeded, so that a failure comes again as far as timing lets it."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.any = self._random.choice
        self.below = self._random.randrange

    def cut(self, data: bytes, most: int) -> list[bytes]:
        borders = [0, *sorted(self.below(len(data) + 1) for _ in range(self.below(most + 1))), len(data)]
        return [data[start:stop] for start, stop in pairwise(borders)]


def stream(fate: Fate) -> bytes:
    frames = [frame(fate.any(TEXTS)) for _ in range(fate.below(6))] + [frame("", finish="stop")]
    frames += fate.any([[], [frame(usage={"prompt_tokens": 3, "completion_tokens": 2})]])
    frames += fate.any([[DONE], [DONE], []])
    if fate.below(8) == 0:
        frames.insert(fate.below(len(frames)), b'data: {"error":{"message":"m","code":500}}\n\n')
    body = b"".join(frames).replace(b"\n\n", fate.any([b"\n\n", b"\n\n", b"\r\n\r\n", b"\r\r"]))
    framed = b"".join([chunk(piece) for piece in fate.cut(body, 8) if piece])
    return fate.any([CHUNKED + framed + END, CHUNKED + framed + END, STREAM_HEAD + body])


def whole(fate: Fate) -> bytes:
    answer = {"id": "1", "model": "demo", "choices": [{"index": 0, "message": {"content": "hi"}}]}
    body = json.dumps(answer | fate.any([{}, {"usage": {"prompt_tokens": 3, "completion_tokens": 2}}])).encode()
    refusal = fate.any([b'{"error":{"message":"m","type":"t","param":null,"code":400}}', b"nope", b""])
    failed = reply(fate.any([400, 404, 429, 500, 503]), refusal)
    fine = reply(200, body, fate.any([b"connection: close", b"x: y", b"content-encoding: gzip"]))
    return fate.any([fine, fine, fine, failed])


def answering(fate: Fate) -> Script:
    """An engine that answers whole, breaks off, resets, or sends something damaged."""

    async def script(peer: Peer) -> None:
        data = stream(fate) if b'"stream": true' in peer.request.body else whole(fate)
        data = fate.any([b"", b"", b"", b"HTTP/1.1 103 Hints\r\nlink: x\r\n\r\n"]) + data
        data += fate.any([b""] * 9 + [b"more"])
        end = fate.any(["stays"] * 5 + ["closes", "resets", "damaged"])
        if end in ("closes", "resets"):
            data = data[: fate.below(len(data) + 1)]
        elif end == "damaged":
            at = fate.below(len(data))
            data = data[:at] + bytes([fate.below(256)]) + data[at + 1 :]
        for piece in fate.cut(data, 4):
            if peer.gone.is_set() or peer.writer.is_closing():
                return
            await peer.send(piece)
        if end == "resets":
            peer.reset()
        elif end != "stays" or data.startswith(STREAM_HEAD):
            peer.writer.close()

    return script


def request(fate: Fate, *, close: bool) -> bytes:
    fields = {"model": fate.any(["demo", "gpt-4o-mini"]), "messages": [{"role": "user", "content": "Hi"}]}
    body = json.dumps(fields | {"stream": fate.any([True, False])}).encode()
    first = f"POST /v1/chat/completions HTTP/{fate.any(['1.1', '1.1', '1.1', '1.0'])}"
    lines = [first, "host: x", "content-type: application/json", f"authorization: Bearer {KEY}"]
    lines += [f"content-length: {len(body)}", "connection: close" if close else "x: y", "", ""]
    return "\r\n".join(lines).encode() + body


async def call(house: House, fate: Fate) -> bytes:
    """One client on a connection of its own; all that it was told, if it stayed to hear it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", house.gateway.port)
    count = fate.any([1, 1, 1, 2, 4])
    writer.write(b"".join([request(fate, close=number == count - 1) for number in range(count)]))
    ways = [writer.close, writer.transport.abort, writer.write_eof]
    leaves: Callable[[], object] | None = fate.any([*ways, *[None] * 7])
    if leaves is not None:
        await asyncio.sleep(fate.below(10) / 1_000)
        leaves()
    try:
        return await reader.read() if leaves is None else b""
    finally:
        writer.close()


def ended(answer: bytes) -> bool:
    """Whether an answer comes to an end that a client can tell from a break."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"event-stream" not in head:
        return not head.startswith(b"200") or len(body) > 0
    return any(end in body for end in (b"[DONE]", b'"error"', b'"finish_reason":"'))


async def test_none_ends_in_silence_and_none_leaves_anything(
    valkey: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    fate, room = Fate(SEED), asyncio.Semaphore(AT_ONCE)
    async with (
        upstream(answering(fate)) as one,
        upstream(answering(fate)) as two,
        gateway({"any": {"one": one.url, "two": two.url}}, valkey.url, patient) as house,
    ):

        async def called() -> bytes:
            async with room:
                return await call(house, fate)

        told = await asyncio.gather(*(called() for _ in range(CALLS)))
        answers = [answer for each in told for answer in each.split(b"HTTP/1.1 ")[1:]]
        assert [answer for answer in answers if not ended(answer)] == []
        assert {answer[:3] for answer in answers} <= {b"200", b"400", b"404", b"502", b"503", b"504"}
        await house.nothing_left()
        assert await house.metric("kvgate_task_failures_total") == 0
    said = [record.getMessage() for record in caplog.records if record.name == "kvgate"]
    assert not {"defect", "task failed"} & {*said}


def patient(data: dict[str, object]) -> None:
    """A damaged head may leave an engine and us waiting for one another."""
    data["routing"] = {"probe_interval": "1h", "first_token_timeout": "3s", "idle_timeout": "3s"}
