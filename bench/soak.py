"""`python -m bench.soak --minutes 10`: a gateway under a steady load with faults, and what is left of it afterwards.

Rule: at the end everything that was taken has been given back: no slot, no reservation, no connection, nothing for the
garbage collector; and memory is flat (`bench.flat`) with all that a gateway remembers filled to its bounds before. A
figure that is not so is a failure, with exit code 1.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import aiohttp

from bench.soak_account import Account, Reading
from bench.soak_clients import Clients
from bench.soak_house import House

FULL_SECONDS: Final = 15.0
"""How long clients may do what they can, to find what full load is."""
EVERY_SECONDS: Final = 2.0
SETTLE_SECONDS: Final = 5.0


async def soaked(options: argparse.Namespace) -> bool:
    """Run it and print what was seen; true if nothing was left behind."""
    with tempfile.TemporaryDirectory(prefix="kvgate-soak-") as folder, ExitStack() as ends:
        house = House(Path(folder), options.port, options.speed)
        house.start(ends)
        timeout, connector = aiohttp.ClientTimeout(total=60), aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
            await house.ready(http)
            clients = Clients(options.clients, house.url, http)
            found = await house.metrics(http)
            await clients.fill(int(found["kvgate_remembered_most token_counts"]))
            full_rate = await rate(clients)
            before = await house.metrics(http)
            clients.outcomes.clear()
            until = time.monotonic() + options.minutes * 60
            clients.talk(until, options.clients / (options.load * full_rate))
            readings = await watched(house, clients, http, until)
            await clients.ended()
        async with aiohttp.ClientSession() as http:
            await asyncio.sleep(SETTLE_SECONDS)
            after, reservations = await house.metrics(http), await house.reservations()
        account = Account(full_rate, options.minutes * 60, clients.outcomes, readings, before, after, reservations)
        print(json.dumps(account.told(), indent=2))
        for problem in account.problems:
            print(f"not clean: {problem}")
        return not account.problems


async def rate(clients: Clients) -> float:
    """Calls a second when every client asks again as soon as it has its answer."""
    before = clients.calls
    clients.talk(time.monotonic() + FULL_SECONDS)
    await clients.ended()
    return (clients.calls - before) / FULL_SECONDS


async def watched(house: House, clients: Clients, http: aiohttp.ClientSession, until: float) -> Sequence[Reading]:
    """What the gateway says of itself every two seconds until the end."""
    readings = []
    while (left := until - time.monotonic()) > 0:
        await asyncio.sleep(min(EVERY_SECONDS, left))
        readings.append(Reading(clients.calls, await house.metrics(http)))
    return readings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=48)
    parser.add_argument("--load", type=float, default=0.7, help="share of the calls that can be served at most")
    parser.add_argument("--speed", type=float, default=20.0)
    parser.add_argument("--port", type=int, default=9500)
    clean = asyncio.run(soaked(parser.parse_args()))
    sys.exit(0 if clean else 1)


if __name__ == "__main__":
    main()
