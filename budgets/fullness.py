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
    for terms, in_use in zip(grant.stands.terms, grant.in_use, strict=False):
        own = taken(terms, grant.amounts, grant.most)[0] if terms.entry else 1
        if terms.limit.mode == "enforce":
            yield terms.limit.label, max(0, in_use - own) / (terms.limit.capacity * terms.scale)


def fullness(found: Grant | Denied) -> list[Share]:
    """Of a grant all limits that refuse, of a refusal the one that did."""
    if isinstance(found, Grant):
        return list(shares(found))
    return [(found.label, found.used / found.limit if found.limit else 1.0)]
