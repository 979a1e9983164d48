"""Demands for the tests of this folder."""

from backends.demand import Demand


def demand(prefill_seconds: float = 1.0, decode_seconds: float = 2.0, home: str | None = None) -> Demand:
    return Demand(
        prefill_seconds=prefill_seconds,
        decode_seconds=decode_seconds,
        prefill_tokens=100,
        decode_tokens=50,
        session=None,
        home=home,
        model="m",
        patience_seconds=10.0,
    )
