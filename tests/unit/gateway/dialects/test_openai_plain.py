"""Which messages are of the usual form. What is read of them is tested against the general way, in tests/property."""

import json

import msgspec
import pytest

from gateway.dialects.openai_plain import UNREAD, plain

FUNCTION = {"name": "look", "arguments": "{}"}
CALL = {"id": "a", "type": "function", "function": FUNCTION}
EMPTY: dict[str, object] = {"refusal": None, "audio": None, "annotations": [], "function_call": None}


@pytest.mark.parametrize(
    "wire",
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look at 水.", "name": "ann", "cache_control": {"type": "ephemeral"}},
        {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]},
        {"role": "assistant", "content": "It is fine.", "tool_calls": None, "reasoning_content": "hm", **EMPTY},
        {"role": "tool", "content": "fine", "tool_call_id": "a"},
    ],
)
def test_what_clients_send_is_of_the_usual_form(wire: object) -> None:
    assert plain(json.dumps(wire)).role
    assert plain(msgspec.json.encode(wire)).role


@pytest.mark.parametrize(
    "wire",
    [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "function", "content": "x"},
        {"role": "assistant", "content": "", "thinking_blocks": [{"thinking": "hm"}]},
        {"role": "assistant", "content": "", "tool_calls": [{"function": FUNCTION}]},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "", "call_id": "a", "function": FUNCTION}]},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "function": {**FUNCTION, "arguments": {}}}]},
        {"role": "user", "content": "x", "unknown": 1},
        {"role": "user", "content": "\ud800"},
        [],
    ],
)
def test_what_is_not_is_left_to_the_general_way(wire: object) -> None:
    with pytest.raises(UNREAD):
        plain(json.dumps(wire))
