"""What is kept of a session: facts planted at known places, and asked for at every later call, without a model.

Rule: a fact is retained if its very characters are in what is sent; recoverable if not, but they are in what a handle
that is sent would give back; else lost. Each fact is unlike all others and
nowhere else in the session, and stands in a line of its own, or in JSON as a member of its own.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from bench.context_replay import DIALECT, Served
from bench.context_sessions import Session, WireMessage
from gateway.shown import texts_of

Kind = Literal["number", "path", "name", "error", "decision"]
Fate = Literal["retained", "recoverable", "lost"]

KINDS: Final[tuple[Kind, ...]] = ("number", "path", "name", "error", "decision")
FATES: Final[tuple[Fate, ...]] = ("retained", "recoverable", "lost")
GOLDEN: Final = 0.6180339887498949
"""Multiples of it, modulo 1, are spread evenly however many there are: places in outputs, 0 the head and 1 the tail."""
FIRST_NAMES: Final = (
    "Ilse",
    "Marisol",
    "Tadeo",
    "Wanjiru",
    "Bjarne",
    "Noor",
    "Zofia",
    "Emeka",
    "Sunniva",
    "Raanan",
    "Keiko",
)
LAST_NAMES: Final = ("Okonkwo", "Varga", "Halloran", "Nakashima", "Quispe", "Thorsen", "Abiodun", "Lindqvist", "Moreau")


@dataclass(frozen=True, slots=True)
class Fact:
    """`text` stands in message `at`; of the line around it only `text` is asked for."""

    kind: Kind
    text: str
    line: str
    at: int


def fact(kind: Kind, number: int, at: int) -> Fact:
    """The fact of this kind and number."""
    first, last = FIRST_NAMES[number % len(FIRST_NAMES)], LAST_NAMES[number % len(LAST_NAMES)]
    text, line = {
        "number": (f"{70_001 + 613 * number}", "depth of the queue: {}"),
        "path": (f"/srv/releases/{5000 + number}/etc/limits.toml", "read from {}"),
        "name": (f"{first} {last}", "reviewed by {}"),
        "error": (f"refused by shard-{300 + number}", "ERROR: connection {}"),
        "decision": (f"the limit stays at {9_000 + number} ms", "Decision: {}."),
    }[kind]
    return Fact(kind, text, line.format(text), at)


def planted(session: Session) -> tuple[Session, tuple[Fact, ...]]:
    """The session with a fact in every output, kinds and places in turn, and a decision in every fourth reply.

    Outputs are tool messages; in a session without tools, what the user sends behind the task.
    """
    wire = list(session.wire)
    facts: list[Fact] = []
    for number, at in enumerate(_outputs(wire)):
        found = fact(KINDS[number % 4], number, at)
        wire[at] = {**wire[at], "content": _with(wire[at]["content"], found.line, number * GOLDEN % 1)}
        facts.append(found)
        before = at - 1
        if number % 4 == 3 and wire[before]["role"] == "assistant":
            decision = fact("decision", number, before)
            wire[before] = {**wire[before], "content": f"{wire[before]['content'] or ''}\n{decision.line}".strip()}
            facts.append(decision)
    return Session(session.name, wire), tuple(facts)


def _outputs(wire: Sequence[WireMessage]) -> list[int]:
    tools = [at for at, message in enumerate(wire) if message["role"] == "tool"]
    return tools or [at for at, message in enumerate(wire) if message["role"] == "user"][1:]


def _with(text: str, line: str, place: float) -> str:
    """`text` with a line more at a place from 0, its head, to 1; JSON stays JSON."""
    value = _json(text)
    if isinstance(value, dict):
        return json.dumps(dict(_inserted(list(value.items()), ("note", line), place)), ensure_ascii=False)
    if isinstance(value, list):
        return json.dumps(_inserted(value, line, place), ensure_ascii=False)
    return "\n".join(_inserted(text.split("\n"), line, place))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _inserted(items: list[Any], item: Any, place: float) -> list[Any]:
    at = round(len(items) * place)
    return [*items[:at], item, *items[at:]]


def fates(facts: Iterable[Fact], served: Served) -> Iterator[tuple[Kind, Fate]]:
    """What has become of every fact that this call's conversation holds."""
    sent = "\n".join(map(DIALECT.countable, served.sent.messages))
    kept = "\n".join(texts_of(served.shown).values())
    for planted in facts:
        if planted.at < len(served.original.messages):
            yield planted.kind, _fate(planted.text, sent, kept)


def _fate(fact: str, sent: str, kept: str) -> Fate:
    if fact in sent:
        return "retained"
    return "recoverable" if fact in kept else "lost"


@dataclass(frozen=True, slots=True)
class Kept:
    """How many askings, by kind and by fate."""

    askings: Mapping[tuple[Kind, Fate], int]

    def share(self, fate: Fate, kind: Kind | None = None) -> float:
        """The share of one fate, of all kinds or of one; 0 where nothing was asked."""
        asked = {key: count for key, count in self.askings.items() if kind in (None, key[0])}
        total = sum(asked.values())
        return sum(count for (_, found), count in asked.items() if found == fate) / total if total else 0.0
