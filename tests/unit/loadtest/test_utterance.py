"""When the emulated model calls a tool, and how a stream shows it."""

import json

import pytest

from loadtest.text import Manner
from loadtest.tokenizer import Tokenizer
from loadtest.utterance import Wish, call, say, wished_call

TOKENIZER = Tokenizer()
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Oslo"]}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "list_files"}},
]


def user(text: str) -> list[dict[str, object]]:
    return [{"role": "user", "content": text}]


def test_words_show_token_by_token() -> None:
    said = say(1, Manner(max_tokens=5, ignore_eos=True), TOKENIZER)
    assert "".join(delta.text for delta in said.deltas if delta) == said.text
    assert len(said.deltas) == len(said.tokens) == 5


def test_a_call_shows_its_name_once_and_its_arguments_in_pieces() -> None:
    said = call(Wish("get_weather", '{"city": "Oslo"}', "tool_calls"), 100, TOKENIZER)
    shown = [delta for delta in said.deltas if delta is not None]
    assert [delta.text for delta in shown if delta.kind == "call"] == ["get_weather"]
    assert shown[0].kind == "call"
    assert "".join(delta.text for delta in shown if delta.kind == "arguments") == '{"city": "Oslo"}'
    assert said.call == ("get_weather", '{"city": "Oslo"}') and said.finish == "tool_calls"


@pytest.mark.parametrize("name", ["f", "arguments", "a-very_long.name" * 5, "n\u00e4me"])
@pytest.mark.parametrize("arguments", ["{}", '{"name": "x"}', '{"a": "}\\n</tool_call>"}'])
def test_names_and_arguments_of_any_look(name: str, arguments: str) -> None:
    said = call(Wish(name, arguments, "tool_calls"), 1000, TOKENIZER)
    assert "".join(delta.text for delta in said.deltas if delta and delta.kind == "arguments") == arguments


@pytest.mark.parametrize("max_tokens", [1, 10, 20])
def test_a_call_that_is_cut_is_only_text(max_tokens: int) -> None:
    said = call(Wish("get_weather", '{"city": "Oslo"}', "tool_calls"), max_tokens, TOKENIZER)
    assert said.call is None and said.finish == "length"
    assert len(said.tokens) == len(said.deltas) == max_tokens
    assert said.text == TOKENIZER.decode(said.tokens)


def test_a_named_tool_is_called() -> None:
    choice = {"type": "function", "function": {"name": "get_weather"}}
    wish = wished_call(user("hello"), TOOLS, choice, 1)
    assert wish == Wish("get_weather", '{"city": "Oslo"}', "stop")


def test_required_calls_one_that_is_mentioned_or_the_first() -> None:
    first = wished_call(user("hello"), TOOLS, "required", 1)
    other = wished_call(user("use list_files"), TOOLS, "required", 1)
    assert first and other
    assert (first.name, other.name) == ("get_weather", "list_files")


def test_auto_calls_only_what_the_user_names() -> None:
    wish = wished_call(user('please get_weather {"city": "Rome"} now'), TOOLS, "auto", 1)
    assert wish == Wish("get_weather", json.dumps({"city": "Rome"}), "tool_calls")
    assert wished_call(user("hello"), TOOLS, "auto", 1) is None
    assert wished_call(user("get_weather"), TOOLS, "none", 1) is None
    assert wished_call(user("get_weather"), [], None, 1) is None


def test_auto_does_not_call_again_after_the_result() -> None:
    history: list[dict[str, object]] = [*user("get_weather"), {"role": "tool", "content": "get_weather says 3 degrees"}]
    assert wished_call(history, TOOLS, "auto", 1) is None
