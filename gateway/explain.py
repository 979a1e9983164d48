"""`kvgate plan`: the edits a request would get, readable, nothing sent.

Rule: the same parsing, counting and planning as in the pipeline; only its last steps are missing.
"""

from collections.abc import Iterator

import msgspec

from config.model import Config
from gateway import digests
from gateway.context import Context, Known, Planned
from gateway.counting import Counter
from gateway.dialects.base import Dialect
from gateway.dialects.openai_chat import OpenAIChat
from gateway.dialects.openai_completions import OpenAICompletions
from gateway.errors import InvalidRequest, ModelNotFound
from gateway.metrics import Metrics
from gateway.retrieval import announced
from gateway.service import Service
from gateway.tenants import Caller
from gateway.tokens import counter
from policies.conversation import Message
from policies.edit import AddSummary, ClearReasoning, DropMessages, Edit, InsertAnswer, ReplaceArguments, ReplaceText


async def edits(config: Config, tenant: str, body: bytes) -> str:
    """A report in lines. Raises a `Fault` where the request would be refused."""
    if tenant not in config.tenants:
        known = ", ".join(config.tenants) or "none"
        raise InvalidRequest(f"There is no tenant {tenant!r}; known: {known}.")
    caller = Caller("", config.effective(config.tenants[tenant]), b"")
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
    head = f"tenant {tenant}, tier {caller.may.tier}, model {model.name}"
    return "\n".join([head, *report(planned, dialect.messages(call, names))])


class _Shape(msgspec.Struct):
    """What tells the formats apart."""

    messages: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    prompt: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def dialect_of(body: bytes) -> Dialect:
    """A completion if the body has a prompt and no messages, else chat, whose parser says what is wrong."""
    try:
        shape = msgspec.json.decode(body, type=_Shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return OpenAIChat()
    is_prompt = shape.messages is msgspec.UNSET and shape.prompt is not msgspec.UNSET
    return OpenAICompletions() if is_prompt else OpenAIChat()


def report(planned: Planned, messages: tuple[Message, ...]) -> Iterator[str]:
    """What the plan says, a line an edit."""
    about = "" if planned.counted else "about "
    if not planned.edits:
        yield f"{about}{planned.original_tokens} tokens, sent as received"
        return
    yield f"{planned.original_tokens} tokens, {planned.sent_tokens} sent, {len(planned.edits)} edits:"
    for edit in planned.edits:
        yield f"  {describe(edit, messages)}"


def describe(edit: Edit, messages: tuple[Message, ...]) -> str:
    """One edit in words."""
    match edit:
        case ReplaceText():
            name = f" ({messages[edit.at].name})" if messages[edit.at].name else ""
            what = f"message {edit.at}, {messages[edit.at].role}{name}, shortened"
        case DropMessages():
            what = f"messages {edit.start} to {edit.stop - 1} left out"
        case ClearReasoning():
            what = f"message {edit.at}, reasoning left out"
        case ReplaceArguments():
            what = f"message {edit.at}, arguments of call {edit.call} made a JSON object"
        case InsertAnswer():
            what = f"behind message {edit.at} an answer to a call that had none"
        case AddSummary():
            what = f"behind message {edit.at} a record of what is left out"
    tokens = f"{edit.removed_tokens} tokens removed" if edit.removed_tokens >= 0 else f"{-edit.removed_tokens} added"
    return f"{edit.policy}: {what}, {tokens}"
