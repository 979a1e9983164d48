"""Conversations that engines choke on, put right: a call nobody answered, an answer to no call, broken arguments.

Rule: what engines take stays as it is. A repair hangs on the messages alone, so it is the same on every turn; it never
drops what the model has not answered, nor brings two messages of one role together. Nothing is counted: what a repair
adds is taken high.
"""

from collections.abc import Container, Iterator
from itertools import chain
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from policies.arguments import mended
from policies.conversation import INSTRUCTIONS, Conversation, Role
from policies.edit import InsertAnswer, ReplaceArguments, ReplaceText
from policies.mends import Mends
from policies.trimmed_text import whole

ANSWER = '{"error": "kvgate: no result of this call was sent; it may have been interrupted"}'
ANSWER_TOKENS = 40
"""What an added answer costs with its template, taken high."""


Part = Literal["calls", "arguments", "characters"]
"""Dangling calls and answers to no call; arguments that are no JSON object; lone surrogates."""


class Repair(BaseModel):
    """Answer dangling calls with an error, drop answers to no call, wrap broken arguments, replace lone surrogates.

    `parts` says which of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["repair"] = "repair"
    mode: Literal["enforce", "shadow"] = "enforce"
    parts: Annotated[tuple[Part, ...], Field(min_length=1)] = ("calls", "arguments", "characters")

    def mended(self, conversation: Conversation, untouched: frozenset[int], mends: Mends) -> Mends:
        """`mends` with the repairs of what none is to touch left out; adding an answer touches no message."""
        texts, orphans = dict(mends.texts), mends.orphans
        if "characters" in self.parts:
            texts = {edit.at: edit for edit in _texts(conversation, untouched)} | texts
        calls: dict[int, tuple[ReplaceArguments | InsertAnswer, ...]] = dict(mends.calls)
        found: list[ReplaceArguments | InsertAnswer] = []
        if "arguments" in self.parts:
            found += _arguments(conversation, untouched)
        if "calls" in self.parts:
            found += _answers(conversation)
        for edit in found:
            calls[edit.at] = (*calls.get(edit.at, ()), edit)
        if "calls" in self.parts:
            answered = {edit.at for edit in found if isinstance(edit, InsertAnswer)}
            orphans = orphans | (_orphans(conversation, answered) - untouched)
        return Mends(texts, calls, orphans)


def _texts(conversation: Conversation, untouched: Container[int]) -> Iterator[ReplaceText]:
    """Lone surrogates, where a text is still sent as it came."""
    for at in [at for at, message in enumerate(conversation.messages) if not message.text.isascii()]:
        message = conversation.messages[at]
        if at not in untouched and not message.media and (clean := whole(message.text)) is not message.text:
            yield ReplaceText("repair", at, message.digest, clean, 0)


def _arguments(conversation: Conversation, untouched: frozenset[int]) -> Iterator[ReplaceArguments]:
    for at in [group[0] for group in conversation.groups() if group[0] not in untouched]:
        message = conversation.messages[at]
        for number, call in enumerate(message.calls):
            if (sent := mended(call.arguments)) is not call.arguments and sent != call.arguments:
                yield ReplaceArguments("repair", at, number, message.digest, sent, -_added(call.arguments, sent))


def _added(before: str, after: str) -> int:
    """What longer arguments cost: a token is at least a byte."""
    return max(0, len(after.encode()) - len(before.encode("utf-8", "surrogatepass")))


def _answers(conversation: Conversation) -> Iterator[InsertAnswer]:
    """An answer to each call that has none, behind the answers that follow the message directly."""
    messages = conversation.messages
    for group in conversation.groups():
        if len(messages[group[0]].calls) == 1 < len(group):
            continue  # what is in a group answers a call of it
        caller, answers = group[0], set(group[1:])
        answered = {(messages[at].answers or "").strip() for at in answers}
        missing = {call.id.strip(): call.id for call in messages[caller].calls if call.id.strip() not in answered}
        missing.pop("", None)
        if caller == len(messages) - 1:
            continue
        at = caller
        while at + 1 in answers:
            at += 1
        for call_id in missing.values():
            yield InsertAnswer("repair", at, messages[at].digest, call_id, ANSWER, -ANSWER_TOKENS)


def _orphans(conversation: Conversation, answered_now: Container[int]) -> frozenset[int]:
    """Answers to no call that can go; behind the messages `answered_now` stands an answer that is added."""
    messages = conversation.messages
    grouped = set(chain.from_iterable(conversation.groups()))
    if grouped.issuperset([at for at, role in enumerate(conversation.roles) if role == "tool"]):
        return frozenset()
    last_answer = conversation.answered - 1
    found: set[int] = set()
    run: list[int] = []
    before: Role | None = None
    for at, message in enumerate(messages):
        if message.role in INSTRUCTIONS:
            continue
        if message.role == "tool" and at not in grouped:
            run.append(at)
            continue
        if run and run[-1] < last_answer and _may_meet(before, message.role):
            found.update(run)
        run, before = [], "tool" if at in answered_now else message.role
    return frozenset(found)


def _may_meet(before: Role | None, after: Role) -> bool:
    return before != after or after == "tool"
