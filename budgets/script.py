"""A Lua script that the store runs, and the shape of whatever runs it.

Rule: `budgets` names what it wants done; the gateway's store does it. Scripts get every key passed in, because a
cluster must know them all beforehand, and read time from the server only.
"""

import hashlib
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Protocol

Argument = str | bytes | int


@dataclass(frozen=True, slots=True)
class Script:
    """`name` for people, `source` for the server's first run, `sha1` for all later ones."""

    name: str
    source: str = field(repr=False)
    sha1: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha1", digest)

    @classmethod
    def load(cls, package: str, name: str) -> "Script":
        """The script `lua/<name>.lua` shipped in `package`."""
        return cls(name, (files(package) / "lua" / f"{name}.lua").read_text("utf-8"))


class RunScript(Protocol):
    """Runs a script at once and answers with its reply: bytes, integers, lists of these, or None."""

    def __call__(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Awaitable[object]: ...
