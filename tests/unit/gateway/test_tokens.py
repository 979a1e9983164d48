"""Counts need no network, read no special token out of a text, and stay bounded for any text."""

import base64
from pathlib import Path

import pytest

from gateway.tokens import PIECE_CHARACTERS, counter, encoding

COUNT = counter()


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("hello world", 2), ("Hello, world!", 4), ("\u4f60\u597d", 2)])
def test_known_counts_of_cl100k(text: str, tokens: int) -> None:
    assert COUNT(text) == tokens


@pytest.mark.parametrize("special", ["<|endoftext|>", "<|fim_prefix|>", "<|endofprompt|>"])
def test_a_special_token_in_a_text_is_text(special: str) -> None:
    assert COUNT(special) > 1


def test_a_lone_surrogate_can_be_counted() -> None:
    assert COUNT("a\ud800b") == COUNT("a\ufffdb")


@pytest.mark.parametrize("unit", ["a", " ", "\n", "\u200b", "ab", "0", "=", "\U0001f600"])
def test_a_pathological_text_costs_its_pieces_and_no_more(unit: str) -> None:
    count = 4 * PIECE_CHARACTERS // len(unit)
    whole, piece = COUNT(unit * count), COUNT(unit * (PIECE_CHARACTERS // len(unit)))
    assert whole == 4 * piece


@pytest.mark.parametrize(("unit", "times"), [("a", 200_000), ("^", 1_000_000)])
def test_texts_that_tokenizers_were_slow_on_are_counted_in_pieces(unit: str, times: int) -> None:
    """tiktoken 195 and 245: the time grew with the square of the length, or the encoder gave up."""
    pieces, rest = divmod(times, PIECE_CHARACTERS)
    assert COUNT(unit * times) == pieces * COUNT(unit * PIECE_CHARACTERS) + COUNT(unit * rest)


@pytest.mark.parametrize(
    "unit", ["The quick brown fox. ", "def f(x):\n    return x\n", "\u0645\u0631\u062d\u0628\u0627 "]
)
def test_cutting_a_long_text_adds_few_tokens_and_loses_none(unit: str) -> None:
    text = unit * (3 * PIECE_CHARACTERS // len(unit))
    exact = len(encoding().encode(text, disallowed_special=()))
    assert exact <= COUNT(text) <= exact + 2 * (len(text) // PIECE_CHARACTERS + 1)


def test_tokens_never_exceed_bytes() -> None:
    for text in ("\u0e01\u0e33\u0e25\u0e31\u0e07" * 50, "\x00\x01\x02" * 50, "\U0001f9d1\u200d\U0001f680" * 50):
        assert COUNT(text) <= len(text.encode())


def test_an_encoding_can_be_read_from_a_file(tmp_path: Path) -> None:
    ranks = [bytes([byte]) for byte in range(256)] + [b"ab", b"abab"]
    lines = [f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(ranks)]
    file = tmp_path / "tiny.tiktoken"
    file.write_text("\n".join(lines))
    count = counter(str(file))
    assert [count(text) for text in ("ab", "abab", "abc", "<|endoftext|>")] == [1, 1, 2, 13]


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere"):
        counter("nowhere")
    with pytest.raises(OSError, match="none"):
        counter(str(tmp_path / "none.tiktoken"))
