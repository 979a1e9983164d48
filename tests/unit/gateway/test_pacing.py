"""Paced streams: order and bytes are kept, the engine is held back while anything waits, nobody runs ahead."""

import asyncio
import socket

import pytest

from backends.connection import NARROW_BYTES, Connection
from gateway.pacing import Pace, PacedResponder, Schedule
from tests.unit.gateway.samples import Recorder, responder


class Engine:
    """A source that keeps whether it may send."""

    def __init__(self) -> None:
        self.paused = False

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


def paced(rate: float, schedule: Schedule | None = None) -> tuple[PacedResponder, Recorder, Engine]:
    inner, line = responder(http10=True)
    made = PacedResponder(inner, Pace(schedule or Schedule(), rate), asyncio.get_running_loop().time)
    engine = Engine()
    made.source = engine
    made.start(200, ())
    line.sent.clear()
    return made, line, engine


def test_places_of_a_schedule_are_so_far_apart_and_none_is_banked() -> None:
    schedule = Schedule()
    assert [schedule.next(4, 10.0) for _ in range(3)] == [10.0, 10.25, 10.5]
    assert schedule.next(2, 60.0) == 60.0
    assert schedule.next(2, 60.0) == 60.5


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
async def test_bytes_and_their_order_are_kept_and_one_frame_leaves_at_a_time(end: bytes) -> None:
    made, line, engine = paced(200)
    frames = [b"data: %d%b" % (at, end) for at in range(9)]
    made.write(b"".join(frames) + b"data: begun")
    assert line.sent == frames[:1], "the first leaves at once"
    assert engine.paused
    await made.drained()
    assert line.sent == [*frames, b"data: begun"]
    assert not engine.paused


async def test_the_engine_is_held_back_until_all_has_left() -> None:
    made, line, engine = paced(0.001)
    made.write(b"data: 1\n\n")
    assert (len(line.sent), engine.paused) == (1, False)
    made.write(b"data: 2\n\ndata: 3\n\n")
    assert (len(line.sent), engine.paused) == (1, True)
    made.resume()
    assert engine.paused, "a client that reads again does not let the engine go on"
    made.close()
    await made.drained()


async def test_a_client_that_does_not_read_holds_the_stream() -> None:
    made, line, engine = paced(1_000)
    made.pause()
    made.write(b"data: 1\n\n")
    await asyncio.sleep(0.01)
    assert (line.sent, engine.paused) == ([], True)
    made.resume()
    await made.drained()
    assert (line.sent, engine.paused) == ([b"data: 1\n\n"], False)


async def test_streams_of_one_tenant_take_turns() -> None:
    schedule = Schedule()
    one, first, _ = paced(100, schedule)
    two, second, _ = paced(100, schedule)
    second.sent = order = first.sent
    one.write(b"data: 1\n\n" * 4)
    two.write(b"data: 2\n\n" * 2)
    await asyncio.gather(one.drained(), two.drained())
    assert (order.count(b"data: 1\n\n"), order.count(b"data: 2\n\n")) == (4, 2)
    assert order.index(b"data: 2\n\n") <= 3, "the later stream did not wait for all of the earlier one"


class Pool:
    """An owner of connections that keeps nothing."""

    def idle_deadline(self) -> float:
        return 1.0

    def freed(self, connection: Connection) -> None:
        raise AssertionError("a connection that was narrowed is not used again")

    def lost(self, connection: Connection) -> None:
        pass


async def test_a_narrow_connection_holds_little_in_the_kernel() -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        _, made = await loop.create_connection(lambda: Connection(Pool(), loop), *server.getsockname())
        made.narrow()
        transport = made._transport
        assert transport is not None
        held = transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        assert held <= 2 * NARROW_BYTES  # Linux doubles what it is asked for
        made.fail("aborted")
