"""The routes of TGI 3.3, from its documented schema. Not verified against a running server.

Rule: as in the OpenAI routes, a handler reads, checks and hands over to a `Delivery`.
"""

import json
from array import array
from typing import Any, TypeVar
from uuid import uuid4

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loadtest import utterance
from loadtest.delivery import Delivery
from loadtest.emulator import Emulator
from loadtest.faults import Fault
from loadtest.http_json import json_reply
from loadtest.job import Job
from loadtest.sequence import Key
from loadtest.text import Manner
from loadtest.wire_tgi import GenerateWire, TgiChatWire, invalid_input

VERSION = "3.3.7"


class Parameters(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)

    max_new_tokens: int | None = Field(default=None, ge=1)
    stop: list[str] = Field(default=[], max_length=4)
    seed: int | None = None
    details: bool = False
    return_full_text: bool | None = None
    truncate: int | None = Field(default=None, ge=1)


class GenerateBody(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)

    inputs: str
    parameters: Parameters = Parameters()
    stream: bool = False
    kvgate_fault: str | None = None


class TgiStreamOptions(BaseModel):
    include_usage: bool = False


class TgiChatBody(BaseModel):
    """`model` and `n` are taken and not used, as documented."""

    model_config = ConfigDict(extra="allow", frozen=True)

    messages: list[dict[str, Any]] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, ge=1)
    stop: list[str] | None = None
    seed: int | None = None
    stream: bool = False
    stream_options: TgiStreamOptions | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    kvgate_fault: str | None = None


Body = TypeVar("Body", GenerateBody, TgiChatBody)


class TgiRoutes:
    """Handlers over one emulator."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._settings = emulator.settings

    def table(self) -> list[web.RouteDef]:
        return [
            web.post("/", self.compatible),
            web.post("/generate", self.generate),
            web.post("/generate_stream", self.generate_stream),
            web.post("/v1/chat/completions", self.chat),
            web.post("/tokenize", self.tokenize),
            web.get("/v1/models", self.models, allow_head=False),
            web.get("/info", self.info, allow_head=False),
            web.get("/health", self.health, allow_head=False),
            web.get("/ping", self.health, allow_head=False),
            web.get("/metrics", self.metrics, allow_head=False),
        ]

    async def compatible(self, request: web.Request) -> web.StreamResponse:
        body = await _read(GenerateBody, request)
        return await self._generate(request, body, body.stream, as_list=True)

    async def generate(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, await _read(GenerateBody, request), False)

    async def generate_stream(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, await _read(GenerateBody, request), True)

    async def _generate(
        self, request: web.Request, body: GenerateBody, stream: bool, as_list: bool = False
    ) -> web.StreamResponse:
        asked = body.parameters
        prompt = self._emulator.tokenizer.encode(body.inputs)
        if asked.truncate is not None:
            prompt = prompt[-asked.truncate :]
        how = self._manner(prompt, asked.max_new_tokens, tuple(asked.stop))
        text = body.inputs if asked.return_full_text else None
        job = self._job(prompt, text, how, None, asked.seed, stream)
        wire = GenerateWire(asked.details, asked.seed, as_list)
        return await self._deliver(request, job, wire, body.kvgate_fault)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await _read(TgiChatBody, request)
        tools = body.tools or []
        prompt = self._emulator.tokenizer.chat(body.messages, tools)
        how = self._manner(prompt, body.max_tokens, tuple(body.stop or ()))
        wish = utterance.wished_call(body.messages, tools, body.tool_choice, self._emulator.seed(prompt, body.seed, 0))
        job = self._job(prompt, None, how, wish, body.seed, body.stream)
        job.include_usage = bool(body.stream_options and body.stream_options.include_usage)
        return await self._deliver(request, job, TgiChatWire(self._settings.served), body.kvgate_fault)

    def _manner(self, prompt: "array[int]", asked: int | None, stop: tuple[str, ...]) -> Manner:
        """Raises `WireError` for sizes beyond the limits that /info names."""
        total = self._settings.max_model_len
        if not 0 < len(prompt) < total:
            raise invalid_input(f"`inputs` must have less than {total - 1} tokens. Given: {len(prompt)}")
        room = total - len(prompt)
        if asked is not None and asked > room:
            raise invalid_input(
                f"`inputs` tokens + `max_new_tokens` must be <= {total}. "
                f"Given: {len(prompt)} `inputs` tokens and {asked} `max_new_tokens`"
            )
        return Manner(asked or room, stop=stop, include_stop=True, typical_tokens=self._settings.typical_output_tokens)

    def _job(
        self,
        prompt: "array[int]",
        text: str | None,
        how: Manner,
        wish: utterance.Wish | None,
        seed: int | None,
        stream: bool,
    ) -> Job:
        choice = self._emulator.choice(Key(f"tgi-{uuid4().hex}"), prompt, text, how, wish, seed)
        self._emulator.metrics.asked(1, how.max_tokens)
        return self._emulator.job("tgi", None, [choice], len(prompt), stream=stream)

    async def _deliver(
        self, request: web.Request, job: Job, wire: GenerateWire | TgiChatWire, fault: str | None
    ) -> web.StreamResponse:
        faults = self._faults(request, fault)
        response = await Delivery(self._emulator, request, job, wire, faults).run()
        if not response.prepared and job.finished:
            response.headers.update(_timings(job))
        return response

    def _faults(self, request: web.Request, fault: str | None) -> list[Fault]:
        asked = " ".join(filter(None, (request.headers.get("x-kvgate-fault"), fault)))
        try:
            return self._emulator.faults_for(asked)
        except ValueError as error:
            raise invalid_input(str(error)) from None

    async def tokenize(self, request: web.Request) -> web.Response:
        body = await _read(GenerateBody, request)
        tokens, at = [], 0
        for token in self._emulator.tokenizer.encode(body.inputs):
            text = self._emulator.tokenizer.decode([token])
            tokens.append({"id": token, "text": text, "start": at, "stop": at + len(text)})
            at += len(text)
        return json_reply(tokens)

    async def models(self, request: web.Request) -> web.Response:
        card = {"id": self._settings.served, "object": "model", "created": 0, "owned_by": self._settings.served}
        return json_reply({"object": "list", "data": [card]})

    async def info(self, request: web.Request) -> web.Response:
        return json_reply(
            {
                "model_id": self._settings.served,
                "model_sha": None,
                "model_pipeline_tag": "text-generation",
                "max_concurrent_requests": self._settings.max_num_queued_reqs or 128,
                "max_best_of": 2,
                "max_stop_sequences": 4,
                "max_input_tokens": self._settings.max_model_len - 1,
                "max_total_tokens": self._settings.max_model_len,
                "validation_workers": 2,
                "max_client_batch_size": 4,
                "router": "text-generation-router",
                "version": VERSION,
                "sha": None,
                "docker_label": None,
            }
        )

    async def health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def metrics(self, request: web.Request) -> web.Response:
        metrics = self._emulator.metrics
        return web.Response(body=metrics.scrape(), headers={"Content-Type": metrics.content_type})


async def _read(kind: type[Body], request: web.Request) -> Body:
    try:
        return kind.model_validate(json.loads(await request.read()))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise invalid_input(f"{where}: {first['msg']}") from None
    except ValueError:
        raise invalid_input("the body is not JSON") from None


def _timings(job: Job) -> dict[str, str]:
    """The headers by which TGI tells times (ms) and sizes of a reply in one piece."""
    work = job.works[0]
    total = 1000 * (work.last_event_seconds - work.arrived_seconds)
    queue = 1000 * (work.scheduled_seconds - work.arrived_seconds)
    return {
        "x-compute-type": "emulated",
        "x-compute-time": f"{total / 1000:.3f}",
        "x-total-time": f"{total:.0f}",
        "x-validation-time": "0",
        "x-queue-time": f"{queue:.0f}",
        "x-inference-time": f"{total - queue:.0f}",
        "x-time-per-token": f"{(total - queue) / work.generated_tokens:.0f}",
        "x-prompt-tokens": str(work.prompt_tokens),
        "x-generated-tokens": str(work.generated_tokens),
    }
