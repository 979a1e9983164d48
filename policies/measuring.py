"""How long a text is, in tokens, and where in it how many are reached.

Rule: a text that was measured once is cut by its marks, without counting again what is left of it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from math import ceil

import msgspec

from policies.text_spans import Span, boundary, error_lines

PIECE_CHARACTERS = 256
"""How far marks lie apart, at most."""
DENSE_CHARACTERS = 96
"""In a text that is not ASCII alone: there a character may be a token or two."""


class Marks(msgspec.Struct, frozen=True, gc=False):
    """A text in pieces: `ends[n]` is where piece n ends, `tokens[n]` how many tokens there are up to there.

    `scale` is what these are multiplied by: the model's own tokens to one of those counted. `errors` are the lines that
    look like errors, looked for on the same occasion.
    """

    ends: Sequence[int]
    tokens: Sequence[int]
    scale: float = 1.0
    errors: tuple[Span, ...] = ()

    @property
    def total_tokens(self) -> int:
        return self._scaled(self.tokens[-1]) if self.tokens else 0

    def head(self, most_tokens: int) -> tuple[int, int]:
        """The longest head of at most so many tokens: where it ends, and its tokens."""
        pieces = bisect_right(self.tokens, int(most_tokens / self.scale))
        return (self.ends[pieces - 1], self._scaled(self.tokens[pieces - 1])) if pieces else (0, 0)

    def tail(self, most_tokens: int) -> tuple[int, int]:
        """The longest tail of at most so many tokens: where it begins, and its tokens."""
        total = self.tokens[-1]
        pieces = bisect_left(self.tokens, total - int(most_tokens / self.scale))
        if pieces >= len(self.tokens):
            return self.ends[-1], 0
        return self.ends[pieces], self._scaled(total - self.tokens[pieces])

    def _scaled(self, tokens: int) -> int:
        return ceil(tokens * self.scale)


def measured(text: str, count: Callable[[str], int]) -> Marks:
    """The marks of a text, each piece counted by itself: a border may cost a token, so no sum is too small."""
    ends: list[int] = []
    tokens: list[int] = []
    at = total = 0
    piece = PIECE_CHARACTERS if text.isascii() else DENSE_CHARACTERS
    while at < len(text):
        end = _end(text, at, piece)
        total += count(text[at:end])
        ends.append(end)
        tokens.append(total)
        at = end
    return Marks(tuple(ends), tuple(tokens), errors=error_lines(text))


def _end(text: str, start: int, piece: int) -> int:
    """After the last line end of the piece's latter half, else of the last word, else between two graphemes."""
    stop = start + piece
    if stop >= len(text):
        return len(text)
    middle = start + piece // 2
    if (newline := text.rfind("\n", middle, stop)) >= 0:
        return newline + 1
    space = text.rfind(" ", middle, stop)
    border = boundary(text, space if space >= 0 else stop)
    return border if border > start else stop


class Measure:
    """A count of tokens that can also say where in a message's text how many are reached."""

    def __call__(self, text: str, /) -> int:
        raise NotImplementedError

    def marks(self, digest: bytes, text: str) -> Marks:
        """Of the text of the message of this digest."""
        raise NotImplementedError
