"""The routes of vLLM that tell about the server and its model, and the tokenizer.

Rule: none of them waits for the engine; they answer while it is busy.
"""

import time
from uuid import uuid4

from aiohttp import web

from loadtest.emulator import Emulator
from loadtest.http_json import json_reply, read_body
from loadtest.openai_requests import DetokenizeBody, TokenizeBody, check_model, check_text_only

VERSION = "0.32.0"


class ServerRoutes:
    """Handlers over one emulator."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._settings = emulator.settings
        self._started = int(time.time())

    def table(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/models", self.models, allow_head=False),
            web.post("/tokenize", self.tokenize),
            web.post("/detokenize", self.detokenize),
            web.get("/health", self.health, allow_head=False),
            web.get("/ping", self.health, allow_head=False),
            web.post("/ping", self.health),
            web.get("/version", self.version, allow_head=False),
            web.get("/load", self.load, allow_head=False),
            web.get("/metrics", self.metrics, allow_head=False),
        ]

    async def models(self, request: web.Request) -> web.Response:
        permission = {
            "id": f"modelperm-{uuid4().hex[:16]}",
            "object": "model_permission",
            "created": self._started,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        card = {
            "id": self._settings.served,
            "object": "model",
            "created": self._started,
            "owned_by": "vllm",
            "root": self._settings.model,
            "parent": None,
            "max_model_len": self._settings.max_model_len,
            "permission": [permission],
        }
        return json_reply({"object": "list", "data": [card]})

    async def tokenize(self, request: web.Request) -> web.Response:
        body = await read_body(TokenizeBody, request)
        check_model(body, self._settings)
        tokenizer = self._emulator.tokenizer
        if body.messages is not None:
            check_text_only(body.messages, self._settings.served)
            tokens = tokenizer.chat(body.messages, body.tools or [])
        else:
            tokens = tokenizer.encode(body.prompt or "")
        strings = [tokenizer.decode([token]) for token in tokens] if body.return_token_strs else None
        answer = {"count": len(tokens), "max_model_len": self._settings.max_model_len}
        return json_reply({**answer, "tokens": list(tokens), "token_strs": strings})

    async def detokenize(self, request: web.Request) -> web.Response:
        body = await read_body(DetokenizeBody, request)
        check_model(body, self._settings)
        return json_reply({"prompt": self._emulator.tokenizer.decode(body.tokens)})

    async def health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def version(self, request: web.Request) -> web.Response:
        return json_reply({"version": VERSION})

    async def load(self, request: web.Request) -> web.Response:
        return json_reply({"server_load": self._emulator.serving})

    async def metrics(self, request: web.Request) -> web.Response:
        metrics = self._emulator.metrics
        return web.Response(body=metrics.scrape(), headers={"Content-Type": metrics.content_type})
