"""Deadlines of calls to the store that are very near, on the loop that production runs on."""

import asyncio

import pytest

from gateway.store_call import Call, StoreCounters, StoreSettings, StoreUnavailable
from gateway.store_connection import Connection


def call(seconds: float) -> Call:
    loop = asyncio.get_running_loop()
    return Call(("PING",), loop.create_future(), loop.time() + seconds)


@pytest.mark.parametrize("seconds", [-0.001, 0.0, 0.0002, 0.0006, 0.01])
async def test_calls_that_follow_one_whose_time_is_all_but_over_end_too(seconds: float) -> None:
    """uvloop's handle for less than half a millisecond does not know its time."""
    loop = asyncio.get_running_loop()
    connection = Connection(loop, StoreCounters(), lambda *_: None, lambda: None, StoreSettings())
    calls = [call(seconds), call(seconds + 0.0001), call(0.02)]
    for each in calls:
        connection.send(each)
    for each in calls:
        with pytest.raises(StoreUnavailable):
            await each.future
