"""Completions: how many prompts there are, and how many tokens they can have."""

import json

import pytest

from gateway.dialects.openai_completions import OpenAICompletions
from gateway.dialects.openai_prompts import prompts_of
from gateway.errors import InvalidRequest

COMPLETIONS = OpenAICompletions()


def parse(**fields: object) -> object:
    return COMPLETIONS.parse(json.dumps({"model": "m"} | fields).encode())


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("text", 1),
        ("", 1),
        (None, 1),
        ([], 1),
        ([1, 2, 3], 1),
        (["a"], 1),
        (["a", "b"], 2),
        ([[1], [2], [3]], 3),
        ({"odd": 1}, 1),
    ],
)
def test_how_many_prompts_there_are(prompt: object, expected: int) -> None:
    assert len(prompts_of(json.dumps(prompt).encode())) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (1, 1)),
        ({"n": 2}, (2, 2)),
        ({"best_of": 5}, (1, 5)),
        ({"n": 4, "best_of": 2}, (4, 4)),
        ({"n": 2, "prompt": ["a", "b", "c"]}, (6, 6)),
        ({"best_of": 2, "prompt": ["a", "b", "c"]}, (3, 6)),
        ({"best_of": None, "n": None}, (1, 1)),
    ],
)
def test_choices_come_back_and_sequences_may_be_computed(fields: dict[str, object], expected: tuple[int, int]) -> None:
    call = COMPLETIONS.parse(json.dumps({"model": "m", "prompt": "x"} | fields).encode())
    assert (call.choices, call.sequences) == expected


@pytest.mark.parametrize("best_of", [0, -1, 129, 10**9])
def test_best_of_is_bounded_like_n(best_of: int) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(prompt="x", best_of=best_of)
    assert refused.value.param == "best_of"


def test_a_prompt_is_countable_text_and_nothing_to_edit() -> None:
    body = b'{"model":"m","prompt":"Once upon a time","stream":true,"max_tokens":"5"}'
    call = COMPLETIONS.parse(body)
    assert (call.stream, call.max_tokens, call.messages) == (True, 5, ())
    assert COMPLETIONS.messages(call, ()) == ()
    assert COMPLETIONS.render(call, ()) is body


@pytest.mark.parametrize("echo", [b"true", b"1"])
def test_a_prompt_to_be_scored_needs_no_reply_and_is_bounded_by_the_one_token_that_engines_make(echo: bytes) -> None:
    """`echo` with `max_tokens: 0` gives the prompt's own logprobs, at OpenAI and vLLM alike; evaluations live on it."""
    body = b'{"model":"m","prompt":"Once","max_tokens":0,"logprobs":1,"echo":%b}' % echo
    call = OpenAICompletions().parse(body)
    assert (call.max_tokens, call.present["max_tokens"], call.body) == (1, b"0", body)


@pytest.mark.parametrize("fields", [b'"max_tokens":0', b'"max_tokens":0,"echo":false', b'"max_tokens":-1,"echo":true'])
def test_no_reply_to_a_prompt_that_does_not_come_back_is_refused(fields: bytes) -> None:
    with pytest.raises(InvalidRequest, match="max_tokens"):
        OpenAICompletions().parse(b'{"model":"m","prompt":"Once",%b}' % fields)
