"""The tenants' port: which path is which dialect, and the one place where a fault becomes an answer.

Rule: a closed table. What is not in it is a 404 and is never forwarded; every route but the probes needs a key.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import unquote

import msgspec

from gateway import errors, trace
from gateway.call import Request
from gateway.dialects.base import Dialect
from gateway.dialects.openai_chat import OpenAIChat
from gateway.dialects.openai_completions import OpenAICompletions
from gateway.dialects.openai_embeddings import OpenAIEmbeddings
from gateway.errors import Fault
from gateway.logs import log, log_defect
from gateway.metrics import Metrics
from gateway.models import card, cards
from gateway.pipeline import Pipeline
from gateway.responder import Header, Responder
from gateway.snapshot import Snapshot

JSON: Final[Header] = (b"content-type", b"application/json")
NOT_STORED: Final[Header] = (b"cache-control", b"no-store")
TEXT: Final[Header] = (b"content-type", b"text/plain; charset=utf-8")

DIALECTS: Final[Mapping[str, Dialect]] = {
    "/v1/chat/completions": OpenAIChat(),
    "/v1/completions": OpenAICompletions(),
    "/v1/embeddings": OpenAIEmbeddings(),
}
LATER: Final = frozenset({"/v1/responses", "/v1/messages"})
MODELS: Final = "/v1/models"
NOT_SERVED: Final = (
    f"There is no such path here. Served are {', '.join(DIALECTS)} and {MODELS}; nothing else is forwarded."
)
USAGE: Final = "/v1/usage"
SESSIONS: Final = "/v1/sessions/"
ARTIFACTS: Final = "/v1/artifacts/"
READING: Final = ("GET", "HEAD")
PROBES: Final = {"/healthz": "ok", "/readyz": "ready"}
"""Also on this port, for load balancers that know no other."""
PLAIN: Final[Dialect] = DIALECTS["/v1/chat/completions"]
"""Whose error shape is used where no dialect was asked for."""

UNREAD: Final[Mapping[int, type[Fault]]] = {408: errors.ClientTooSlow, 413: errors.BodyTooLarge}
"""What a request that could not be read to its end is told, where it is not simply malformed."""


class Routes:
    """Handles every request of the tenants' port. `snapshot` gives the configuration in force."""

    def __init__(
        self,
        pipeline: Pipeline,
        snapshot: Callable[[], Snapshot],
        why_not_ready: Callable[[], str | None],
        metrics: Metrics,
    ) -> None:
        self._pipeline = pipeline
        self._snapshot = snapshot
        self._why_not_ready = why_not_ready
        self._metrics = metrics
        self._ids = trace.request_ids()

    async def handle(self, request: Request, responder: Responder) -> None:
        """Answer one request; whatever goes wrong is answered too."""
        request_id = next(self._ids)
        path = request.path if request.path in DIALECTS else normal(request.path)
        dialect = DIALECTS.get(path)
        try:
            if dialect is not None and request.method == "POST":
                require_json(request)
                await self._pipeline.serve(self._snapshot(), dialect, request, request_id, responder)
            elif path == USAGE and request.method in READING:
                stated = await self._pipeline.statement(self._snapshot(), request)
                responder.reply(200, [JSON, (b"x-request-id", request_id.encode())], stated)
            elif path.startswith(SESSIONS) and request.method == "DELETE":
                await self._forget(request, unquote(path.removeprefix(SESSIONS)), request_id, responder)
            elif path.startswith(SESSIONS) and request.method in READING:
                told = await self._pipeline.history(self._snapshot(), request, unquote(path.removeprefix(SESSIONS)))
                responder.reply(200, [JSON, NOT_STORED, (b"x-request-id", request_id.encode())], told)
            elif path.startswith(ARTIFACTS) and request.method in READING:
                told = await self._pipeline.artifact(self._snapshot(), request, path.removeprefix(ARTIFACTS))
                responder.reply(200, [JSON, NOT_STORED, (b"x-request-id", request_id.encode())], told)
            else:
                self._look_up(request, path, request_id, responder)
        except Fault as fault:
            self._answer(fault, dialect or PLAIN, request_id, responder)
        except asyncio.CancelledError:
            self._answer(errors.Draining("The gateway is being stopped."), dialect or PLAIN, request_id, responder)
            raise
        except Exception as defect:  # noqa: BLE001 - the last resort: a defect is answered, logged and counted
            self._metrics.faults.add(1, "request")
            log_defect("defect", defect, request_id=request_id)
            self._answer(errors.Unexpected("The gateway failed."), dialect or PLAIN, request_id, responder)

    def refuse(self, status: int, message: str, responder: Responder) -> None:
        """Answer what never became a request: malformed HTTP, too large, too slow."""
        fault = UNREAD.get(status, errors.InvalidRequest)(message)
        reply = replace(errors.answer(fault), status=status)
        responder.reply(status, [JSON, (b"x-request-id", next(self._ids).encode())], PLAIN.error(reply))

    async def _forget(self, request: Request, session: str, request_id: str, responder: Responder) -> None:
        await self._pipeline.forget(self._snapshot(), request, session)
        body = msgspec.json.encode({"id": session, "object": "session", "deleted": True})
        responder.reply(200, [JSON, (b"x-request-id", request_id.encode())], body)

    def _look_up(self, request: Request, path: str, request_id: str, responder: Responder) -> None:
        """The routes that cost no engine."""
        probe = PROBES.get(request.path)
        if path in LATER:
            raise errors.RouteNotFound(f"{path} is not served yet; use /v1/chat/completions.")
        if path.startswith(SESSIONS):
            raise errors.MethodNotAllowed(
                "A session takes GET and DELETE only.", headers=((b"allow", b"DELETE, GET, HEAD"),)
            )
        if path.startswith(ARTIFACTS):
            raise errors.MethodNotAllowed("An artifact takes GET only.", headers=((b"allow", b"GET, HEAD"),))
        if path in DIALECTS:
            raise errors.MethodNotAllowed(f"{path} takes POST only.", headers=((b"allow", b"POST"),))
        if probe is None and path not in (MODELS, USAGE) and not path.startswith(f"{MODELS}/"):
            raise errors.RouteNotFound(NOT_SERVED)
        if request.method not in READING:
            raise errors.MethodNotAllowed(f"{request.path} takes GET only.", headers=((b"allow", b"GET, HEAD"),))
        if probe is None:
            responder.reply(200, [JSON, (b"x-request-id", request_id.encode())], self._models(request, path))
        else:
            reason = self._why_not_ready() if probe == "ready" else None
            responder.reply(200 if reason is None else 503, [TEXT], f"{reason or probe}\n".encode())

    def _models(self, request: Request, path: str) -> bytes:
        snapshot = self._snapshot()
        caller = snapshot.tenants.identify(request.headers)
        if path == MODELS:
            return msgspec.json.encode(cards(snapshot, caller))
        return msgspec.json.encode(card(snapshot, caller, unquote(path.removeprefix(f"{MODELS}/"))))

    def _answer(self, fault: Fault, dialect: Dialect, request_id: str, responder: Responder) -> None:
        if responder.started:
            responder.cut()  # what can still be said in a stream has been said where it broke
            return
        reply = errors.answer(fault)
        self._metrics.refused.add(1, reply.code or "invalid_request")
        log(logging.INFO, "refused", status=reply.status, code=reply.code, request_id=request_id)
        headers = [JSON, (b"x-request-id", request_id.encode()), *reply.headers]
        responder.reply(reply.status, headers, dialect.error(reply))


def normal(path: str) -> str:
    """The path as the table has it: SDKs are pointed at base URLs with `/v1`, without, and with it twice."""
    bare = path.removeprefix("/v1").removeprefix("/v1").rstrip("/")
    return f"/v1{bare}"


def require_json(request: Request) -> None:
    """Raises `InvalidRequest` unless the body is declared as plain JSON, as the engines do."""
    headers = request.headers
    if headers.get(b"content-type") == JSON[1] and b"content-encoding" not in headers:
        return
    media = request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media != b"application/json":
        raise errors.InvalidRequest("Only `Content-Type: application/json` is accepted.")
    if request.headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise errors.InvalidRequest("Compressed request bodies are not accepted.")
