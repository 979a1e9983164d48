"""What the ledger is asked and what it answers: amounts, a grant or a denial, and balances.

Rule: values only. Amounts are whole parts of a dimension; the ledger itself counts in micro-units.
"""

from dataclasses import dataclass

import msgspec

from budgets.lease import Amounts, taken
from budgets.limit import Dimension, Kind, Mode
from budgets.scope import Scope, Standing, Terms
from budgets.stood import Stood


@dataclass(frozen=True, slots=True)
class Balance:
    """How one limit stands. `remaining` is never below 0; after `reset_seconds` without use nothing is in use."""

    label: str
    dimension: Dimension
    mode: Mode
    limit: int
    remaining: int
    reset_seconds: float


class Grant(msgspec.Struct, frozen=True):
    """Proof that budget was reserved; `settle` takes it back.

    `would_deny` are the labels of limits in shadow that would have refused. `local`: granted without the store.
    `standing` None: as the limits stand at the beginning of time, which is right where none is a quota.
    `most`: what strict limits were asked for. `stood`: how the limits stood right after, where the store said so.
    """

    id: str
    scope: Scope
    amounts: Amounts
    would_deny: tuple[str, ...] = ()
    local: bool = False
    standing: Standing | None = None
    at_seconds: float = 0.0
    most: Amounts | None = None
    stood: Stood | None = None

    @property
    def stands(self) -> Standing:
        """The windows it was taken from."""
        return self.standing or self.scope.standing(self.at_seconds)

    @property
    def balances(self) -> tuple[Balance, ...]:
        """How the limits stood right after; nothing if this was granted without the store."""
        if self.stood is None:
            return ()
        return tuple([balance(terms, in_use, self.stood.at_seconds) for terms, in_use in self.stood.each])


@dataclass(frozen=True, slots=True)
class Denied:
    """No budget, and when there will be: the call would pass in `retry_after_seconds` if nobody else used any.

    `used` counts against `limit` (a full bucket); `resets_at` (seconds since 1970) is when nothing will be in use.
    `store_down`: nothing is used up, but this limit lets nothing pass while the ledger cannot be reached. `never`: the
    call alone is more than a strict limit holds. `owner` names whose limit it is; `status` is what a quota answers.
    `stood`: how all limits stood, where the store said so.
    """

    tenant: str
    label: str
    dimension: Dimension
    limit: int
    used: int
    requested: int
    retry_after_seconds: float
    resets_at: float
    local: bool = False
    store_down: bool = False
    owner: str = ""
    kind: Kind = "rate"
    status: int = 429
    never: bool = False
    stood: Stood | None = None


@dataclass(frozen=True, slots=True)
class Misdated:
    """Nothing was reserved: by the server's clock another window is open. Ask again for that moment."""

    now_seconds: float


def remaining(terms: Terms, in_use: int) -> int:
    """Whole units left when so many micro-units are in use; never below 0."""
    return max(0, terms.capacity - -(-in_use // terms.scale))


def balance(terms: Terms, in_use: int, now_seconds: float) -> Balance:
    """How a limit stands with so many micro-units in use."""
    limit = terms.limit
    left, seconds = remaining(terms, in_use), terms.reset_seconds(in_use, now_seconds)
    return Balance(limit.label, limit.dimension, limit.mode, limit.capacity, left, seconds)


def denial(asked: Grant, terms: Terms, used: float, retry_after_seconds: float, resets_at: float) -> Denied:
    """A refusal by a limit, of which `used` units are in use."""
    limit = terms.limit
    return Denied(
        asked.scope.tenant,
        limit.label,
        limit.dimension,
        limit.capacity,
        int(-(-used // 1)),
        1 if limit.kind == "slots" else taken(terms, asked.amounts, asked.most) // terms.scale,
        retry_after_seconds,
        resets_at,
        owner=terms.owner.label,
        kind=limit.kind,
        status=limit.status,
    )
