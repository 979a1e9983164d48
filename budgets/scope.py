"""Whose limits bound a call, and under which names the store keeps what is in use of them.

Rule: an organisation, its tenants, their keys and their sessions are one tree, and all its keys carry one hash tag: the
organisation's name, or the tenant's if it is in none. So one script on one server sees every level of a call.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Literal

from budgets import layout
from budgets.limit import MICRO_UNITS, Dimension, Limit
from budgets.script import Known
from budgets.weights import Weights
from budgets.window import Window, window

MICRO = 1_000_000
SHOWN: frozenset[Dimension] = frozenset(("requests", "total_tokens"))
"""Dimensions of which every answer says how their tightest limit stands."""
FORGIVEN: frozenset[Dimension] = frozenset(("decode_tokens", "kv_read_bytes", "concurrent_calls"))
"""What nobody knows of a call whose worker died. Its request and its prompt were certainly sent; of its time and its
money nobody can tell any more how much it was, so what was expected stays."""
TOLD_SECONDS = 300.0
"""How long the store is taken to remember terms: half as long as it does."""
DIGEST_BYTES = 16
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

    `kind`, `one` and `two` are as the scripts read them. `window` None: not a quota. The last three are the limit's.
    """

    limit: Limit
    owner: Owner
    bucket: str
    window: Window | None
    scale: int
    kind: int
    one: int
    two: int
    dimension: Dimension
    capacity: int
    per_second: float

    @classmethod
    def of(cls, limit: Limit, owner: Owner, now_seconds: float) -> "Terms":
        """The terms at a moment (seconds since 1970)."""
        scale = MICRO_UNITS[limit.dimension]
        bucket, opened = f"{owner.prefix}{limit.label}:{limit.dimension}", None
        if limit.every is not None:
            opened = window(limit.every, limit.time_zone, now_seconds)
            bucket = f"{bucket}:{opened.id}"
            kind, one, two = layout.QUOTA, opened.starts_at * MICRO, opened.ends_at * MICRO
        elif limit.per_seconds is not None:
            kind, one, two = layout.RATE, limit.amount * scale, max(1, int(limit.per_seconds * MICRO))
        else:
            kind, one, two = layout.CALLS, 0, 0
        told = limit.dimension, limit.capacity, limit.per_second
        return cls(limit, owner, bucket, opened, scale, kind, one, two, *told)

    @property
    def board(self) -> str:
        """Where its bucket stands. Calls of a model meet all limits of one board or none, so they read it whole."""
        return f"{self.owner.prefix} {self.limit.model or ''}"

    def row(self, place: int) -> layout.Row:
        """What the scripts are told of it; `place` is that of what it is asked for in lists of amounts."""
        does = 0 if self.limit.mode == "shadow" else 2 if self.dimension in SHOWN else 1
        capacity, kept = self.capacity * self.scale, stays(self)
        return layout.Row(self.board, self.bucket, self.kind, does, place, capacity, self.one, self.two, kept)

    def reset_seconds(self, in_use: int, now_seconds: float) -> float:
        """When nothing would be in use any more if nobody used anything."""
        if self.window is not None:
            return max(0.0, self.window.ends_at - now_seconds)
        return in_use / self.scale / self.per_second if self.per_second else 0.0


@dataclass(frozen=True, slots=True)
class Standing:
    """The terms of a scope from one moment to the next change of a window, made ready for the scripts.

    `packed`: what they are told of the limits, and `known` for a store that has been told;
    `dimensions`: in which order a call's amounts are told, and how many micro-units a part has; behind them come those
    of `weights`.
    """

    terms: tuple[Terms, ...]
    keys: tuple[str, ...]
    packed: bytes
    since_seconds: float
    until_seconds: float
    dimensions: tuple[tuple[Dimension, float], ...]
    known: Known
    weights: tuple[tuple[Weights, float], ...] = ()
    _told_at: list[float] = field(default_factory=list, compare=False, repr=False)

    @classmethod
    def of(cls, scope: "Scope", now_seconds: float) -> "Standing":
        owners = scope.owners or (scope.owner,) * len(scope.limits)
        terms = () if scope.joined is None else scope.joined.standing(now_seconds).terms  # made once for all sessions
        pairs = zip(scope.limits[len(terms) :], owners[len(terms) :], strict=True)
        terms += tuple([Terms.of(limit, owner, now_seconds) for limit, owner in pairs])
        terms = tuple([terms[at] for at in layout.together(each.board for each in terms)])
        windows = [each.window for each in terms if each.window is not None]
        slots = [f"{scope.space}:slots:{each.bucket}" for each in terms if each.limit.kind == "slots"]
        # Scripts count in doubles.
        measures = {
            each.limit.weighing or each.dimension: float(each.scale) for each in terms if each.limit.kind != "slots"
        }
        weights = tuple([(each, scale) for each, scale in measures.items() if isinstance(each, Weights)])
        dimensions = tuple([(each, scale) for each, scale in measures.items() if not isinstance(each, Weights)])
        places = {measure: place for place, (measure, _) in enumerate((*dimensions, *weights), 1)}
        at = [
            places.get(each.limit.weighing or each.dimension, 0) + len(places) * (each.limit.hardness == "strict")
            for each in terms
        ]
        since, until = (
            max((each.starts_at for each in windows), default=float("-inf")),
            min((each.ends_at for each in windows), default=float("inf")),
        )
        rows = [each.row(place) for each, place in zip(terms, at, strict=True)]
        packed = layout.terms(since * MICRO, until * MICRO, rows)
        return cls(
            terms,
            (*scope.keys, f"{scope.space}:terms:{blake2b(packed, digest_size=DIGEST_BYTES).hexdigest()}", *slots),
            packed,
            since,
            until,
            dimensions,
            Known.of(packed),
            weights,
        )

    def told(self, now_seconds: float) -> bytes:
        """The terms for a script: whole for the first time and now and then, so that the store does not forget them."""
        told_at = self._told_at
        if told_at and 0 <= now_seconds - told_at[0] < TOLD_SECONDS:
            return self.known
        told_at[:] = (now_seconds,)
        return self.packed


@dataclass(frozen=True)
class Scope:
    """Whose budget it is and what bounds it; best made once and kept, since it holds the limits made ready.

    `owners` go with `limits`, one by one; none: all limits are the tenant's. A call is given up for dead
    `lease_seconds` after it was admitted. `joined` is the scope whose limits come first.
    """

    tenant: str
    limits: tuple[Limit, ...]
    lease_seconds: float = 900.0
    organisation: str | None = None
    owners: tuple[Owner, ...] = ()
    joined: "Scope | None" = field(default=None, compare=False, repr=False)
    _standings: list[Standing] = field(default_factory=list, compare=False, repr=False)

    @cached_property
    def space(self) -> str:
        """How every key of this tree begins."""
        return f"kvgate:1:{{{self.organisation or self.tenant}}}"

    @property
    def owner(self) -> Owner:
        """The tenant."""
        return Owner("tenant", self.tenant, f"tenant/{self.tenant}/" if self.organisation else "")

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Buckets, deadlines of leases, leases, when to look whether a bucket can go; the former form of buckets."""
        binary = f"kvgate:2:{{{self.organisation or self.tenant}}}"
        made = [f"{binary}:{part}" for part in ("buckets", "leases", "held", "stale")]
        return *made, f"{self.space}:buckets"

    @property
    def marks(self) -> str:
        """Calls without limits whose records are written."""
        return f"{self.space}:recorded"

    @cached_property
    def lease_us(self) -> int:
        return int(self.lease_seconds * MICRO)

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
        owners = (*owners, *((owner,) * len(limits)))
        return replace(self, limits=(*self.limits, *limits), owners=owners, joined=self, _standings=[])


def stays(terms: Terms) -> int:
    """What of a call whose worker died is charged: micro-units for each token of its prompt; -1 is all of it."""
    if (weights := terms.limit.weighing) is not None:
        return weights.prefill * terms.scale
    return terms.scale if terms.dimension == "total_tokens" else 0 if terms.dimension in FORGIVEN else -1
