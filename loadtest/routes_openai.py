"""The routes of vLLM's OpenAI-compatible server that the emulated engine has.

Rule: a handler reads and checks the request, makes a job and hands it to a `Delivery`; it writes no frame itself.
"""

import base64
import math
import struct
import time
from array import array
from collections.abc import Sequence
from uuid import uuid4

from aiohttp import web
from xxhash import xxh3_64_intdigest

from loadtest import transfer, utterance
from loadtest.delivery import Delivery
from loadtest.emulator import Emulator
from loadtest.faults import Fault
from loadtest.job import Choice, Job
from loadtest.openai_requests import (
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    EmbeddingBody,
    GenerationBody,
    Request,
    TokenizeBody,
    check,
    check_model,
    check_prompt,
    check_text_only,
    manner,
    read,
)
from loadtest.sequence import Key
from loadtest.text import seed_of
from loadtest.wire_errors import invalid
from loadtest.wire_openai import ChatWire, CompletionWire, dump

VERSION = "0.32.0"
LOAD_FORMAT = "endpoint-load-metrics-format"
PRIORITY = "X-Vllm-Priority"


class OpenAIRoutes:
    """Handlers over one emulator."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._settings = emulator.settings
        self._started = int(time.time())

    def table(self) -> list[web.RouteDef]:
        routes = [
            web.post("/v1/chat/completions", self.chat),
            web.post("/v1/completions", self.completions),
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
        if self._settings.enable_embeddings:
            routes.append(web.post("/v1/embeddings", self.embeddings))
        return routes

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await _read(ChatBody, request)
        check(body, self._settings)
        check_text_only(body.messages, self._settings.served)
        tools = body.tools or []
        prompt = self._bounded(body, self._emulator.tokenizer.chat(body.messages, tools))
        job = self._job("chatcmpl", request, body, [(prompt, None)], tools)
        return await self._deliver(request, body, job, ChatWire(self._settings.served))

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await _read(CompletionBody, request)
        check(body, self._settings)
        prompts = [self._prompt(body, prompt) for prompt in body.prompts]
        job = self._job("cmpl", request, body, prompts, [])
        return await self._deliver(request, body, job, CompletionWire(self._settings.served, bool(body.echo)))

    def _prompt(self, body: CompletionBody, prompt: str | list[int]) -> "tuple[array[int], str]":
        tokenizer = self._emulator.tokenizer
        if isinstance(prompt, str):
            return self._bounded(body, tokenizer.encode(prompt)), prompt
        return self._bounded(body, _token_ids(prompt)), tokenizer.decode(prompt)

    def _bounded(self, body: GenerationBody, prompt: "array[int]") -> "array[int]":
        """The prompt cut as the request asks; what is left must leave room for an answer."""
        kept = body.truncate_prompt_tokens
        if kept is not None:
            wanted = self._settings.max_model_len - 1 if kept < 0 else kept
            prompt = prompt[max(0, len(prompt) - wanted) :]
        check_prompt(len(prompt), self._settings.max_model_len)
        if not prompt:
            raise invalid("The prompt cannot be empty.")
        return prompt

    def _job(
        self,
        prefix: str,
        request: web.Request,
        body: GenerationBody,
        prompts: "Sequence[tuple[array[int], str | None]]",
        tools: Sequence[object],
    ) -> Job:
        unique_id = f"{prefix}-{request.headers.get('X-Request-Id', uuid4().hex[:16])}-{uuid4().hex[:8]}"
        copies = body.n or 1
        choices = [
            self._choice(request, body, Key(unique_id, at * copies + copy), prompt, text, tools)
            for at, (prompt, text) in enumerate(prompts)
            for copy in range(copies)
        ]
        self._emulator.metrics.asked(copies, body.asked_tokens[1] or self._settings.max_model_len)
        return self._emulator.job(
            prefix,
            request.headers.get("X-Request-Id"),
            choices,
            sum(len(prompt) for prompt, _ in prompts),
            **_stream_options(body, self._settings.enable_force_include_usage),
            return_token_ids=bool(body.return_token_ids),
        )

    def _choice(
        self,
        request: web.Request,
        body: GenerationBody,
        key: Key,
        prompt: "array[int]",
        text: str | None,
        tools: Sequence[object],
    ) -> Choice:
        how, wish = manner(body, len(prompt), self._settings), None
        if isinstance(body, ChatBody):
            seed = self._emulator.seed(prompt, body.seed, key.choice)
            wish = utterance.wished_call(body.messages, tools, body.tool_choice, seed)
        pinned = key.choice == 0 and not body.stream and transfer.wants_remote_decode(body.kv_transfer_params)
        return self._emulator.choice(
            key,
            prompt,
            text,
            how,
            wish,
            body.seed,
            salt=body.cache_salt,
            priority=_priority(request, body),
            pinned=pinned and self._settings.kv_transfer,
        )

    async def _deliver(
        self, request: web.Request, body: GenerationBody, job: Job, wire: ChatWire | CompletionWire
    ) -> web.StreamResponse:
        source = transfer.source_of(body.kv_transfer_params) if self._settings.kv_transfer else None
        response = await Delivery(self._emulator, request, job, wire, self._faults(request, body)).run(source)
        if not response.prepared:
            self._report_load(request, response)
        return response

    def _faults(self, request: web.Request, body: GenerationBody) -> list[Fault]:
        asked = " ".join(filter(None, (request.headers.get("x-kvgate-fault"), body.kvgate_fault)))
        try:
            return self._emulator.faults_for(asked)
        except ValueError as error:
            raise invalid(str(error), "kvgate_fault") from None

    def _report_load(self, request: web.Request, response: web.StreamResponse) -> None:
        """The load on the reply itself, for clients that ask (not on streams)."""
        scheduler = self._emulator.driver.scheduler
        values = {
            "kv_cache_usage_perc": round(scheduler.pool.usage, 4),
            "num_requests_waiting": float(len(scheduler.waiting)),
        }
        match request.headers.get(LOAD_FORMAT, "").lower():
            case "json":
                response.headers["endpoint-load-metrics"] = "JSON " + dump({"named_metrics": values}).decode()
            case "text":
                named = ", ".join(f"named_metrics.{name}={value}" for name, value in values.items())
                response.headers["endpoint-load-metrics"] = f"TEXT {named}"

    async def embeddings(self, request: web.Request) -> web.StreamResponse:
        body = await _read(EmbeddingBody, request)
        check_model(body, self._settings)
        inputs = _inputs(body)
        prompts = [
            self._emulator.tokenizer.encode(each) if isinstance(each, str) else _token_ids(each) for each in inputs
        ]
        for prompt in prompts:
            check_prompt(len(prompt), self._settings.max_model_len)
        vectors = [_vector(prompt, body.dimensions or 256) for prompt in prompts]
        await self._compute(prompts)
        return web.Response(body=dump(self._embedded(body, prompts, vectors)), content_type="application/json")

    async def _compute(self, prompts: "Sequence[array[int]]") -> None:
        """Takes the time of the prefill, in the same batch as everything else."""
        emulator, unique_id = self._emulator, f"embd-{uuid4().hex}"
        end = utterance.Utterance(array("I", [emulator.tokenizer.end]), (None,), "", "stop")
        works = [emulator.work(Key(unique_id, at), prompt, end) for at, prompt in enumerate(prompts)]
        arrivals = emulator.driver.submit(works)
        try:
            for _ in works:
                await arrivals.get()
        finally:
            emulator.driver.abort(works)

    def _embedded(
        self, body: EmbeddingBody, prompts: "Sequence[array[int]]", vectors: Sequence[list[float]]
    ) -> dict[str, object]:
        shown = [_encoded(vector) if body.encoding_format == "base64" else vector for vector in vectors]
        tokens = sum(map(len, prompts))
        return {
            "id": f"embd-{uuid4().hex[:16]}",
            "object": "list",
            "created": int(time.time()),
            "model": self._settings.served,
            "data": [{"index": at, "object": "embedding", "embedding": value} for at, value in enumerate(shown)],
            "usage": {
                "prompt_tokens": tokens,
                "total_tokens": tokens,
                "completion_tokens": 0,
                "prompt_tokens_details": None,
            },
        }

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
        return _json({"object": "list", "data": [card]})

    async def tokenize(self, request: web.Request) -> web.Response:
        body = await _read(TokenizeBody, request)
        check_model(body, self._settings)
        tokenizer = self._emulator.tokenizer
        if body.messages is not None:
            check_text_only(body.messages, self._settings.served)
            tokens = tokenizer.chat(body.messages, body.tools or [])
        else:
            tokens = tokenizer.encode(body.prompt or "")
        strings = [tokenizer.decode([token]) for token in tokens] if body.return_token_strs else None
        answer = {"count": len(tokens), "max_model_len": self._settings.max_model_len}
        return _json({**answer, "tokens": list(tokens), "token_strs": strings})

    async def detokenize(self, request: web.Request) -> web.Response:
        body = await _read(DetokenizeBody, request)
        check_model(body, self._settings)
        return _json({"prompt": self._emulator.tokenizer.decode(body.tokens)})

    async def health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def version(self, request: web.Request) -> web.Response:
        return _json({"version": VERSION})

    async def load(self, request: web.Request) -> web.Response:
        return _json({"server_load": self._emulator.serving})

    async def metrics(self, request: web.Request) -> web.Response:
        metrics = self._emulator.metrics
        return web.Response(body=metrics.scrape(), headers={"Content-Type": metrics.content_type})


async def _read(kind: type[Request], request: web.Request) -> Request:
    return read(kind, request.headers.get("Content-Type", ""), await request.read())


def _json(value: object) -> web.Response:
    return web.Response(body=dump(value), content_type="application/json")


def _token_ids(values: Sequence[int]) -> "array[int]":
    try:
        return array("I", values)
    except (OverflowError, TypeError):
        raise invalid("Token ids must be between 0 and the size of the vocabulary.") from None


def _stream_options(body: GenerationBody, forced: bool) -> dict[str, bool]:
    """Usage that the server forces on a stream comes with running usage on every frame, as in vLLM."""
    options = body.stream_options
    asked = bool(options and options.include_usage)
    running = bool(options and options.continuous_usage_stats) and asked
    streamed = bool(body.stream)
    return {
        "stream": streamed,
        "include_usage": streamed and (asked or forced),
        "continuous_usage": streamed and (running or forced),
    }


def _priority(request: web.Request, body: GenerationBody) -> int:
    try:
        return int(request.headers.get(PRIORITY, body.priority))
    except ValueError:
        return body.priority


def _inputs(body: EmbeddingBody) -> list[str | list[int]]:
    if isinstance(body.input, str):
        return [body.input]
    token_ids = [item for item in body.input if isinstance(item, int)]
    return [token_ids] if token_ids else [item for item in body.input if not isinstance(item, int)]


def _vector(prompt: "array[int]", dimensions: int) -> list[float]:
    """A unit vector that follows from the text."""
    raw = [seed_of(xxh3_64_intdigest(prompt.tobytes()), at) / 2**63 - 1 for at in range(dimensions)]
    length = math.sqrt(sum(value * value for value in raw)) or 1.0
    return [value / length for value in raw]


def _encoded(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
