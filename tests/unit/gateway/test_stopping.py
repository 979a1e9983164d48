"""Told to stop once, it stops; told again, what runs is cut short."""

import asyncio
import os
import signal

from gateway.stopping import Stopping


async def test_the_first_signal_stops_and_the_second_cuts_short() -> None:
    stopping, hurried = Stopping(), asyncio.Event()
    stopping.hurry = hurried.set
    os.kill(os.getpid(), signal.SIGTERM)
    await stopping.wait()
    assert not hurried.is_set()
    os.kill(os.getpid(), signal.SIGINT)
    await hurried.wait()


async def test_the_end_of_a_pipe_stops_and_is_looked_at_once() -> None:
    """A pipe that has ended stays readable: looked at on, it would keep a core busy while the process drains."""
    reading, writing = os.pipe()
    stopping, hurried = Stopping(), asyncio.Event()
    stopping.hurry = hurried.set
    stopping.with_the_end_of(reading)
    os.close(writing)
    await stopping.wait()
    assert not asyncio.get_running_loop().remove_reader(reading)
    assert not hurried.is_set()
    os.close(reading)
