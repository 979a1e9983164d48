"""What the emulated model says: words that follow from the prompt and a seed, one token each.

Rule: the same prompt, seed and choice give the same reply, whatever the temperature, so that a test can name it; every
piece is exactly one token of the encoding, so that counts of tokens are exact and a reply that comes back as part of
the next prompt has the same tokens.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from xxhash import xxh3_64_intdigest, xxh3_128_digest

_VOCABULARY = """
the of and to in is that for it as was with be by on not he but at are this have from or had an they which one
you were her all she there would their we been has when who will more no if out so what up its about into than
them can only other new some could time these two may then do first any my now such like our over man me even
most made after also did many before must through back years where much your way well down should because each
just those people how too little state good very make world still own see men work long get here between both
life being under never day same another know while
"""

WORDS = tuple(_VOCABULARY.split())
"""128 words: with a space before it, or none, each is one token of the default encoding."""

SENTENCE_TOKENS = 12
"""Every so many tokens there is a full stop: a token of its own between two words."""

Finish = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Reply:
    """One choice, complete before it is spoken: `pieces[i]` is the text that token i adds ("" for the end token)."""

    pieces: tuple[str, ...]
    finish: Finish
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class Manner:
    """How long a reply may get and what ends it. `typical_tokens` is the median of its natural length."""

    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    typical_tokens: int = 160


def seed_of(*parts: object) -> int:
    """A seed from whatever decides a reply."""
    return xxh3_64_intdigest("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass"))


def natural_length_tokens(seed: int, typical_tokens: int) -> int:
    """A log-normal length with the given median (sigma 0.8, as replies of chat traffic spread), at least 2."""
    uniform = (seed % 1_000_003 + 0.5) / 1_000_003
    return max(2, round(typical_tokens * math.exp(0.8 * NormalDist().inv_cdf(uniform))))


def speak(seed: int, manner: Manner) -> Reply:
    """The reply of this seed: words, an end token where it ends by itself, cut where a stop string is complete."""
    length = max(natural_length_tokens(seed, manner.typical_tokens), manner.min_tokens + 1)
    if manner.ignore_eos or length > manner.max_tokens:
        return _stopped(_words(seed, manner.max_tokens), "length", manner)
    return _stopped((*_words(seed, length - 1), ""), "stop", manner)


def _words(seed: int, count: int) -> tuple[str, ...]:
    picks = b"".join(xxh3_128_digest(f"{seed}:{at}".encode()) for at in range(-(-count // 16)))
    words = [_PIECES[pick & 127] for pick in picks[:count]]
    words[SENTENCE_TOKENS - 1 :: SENTENCE_TOKENS] = "." * (count // SENTENCE_TOKENS)
    return tuple(words[:1] and [words[0].lstrip(), *words[1:]])


_PIECES = tuple(f" {word}" for word in WORDS)


def _stopped(pieces: tuple[str, ...], finish: Finish, manner: Manner) -> Reply:
    found = _first_stop("".join(pieces), pieces, manner)
    if found is None:
        return Reply(pieces, finish)
    start, stop = found
    tokens = _tokens_until(pieces, start + len(stop))
    kept = start + len(stop) if manner.include_stop else start
    return Reply(_clip(pieces[:tokens], kept), "stop", stop)


def _first_stop(text: str, pieces: Sequence[str], manner: Manner) -> tuple[int, str] | None:
    """Where the stop string that is complete first begins; none counts before `min_tokens` are out."""
    earliest = sum(len(piece) for piece in pieces[: manner.min_tokens])
    found = [(text.find(stop, max(0, earliest - len(stop) + 1)), stop) for stop in manner.stop if stop]
    hits = [hit for hit in found if hit[0] >= 0]
    return min(hits, key=lambda hit: hit[0] + len(hit[1]), default=None)


def _tokens_until(pieces: Sequence[str], end: int) -> int:
    length = 0
    for count, piece in enumerate(pieces, 1):
        length += len(piece)
        if length >= end:
            return count
    return len(pieces)


def _clip(pieces: Sequence[str], characters: int) -> tuple[str, ...]:
    clipped = []
    for piece in pieces:
        clipped.append(piece[: max(0, characters)])
        characters -= len(piece)
    return tuple(clipped)


def example_arguments(schema: Mapping[str, object], seed: int) -> dict[str, object]:
    """Arguments that satisfy a JSON schema of an object, as far as types, enums and required fields go."""
    value = _example({**schema, "type": "object"}, seed, 0)
    return value if isinstance(value, dict) else {}


def _example(schema: object, seed: int, depth: int) -> object:
    if not isinstance(schema, Mapping):
        return "value"
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    options = schema.get("enum")
    if isinstance(options, list) and options:
        return options[seed % len(options)]
    return _typed_example(schema, seed, depth)


def _typed_example(schema: Mapping[str, object], seed: int, depth: int) -> object:
    properties = schema.get("properties")
    match schema.get("type"):
        case "object" if isinstance(properties, Mapping) and depth < 4:
            required = schema.get("required", list(properties))
            names = [name for name in properties if isinstance(required, list) and name in required]
            return {name: _example(properties[name], seed, depth + 1) for name in names}
        case "object":
            return {}
        case "array":
            return []
        case "integer":
            return seed % 10
        case "number":
            return seed % 10 + 0.5
        case "boolean":
            return seed % 2 == 0
        case "null":
            return None
        case _:
            return WORDS[seed % len(WORDS)]


def compact(value: object) -> str:
    """JSON as models write it, ASCII only: no piece of it ever ends inside a character."""
    return json.dumps(value)
