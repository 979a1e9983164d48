"""What the emulated model says, and that each piece of it is one token."""

import pytest

from gateway.tokens import counter
from loadtest.text import WORDS, Manner, example_arguments, natural_length_tokens, speak

count = counter()


def test_every_word_is_one_token_with_and_without_a_space() -> None:
    assert len(WORDS) == len(set(WORDS)) == 128
    assert {count(word) for word in WORDS} == {1} == {count(f" {word}") for word in WORDS}


@pytest.mark.parametrize("seed", range(20))
def test_a_reply_has_as_many_tokens_as_pieces(seed: int) -> None:
    reply = speak(seed, Manner(max_tokens=200, ignore_eos=True))
    assert count(reply.text) == len(reply.pieces) == 200
    assert reply.finish == "length"


def test_the_same_seed_says_the_same() -> None:
    assert speak(7, Manner(50)) == speak(7, Manner(50))
    assert speak(7, Manner(50)).text != speak(8, Manner(50)).text


def test_a_reply_ends_by_itself_with_a_token_without_text() -> None:
    reply = speak(3, Manner(max_tokens=10_000))
    assert reply.finish == "stop" and reply.stop_reason is None
    assert reply.pieces[-1] == "" and all(reply.pieces[:-1])


def test_min_tokens_come_before_the_end() -> None:
    assert len(speak(3, Manner(max_tokens=10_000, min_tokens=5_000)).pieces) == 5_001


def test_lengths_spread_around_the_typical_one() -> None:
    lengths = sorted(natural_length_tokens(seed * 7919, 100) for seed in range(1001))
    assert 80 < lengths[500] < 125
    assert lengths[50] < 50 and lengths[950] > 200


@pytest.mark.parametrize("include", [False, True])
def test_a_stop_string_ends_the_reply_where_it_is_complete(include: bool) -> None:
    whole = speak(5, Manner(max_tokens=40, ignore_eos=True))
    stop = whole.text[30:37]
    cut = speak(5, Manner(max_tokens=40, ignore_eos=True, stop=("nowhere", stop), include_stop=include))
    at = whole.text.index(stop)
    assert cut.text == whole.text[: at + len(stop) if include else at]
    assert (cut.finish, cut.stop_reason) == ("stop", stop)
    assert len("".join(whole.pieces[: len(cut.pieces)])) >= at + len(stop)
    assert len("".join(whole.pieces[: len(cut.pieces) - 1])) < at + len(stop)


def test_no_stop_counts_before_min_tokens() -> None:
    whole = speak(5, Manner(max_tokens=40, ignore_eos=True))
    first = whole.pieces[0]
    cut = speak(5, Manner(max_tokens=40, min_tokens=3, ignore_eos=True, stop=(first,)))
    assert len(cut.pieces) >= 3


def test_arguments_satisfy_a_schema() -> None:
    schema = {
        "properties": {
            "city": {"type": "string", "enum": ["Oslo", "Rome"]},
            "days": {"type": "integer"},
            "exact": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "where": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]},
            "unit": {"const": "C"},
            "optional": {"type": "string"},
        },
        "required": ["city", "days", "exact", "tags", "where", "unit"],
    }
    made = example_arguments(schema, 4)
    assert made == {"city": "Oslo", "days": 4, "exact": True, "tags": [], "where": {"lat": 4.5}, "unit": "C"}
    assert example_arguments({}, 4) == {}
