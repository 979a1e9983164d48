"""What calls in flight have reserved and not settled, as this process knows it: summed up when somebody scrapes.

Rule: a call costs an entry in a dict, put in when it is granted and taken out when it is settled. Amounts are those
that limits count: a dimension that no limit of the call bounds is not reserved.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

from budgets.grant import Grant
from budgets.lease import Amounts
from budgets.limit import Dimension, units
from budgets.scope import Terms
from gateway.metric_kinds import Labels

Values = Iterable[tuple[Labels, float]]


class Outstanding:
    """Grants by their id, and what was taken beside by those that asked for more."""

    __slots__ = ("_grants", "_more")

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}
        self._more: dict[str, list[Amounts]] = {}

    def opened(self, grant: Grant) -> None:
        self._grants[grant.id] = grant

    def extended(self, grant: Grant, more: Amounts) -> None:
        """A call took more; of one that is settled there is nothing to add to."""
        if grant.id in self._grants:
            self._more.setdefault(grant.id, []).append(more)

    def closed(self, grant: Grant) -> None:
        """Settled, or left to the backlog, which counts what waits there."""
        self._grants.pop(grant.id, None)
        if self._more:
            self._more.pop(grant.id, None)

    @property
    def ids(self) -> frozenset[str]:
        """Of the calls in flight."""
        return frozenset(self._grants)

    def running(self, id: str) -> Grant | None:
        """The grant of a call, if that is in flight."""
        return self._grants.get(id)

    def reserved(self, label: Callable[[str], str]) -> Values:
        """Units by tenant (as `label` has its name) and dimension: of several limits what the largest hold."""
        sums: defaultdict[Labels, float] = defaultdict(float)
        for grant in list(self._grants.values()):
            tenant = label(grant.scope.tenant)
            taken: dict[Dimension, int] = {}
            for terms in grant.stands.terms:
                taken[terms.dimension] = max(taken.get(terms.dimension, 0), self._taken(grant, terms))
            for dimension, parts in taken.items():
                sums[tenant, dimension] += units(dimension, parts)
        return sums.items()

    def _taken(self, grant: Grant, terms: Terms) -> int:
        """Parts that one limit holds for a call."""
        if terms.limit.kind == "slots":
            return 1
        if terms.limit.hardness == "strict":
            return terms.limit.parts_of(grant.most or grant.amounts)
        return sum(map(terms.limit.parts_of, (grant.amounts, *self._more.get(grant.id, ()))))
