"""What a process remembers of conversations so that a later turn need not work it out again.

Rule: bounded for all tenants together, so that many tenants cost no more than one; each entry belongs to one tenant and
is found by no other. Nothing is lost with it but the time to make it again, and it outlives a reload.
"""

from dataclasses import dataclass, field
from typing import Final

from budgets.scope import Scope
from gateway.recent import Recent
from policies.memory import Trim

MAX_SOUND: Final = 32_768
"""Messages whose arguments were found sound, some 200 bytes each."""
MAX_CHARACTERS: Final = 16 * 1024 * 1024
"""Of texts of trimmed outputs, and as many of records of facts: a byte each, where all of them are ASCII."""
MAX_SCOPES: Final = 4_096
"""Sessions whose limits are kept ready, some 3 kB each; they are made anew in microseconds."""

Owner = tuple[str, str]
"""Tenant and model."""
NOBODY: Final[Owner] = ("", "")


@dataclass(frozen=True, slots=True)
class Kept:
    """By owner. `sound`: messages by digest. `trimmed`: texts by trim. `facts`: records by name and room. By service,
    `scopes`: those of its sessions."""

    sound: Recent[tuple[Owner, bytes], bool] = field(default_factory=lambda: Recent(MAX_SOUND))
    trimmed: Recent[tuple[Owner, Trim], str] = field(default_factory=lambda: Recent(MAX_CHARACTERS, len))
    facts: Recent[tuple[Owner, bytes, int], str] = field(default_factory=lambda: Recent(MAX_CHARACTERS, len))
    scopes: Recent[tuple[object, str], Scope] = field(default_factory=lambda: Recent(MAX_SCOPES))
