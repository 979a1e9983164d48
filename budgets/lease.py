"""What the scripts are told of a call: how much is taken from every limit, and what of it was used.

Rule: amounts travel by dimension, so what a call costs its gateway does not grow with the number of its limits. The
script works out each limit's share and keeps the lease, under the call's id.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from budgets.limit import Dimension, weighed
from budgets.scope import Standing, Terms

Amounts = Mapping[Dimension, int]
"""Parts by dimension (`budgets.limit.PARTS`); a dimension that is left out is 0.

Weighted tokens follow from the others."""
_ENCODER: Final = msgspec.msgpack.Encoder()


def asked(lease_us: int, grace_us: int, standing: Standing, amounts: Amounts, most: Amounts | None) -> bytes:
    """For the script that reserves: the prompt's tokens, what is taken, and what strict limits are asked for.

    In MessagePack, as one list, since tables are dear to scripts; the latter two as `in_order` gives them.
    """
    taken = in_order(standing, amounts)
    prompt = amounts.get("prefill_tokens", 0) + amounts.get("cached_tokens", 0)
    wanted = taken if most is None else in_order(standing, most)
    return _ENCODER.encode([len(taken), lease_us, grace_us, prompt, *taken, *wanted])


def more(lease_us: int, grace_us: int, standing: Standing, amounts: Amounts) -> bytes:
    """For the script that extends: what is taken beside."""
    return _ENCODER.encode([lease_us, grace_us, *in_order(standing, amounts)])


def used(made: int, grace_us: int, standing: Standing, amounts: Amounts) -> bytes:
    """For the script that settles: what was used. `made`: whether it was reserved, as the script wants it."""
    return _ENCODER.encode([made, grace_us, *in_order(standing, amounts)])


def in_order(standing: Standing, amounts: Amounts) -> list[float]:
    """In micro-units: amounts in the order of `standing.dimensions`, and behind them one for each of its `weights`."""
    listed = [amounts.get(dimension, 0) * scale for dimension, scale in standing.dimensions]
    if standing.weights:
        listed += [weighed(weights, amounts) * scale for weights, scale in standing.weights]
    return listed


def taken(terms: Terms, amounts: Amounts, most: Amounts | None) -> int:
    """Micro-units that a limit is asked for."""
    wanted = most if most is not None and terms.limit.hardness == "strict" else amounts
    return terms.limit.parts_of(wanted) * terms.scale
