"""The routes of vLLM that generate: chat and completions.

Rule: a handler reads and checks the request, makes a job and hands it to a `Delivery`; it writes no frame itself.
"""

from array import array
from collections.abc import Sequence
from uuid import uuid4

from aiohttp import web

from loadtest import transfer, utterance
from loadtest.delivery import Delivery
from loadtest.emulator import Emulator
from loadtest.faults import Fault
from loadtest.http_json import read_body, token_ids
from loadtest.job import Choice, Job
from loadtest.openai_requests import (
    ChatBody,
    CompletionBody,
    GenerationBody,
    check,
    check_prompt,
    check_text_only,
    manner,
)
from loadtest.records import recorded
from loadtest.sequence import Key
from loadtest.wire import dump
from loadtest.wire_chat import ChatWire
from loadtest.wire_completions import CompletionWire, Echo
from loadtest.wire_errors import invalid

LOAD_FORMAT = "endpoint-load-metrics-format"
PRIORITY = "X-Vllm-Priority"


class GenerationRoutes:
    """Handlers over one emulator."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._settings = emulator.settings

    def table(self) -> list[web.RouteDef]:
        return [web.post("/v1/chat/completions", self.chat), web.post("/v1/completions", self.completions)]

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await read_body(ChatBody, request)
        check(body, self._settings)
        check_text_only(body.messages, self._settings.served)
        tools = body.tools or []
        prompt = self._bounded(body, self._emulator.tokenizer.chat(body.messages, tools))
        job = self._job("chatcmpl", request, body, [(prompt, None)], tools)
        return await self._deliver(request, body, job, ChatWire(self._settings.served))

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await read_body(CompletionBody, request)
        check(body, self._settings)
        prompts = [self._prompt(body, prompt) for prompt in body.prompts]
        job = self._job("cmpl", request, body, prompts, [])
        return await self._deliver(request, body, job, CompletionWire(self._settings.served, _echo(body)))

    def _prompt(self, body: CompletionBody, prompt: str | list[int]) -> "tuple[array[int], str]":
        tokenizer = self._emulator.tokenizer
        if isinstance(prompt, str):
            return self._bounded(body, tokenizer.encode(prompt)), prompt
        return self._bounded(body, token_ids(prompt)), tokenizer.decode(prompt)

    def _bounded(self, body: GenerationBody, prompt: "array[int]") -> "array[int]":
        """The prompt cut as the request asks; what is left must leave room for an answer."""
        kept = body.truncate_prompt_tokens
        if kept is not None:
            wanted = self._settings.max_model_len - 1 if kept < 0 else kept
            prompt = prompt[max(0, len(prompt) - wanted) :]
        check_prompt(len(prompt), self._settings.max_model_len)
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
        how, wish, told = manner(body, len(prompt), self._settings), None, None
        if isinstance(body, ChatBody):
            told = recorded(body.messages)
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
            told,
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


def _echo(body: CompletionBody) -> Echo:
    return "only" if body.only_echoes else "before" if body.echo else "no"


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
