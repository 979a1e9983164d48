"""Whose limits bound a call, and under which names the store keeps what is in use of them.

Rule: an organisation, its tenants, their keys and their sessions are one tree, and all its keys carry one hash tag: the
organisation's name, or the tenant's if it is in none. So one script on one server sees every level of a call.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import msgspec

from budgets.limit import LARGE, Dimension, Limit
from budgets.window import Window, window

MICRO = 1_000_000
NEARLY = 0.8
"""The part of a limit that is nearly all of it."""
Level = Literal["organisation", "tenant", "key", "session"]


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a limit is. `prefix` sets its buckets apart from all others under the same hash tag."""

    level: Level
    name: str
    prefix: str = ""

    @property
    def label(self) -> str:
        """As answers have it."""
        return f"{self.level}:{self.name}"


@dataclass(frozen=True, slots=True)
class Terms:
    """One limit as the scripts want it, in micro-units and microseconds; a quota, in one of its windows.

    `entry` is how it begins in a lease, `told` what the scripts are told of it. `window` None: not a quota.
    """

    limit: Limit
    owner: Owner
    bucket: str
    window: Window | None
    scale: int
    entry: str
    told: tuple[str | float | bool, ...]

    @property
    def dimension(self) -> Dimension:
        return self.limit.dimension

    @classmethod
    def of(cls, limit: Limit, owner: Owner, now_seconds: float) -> "Terms":
        """The terms at a moment (seconds since 1970)."""
        scale = scale_of(limit)
        bucket, opened = f"{owner.prefix}{limit.label}:{limit.dimension}", None
        if limit.every is not None:
            opened = window(limit.every, limit.time_zone, now_seconds)
            bucket = f"{bucket}:{opened.id}"
            kind, one, two = "q", opened.starts_at * MICRO, opened.ends_at * MICRO
        elif limit.per_seconds is not None:
            kind, one, two = "r", limit.amount * scale, max(1, int(limit.per_seconds * MICRO))
        else:
            kind, one, two = "c", 0, 0
        refuses, strict = limit.mode == "enforce", limit.hardness == "strict"
        numbers = (float(limit.capacity * scale), float(one), float(two))  # as Lua counts
        told = (bucket, kind, *numbers, refuses, strict, float(scale))
        return cls(limit, owner, bucket, opened, scale, "" if kind == "c" else f";{bucket}", told)

    def reset_seconds(self, in_use: int, now_seconds: float) -> float:
        """When nothing would be in use any more if nobody used anything."""
        if self.window is not None:
            return max(0.0, self.window.ends_at - now_seconds)
        return in_use / self.scale / self.limit.per_second if self.limit.per_second else 0.0


@dataclass(frozen=True, slots=True)
class Standing:
    """The terms of a scope from one moment to the next change of a window, made ready for the scripts.

    `packed`: what they are told of each limit, in MessagePack; `dimensions`: in which order a call's amounts are told;
    `near`: how much of each limit is nearly all of it, in micro-units.
    """

    terms: tuple[Terms, ...]
    keys: tuple[str, ...]
    packed: bytes
    since_seconds: float
    until_seconds: float
    dimensions: tuple[Dimension, ...] = ()
    near: tuple[int, ...] = ()

    @classmethod
    def of(cls, scope: "Scope", now_seconds: float) -> "Standing":
        owners = scope.owners or (scope.owner,) * len(scope.limits)
        pairs = zip(scope.limits, owners, strict=True)
        terms = tuple([Terms.of(limit, owner, now_seconds) for limit, owner in pairs])
        windows = [each.window for each in terms if each.window is not None]
        slots = [f"{scope.space}:slots:{each.bucket}" for each in terms if each.limit.kind == "slots"]
        dimensions = tuple(dict.fromkeys(each.dimension for each in terms if each.entry))
        places = {dimension: place for place, dimension in enumerate(dimensions, 1)}
        return cls(
            terms,
            (*scope.keys, *slots),
            msgspec.msgpack.encode([(*each.told, places.get(each.dimension, 0)) for each in terms]),
            max((each.starts_at for each in windows), default=float("-inf")),
            min((each.ends_at for each in windows), default=float("inf")),
            dimensions,
            tuple([int(each.limit.capacity * each.scale * NEARLY) for each in terms]),
        )


@dataclass(frozen=True)
class Scope:
    """Whose budget it is and what bounds it; best made once and kept, since it holds the limits made ready.

    `owners` go with `limits`, one by one; none: all limits are the tenant's. A call is given up for dead
    `lease_seconds` after it was admitted.
    """

    tenant: str
    limits: tuple[Limit, ...]
    lease_seconds: float = 900.0
    organisation: str | None = None
    owners: tuple[Owner, ...] = ()
    _standings: list[Standing] = field(default_factory=list, compare=False, repr=False)

    @property
    def space(self) -> str:
        """How every key of this tree begins."""
        return f"kvgate:1:{{{self.organisation or self.tenant}}}"

    @property
    def owner(self) -> Owner:
        """The tenant."""
        return Owner("tenant", self.tenant, f"tenant/{self.tenant}/" if self.organisation else "")

    @cached_property
    def keys(self) -> tuple[str, str, str]:
        """Buckets, leases, and when to look whether a bucket can go."""
        return f"{self.space}:buckets", f"{self.space}:leases", f"{self.space}:stale"

    @property
    def marks(self) -> str:
        """Calls without limits whose records are written."""
        return f"{self.space}:recorded"

    def standing(self, now_seconds: float) -> Standing:
        """The terms at a moment (seconds since 1970); made anew only when a window has ended."""
        held = self._standings
        if held and held[0].since_seconds <= now_seconds < held[0].until_seconds:
            return held[0]
        held[:] = [made := Standing.of(self, now_seconds)]
        return made

    def joined_by(self, limits: Sequence[Limit], owner: Owner) -> "Scope":
        """The same with one more owner's limits behind it."""
        owners = self.owners or (self.owner,) * len(self.limits)
        return replace(self, limits=(*self.limits, *limits), owners=(*owners, *((owner,) * len(limits))), _standings=[])


def scale_of(limit: Limit) -> int:
    """Micro-units in a part. Bytes and the like are small enough, and numbers in scripts are exact to 2^53 only."""
    return 1 if limit.kind == "slots" or limit.dimension in LARGE else MICRO
