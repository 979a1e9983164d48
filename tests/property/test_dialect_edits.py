"""Edits on the wire say the same as edits on the neutral form, and touch nothing else."""

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway import digests
from gateway.call import Call
from gateway.dialects.openai_chat import OpenAIChat
from policies.conversation import Conversation
from policies.edit import DropMessages, Edit, ReplaceText, apply

CHAT = OpenAIChat()
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PARTS = st.lists(
    st.builds(lambda text: {"type": "text", "text": text}, TEXT)
    | st.just({"type": "image_url", "image_url": {"url": "https://x/y.png"}}),
    max_size=3,
)
CONTENT = st.none() | TEXT | PARTS
EXTRA = st.dictionaries(st.sampled_from(["name", "x", "cache_control", "refusal"]), TEXT | st.integers(), max_size=2)
CALLS = st.lists(
    st.builds(
        lambda id, arguments: {"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}},
        TEXT,
        TEXT,
    ),
    max_size=2,
)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    role = draw(st.sampled_from(["system", "user", "assistant", "tool", "function"]))
    message: dict[str, Any] = {"role": role, **draw(EXTRA)}
    if draw(st.booleans()):
        message["content"] = draw(CONTENT)
    if role == "assistant" and draw(st.booleans()):
        message["tool_calls"] = draw(CALLS)
    if role == "tool":
        message["tool_call_id"] = draw(TEXT)
    return message


@st.composite
def edited_calls(draw: st.DrawFn) -> tuple[Call, Sequence[Edit]]:
    wires = draw(st.lists(messages(), min_size=1, max_size=6))
    body = json.dumps({"model": "m", "messages": wires, "temperature": 0.5}, indent=draw(st.sampled_from([None, 1])))
    call = CHAT.parse(body.encode())
    count = len(wires)
    start = draw(st.integers(0, count - 1))
    stop = draw(st.integers(start, count - 1))
    edits: list[Edit] = [DropMessages("p", start, stop, b"", 0)] if stop > start else []
    chosen = draw(st.sets(st.integers(0, count - 1), max_size=3)) - set(range(start, stop))
    edits.extend(ReplaceText("p", at, b"", draw(TEXT), 0) for at in sorted(chosen))
    return call, edits


def neutral(call: Call) -> Conversation:
    return Conversation(CHAT.messages(call, digests.of_messages(call.messages)))


@given(given_call=edited_calls())
def test_what_is_rendered_reads_as_what_was_decided(given_call: tuple[Call, Sequence[Edit]]) -> None:
    call, edits = given_call
    rendered = CHAT.parse(CHAT.render(call, edits))
    decided, found = apply(neutral(call), edits).messages, neutral(rendered).messages
    texts = [(m.role, m.text, m.calls, m.answers, m.media, m.reasoning) for m in decided]
    assert [(m.role, m.text, m.calls, m.answers, m.media, m.reasoning) for m in found] == texts
    assert all(after.cache_control <= before.cache_control for before, after in zip(decided, found, strict=True))


@given(given_call=edited_calls())
def test_untouched_messages_leave_byte_for_byte(given_call: tuple[Call, Sequence[Edit]]) -> None:
    call, edits = given_call
    gone = {at for e in edits if isinstance(e, DropMessages) for at in range(e.start, e.stop)}
    touched = {e.at for e in edits if isinstance(e, ReplaceText)}
    rendered = CHAT.parse(CHAT.render(call, edits))
    kept = [at for at in range(len(call.messages)) if at not in gone]
    for at, message in zip(kept, rendered.messages, strict=True):
        assert at in touched or message == call.messages[at]
    assert json.loads(rendered.body)["temperature"] == 0.5
    if not edits:
        assert rendered.body is call.body
