"""One connection to the store: what counts as a miss, and what makes up for misses. Time is handed in by deadlines."""

import asyncio
from dataclasses import dataclass, field

import pytest

from gateway.store_call import Call, StoreCounters, StoreSettings, StoreUnavailable
from gateway.store_connection import Connection

PAST, FAR = -1e9, 1e9


@dataclass
class Line(asyncio.Transport):
    """A transport that remembers what was written and whether it was given up."""

    written: list[bytes] = field(default_factory=list)
    aborted: bool = False

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.written.append(data)

    def abort(self) -> None:
        self.aborted = True


def connection(span_seconds: float) -> tuple[Connection, Line]:
    settings = StoreSettings(call_timeout_seconds=span_seconds, misses_to_open=2)
    made = Connection(asyncio.get_running_loop(), StoreCounters(), lambda *_: None, lambda: None, settings)
    line = Line()
    made.connection_made(line)
    return made, line


def call(deadline: float, *, patient: bool = False) -> Call:
    return Call(("PING",), asyncio.get_running_loop().create_future(), deadline, patient=patient)


async def missed(made: Connection) -> None:
    """A call whose time is over, whose reply comes all the same."""
    late = call(PAST)
    made.send(late)
    made._expire()
    with pytest.raises(StoreUnavailable):
        await late.future
    made.data_received(b"+PONG\r\n")


async def answered(made: Connection, *, patient: bool = False) -> None:
    good = call(FAR, patient=patient)
    made.send(good)
    made.data_received(b"+PONG\r\n")
    assert await good.future == b"PONG"


async def test_misses_in_a_row_give_it_up() -> None:
    made, line = connection(0.0)
    await missed(made)
    assert not line.aborted
    await missed(made)
    assert line.aborted


async def test_a_reply_in_time_makes_up_for_a_miss_and_that_of_a_patient_call_does_not() -> None:
    made, line = connection(0.0)
    for _ in range(5):
        await missed(made)
        await answered(made)
    assert not line.aborted
    await missed(made)
    await answered(made, patient=True)
    await missed(made)
    assert line.aborted


async def test_all_that_one_pause_of_the_server_holds_up_is_one_miss() -> None:
    made, line = connection(1e6)
    for _ in range(5):
        await missed(made)
    assert not line.aborted


async def test_calls_of_one_turn_leave_in_one_write() -> None:
    made, line = connection(0.0)
    calls = [call(FAR) for _ in range(3)]
    for each in calls:
        made.send(each)
    assert line.written == []
    await asyncio.sleep(0)
    assert len(line.written) == 1
    made.data_received(b"+a\r\n+b\r\n+c\r\n")
    assert [await each.future for each in calls] == [b"a", b"b", b"c"]
