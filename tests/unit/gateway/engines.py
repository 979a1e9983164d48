"""Engines that say what a script says, over real sockets, and a job for them."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from backends.demand import Demand
from gateway.call import Call
from gateway.clock import monotonic
from gateway.counting import Counter
from gateway.delivery import Delivery
from gateway.dispatch import Dispatch
from gateway.job import Job
from gateway.metrics import Metrics
from gateway.pools import ServedPool
from gateway.service import Service
from gateway.tenants import Tenants
from tests.unit.gateway.samples import BEARER, SECRET, Recorder, call, config, responder

OK = b"HTTP/1.1 200 OK\r\n"
STREAM = OK + b"content-type: text/event-stream\r\nconnection: close\r\n\r\n"
HELLO = b'data: {"model":"demo","choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n'
STOP = b'data: {"model":"demo","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


def whole(body: bytes, status: bytes = b"200 OK", *lines: bytes) -> bytes:
    """A whole answer."""
    head = [b"HTTP/1.1 " + status, b"content-type: application/json", b"content-length: %d" % len(body), *lines]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


@dataclass
class Engine:
    """Answers each request with the next of `answers` and then closes; keeps what it was asked."""

    answers: list[bytes]
    asked: list[bytes] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        self.asked.append(head + await reader.readexactly(length))
        writer.write(self.answers.pop(0) if self.answers else b"")
        writer.close()


async def closed(writers: Sequence[asyncio.StreamWriter]) -> None:
    """Close connections and wait until their sockets are gone."""
    for writer in writers:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def engines(*scripts: Sequence[bytes]) -> AsyncIterator[list[Engine]]:
    """One engine a script, listening."""
    made = [Engine(list(script)) for script in scripts]
    servers = [await asyncio.start_server(engine.serve, "127.0.0.1", 0) for engine in made]
    for engine, server in zip(made, servers, strict=True):
        engine.port = server.sockets[0].getsockname()[1]
    yield made
    for engine, server in zip(made, servers, strict=True):
        server.close()
        await closed(engine.writers)


@dataclass
class Sent:
    """A job that has been dispatched: where its answer is and what is known of it."""

    line: Recorder
    delivery: Delivery
    metrics: Metrics
    pool: ServedPool

    @property
    def status(self) -> int:
        return int(self.line.bytes.split(b" ")[1])

    @property
    def body(self) -> bytes:
        return self.line.bytes.partition(b"\r\n\r\n")[2]


def chat(**fields: object) -> Call:
    return call(json.dumps({"model": "demo", "messages": [{"role": "user", "content": "Hi"}]} | fields).encode())


async def dispatched(of: Call, replicas: Sequence[Engine], **pool: object) -> Sent:
    """Sends a call to a pool of these engines, tried in their order. Raises what `Dispatch.run` raises."""
    urls = [{"name": f"replica-{n}", "url": f"http://127.0.0.1:{engine.port}"} for n, engine in enumerate(replicas)]
    main = {"models": ["demo"], "hardware": "h100-sxm", "replicas": urls} | pool
    loaded = config(("pools/main", main), ("tiers/standard/max_tokens", {}))
    served = ServedPool(loaded.pools["main"], loaded.routing, monotonic, {"ENGINE_KEY": "engine-secret"})
    metrics = Metrics()
    service = Service(Tenants(loaded, SECRET).identify(BEARER), loaded.models["demo"], [served], Counter(len))
    wanted = Demand(1.0, 1.0, 10, 10, None, "replica-0", "demo", 0.0)
    job = Job(of, service, of.body, [(served, wanted)], "decode", ((b"x-request-id", b"r-1"),), "r-1", b"")
    to, line = responder()
    sent = Sent(line, Delivery(), metrics, served)
    try:
        await Dispatch(loaded.routing, metrics, monotonic).run(job, to, sent.delivery)
    finally:
        assert not any(state.in_flight for state in served.pool.states())  # every lease has come back
        await served.close()
    return sent
