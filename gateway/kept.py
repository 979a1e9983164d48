"""What a process remembers of conversations so that a later turn need not work it out again.

Rule: bounded for all tenants together, so that many tenants cost no more than one; each entry belongs to one tenant and
is found by no other. Nothing is lost with it but the time to make it again, and it outlives a reload.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from budgets.scope import Scope
from gateway.recent import Recent
from policies.extract_facts import Line
from policies.memory import Trim

MAX_SOUND: Final = 32_768
"""Messages whose arguments were found sound, some 200 bytes each."""
MAX_CHARACTERS: Final = 16 * 1024 * 1024
"""Of texts of trimmed outputs, as many of facts, and of records of them: a byte each, where all of them are ASCII."""
LINE_CHARACTERS: Final = 150
"""What a line weighs beside its own characters, and a message without any: the objects around it."""
MAX_SCOPES: Final = 4_096
"""Sessions whose limits are kept ready, some 5 kB each; they are made anew in microseconds."""

Owner = tuple[str, str]
"""Tenant and model."""
NOBODY: Final[Owner] = ("", "")


def _weight(lines: Sequence[Line]) -> int:
    return LINE_CHARACTERS * (1 + len(lines)) + sum([len(line) for _, _, line in lines])


@dataclass(frozen=True, slots=True)
class Kept:
    """By owner. `sound`: messages by digest. `trimmed`: texts by trim. `facts`: records by name and room. `said`: the
    facts of messages by digest. By service, `scopes`: those of its sessions."""

    sound: Recent[tuple[Owner, bytes], bool] = field(default_factory=lambda: Recent(MAX_SOUND))
    trimmed: Recent[tuple[Owner, Trim], str] = field(default_factory=lambda: Recent(MAX_CHARACTERS, len))
    facts: Recent[tuple[Owner, bytes, int], str] = field(default_factory=lambda: Recent(MAX_CHARACTERS, len))
    said: Recent[tuple[Owner, bytes], Sequence[Line]] = field(default_factory=lambda: Recent(MAX_CHARACTERS, _weight))
    scopes: Recent[tuple[object, str], Scope] = field(default_factory=lambda: Recent(MAX_SCOPES))
