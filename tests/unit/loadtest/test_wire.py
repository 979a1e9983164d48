"""Frames that no recording shows, as vLLM's source documents them."""

from array import array

import pytest

from loadtest.job import Choice, Job
from loadtest.sequence import Key, Sequence
from loadtest.utterance import Delta, Utterance
from loadtest.wire import dump
from loadtest.wire_chat import ChatWire
from loadtest.wire_completions import CompletionWire

PROMPT = array("I", [1, 2, 3])


def job(include_usage: bool = False, continuous_usage: bool = False, usage_details: bool = True) -> Job:
    """Two tokens, both out."""
    said = Utterance(array("I", [7, 8]), (Delta("content", "a"), Delta("content", " b")), "a b", "stop")
    choices = [
        Choice(PROMPT, "p", said, Sequence(Key("r", at), PROMPT + said.tokens, 3, 0.0, cached_tokens=0))
        for at in range(2)
    ]
    made = Job("cmpl-1", "r", 1, tuple(choices), 3, 16, False, include_usage, continuous_usage, usage_details)
    made.sent_tokens = [2, 2]
    return made


def frame(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value


def test_a_completion_without_usage_ends_with_the_fingerprint() -> None:
    wire = CompletionWire("m", echo="no")
    assert "system_fingerprint" not in frame(wire.token(job(), 0, 0))
    assert "system_fingerprint" in frame(wire.token(job(), 0, 1))
    assert "system_fingerprint" not in frame(wire.token(job(include_usage=True), 0, 1))
    assert wire.closing(job()) is None


def test_running_usage_of_a_completion_is_that_of_its_choice() -> None:
    shown = frame(CompletionWire("m", echo="no").token(job(include_usage=True, continuous_usage=True), 1, 1))
    assert shown["usage"] == {"prompt_tokens": 3, "total_tokens": 5, "completion_tokens": 2}


def test_echo_comes_with_the_first_token_only() -> None:
    wire = CompletionWire("m", echo="before")
    texts = [str(wire.token(job(), 0, index)) for index in range(2)]
    assert "'text': 'pa'" in texts[0] and "'text': ' b'" in texts[1]


def test_an_echo_in_place_of_the_reply_is_the_prompt_alone() -> None:
    wire = CompletionWire("m", echo="only")
    shown = [frame(wire.token(job(), 0, index)) for index in range(2)]
    assert ["pa" in str(shown[0]), "'text': 'p'" in str(shown[0]), "'text': ''" in str(shown[1])] == [False, True, True]
    assert "'text': 'p'" in str(frame(wire.whole(job()))["choices"])


@pytest.mark.parametrize("wire", [ChatWire("m"), CompletionWire("m", echo="no")])
def test_without_details_they_are_null_in_one_piece_and_absent_in_a_stream(wire: ChatWire | CompletionWire) -> None:
    plain = job(include_usage=True, usage_details=False)
    whole, closing = frame(frame(wire.whole(plain))["usage"]), frame(frame(wire.closing(plain))["usage"])
    assert whole["prompt_tokens_details"] is None
    assert "prompt_tokens_details" not in closing
    assert whole["completion_tokens"] == closing["completion_tokens"] == 4


def test_a_lone_surrogate_never_leaves() -> None:
    assert dump({"text": "a\ud800b"}) == b'{"text":"a?b"}'
    assert dump({"text": "é"}) == '{"text":"é"}'.encode()
