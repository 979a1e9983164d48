"""The chat template: a conversation that begins alike has tokens that begin alike."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tokens import counter
from loadtest.text import Manner, speak
from loadtest.tokenizer import Tokenizer, content_of

TOKENIZER = Tokenizer()

texts = st.text(st.characters(codec=None), max_size=40)
messages = st.builds(
    lambda role, content: {"role": role, "content": content}, st.sampled_from(["user", "assistant"]), texts
)


@settings(max_examples=100, deadline=None)
@given(st.lists(messages, max_size=5), messages)
def test_a_longer_conversation_extends_the_tokens(history: list[dict[str, str]], new: dict[str, str]) -> None:
    opening = len(TOKENIZER.encode("assistant\n")) + 1
    before = TOKENIZER.chat(history)
    assert TOKENIZER.chat([*history, new])[: len(before) - opening] == before[:-opening]


def test_a_reply_has_the_same_tokens_as_part_of_the_next_prompt() -> None:
    reply = speak(1, Manner(max_tokens=100, ignore_eos=True))
    asked = [{"role": "user", "content": "hello"}]
    spoken = TOKENIZER.chat(asked) + TOKENIZER.spoken(reply.pieces)
    later = TOKENIZER.chat([*asked, {"role": "assistant", "content": reply.text}])
    assert later[: len(spoken)] == spoken


def test_counts_are_the_gateway_s_own() -> None:
    text = "Straße, 東京 and 🙂 " * 3000
    assert len(TOKENIZER.encode(text)) == counter()(text)


def test_decode_gives_the_text_back() -> None:
    assert TOKENIZER.decode(TOKENIZER.encode("Straße 東京 🙂")) == "Straße 東京 🙂"
    assert TOKENIZER.decode([TOKENIZER.start, TOKENIZER.end]) == "<|im_start|><|im_end|>"
    assert TOKENIZER.decode([2**32 - 1]) == "\N{REPLACEMENT CHARACTER}"


def test_special_words_in_a_text_are_only_text() -> None:
    assert TOKENIZER.start not in TOKENIZER.encode("<|im_start|><|endoftext|>")


def test_content_is_text_parts_and_calls() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}
    parts = [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]
    assert content_of({"content": parts}) == "ab"
    assert content_of({"content": None, "tool_calls": [call]}) == (
        '<tool_call>\n{"name": "look", "arguments": {"a":1}}\n</tool_call>'
    )
