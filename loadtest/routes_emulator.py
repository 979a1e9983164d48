"""Routes that no real engine has: faults at run time, and the side channel between two emulated engines.

    GET  /emulator/faults                       the faults in force
    POST /emulator/faults {"faults": ["cut=0.01,after:5"]}   replaces them; [] ends them
    POST /emulator/kv {"engine_id", "request_id"}            a decode engine fetches the KV of a prompt

Rule: a body that is wrong changes nothing and is answered with 400 and one line.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict

from aiohttp import web

from loadtest import faults
from loadtest.emulator import Emulator
from loadtest.http_json import json_reply


class EmulatorRoutes:
    """Handlers over one emulator."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator

    def table(self) -> list[web.RouteDef]:
        return [
            web.get("/emulator/faults", self.faults),
            web.post("/emulator/faults", self.set_faults),
            web.post("/emulator/kv", self.give_kv),
        ]

    async def faults(self, request: web.Request) -> web.Response:
        return json_reply({"faults": [asdict(fault) for fault in self._emulator.faults]})

    async def set_faults(self, request: web.Request) -> web.Response:
        try:
            asked = _object(await request.read()).get("faults")
            if not isinstance(asked, list):
                raise ValueError('expected {"faults": ["KIND=ITEM,..."]}')
            self._emulator.faults = tuple(faults.parse(str(text)) for text in asked)
        except ValueError as error:
            return json_reply({"error": str(error)}, 400)
        return await self.faults(request)

    async def give_kv(self, request: web.Request) -> web.Response:
        try:
            tokens = self._emulator.give(_object(await request.read()))
        except ValueError as error:
            return json_reply({"error": str(error)}, 400)
        return json_reply({"tokens": tokens}, 404 if tokens is None else 200)


def _object(raw: bytes) -> Mapping[str, object]:
    value = json.loads(raw or b"null")
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object")
    return value
