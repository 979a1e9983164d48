"""The end of a stream whose budget is spent, in each format, as a client of it reads one that came to its length."""

import json
from typing import Any

from openai.types import Completion
from openai.types.chat import ChatCompletionChunk

from budgets.usage import Usage
from gateway.dialects.openai_chat import OpenAIChat
from gateway.dialects.openai_completions import OpenAICompletions
from tests.house import events

HEAD = {"id": "r-1", "created": 1_700_000_000}
CHAT = b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"Hi"}],"n":3,"stream":true}'
PROMPT = b'{"model":"demo","prompt":"Hi","stream":true}'


def frames(body: bytes) -> list[dict[str, Any]]:
    *found, done = events(body)
    assert done == "[DONE]"
    return [json.loads(frame) for frame in found]


def test_a_chat_ends_every_choice_that_had_not() -> None:
    dialect = OpenAIChat()
    (end,) = frames(dialect.cut_short(dialect.parse(CHAT), HEAD, [0, 2], None))
    chunk = ChatCompletionChunk.model_validate(end, strict=True)
    assert [(choice.index, choice.finish_reason) for choice in chunk.choices] == [(0, "length"), (2, "length")]
    assert (chunk.id, chunk.model) == ("r-1", "gpt-4o-mini"), "the name the client used"


def test_a_completion_tells_its_usage_if_it_is_asked() -> None:
    dialect = OpenAICompletions()
    end, told = frames(dialect.cut_short(dialect.parse(PROMPT), HEAD, [0], Usage.estimated(5, 7)))
    assert Completion.model_validate(end, strict=True).choices[0].finish_reason == "length"
    usage = Completion.model_validate(told, strict=True).usage
    assert told["choices"] == []
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (5, 7, 12)
