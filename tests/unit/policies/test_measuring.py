"""Texts measured once and cut at their marks, with the tokenizer that ships."""

import pytest

from gateway.counting import Counter, Scaled
from gateway.tokens import PIECE_CHARACTERS as PIECE_CHARACTERS_OF_A_COUNT
from gateway.tokens import counter
from policies.conversation import Message
from policies.measuring import PIECE_CHARACTERS, measured
from policies.trim_search import fit

COUNT = counter()
LOG = "".join(f"10:{n % 60:02} INFO worker-{n % 5} did item {n} in {n * 7 % 97} ms\n" for n in range(900))
TEXTS = {
    "log": LOG,
    "errors": LOG + "".join(f"ERROR: disk {n} is full\n" for n in range(40)) + LOG,
    "one line": "word " * 9_000,
    "no spaces": "QmFzZTY0" * 5_000,
    "accents": "e\u0301" * 15_000,
    "families": "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 4_000,
    "surrogates": "\ud83d" * 20_000,
    "dense tail": LOG + "\u6f22\u5b57\u2603" * 4_000,
    "cjk": "\u4e2d\u6587\u6d4b\u8bd5" * 9_000,
}


def message(text: str) -> Message:
    return Message("tool", text[:8].encode("utf-8", "surrogatepass"), COUNT(text) + 4, text)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_marks_lie_close_together_and_never_sum_up_to_less(text: str) -> None:
    marks = measured(text, COUNT)
    assert marks.ends[-1] == len(text) and list(marks.ends) == sorted(set(marks.ends))
    starts = (0, *marks.ends)
    assert all(end - start <= PIECE_CHARACTERS for start, end in zip(starts, marks.ends, strict=False))
    pieces = len(text) // PIECE_CHARACTERS_OF_A_COUNT + 1  # the count, too, is made in pieces
    assert COUNT(text) - pieces <= marks.total_tokens <= COUNT(text) * 1.06 + 8
    for most in (100, 999):
        end, tokens = marks.head(most)
        begin, rest = marks.tail(most)
        assert COUNT(text[:end]) <= tokens <= most and COUNT(text[begin:]) <= rest <= most
    assert marks.head(10**9) == (len(text), marks.total_tokens)
    assert marks.tail(0) == (len(text), 0) and marks.tail(10**9)[0] == marks.ends[0]


@pytest.mark.parametrize("scale", [1.0, 1.6, 0.7])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_is_kept_fits_and_makes_use_of_the_room(text: str, scale: float) -> None:
    measure = Scaled(Counter(COUNT), scale)
    found = fit(message(text), 2_000, 0.6, measure)
    assert found is not None
    assert measure(found.text) <= found.tokens <= 2_000
    assert measure(found.text) >= 1_500 or len(found.text) == len(text)
    assert fit(message(text), 2_000, 0.6, Scaled(Counter(COUNT), scale)) == found, "the same wherever it is measured"


def test_errors_of_the_middle_are_kept() -> None:
    found = fit(message(TEXTS["errors"]), 2_000, 0.6, Scaled(Counter(COUNT), 1.0))
    assert found is not None and found.text.count("ERROR: disk ") >= 10


def test_next_to_nothing_is_counted() -> None:
    counted: list[int] = []

    def noting(text: str) -> int:
        counted.append(len(text))
        return COUNT(text)

    measure = Scaled(Counter(noting), 1.0)
    measure.marks(message(LOG).digest, LOG)
    counted.clear()
    assert fit(message(LOG), 2_000, 0.6, measure) is not None
    assert counted == []
