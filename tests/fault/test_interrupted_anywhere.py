"""Event: a call is broken off at any one of its waits, by a gateway that stops or by a defect. Nothing of it is left.

Rule: every wait is tried, none is chosen; what is checked holds wherever the call was.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any

import httpx
import pytest

from gateway.embedded import EmbeddedServer
from tests.house import KEY, House, gateway, until
from tests.integration.test_histories import storing
from tests.upstream import DONE, Script, answers, frame, reply, streams, upstream

USAGE = {"prompt_tokens": 3, "completion_tokens": 2}
ANSWER = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"one"}}],"usage":'
WHOLE = answers(reply(200, ANSWER + b'{"prompt_tokens":3,"completion_tokens":2}}'))
STREAM = streams(frame("one"), frame("two", finish="stop"), frame(usage=USAGE), DONE)
LONGER = streams(*(frame("more") for _ in range(40)), frame("two", finish="stop"), frame(usage=USAGE), DONE)
"""More than was reserved for it, so that it asks for more."""
FAILED = answers(reply(500, b""))


class Defect(Exception):
    """What no code expects."""


class Interrupted:
    """Awaits `work` and breaks off its wait number `at` (from 1). `waits`: how many there were."""

    def __init__(self, work: Coroutine[Any, Any, None], at: int, how: str) -> None:
        self._work, self._at, self._how = work, at, how
        self.waits = 0

    def __await__(self) -> Generator[Any, Any, None]:
        steps = self._work.__await__()
        go_on: Callable[[], Any] = partial(next, steps)
        while True:
            try:
                waited = go_on()
            except StopIteration:
                return
            self.waits += 1
            here = self.waits == self._at
            if here and self._how == "stopped":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                yield waited
            except BaseException as error:  # noqa: BLE001 - handed on
                go_on = partial(steps.throw, error)
            else:
                go_on = partial(steps.throw, Defect()) if here and self._how == "defect" else partial(next, steps)


async def awaited(interrupted: Interrupted) -> None:
    await interrupted


def interrupt(house: House, at: int, how: str) -> list[Interrupted]:
    """Break off that wait of every request from now on; the list fills with them."""
    requests, made = house.gateway.requests, []
    start = type(requests).start

    def started(work: Any, *, name: str) -> Any:
        made.append(Interrupted(work, at, how))
        return start(requests, awaited(made[-1]), name=name)

    requests.start = started  # type: ignore[method-assign]
    return made


async def ended(house: House, stream: bool, context: str | None) -> int:
    """The status a client sees; 0 for a connection that is cut."""
    headers = {"authorization": f"Bearer {KEY}"}
    if context is not None:
        headers |= {"x-context": context, "x-session-id": "chat"}
    body = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "stream": stream}
    try:
        return (await house.http.post("/chat/completions", json=body, headers=headers)).status_code
    except httpx.TransportError:
        return 0


@pytest.mark.parametrize("how", ["stopped", "defect"])
@pytest.mark.parametrize(
    ("scripts", "stream", "context"),
    [
        ([WHOLE], False, None),
        ([STREAM], True, None),
        ([LONGER], True, None),
        ([FAILED, STREAM], True, None),
        ([WHOLE], False, "stored; new"),
    ],
    ids=["whole", "stream", "a stream that takes more", "second attempt", "history"],
)
async def test_nothing_is_left_of_a_call(
    valkey: EmbeddedServer, how: str, scripts: list[Script], stream: bool, context: str | None
) -> None:
    left = list(scripts)
    async with upstream() as one, upstream() as two:
        one.scripts = two.scripts = left
        async with gateway({"any": {"one": one.url, "two": two.url}}, valkey.url, storing) as house:
            at, waits, seen = 0, 1, []
            while at <= waits:
                at += 1
                left[:] = scripts
                made = interrupt(house, at, how)
                seen.append(await ended(house, stream, context))
                await house.quiet()
                waits = made[-1].waits
                await until(lambda: not house.gateway.settlements_waiting())
                defects = int(await house.metric("kvgate_task_failures_total")) if how == "defect" else 0
                await house.nothing_left(defects)
                await house.gateway.store.command("DEL", "kvgate:1:{acme}:h:chat", "kvgate:1:{acme}:session:chat")
            broken = {503} if how == "stopped" else {500}
            assert len(seen) > 4 and seen[0] in broken and seen[-1] == 200
            assert set(seen) <= {200} | broken | ({0} if stream and how == "defect" else set())
            failures = len(seen) if FAILED in scripts else 0
            assert await house.metric("kvgate_attempts_total", outcome="failure") <= failures
            assert await house.metric("kvgate_requests_total") == len(seen)
