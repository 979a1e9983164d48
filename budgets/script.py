"""A Lua script that the store runs, and the shape of whatever runs it.

Rule: `budgets` names what it wants done; the gateway's store does it. Scripts get every key passed in, because a
cluster must know them all beforehand, and read time from the server only.
"""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib.resources import files
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

Argument = str | bytes | int
T = TypeVar("T")
Read = TypeVar("Read", covariant=True)
U = TypeVar("U")


class Known(bytes):
    """An argument that is empty because the store has been told `whole` before.

    A script that finds it has forgotten answers with an error that says `UNTOLD` before it writes anything; whoever
    runs it then sends `whole` in its place, as with `NOSCRIPT`.
    """

    whole: bytes

    @classmethod
    def of(cls, whole: bytes) -> "Known":
        known = cls()
        known.whole = whole
        return known


UNTOLD: Final = "UNTOLD"


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """`name` for people, `source` for the server's first run, `sha1` for all later ones.

    The same only as itself: two of them are looked up together for nearly every call, and that must not read them.
    """

    name: str
    source: str = field(repr=False)
    sha1: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha1", digest)

    @classmethod
    def load(cls, package: str, name: str, *before: str) -> "Script":
        """The script `lua/<name>.lua` shipped in `package`, what several share standing before it."""
        texts = [(files(package) / "lua" / f"{part}.lua").read_text("utf-8") for part in (*before, name)]
        return cls(name, "\n".join(texts))


class Step(msgspec.Struct, Generic[Read], frozen=True):
    """One run of a script: what it is given, and what its reply means."""

    script: Script
    keys: Sequence[str]
    args: Sequence[Argument]
    read: Callable[[object], Read]


# Inside a function a script finds the keys and arguments that are its own under the names it knows.
_BOTH = """
local function part(whole, first, last)
  local part = {}
  for at = first, last do part[#part + 1] = whole[at] end
  return part
end
local keys, args = tonumber(ARGV[1]), tonumber(ARGV[2])
local function one(KEYS, ARGV)
%s
end
local function other(KEYS, ARGV)
%s
end
return {
  one(part(KEYS, 1, keys), part(ARGV, 3, 2 + args)),
  other(part(KEYS, keys + 1, #KEYS), part(ARGV, 3 + args, #ARGV)),
}
"""


@lru_cache(maxsize=64)
def joined(one: Script, other: Script) -> Script:
    """A script that runs two scripts, the second after the first; its reply holds both of theirs."""
    return Script(f"{one.name}+{other.name}", _BOTH % (one.source, other.source))


def both(one: Step[T], other: Step[U]) -> Step[tuple[T, U]]:
    """Two steps of one tenant as one: one command, one reply, and nobody else's command between the two."""
    keys, args = one.keys, one.args
    every = (len(keys), len(args), *args, *other.args)
    return Step(joined(one.script, other.script), (*keys, *other.keys), every, partial(_read, one.read, other.read))


def _read(one: Callable[[object], T], other: Callable[[object], U], reply: Any) -> tuple[T, U]:
    first, second = reply
    return one(first), other(second)


class RunScript(Protocol):
    """Runs a script at once and answers with its reply: bytes, integers, lists of these, or None."""

    def __call__(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Awaitable[object]: ...
