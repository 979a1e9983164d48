"""One choice of a reply, token by token: the text each token adds and what the wire shows of it.

Rule: an utterance is complete before its first token is due; when tokens come out is the scheduler's business. The
model calls a tool when `tool_choice` names one or is "required", and on "auto" when the last message is the user's and
contains the name of a tool; a JSON object that follows the name is taken as the arguments, else they are made up from
the tool's schema.
"""

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from loadtest.text import Manner, Reply, compact, example_arguments, speak
from loadtest.tokenizer import Tokenizer, call_text, content_of


@dataclass(frozen=True, slots=True)
class Delta:
    """What a stream shows of one token."""

    kind: Literal["content", "call", "arguments"]
    text: str


@dataclass(frozen=True, slots=True)
class Utterance:
    """`deltas[i]` is None where the wire shows nothing of token i (the wrapping of a tool call)."""

    tokens: "array[int]"
    deltas: tuple[Delta | None, ...]
    text: str
    finish: str
    stop_reason: str | None = None
    call: tuple[str, str] | None = None
    """Name and arguments of a complete call."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The tool to call and its arguments, as JSON text."""

    name: str
    arguments: str
    finish: Literal["stop", "tool_calls"]


def say(seed: int, manner: Manner, tokenizer: Tokenizer) -> Utterance:
    """An utterance in words."""
    reply: Reply = speak(seed, manner)
    deltas = tuple(Delta("content", piece) for piece in reply.pieces)
    return Utterance(tokenizer.spoken(reply.pieces), deltas, reply.text, reply.finish, reply.stop_reason)


def tell(text: str, max_tokens: int, tokenizer: Tokenizer) -> Utterance:
    """An utterance of this very ASCII text, cut by `max_tokens`."""
    pieces, tokens = tokenizer.pieces(text)
    deltas = tuple(Delta("content", piece) for piece in pieces[:max_tokens])
    if len(pieces) >= max_tokens:
        return Utterance(tokens[:max_tokens], deltas, "".join(pieces[:max_tokens]), "length")
    return Utterance(tokens + array("I", [tokenizer.end]), (*deltas, None), text, "stop")


def call(wish: Wish, max_tokens: int, tokenizer: Tokenizer) -> Utterance:
    """An utterance that calls a tool; cut by `max_tokens` it is no call, only the text so far."""
    whole = call_text(wish.name, wish.arguments)
    pieces, tokens = tokenizer.pieces(whole)
    start = whole.index(wish.arguments, len(call_text(wish.name, "")) - len("}\n</tool_call>"))
    deltas = _call_deltas(pieces, wish.name, start, start + len(wish.arguments))
    if len(pieces) >= max_tokens:
        cut = slice(max_tokens)
        return Utterance(tokens[cut], tuple(deltas[cut]), "".join(pieces[cut]), "length")
    ended = tokens + array("I", [tokenizer.end])
    return Utterance(ended, (*deltas, None), whole, wish.finish, None, (wish.name, wish.arguments))


def _call_deltas(pieces: Sequence[str], name: str, start: int, end: int) -> list[Delta | None]:
    """The name shows as soon as it is complete, the arguments piece by piece, the wrapping not at all."""
    deltas: list[Delta | None] = []
    named, at = False, 0
    for piece in pieces:
        inside = piece[max(0, start - at) : max(0, end - at)]
        at += len(piece)
        shown = Delta("arguments", inside) if inside and named else None
        if not named and at >= start - len(', "arguments": '):
            named, shown = True, Delta("call", name)
        deltas.append(shown)
    return deltas


def wished_call(
    messages: Sequence[Mapping[str, object]], tools: Sequence[object], tool_choice: object, seed: int
) -> Wish | None:
    """Which tool the model calls, if any."""
    functions = [function for tool in tools if (function := _function(tool)) is not None]
    named = _function(tool_choice)
    if named is not None:
        chosen = [function for function in functions if function.get("name") == named.get("name")]
        return _wish((chosen or [named])[0], "", seed, "stop")
    asked = _asked(messages)
    mentioned = [function for function in functions if str(function.get("name")) in asked]
    if tool_choice == "required" and functions:
        return _wish((mentioned or functions)[0], asked, seed, "tool_calls")
    if tool_choice in (None, "auto") and mentioned:
        return _wish(mentioned[0], asked, seed, "tool_calls")
    return None


def _function(tool: object) -> Mapping[str, object] | None:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    return function if isinstance(function, Mapping) else None


def _asked(messages: Sequence[Mapping[str, object]]) -> str:
    last = messages[-1] if messages else {}
    return content_of(last) if last.get("role") == "user" else ""


def _wish(function: Mapping[str, object], asked: str, seed: int, finish: Literal["stop", "tool_calls"]) -> Wish:
    name = str(function.get("name"))
    given = _object_after(asked, name)
    schema = function.get("parameters")
    made_up = example_arguments(schema if isinstance(schema, Mapping) else {}, seed)
    return Wish(name, compact(made_up if given is None else given), finish)


def _object_after(text: str, name: str) -> dict[str, object] | None:
    rest = text.partition(name)[2].lstrip()
    if not rest.startswith("{"):
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
