"""Each text is counted once, and much of it in a thread."""

import json
import threading

import pytest

from gateway import digests
from gateway.call import Call
from gateway.counting import MEDIA_TOKENS, MESSAGE_OVERHEAD_TOKENS, THREAD_CHARACTERS, Counter
from gateway.dialects.openai_completions import OpenAICompletions
from tests.unit.gateway.samples import call as chat


class Characters:
    """One token a character; notes what was counted, and in which thread."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.threads: set[int] = set()

    def __call__(self, text: str) -> int:
        self.texts.append(text)
        self.threads.add(threading.get_ident())
        return len(text)


def said(*texts: str, **fields: object) -> Call:
    messages = [{"role": "user", "content": text} for text in texts]
    return chat(json.dumps({"model": "m", "messages": messages} | fields).encode())


def names(call: Call) -> tuple[bytes, ...]:
    return digests.of_messages(call.messages)


async def test_a_message_costs_its_text_its_role_and_the_template() -> None:
    call = said("Hello")
    conversation = await Counter(Characters()).conversation(call, names(call))
    assert conversation.total_tokens == len("user\nHello") + MESSAGE_OVERHEAD_TOKENS


async def test_media_cost_what_media_cost() -> None:
    parts = [{"type": "image_url", "image_url": {"url": "u"}}] * 2
    call = chat(json.dumps({"model": "m", "messages": [{"role": "user", "content": parts}]}).encode())
    conversation = await Counter(Characters()).conversation(call, names(call))
    assert conversation.total_tokens == len("user\n") + 2 * MEDIA_TOKENS + MESSAGE_OVERHEAD_TOKENS


async def test_each_text_is_counted_once() -> None:
    count = Characters()
    tokens = Counter(count)
    tools = [{"type": "function", "function": {"name": "f"}}]
    for texts in (["a"], ["a", "b"], ["a", "b", "a", "c", "c"]):
        call = said(*texts, tools=tools)
        conversation = await tokens.conversation(call, names(call))
        assert len(conversation.messages) == len(texts)
    assert sorted(count.texts) == sorted(["user\na", "user\nb", "user\nc", json.dumps(tools)])


async def test_the_scale_applies_to_counts_known_already() -> None:
    tokens = Counter(Characters())
    call = said("abcde", tools=[])
    plain = await tokens.conversation(call, names(call))
    scaled = await tokens.conversation(call, names(call), 1.5)
    assert plain.messages[0].tokens == 14
    assert (scaled.messages[0].tokens, scaled.overhead_tokens) == (21, 3)


async def test_counts_are_rounded_up() -> None:
    call = said("abcde")
    conversation = await Counter(Characters()).conversation(call, names(call), 1.01)
    assert conversation.messages[0].tokens == 15


@pytest.mark.parametrize(("length", "elsewhere"), [(10, False), (THREAD_CHARACTERS + 1, True)])
async def test_long_texts_are_counted_in_a_thread(length: int, elsewhere: bool) -> None:
    count = Characters()
    call = said("x" * length)
    await Counter(count).conversation(call, names(call))
    assert (count.threads != {threading.get_ident()}) is elsewhere


async def test_a_long_output_is_counted_in_pieces_once_and_marked() -> None:
    text = "".join(f"line {number}\n" for number in range(1_500))
    made = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [{"role": "assistant", "tool_calls": [made]}, {"role": "tool", "tool_call_id": "a", "content": text}]
    call, count = chat(json.dumps({"model": "m", "messages": messages}).encode()), Characters()
    tokens = Counter(count)
    conversation = await tokens.conversation(call, names(call))
    assert conversation.messages[1].tokens == len("tool\n") + len(text) + MESSAGE_OVERHEAD_TOKENS
    counted = len(count.texts)
    marks = tokens.marks(conversation.messages[1].digest, text)
    assert marks.tokens == marks.ends and marks.ends[-1] == len(text)
    assert len(count.texts) == counted and max(map(len, count.texts)) < 300


async def test_memory_is_bounded_and_what_is_used_stays() -> None:
    count = Characters()
    tokens = Counter(count, capacity=4)
    for text in "abcdefgh":
        call = said("often", text)
        await tokens.conversation(call, names(call))
    assert count.texts.count("user\noften") == 1
    call = said("a")
    await tokens.conversation(call, names(call))
    assert count.texts.count("user\na") == 2


async def test_a_conversation_larger_than_the_memory_is_still_counted() -> None:
    call = said(*"abcdef")
    conversation = await Counter(Characters(), capacity=2).conversation(call, names(call))
    assert [message.tokens for message in conversation.messages] == [6 + MESSAGE_OVERHEAD_TOKENS] * 6


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ("Hello", 5),
        ("\u4f60\u597d", 2),
        ('say "hi"', 8),
        (["ab", "cde"], 3),
        ([15496, 995], 2),
        ([[1, 2, 3], [4]], 3),
        (None, 0),
        ([], 0),
    ],
)
async def test_a_prompt_counts_as_the_engine_reads_it(prompt: object, tokens: int) -> None:
    call = OpenAICompletions().parse(json.dumps({"model": "m", "prompt": prompt}).encode())
    conversation = await Counter(Characters()).conversation(call, ())
    assert conversation.total_tokens == tokens


async def test_ids_are_the_models_own_tokens_and_not_scaled() -> None:
    call = OpenAICompletions().parse(b'{"model":"m","prompt":[1,2,3]}')
    assert (await Counter(Characters()).conversation(call, (), 2.0)).total_tokens == 3
