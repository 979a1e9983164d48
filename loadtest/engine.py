"""The emulated engine: a server that behaves like vLLM on the wire, without a GPU (by `kind` like TGI, not verified).

Rule: one application per engine, everything it holds in one `Emulator`; a middleware turns refusals, unknown routes and
missing keys into the replies that the real server gives.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Protocol
from uuid import uuid4

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from loadtest.emulator import Emulator
from loadtest.engine_settings import Settings
from loadtest.http_json import json_reply
from loadtest.routes_embeddings import EmbeddingRoutes
from loadtest.routes_emulator import EmulatorRoutes
from loadtest.routes_generation import GenerationRoutes
from loadtest.routes_server import ServerRoutes
from loadtest.routes_tgi import TgiRoutes
from loadtest.wire_errors import WireError

__all__ = ["Engine", "Settings", "serve"]

BODY_BYTES = 256 * 1024 * 1024
AT_ONCE_SECONDS = 0.001
"""aiohttp takes a time limit of zero for none at all."""
GUARDED = ("/v1", "/v2", "/inference", "/cohere")
"""An API key protects these prefixes and nothing else, as in vLLM."""


class Routes(Protocol):
    """A set of handlers."""

    def table(self) -> list[web.RouteDef]:
        """Method, path and handler of each."""


@dataclass(slots=True)
class Engine:
    """A running engine. `dead` is set when a fault has ended it."""

    url: str
    emulator: Emulator
    dead: asyncio.Event

    @property
    def port(self) -> int:
        return self.emulator.port


@asynccontextmanager
async def serve(settings: Settings, die: Callable[[], None] | None = None) -> AsyncIterator[Engine]:
    """Run an engine on the current loop until the block ends.

    Raises `OSError` for a port that is taken and `ValueError` for settings that do not fit together. `die` is what the
    fault "die" does; without it the engine closes its port and every connection at once, as if the process had gone.
    """
    dead = asyncio.Event()
    emulator = Emulator(settings, die or dead.set)
    runner = web.AppRunner(
        application(emulator),
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=max(settings.shutdown_timeout_seconds, AT_ONCE_SECONDS),
    )
    await runner.setup()
    assert runner.server is not None
    try:
        listener = await asyncio.get_running_loop().create_server(runner.server, settings.host, settings.port)
        emulator.port = listener.sockets[0].getsockname()[1]
        if die is None:
            emulator.die = _vanish(listener, runner.server, dead)
        with closing(listener):
            yield Engine(f"http://{settings.host}:{emulator.port}", emulator, dead)
    finally:
        await runner.cleanup()
        emulator.close()


def _vanish(listener: asyncio.Server, server: web.Server, dead: asyncio.Event) -> Callable[[], None]:
    """To the outside, the end of a process: the port and every connection go away at once."""

    def vanish() -> None:
        listener.close()
        for connection in server.connections:
            if connection.transport is not None:
                connection.transport.close()
        dead.set()

    return vanish


def application(emulator: Emulator) -> web.Application:
    """The routes of an engine of its kind, and those of the emulator itself."""
    app = web.Application(client_max_size=BODY_BYTES, middlewares=[_door(emulator.settings)])
    app.on_response_prepare.append(_signature(emulator.settings))
    for routes in (*_kind_routes(emulator), EmulatorRoutes(emulator)):
        app.add_routes(routes.table())
    return app


def _kind_routes(emulator: Emulator) -> Sequence[Routes]:
    if emulator.settings.kind == "tgi":
        return (TgiRoutes(emulator),)
    return (GenerationRoutes(emulator), EmbeddingRoutes(emulator), ServerRoutes(emulator))


def _door(settings: Settings) -> Middleware:
    """The key is checked, and every refusal becomes the body that vLLM gives it."""

    @web.middleware
    async def door(request: web.Request, handler: Handler) -> web.StreamResponse:
        if _unauthorized(request, settings):
            return json_reply({"error": "Unauthorized"}, 401)
        try:
            return await handler(request)
        except WireError as error:
            return json_reply(error.body, error.status)
        except web.HTTPException as error:
            return web.Response(status=error.status) if settings.kind == "tgi" else _unrouted(error)

    return door


def _unauthorized(request: web.Request, settings: Settings) -> bool:
    if settings.api_key is None or not request.path.startswith(GUARDED):
        return False
    return request.headers.get("Authorization") != f"Bearer {settings.api_key}"


def _unrouted(error: web.HTTPException) -> web.Response:
    """A path or method that is not there."""
    response = json_reply({"detail": error.reason}, error.status)
    if isinstance(error, web.HTTPMethodNotAllowed):
        response.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
    return response


def _signature(settings: Settings) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """The headers that every reply of vLLM carries; a request id only where the server is told to."""

    async def sign(request: web.Request, response: web.StreamResponse) -> None:
        if settings.kind == "tgi":
            return
        response.headers["Server"] = "uvicorn"
        if response.status != 401:
            response.headers["Vary"] = "Origin"
        if settings.enable_request_id_headers:
            response.headers["X-Request-Id"] = request.headers.get("X-Request-Id") or uuid4().hex

    return sign
