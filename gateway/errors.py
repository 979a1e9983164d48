"""Every way a call can end badly, typed by whose fault it is, and the one table that turns each into an answer.

Rule: a fault names its limit and its value and never repeats a key, a prompt or an engine's address. A test walks all
subclasses, so a fault without a row in the table cannot exist.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Headers = tuple[tuple[bytes, bytes], ...]


class Fault(Exception):
    """A call that cannot be served. `retryable`: another replica, or a later try, may succeed."""

    retryable = False
    status: int | None = None  # the table's, unless set
    type: str | None = None  # so too

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        headers: Headers = (),
        extra: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.headers = headers
        self.extra = extra or {}


class ClientFault(Fault):
    """The client asked for something that we cannot or may not do."""


class EngineFault(Fault):
    """An engine failed."""


class OurFault(Fault):
    """The gateway or its store failed."""


class InvalidRequest(ClientFault):
    """The body is not what the API describes."""


class BodyTooLarge(ClientFault):
    """The body is longer than the byte limit."""


class ContextTooLong(ClientFault):
    """The conversation does not fit the limit and no policy may cut it."""


class NotAuthenticated(ClientFault):
    """No key, an unknown key, or more than one."""


class ModelNotFound(ClientFault):
    """No such model, or none that this tenant may use."""


class SessionNotFound(ClientFault):
    """No such session of this tenant, or no more."""


class ArtifactNotFound(ClientFault):
    """No such original of this tenant, or no more."""


class HistoryNotFound(ClientFault):
    """No history under this session id, or no more."""


class HistoryExists(ClientFault):
    """A history is to be begun where there is one."""


class HistoryBusy(ClientFault):
    """Another turn of the history is under way."""

    retryable = True


class HistoryMoved(ClientFault):
    """The history has not as many messages as the client believes."""


class HistoryUnsettled(ClientFault):
    """Nobody knows whether the history has its last turn."""


class HistoryUnreadable(ClientFault):
    """The history is there, and its key is not."""


class HistoryFull(ClientFault):
    """The history would be larger than the tier allows."""


class RouteNotFound(ClientFault):
    """No such path. Unknown paths are never forwarded."""


class MethodNotAllowed(ClientFault):
    """The path exists, the method does not."""


class RateLimited(ClientFault):
    """A rate is used up; it refills by itself."""

    retryable = True


class QuotaSpent(ClientFault):
    """A quota is used up; retrying soon does not help."""


class ClientGone(ClientFault):
    """The client closed the connection before the end."""


class ClientTooSlow(ClientFault):
    """The client did not send its request in time."""


class EngineUnreachable(EngineFault):
    """No connection, or it ended before any byte of an answer."""

    retryable = True


class EngineTimeout(EngineFault):
    """No answer, or no next token, within the limit. Not retried: the engine may still be at it."""


class EngineError(EngineFault):
    """The engine answered with a server error."""

    retryable = True


class EngineRejected(EngineFault):
    """The engine does not accept the gateway's key. The call itself may be the reason: no replica is blamed."""

    retryable = True


class EngineBusy(EngineFault):
    """The engine, or every engine, is at its capacity."""

    retryable = True


class EngineBroke(EngineFault):
    """The answer began and did not end as the protocol says. Where nothing of it was used, another try is safe."""

    retryable = True


class NoReplica(OurFault):
    """No replica can take the call."""

    retryable = True


class Saturated(OurFault):
    """All replicas are in use and the wait was too long, or the queue is full."""

    retryable = True


class StoreDown(OurFault):
    """The store did not answer and the limit says that no call passes without it."""

    retryable = True


class ModelUnpriced(OurFault):
    """A limit of money bounds calls that would cost nothing, because no price is configured for them."""


class Draining(OurFault):
    """This gateway is being stopped."""

    retryable = True


class Unexpected(OurFault):
    """A defect. The log has the details, the answer has not."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client is told: HTTP status, and `type` and `code` of an OpenAI error object."""

    status: int
    type: str
    code: str | None


ANSWERS: Mapping[type[Fault], Answer] = {
    InvalidRequest: Answer(400, "invalid_request_error", None),
    BodyTooLarge: Answer(413, "invalid_request_error", "request_too_large"),
    ContextTooLong: Answer(400, "invalid_request_error", "context_length_exceeded"),
    NotAuthenticated: Answer(401, "invalid_request_error", "invalid_api_key"),
    ModelNotFound: Answer(404, "invalid_request_error", "model_not_found"),
    SessionNotFound: Answer(404, "invalid_request_error", "session_not_found"),
    ArtifactNotFound: Answer(404, "invalid_request_error", "artifact_not_found"),
    HistoryNotFound: Answer(404, "invalid_request_error", "history_not_found"),
    HistoryExists: Answer(409, "invalid_request_error", "history_exists"),
    HistoryBusy: Answer(409, "invalid_request_error", "history_busy"),
    HistoryMoved: Answer(409, "invalid_request_error", "history_moved"),
    HistoryUnsettled: Answer(409, "invalid_request_error", "history_unsettled"),
    HistoryUnreadable: Answer(409, "invalid_request_error", "history_unreadable"),
    HistoryFull: Answer(413, "invalid_request_error", "history_full"),
    RouteNotFound: Answer(404, "invalid_request_error", "unknown_url"),
    MethodNotAllowed: Answer(405, "invalid_request_error", "method_not_allowed"),
    RateLimited: Answer(429, "tokens", "rate_limit_exceeded"),
    QuotaSpent: Answer(429, "insufficient_quota", "insufficient_quota"),
    ClientGone: Answer(499, "invalid_request_error", "client_closed_request"),
    ClientTooSlow: Answer(408, "invalid_request_error", "request_timeout"),
    EngineUnreachable: Answer(502, "server_error", "engine_unreachable"),
    EngineTimeout: Answer(504, "server_error", "engine_timeout"),
    EngineError: Answer(502, "server_error", "engine_error"),
    EngineRejected: Answer(502, "server_error", "engine_rejected"),
    EngineBusy: Answer(503, "server_error", "engine_busy"),
    EngineBroke: Answer(502, "server_error", "engine_broke_off"),
    NoReplica: Answer(503, "server_error", "no_replica"),
    Saturated: Answer(429, "server_error", "engines_saturated"),
    StoreDown: Answer(503, "server_error", "store_unavailable"),
    ModelUnpriced: Answer(503, "server_error", "model_unpriced"),
    Draining: Answer(503, "server_error", "draining"),
    Unexpected: Answer(500, "server_error", "internal_error"),
}


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """A fault as every dialect renders it: neutral form."""

    status: int
    type: str
    code: str | None
    message: str
    param: str | None = None
    headers: Headers = ()
    extra: Mapping[str, object] = field(default_factory=dict)


def answer(fault: Fault) -> ErrorReply:
    """The answer to a fault, by the table."""
    row = ANSWERS[type(fault)]
    return ErrorReply(
        fault.status or row.status,
        fault.type or row.type,
        row.code,
        fault.message,
        fault.param,
        fault.headers,
        dict(fault.extra),
    )
