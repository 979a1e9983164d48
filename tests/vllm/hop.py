"""A hop between the gateway and the engine that keeps what was asked for and answered.

Rule: only whole answers pass, no streams, and only the bodies of calls are kept. It changes nothing but by `change`,
with which a test holds a small model to a form.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from aiohttp import web


@dataclass(slots=True)
class Passed:
    """One call as the engine got it, and its answer."""

    asked: dict[str, Any]
    status: int
    answered: dict[str, Any]


@dataclass(slots=True)
class Hop:
    """A running one; `calls` are the POSTs in order."""

    url: str = ""
    change: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    calls: list[Passed] = field(default_factory=list)


@asynccontextmanager
async def hop(engine_url: str) -> AsyncIterator[Hop]:
    """Listens on a free port of this machine."""
    passing = Hop()
    async with httpx.AsyncClient(base_url=engine_url, timeout=600) as client:

        async def forward(request: web.Request) -> web.Response:
            body = await request.read()
            if request.method == "POST" and passing.change is not None:
                body = json.dumps(passing.change(json.loads(body))).encode()
            answer = await client.request(request.method, request.path_qs, content=body, headers=_kept(request))
            if request.method == "POST":
                passing.calls.append(Passed(json.loads(body), answer.status_code, answer.json()))
            kind = answer.headers.get("content-type", "application/json")
            return web.Response(status=answer.status_code, body=answer.content, headers={"content-type": kind})

        application = web.Application(client_max_size=2**26)
        application.router.add_route("*", "/{path:.*}", forward)
        runner = web.AppRunner(application)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            passing.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield passing
        finally:
            await runner.cleanup()


def _kept(request: web.Request) -> dict[str, str]:
    ours = ("host", "content-length", "connection", "accept-encoding")
    return {name: value for name, value in request.headers.items() if name.lower() not in ours}
