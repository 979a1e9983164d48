"""A relay between an engine's exchange and a client's answer, with a clock that is set by hand."""

import asyncio
from collections.abc import Sequence

from backends.connection import Connection
from backends.exchange import Exchange, Reason, UpstreamFailed
from backends.sse import Scanner, Verdict
from gateway.metric_kinds import Series
from gateway.relay import Relay, Renaming
from tests.unit.gateway.samples import Recorder, responder

BOUNDS = (0.5, 1.0, 2.0)


class EngineLine:
    """An engine's connection that notes what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def fail(self, reason: Reason) -> None:
        self.asked.append(reason)

    def pause(self) -> None:
        self.asked.append("pause")

    def resume(self) -> None:
        self.asked.append("resume")

    def narrow(self) -> None:
        self.asked.append("narrow")


class Pool:
    """An owner of connections that keeps none."""

    def idle_deadline(self) -> float:
        return 1.0

    def freed(self, connection: Connection) -> None:
        pass

    def lost(self, connection: Connection) -> None:
        pass


class Wire(asyncio.Transport):
    """A transport to nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self._closing = False

    def write(self, data: object) -> None:
        pass

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    def abort(self) -> None:
        self._closing = True


class Stream:
    """One stream on its way; needs a running loop. `now` is the clock."""

    def __init__(self, *, strip_usage: bool = False, renaming: Renaming | None = None) -> None:
        self.now = 10.0
        self.gaps = Series(BOUNDS)
        self.firsts: list[float] = []
        self.responder, self.client = responder()
        self.exchange = Exchange(EngineLine(), asyncio.get_running_loop(), reused=False)
        self.relay = Relay(
            self.responder,
            [(b"content-type", b"text/event-stream")],
            Scanner(strip_usage=strip_usage),
            clock=lambda: self.now,
            gaps=self.gaps,
            on_first=lambda: self.firsts.append(self.now),
            renaming=renaming,
        )

    async def run(self, pieces: Sequence[bytes], failure: UpstreamFailed | None = None) -> Verdict:
        """Everything that the engine sends, then its end."""
        for piece in pieces:
            self.exchange.received(piece)
        self.exchange.ended(failure)
        return await self.relay.run(self.exchange)


def sent(client: Recorder) -> bytes:
    """The body that a client has read, its chunks joined."""
    _, _, rest = client.bytes.partition(b"\r\n\r\n")
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    return body
