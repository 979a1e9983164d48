"""Edits carried out on raw messages: each touches what it names and nothing else."""

import json

from gateway.dialects.openai_edits import rendered
from gateway.dialects.openai_messages import neutral
from policies.edit import ClearReasoning, DropMessages, InsertAnswer, ReplaceArguments, ReplaceText

RAW = (
    b'{"role":"user",  "content":"task"}',
    b'{"role":"assistant","content":null,"reasoning_content":"hm","x":1,"tool_calls":[7,'
    b'{"id":"a","type":"function","function":{"name":"look","arguments":"{\\"v\\": "}},'
    b'{"id":"b","type":"function","function":{"name":"look","arguments":"{}"}}]}',
    b'{"role":"tool","tool_call_id":"a","content":"long"}',
    b'{"role":"user","content":"next"}',
)


def test_untouched_messages_are_the_very_bytes() -> None:
    kept = list(rendered(RAW, (ReplaceText("p", 2, b"", "short", 1),)))
    assert kept[0] is RAW[0] and kept[1] is RAW[1] and kept[3] is RAW[3]
    assert json.loads(kept[2]) == {"role": "tool", "tool_call_id": "a", "content": "short"}


def test_several_edits_of_one_message_all_hold() -> None:
    edits = (ClearReasoning("p", 1, b"", 1), ReplaceArguments("p", 1, 0, b"", '{"v": 1}', 0))
    done = json.loads(list(rendered(RAW, edits))[1])
    assert "reasoning_content" not in done and done["x"] == 1
    assert [call["function"]["arguments"] for call in done["tool_calls"][1:]] == ['{"v": 1}', "{}"]


def test_arguments_are_mended_in_a_call_of_the_old_form_too() -> None:
    raw = b'{"role":"assistant","content":null,"function_call":{"name":"look","arguments":"{\\"v\\": "}}'
    done = json.loads(next(rendered((raw,), (ReplaceArguments("p", 0, 0, b"", '{"v": 1}', 0),))))
    assert done == {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": '{"v": 1}'}}


def test_an_inserted_answer_stands_behind_its_message() -> None:
    kept = list(rendered(RAW, (InsertAnswer("p", 2, b"", "b", "no answer", -5),)))
    assert kept[2] is RAW[2] and kept[4] is RAW[3]
    assert json.loads(kept[3]) == {"role": "tool", "tool_call_id": "b", "content": "no answer"}


def test_a_dropped_message_takes_nothing_with_it() -> None:
    assert list(rendered(RAW, (DropMessages("p", 1, 3, b"", 9),))) == [RAW[0], RAW[3]]


def test_reasoning_is_read_from_every_field_that_carries_it() -> None:
    blocks = b'{"role":"assistant","content":"a","thinking_blocks":[{"type":"thinking","thinking":"one"},{}]}'
    assert [message.reasoning_text for message in neutral((RAW[1], blocks, RAW[0]), (b"1", b"2", b"3"))] == [
        "hm",
        "one\n",
        "",
    ]


def test_arguments_sent_as_an_object_are_read_as_its_json() -> None:
    raw = b'{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":{"k":1}}}]}'
    assert neutral((raw,), (b"1",))[0].calls[0].arguments == '{"k": 1}'
