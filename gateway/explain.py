"""`kvgate plan`: the edits a request would get, readable, nothing sent.

Rule: the same parsing, counting and planning as in the pipeline; only its last steps are missing.
"""

import msgspec

from config.effective import Effective
from config.model import Config
from gateway import digests
from gateway.call import Call
from gateway.context import Context, Known, Planned
from gateway.counting import Counter
from gateway.dialects.base import Dialect
from gateway.dialects.openai_chat import OpenAIChat
from gateway.dialects.openai_completions import OpenAICompletions
from gateway.dialects.openai_embeddings import OpenAIEmbeddings
from gateway.errors import InvalidRequest, ModelNotFound
from gateway.forecast import Forecast
from gateway.metrics import Metrics
from gateway.pace import Pace
from gateway.plan_view import Predicted, lines, predict, view
from gateway.retrieval import announced
from gateway.service import Service
from gateway.tenants import Caller
from gateway.tokens import counter


async def edits(config: Config, tenant: str, body: bytes, may: Effective | None = None) -> str:
    """A report in lines. Raises a `Fault` where the request would be refused. `may`: of a tenant of the store."""
    if may is None and tenant not in config.tenants:
        known = ", ".join(config.tenants) or "none"
        raise InvalidRequest(f"There is no tenant {tenant!r}; known: {known}.")
    caller = Caller("", config.effective(config.tenants[tenant]) if may is None else may, b"")
    dialect = dialect_of(body)
    call = dialect.parse(body)
    model = config.model_named(call.model)
    if model is None or model.name not in caller.may.models:
        allowed = ", ".join(sorted(caller.may.models)) or "none"
        raise ModelNotFound(f"There is no model {call.model!r} for {tenant}; it may use: {allowed}.")
    names = digests.of_messages(call.messages)
    service = Service(caller, model, (), Counter(counter(model.encoding)))
    if service.announces:
        call = announced(call)
    planned = await Context(Metrics(), lambda _: 1.0).plan(call, service, Known(names))
    predicted = _predicted(config, planned, call, service)
    shown = view(model.name, planned, dialect.messages(call, names), predicted)
    head = f"tenant {tenant}, tier {caller.may.tier}, model {model.name}"
    return "\n".join([head, *lines(shown)])


def _predicted(config: Config, planned: Planned, call: Call, service: Service) -> Predicted | None:
    """On the hardware of the model's first pool; a request without a session has nothing cached."""
    pools = config.pools_for(service.model)
    if not pools:
        return None
    geometry, decode_tokens = service.model.geometry, Forecast().usage(call, service).decode_tokens
    return predict(planned, geometry, Pace(geometry, pools[0].hardware), 0, decode_tokens)


class _Shape(msgspec.Struct):
    """What tells the formats apart."""

    messages: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    prompt: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    input: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def dialect_of(body: bytes) -> Dialect:
    """By what the body has: messages, a prompt, an input, in this order; else chat, whose parser says what is wrong."""
    try:
        shape = msgspec.json.decode(body, type=_Shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return OpenAIChat()
    if shape.messages is not msgspec.UNSET:
        return OpenAIChat()
    if shape.prompt is not msgspec.UNSET:
        return OpenAICompletions()
    return OpenAIChat() if shape.input is msgspec.UNSET else OpenAIEmbeddings()
