"""The admin listener: metrics, probes and the admin API, on a port of its own, loopback unless told otherwise.

Rule: nothing a tenant may see is here, and nothing here is reachable on the tenants' port but the two probes.
"""

from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from gateway.admin_api import AdminApi
from gateway.admin_wire import MAX_BODY_BYTES
from gateway.metrics import Metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Ready = Callable[[], str | None]
"""`None` when calls can be served, else why not."""


class Admin:
    """The listener. `ready` is asked at every `/readyz`; `api` is served beside."""

    def __init__(self, metrics: Metrics, ready: Ready, api: AdminApi | None = None) -> None:
        self._metrics = metrics
        self._ready = ready
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.add_routes(
            [
                web.get("/metrics", self._show_metrics),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
            ]
        )
        app.add_routes(api.routes() if api is not None else [])
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self, host: str, port: int) -> int:
        """Listen; gives the port. Raises `OSError` if it is taken."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def start_on_socket(self, path: Path) -> None:
        """Listen on a unix socket: what a worker does, whose supervisor has the port."""
        await self._runner.setup()
        await web.UnixSite(self._runner, str(path)).start()

    async def close(self) -> None:
        await self._runner.cleanup()

    async def _show_metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.render(), headers={"content-type": CONTENT_TYPE})

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        reason = self._ready()
        return web.Response(status=200 if reason is None else 503, text=f"{reason or 'ready'}\n")
