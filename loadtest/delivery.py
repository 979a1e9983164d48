"""A job on its way to the client: streamed or whole, with whatever faults were asked for.

Rule: when the client goes away the handler is cancelled, and whatever happens the sequences are aborted on the way out:
an engine never generates for nobody.
"""

import asyncio
import json

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from loadtest.emulator import Emulator
from loadtest.faults import AT_THE_DOOR, Fault
from loadtest.job import Job
from loadtest.transfer import Source
from loadtest.wire import Wire, dump

FETCH_SECONDS = 5.0
FOREVER_SECONDS = 1e9
SLOW_SECONDS = 5.0


class Delivery:
    """One job, one client. `faults` are used up as they show."""

    def __init__(self, emulator: Emulator, request: web.Request, job: Job, wire: Wire, faults: list[Fault]) -> None:
        self._emulator = emulator
        self._request = request
        self._job = job
        self._wire = wire
        self._faults = faults
        self._handed_over = False

    async def run(self, source: Source | None = None) -> web.StreamResponse:
        """Generate and send. Raises `WireError` for a refusal before the first byte."""
        refused = await self._at_the_door()
        if refused is not None:
            return refused
        if source is not None:
            await self._fetch(source)
        if self._emulator.full(len(self._job.choices)):
            self._emulator.metrics.refused()
            raise self._wire.busy()
        self._emulator.serving += 1
        arrivals = self._emulator.driver.submit(self._job.works)
        try:
            return await (self._stream(arrivals) if self._job.stream else self._whole(arrivals))
        finally:
            self._emulator.serving -= 1
            self._let_go()

    def _let_go(self) -> None:
        self._emulator.driver.abort(self._job.works)
        for work in self._job.works:
            if work.pinned and work.finished and not self._handed_over:
                self._emulator.driver.unpin(work)

    async def _at_the_door(self) -> web.StreamResponse | None:
        for fault in [fault for fault in self._faults if fault.kind in AT_THE_DOOR]:
            self._faults.remove(fault)
            if fault.kind == "slow":
                await asyncio.sleep(SLOW_SECONDS if fault.seconds is None else fault.seconds)
            elif fault.kind == "refuse":
                self._hang_up()
                return web.Response()
            else:
                raise self._wire.failed(fault.status)
        return None

    async def _stream(self, arrivals: "asyncio.Queue[tuple[int, int]]") -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": self._wire.content_type})
        await response.prepare(self._request)
        opened = False
        while not self._complete:
            if await self._broken(response):
                return response
            choice, index = await arrivals.get()
            self._job.sent_tokens[choice] += 1
            for each in () if opened else range(len(self._job.choices)):
                await self._write(response, self._wire.opening(self._job, each))
            opened = True
            await self._write(response, self._wire.token(self._job, choice, index))
        if await self._broken(response):
            return response
        await self._write(response, self._wire.closing(self._job))
        await response.write(self._wire.end)
        return response

    async def _whole(self, arrivals: "asyncio.Queue[tuple[int, int]]") -> web.StreamResponse:
        while not self._complete:
            broken = await self._broken_whole()
            if broken is not None:
                return broken
            choice, _ = await arrivals.get()
            self._job.sent_tokens[choice] += 1
        broken = await self._broken_whole()
        if broken is not None:
            return broken
        if self._job.works[0].pinned:
            self._emulator.hand_over(self._job)
            self._handed_over = True
        return web.Response(body=dump(self._wire.whole(self._job)), content_type="application/json")

    @property
    def _complete(self) -> bool:
        return all(
            sent == len(choice.utterance.deltas)
            for sent, choice in zip(self._job.sent_tokens, self._job.choices, strict=True)
        )

    async def _write(self, response: web.StreamResponse, value: object | None) -> None:
        if value is not None:
            await response.write(self._wire.framed(value))

    def _due(self) -> Fault | None:
        """The next fault whose number of tokens has gone out."""
        for fault in self._faults:
            if self._job.decode_tokens >= fault.after_tokens:
                self._faults.remove(fault)
                return fault
        return None

    async def _broken(self, response: web.StreamResponse) -> bool:
        """Show the faults that are due in a stream; True: nothing more is to be sent."""
        while (fault := self._due()) is not None:
            match fault.kind:
                case "stall":
                    await _stall(fault)
                case "malformed":
                    await response.write(b'data: {"id":"' + self._job.request_id.encode() + b'","choices":[{"ind\n\n')
                case "error":
                    await self._write(response, self._wire.error())
                    await response.write(self._wire.end)
                    return True
                case "cut":
                    self._hang_up()
                    return True
                case _:
                    self._emulator.die()
                    return True
        return False

    async def _broken_whole(self) -> web.StreamResponse | None:
        """The same for a reply in one piece: half of it, or nothing."""
        while (fault := self._due()) is not None:
            match fault.kind:
                case "stall":
                    await _stall(fault)
                case "malformed":
                    return web.Response(body=b'{"id":"chatcmpl-', content_type="application/json")
                case "error":
                    raise self._wire.failed()
                case "cut":
                    return await self._half()
                case _:
                    self._emulator.die()
                    return web.Response()
        return None

    async def _half(self) -> web.StreamResponse:
        body = dump(self._wire.whole(self._job))
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(body))})
        await response.prepare(self._request)
        await response.write(body[: len(body) // 2])
        self._hang_up()
        return response

    def _hang_up(self) -> None:
        if self._request.transport is not None:
            self._request.transport.close()

    async def _fetch(self, source: Source) -> None:
        """Get the KV of the prompt from the engine that computed it, in the time that the link takes."""
        emulator, work = self._emulator, self._job.works[0]
        if not await _pull(source):
            emulator.metrics.transfer_failed()
            if emulator.settings.kv_load_failure_policy == "fail":
                raise self._wire.failed()
            return
        work.external_tokens = min(source.tokens, work.prompt_tokens - 1)
        self._job.cached_elsewhere_tokens = source.cached_tokens
        moved = emulator.plant.roofline.transfer_bytes(work.external_tokens)
        seconds = moved / emulator.settings.kv_transfer_bytes_per_second / emulator.settings.speed
        await asyncio.sleep(seconds)
        emulator.metrics.transferred(moved, seconds)


async def _stall(fault: Fault) -> None:
    await asyncio.sleep(FOREVER_SECONDS if fault.seconds is None else fault.seconds)


async def _pull(source: Source) -> bool:
    """Whether the other engine had the blocks; it keeps them no longer."""
    url = f"http://{source.host}:{source.port}/emulator/kv"
    names = {"engine_id": source.engine_id, "request_id": source.request_id}
    try:
        timeout = ClientTimeout(total=FETCH_SECONDS)
        async with ClientSession(timeout=timeout) as session, session.post(url, data=json.dumps(names)) as reply:
            return reply.status == 200
    except (ClientError, TimeoutError, OSError):
        return False
