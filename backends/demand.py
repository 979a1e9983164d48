"""What a call asks of a replica, in the units that choose a pool and a replica: seconds of prefill and of decode.

The rule: phase is a matter of time, never of token counts; the seconds come from the cost model of the pool's
hardware.
"""

from typing import Literal

import msgspec

Phase = Literal["prefill", "decode"]


class Demand(msgspec.Struct, frozen=True):
    """One call's predicted work.

    `home` is the replica that probably holds the session's KV cache. `patience_seconds` is how long the client may
    be kept waiting before it is told no. `cold_seconds`: the prefill where nothing is cached.
    """

    prefill_seconds: float
    decode_seconds: float
    prefill_tokens: int
    decode_tokens: int
    session: str | None
    home: str | None
    model: str
    patience_seconds: float
    cold_seconds: float = 0.0


def phase(demand: Demand, prefill_heavy_above: float) -> Phase:
    """`prefill` if prefill takes more than `prefill_heavy_above` times as long as decode, else `decode`."""
    return "prefill" if demand.prefill_seconds > prefill_heavy_above * demand.decode_seconds else "decode"
