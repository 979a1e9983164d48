"""What the store keeps of a call that runs: how much was taken from every limit, and what stays charged if it dies.

Rule: amounts travel by dimension, so what a call costs its gateway does not grow with the number of its limits; the
script works out each limit's share. `text` says the same in Python, for the seldom case that an answer was lost.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from budgets.limit import Dimension
from budgets.scope import Standing, Terms

Amounts = Mapping[Dimension, int]
"""Parts by dimension (`budgets.limit.PARTS`); a dimension that is left out is 0."""

_FORGIVEN: Final[frozenset[Dimension]] = frozenset({"decode_tokens", "kv_read_bytes", "concurrent_calls"})
"""What nobody knows of a call whose worker died. Its request and its prompt were certainly sent; of its time and its
money nobody can tell any more how much it was, so what was expected stays."""


def packed(standing: Standing, amounts: Amounts, most: Amounts | None) -> bytes:
    """For the script, in MessagePack: three lists in the order of `standing.dimensions`.

    What is taken, what of it stays charged, and what strict limits are asked for.
    """
    taken = used(standing, amounts)
    kept = [prompt_share(dimension, amounts) for dimension in standing.dimensions]
    return msgspec.msgpack.encode((taken, kept, taken if most is None else used(standing, most)))


def used(standing: Standing, amounts: Amounts) -> list[int]:
    """The amounts in the order of `standing.dimensions`."""
    return [amounts.get(dimension, 0) for dimension in standing.dimensions]


def text(id: str, standing: Standing, amounts: Amounts, most: Amounts | None) -> str:
    """As the store has it: the id, then `bucket amount kept` of every limit but those of calls, in micro-units."""
    counted = [(terms, taken(terms, amounts, most)) for terms in standing.terms if terms.entry]
    return id + "".join([f"{terms.entry} {amount} {kept}" for terms, (amount, kept) in counted])


def taken(terms: Terms, amounts: Amounts, most: Amounts | None) -> tuple[int, int]:
    """Micro-units reserved, and how many of them stay charged if the lease expires.

    A strict limit keeps all of it: what a call that was given up may still have used must not take it above.
    """
    if terms.limit.hardness == "strict":
        amount = (amounts if most is None else most).get(terms.dimension, 0) * terms.scale
        return amount, amount
    return amounts.get(terms.dimension, 0) * terms.scale, prompt_share(terms.dimension, amounts) * terms.scale


def prompt_share(dimension: Dimension, amounts: Amounts) -> int:
    """What stays charged of a call whose worker died."""
    if dimension == "total_tokens":
        prompt = amounts.get("prefill_tokens", 0) + amounts.get("cached_tokens", 0)
        return min(prompt, amounts.get("total_tokens", 0))
    return 0 if dimension in _FORGIVEN else amounts.get(dimension, 0)
