"""Messages of the usual form are read in one pass: what comes of it is what the general way makes of them."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gateway import digests
from gateway.dialects.openai_messages import any_form, neutral
from policies.conversation import Message

texts = st.text(max_size=12) | st.sampled_from(["", " ", "a\u0000", "\ud800", "\U0001f600", "x" * 300])
odd = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts | st.lists(texts, max_size=2)
ids = st.sampled_from(["a", " a", "b ", "", "c"])


def mostly(usual: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(usual, usual, usual, odd)


functions = st.fixed_dictionaries({}, optional={"name": mostly(texts), "arguments": mostly(texts), "more": odd})
calls = st.fixed_dictionaries(
    {},
    optional={
        "id": mostly(ids),
        "call_id": mostly(ids),
        "type": mostly(st.just("function")),
        "function": mostly(functions),
        "index": st.integers(0, 3),
    },
)
roles = st.sampled_from(["system", "developer", "user", "assistant", "tool"])
wires = st.fixed_dictionaries(
    {"role": mostly(roles), "content": mostly(texts)},
    optional={
        "tool_calls": mostly(st.lists(calls, max_size=3)),
        "tool_call_id": mostly(ids),
        "name": mostly(texts),
        "cache_control": mostly(st.just({"type": "ephemeral"})),
        "reasoning": mostly(texts),
        "reasoning_content": mostly(texts),
        "thinking_blocks": mostly(st.just([{"type": "thinking", "thinking": "hm"}])),
        "refusal": mostly(st.none()),
        "annotations": mostly(st.just([])),
        "audio": mostly(st.none()),
        "function_call": mostly(st.none()),
        "unknown": odd,
    },
)


@st.composite
def written(draw: st.DrawFn) -> bytes:
    """One message as bytes: as SDKs write it, or with a byte of it changed, or with its fields twice."""
    wire = draw(wires)
    ascii_only = draw(st.booleans()) or not _is_whole(wire)
    raw = json.dumps(
        wire, ensure_ascii=ascii_only, separators=draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    ).encode()
    how = draw(st.sampled_from(["whole", "whole", "whole", "mutated", "twice"]))
    if how == "mutated":
        at = draw(st.integers(0, len(raw) - 1))
        return raw[:at] + bytes([draw(st.integers(0, 255))]) + raw[at + 1 :]
    if how == "twice":
        return raw[:-1] + b"," + json.dumps(draw(wires)).encode()[1:]
    return raw


def _is_whole(wire: object) -> bool:
    try:
        json.dumps(wire, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def the_general_way(raws: list[bytes], names: tuple[bytes, ...]) -> tuple[Message, ...]:
    called: dict[str, str] = {}
    return tuple([any_form(raw, name, called) for raw, name in zip(raws, names, strict=True)])


@given(st.lists(written(), max_size=5))
def test_both_ways_read_the_same(raws: list[bytes]) -> None:
    names = digests.of_messages(raws)
    assert neutral(raws, names) == the_general_way(raws, names)
