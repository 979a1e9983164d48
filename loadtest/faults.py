"""Faults that an engine shows on demand: for one request, or for a share of all requests.

A fault is written `KIND` or `KIND=ITEM,ITEM`; an item is a share of requests between 0 and 1, or `NAME:NUMBER`:

    refuse             close the connection before any header    status=code:500  answer with this status
    slow=seconds:5     wait before the first token               stall=after:5    stop sending (seconds: so long)
    cut=after:5        close the connection                      error=after:5    an error frame, then [DONE]
    malformed=after:5  a frame that is no JSON, then go on       die=after:5      the whole process goes away

`after` counts tokens already sent. Per request: header `x-kvgate-fault` or body field `kvgate_fault`, several separated
by spaces. For all: `--fault cut=0.01,after:3`, or POST /emulator/faults {"faults": ["cut=0.01,after:3"]} at run time.

Rule: which requests a share hits follows from the seed and the number of the request, so a run can be repeated.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from loadtest.text import seed_of

FaultKind = Literal["refuse", "status", "slow", "stall", "cut", "error", "malformed", "die"]
KINDS: tuple[FaultKind, ...] = get_args(FaultKind)

AT_THE_DOOR: frozenset[FaultKind] = frozenset({"refuse", "status", "slow"})
"""Faults that show before the first token; the others wait for their `after`."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; `share` of the requests have it (1: all)."""

    kind: FaultKind
    share: float = 1.0
    after_tokens: int = 0
    seconds: float | None = None
    status: int = 500


def parse(text: str) -> Fault:
    """Raises `ValueError` that says what is wrong."""
    kind, _, items = text.partition("=")
    known = next((known for known in KINDS if known == kind), None)
    if known is None:
        raise ValueError(f"no fault named {kind!r}; there are {', '.join(KINDS)}")
    fields = dict(_field(text, item) for item in items.split(",") if item)
    return Fault(
        known,
        share=fields.get("share", 1.0),
        after_tokens=int(fields.get("after", 0)),
        seconds=fields.get("seconds"),
        status=int(fields.get("code", 500)),
    )


def parse_all(text: str) -> tuple[Fault, ...]:
    """Faults separated by spaces."""
    return tuple(parse(word) for word in text.split())


def _field(text: str, item: str) -> tuple[str, float]:
    name, separator, number = item.partition(":")
    if not separator:
        name, number = "share", item
    try:
        value = float(number)
    except ValueError:
        raise ValueError(f"{item!r} in fault {text!r} is neither a share nor name:number") from None
    if name not in ("share", "after", "seconds", "code") or not 0 <= value < 1e6 or (name == "share" and value > 1):
        raise ValueError(f"{item!r} in fault {text!r}: expected a share 0..1, after:, seconds: or code:")
    return name, value


def chosen(faults: Iterable[Fault], seed: int, request_number: int) -> tuple[Fault, ...]:
    """Those of the faults that hit this request."""
    return tuple(
        fault for fault in faults if seed_of(seed, request_number, fault.kind) % 1_000_003 < fault.share * 1_000_003
    )
