"""What a model is asked when a record is wanted, and what of its answer is taken.

Rule: pure. Nothing of an answer is taken that is not a record in the form asked for, whole, within its bound, and
shorter than what it would replace.
"""

import math
import secrets
from typing import Final

import msgspec

from gateway.dialects import openai_summary
from gateway.source import Source
from gateway.summary_call import Asked, Failed
from policies import record
from policies.conversation import Conversation, Message
from policies.edit import apply
from policies.summary import Wanted

FRAME_TOKENS: Final = 64
CHARACTERS_A_TOKEN: Final = 3


def accepted(source: Source, wanted: Wanted, answer: openai_summary.Answer) -> str:
    """The record in an answer, with what the record before held and this one lost. Raises `Failed`."""
    if answer.called:
        raise Failed("called", engine=True)
    if answer.refused:
        raise Failed("refusal", engine=True)
    if answer.finish == "length":
        raise Failed("cut_off", engine=True)
    if not answer.text.strip():
        raise Failed("empty", engine=True)
    text = record.read(answer.text)
    if text is None:
        raise Failed("unstructured", engine=True)
    most = source.policy.max_tokens
    if (tokens := _tokens(source, text)) > most:
        raise Failed("too_long", engine=True)
    if tokens + FRAME_TOKENS >= wanted.replaced_tokens:
        raise Failed("no_gain", engine=False)
    before = source.records.get(wanted.before, "")
    room = (most - tokens) * CHARACTERS_A_TOKEN
    while before and room > 0:
        longer = record.carried(text, before, room)
        if _tokens(source, longer) <= most:
            return longer
        room = room * 2 // 3
    return text


def asked_of(source: Source, wanted: Wanted) -> Asked:
    """The request: behind the conversation where its own model writes, else with a transcript."""
    policy, dialect = source.policy, source.call.dialect
    most = source.policy.max_tokens
    if policy.model is None and policy.pool is None:
        service = source.service
        body = openai_summary.asked_behind(source.call, wanted, most)
        home, warm = source.home, sum(map(len, source.call.messages[: wanted.cover.stop])) // 4
    else:
        service = source.snapshot.writer(source.service, policy)
        if not service.pools:
            raise Failed("no_pool", engine=False)
        limit = service.context_limit_tokens or 8_192
        room = max(1_000, (limit - 2 * most) * CHARACTERS_A_TOKEN)
        body = openai_summary.asked_apart(service.model.name, _messages(source, wanted), most, room)
        home, warm = None, 0
    call = msgspec.structs.replace(dialect.parse(body), messages=())
    return Asked(call, service, source.session, f"{source.request_id}-{secrets.token_hex(4)}", home, warm)


def _messages(source: Source, wanted: Wanted) -> tuple[Message, ...]:
    """What is to be recorded, as it was sent."""
    stop = wanted.cover.stop
    messages = source.call.dialect.messages(source.call, source.digests)[:stop]
    return apply(Conversation(messages), wanted.edits).messages


def _tokens(source: Source, text: str) -> int:
    return math.ceil(source.service.counter.text(text) * source.scale)
