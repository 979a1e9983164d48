"""Several worker processes on one port, and one process that keeps them alive.

Rule: the supervisor serves no call. It owns what there can be only one of (the embedded store, the admin port), starts
a worker again that died, hands on SIGHUP, and is never outlived by a worker: each holds a pipe that ends with it.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web

from config.settings import Settings
from gateway import embedded
from gateway.admin import CONTENT_TYPE
from gateway.admin_wire import MAX_BODY_BYTES, error_of
from gateway.forwarding import API_PATHS, forwarded
from gateway.logs import log
from gateway.merging import merged
from gateway.starting import StartError, listening
from gateway.tasks import Tasks
from gateway.vault import vault_of

FIRST_BACKOFF_SECONDS: Final = 0.2
LONGEST_BACKOFF_SECONDS: Final = 10.0
STEADY_SECONDS: Final = 30.0
"""A worker that lived this long begins again with the first backoff."""
PARENT_PIPE: Final = "KVGATE_PARENT_PIPE"
ENDS_WITHIN_SECONDS: Final = 10.0
"""What a worker may take to end once it has drained."""


class Worker:
    """One worker process, started again whenever it ends."""

    def __init__(self, number: int, config: Path, settings: Settings, store_url: str) -> None:
        self.number = number
        self.admin = settings.data_dir / "workers" / f"{number}.sock"
        self._command = [sys.executable, "-m", "gateway", "worker", "-c", str(config)]
        self._environ = os.environ | {
            "KVGATE_PORT": str(settings.port),
            "KVGATE_STORE_URL": store_url,
            "KVGATE_ADMIN_SOCKET": str(self.admin),
        }
        self.process: asyncio.subprocess.Process | None = None

    async def keep(self) -> None:
        """Until cancelled: start it, wait for its end, start it again."""
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            started_at = asyncio.get_running_loop().time()
            try:
                code = await self._lived()
            except OSError as error:  # no process, no memory or no file to be had: there may be later
                log(logging.ERROR, "worker not started", worker=self.number, error=error.strerror)
                code = None
            lived = asyncio.get_running_loop().time() - started_at
            if code is not None:
                log(logging.ERROR, "worker ended", worker=self.number, code=code, lived_seconds=round(lived, 1))
            backoff = FIRST_BACKOFF_SECONDS if lived > STEADY_SECONDS else min(backoff * 2, LONGEST_BACKOFF_SECONDS)
            await asyncio.sleep(backoff)

    async def _lived(self) -> int:
        self.admin.unlink(missing_ok=True)
        reading, writing = os.pipe()
        try:
            environ = self._environ | {PARENT_PIPE: str(reading)}
            try:
                self.process = await asyncio.create_subprocess_exec(
                    *self._command, env=environ, pass_fds=[reading], start_new_session=True
                )
            finally:
                os.close(reading)
            return await self.process.wait()
        finally:
            os.close(writing)  # should we be cancelled, the worker sees the end of its pipe and drains

    def signal(self, signum: int) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signum)

    async def stopped(self, within_seconds: float) -> None:
        """Wait for its end; a worker that hangs is killed."""
        if self.process is None:
            return
        try:
            async with asyncio.timeout(within_seconds):
                await self.process.wait()
        except TimeoutError:
            log(logging.ERROR, "worker killed: it did not end", worker=self.number)
            self.process.kill()
            await self.process.wait()


class Supervisor:
    """The workers and their common admin port."""

    def __init__(self, workers: list[Worker]) -> None:
        self.workers = workers
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.add_routes([web.get("/metrics", self._metrics), web.get("/healthz", self._healthz)])
        app.add_routes([web.get("/readyz", self._readyz)])
        app.add_routes([web.route("*", path, self._api) for path in API_PATHS])
        self.runner = web.AppRunner(app, access_log=None)

    async def listen(self, host: str, port: int) -> int:
        await self.runner.setup()
        await web.TCPSite(self.runner, host, port).start()
        return int(self.runner.addresses[0][1])

    def hurry(self) -> None:
        """Tell every worker, which drains, to stop now."""
        for worker in self.workers:
            worker.signal(signal.SIGTERM)

    def reload(self) -> None:
        """Tell every worker to read the configuration again. One that is starting has yet to read it."""
        for worker in self.workers:
            if worker.admin.exists():  # before that the signal may find no Python yet, and would end it
                worker.signal(signal.SIGHUP)

    async def _metrics(self, _: web.Request) -> web.Response:
        pages = {str(worker.number): await _ask(worker, "/metrics") for worker in self.workers}
        body = merged({number: page for number, (status, page) in pages.items() if status == 200})
        return web.Response(body=body, headers={"content-type": CONTENT_TYPE})

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        answers = [await _ask(worker, "/readyz") for worker in self.workers]
        ready = sum(status == 200 for status, _ in answers)
        return web.Response(status=200 if ready else 503, text=f"{ready} of {len(answers)} workers ready\n")

    async def _api(self, request: web.Request) -> web.Response:
        """Handed to a worker, which checks the token; to the next one only if the first was not reached at all."""
        body = await request.read()
        for worker in self.workers:
            if (answer := await forwarded(worker.admin, request, body)) is not None:
                return answer
        return error_of(503, "no worker can be reached")


@asynccontextmanager
async def supervising(config: Path, settings: Settings) -> AsyncIterator[Supervisor]:
    """Workers until the block is left, which drains them.

    Raises `StartError`, `EmbeddedError` or `KeysError`: one line each.
    """
    vault_of(settings.store_keys, settings.store_plain)  # told here, once, not by every worker again and again
    async with AsyncExitStack() as ends:
        reserved = ends.enter_context(_reserved(settings))
        settings = settings.model_copy(update={"port": reserved.getsockname()[1]})
        url = settings.store_url
        if url is None:
            server = embedded.start(settings.data_dir / "store", settings.store_program)
            ends.callback(server.close)
            url = server.url
        (settings.data_dir / "workers").mkdir(parents=True, exist_ok=True, mode=0o700)
        workers = [Worker(number, config, settings, url) for number in range(settings.workers)]
        supervisor = Supervisor(workers)
        ends.push_async_callback(supervisor.runner.cleanup)
        await listening(supervisor.listen, settings.admin_host, settings.admin_port, "KVGATE_ADMIN_PORT")
        keeping = Tasks()
        for worker in workers:
            keeping.start(worker.keep(), name=f"worker {worker.number}")
        try:
            yield supervisor
        finally:
            await keeping.close()
            patience = settings.drain_delay_seconds + settings.drain_seconds + ENDS_WITHIN_SECONDS
            await asyncio.gather(*(worker.stopped(patience) for worker in workers))


def _reserved(settings: Settings) -> socket.socket:
    """The port, bound and never listened on: workers share it, and nobody else can take it while one restarts."""
    holder = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        with socket.socket(holder.family) as probe:  # without sharing: is it taken by somebody else?
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.host, settings.port))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind((settings.host, settings.port))
    except OSError as error:
        holder.close()
        where = f"{settings.host}:{settings.port}"
        raise StartError(
            f"cannot listen on {where}: {error.strerror}; stop what uses it, or set KVGATE_PORT to another port"
        ) from error
    return holder


async def _ask(worker: Worker, path: str) -> tuple[int, str]:
    """A worker's own answer; 0 for one that does not answer."""
    timeout = aiohttp.ClientTimeout(total=2.0)
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(worker.admin)), timeout=timeout) as session,
            session.get(f"http://worker{path}") as answer,
        ):
            return answer.status, await answer.text()
    except (aiohttp.ClientError, OSError, TimeoutError):
        return 0, ""
