"""How full the limits of a call were when it came: what soft limits go by.

Rule: a call does not count against itself, so one that comes alone is served in full, however large it is. Limits in
shadow do not count: nothing would be refused by them.
"""

from collections.abc import Iterator

from budgets.grant import Denied, Grant
from budgets.lease import taken

Share = tuple[str, float]
"""A limit's label, and how much of it was in use; 1 is all of it, debt is more."""


def shares(grant: Grant) -> Iterator[Share]:
    """Every limit that refuses; nothing where the call was granted without the store."""
    for terms, in_use in grant.stood.each if grant.stood is not None else ():
        own = 1 if terms.limit.kind == "slots" else taken(terms, grant.amounts, grant.most)
        if terms.limit.mode == "enforce":
            yield terms.limit.label, max(0, in_use - own) / (terms.limit.capacity * terms.scale)


def fullness(found: Grant | Denied, above: float = 0.0) -> list[Share]:
    """Of a grant all limits that refuse, of a refusal the one that did; nothing if none is as full as `above`."""
    if isinstance(found, Denied):
        return [(found.label, found.used / found.limit if found.limit else 1.0)]
    stood = found.stood
    return [] if stood is None or (stood.fullest + 1) / 1e6 < above else list(shares(found))
