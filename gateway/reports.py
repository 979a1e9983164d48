"""The headers that tell a client what was done and what is left.

Rule: on every answer of an engine's route the request id and the context report; budgets in OpenAI's own header set,
as far as it has words for them.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from budgets.grant import Grant, remaining
from budgets.limit import Limit
from budgets.scope import Terms
from budgets.stood import Stood
from gateway.context import Planned
from gateway.degrading import Reached
from gateway.responder import Header

KINDS: Final[Mapping[str, tuple[bytes, bytes, bytes]]] = {
    dimension: (b"x-ratelimit-limit-" + kind, b"x-ratelimit-remaining-" + kind, b"x-ratelimit-reset-" + kind)
    for dimension, kind in (("requests", b"requests"), ("total_tokens", b"tokens"))
}
"""The dimensions that OpenAI's headers have names for: those of `budgets.scope.SHOWN`."""
MOST_TOLD: Final = 10**15 - 1
"""The largest integer of a structured field; whoever has more left need not know how much."""
LOCAL: Final[Header] = (b"x-kvgate-budget", b"local")
"""The store was away, and this worker's own share decided."""
APPLIED_EDITS: Final = b"x-kvgate-applied-edits"
"""A client that sends it gets it back with the list of what was done; the body of a reply never changes for it."""


def answer_headers(
    request_id: str, planned: Planned, grant: Grant, reached: Reached | None = None, *, ietf: bool = False
) -> tuple[Header, ...]:
    """All headers of ours. `ietf`: the IETF's pair too."""
    about = "" if planned.counted else "~"
    edits = len(planned.edits) + planned.mended
    context = f"original={about}{planned.original_tokens};sent={about}{planned.sent_tokens};edits={edits}"
    if planned.summary is not None:
        context += f";summarized={planned.summary.messages}"
    headers = [(b"x-request-id", request_id.encode()), (b"x-kvgate-context", context.encode())]
    if grant.stood is not None:
        headers += budget(grant.stood, ietf=ietf)
    if grant.local:
        headers.append(LOCAL)
    if reached is not None:
        headers.append(reached.header)
    return tuple(headers)


def applied_edits(planned: Planned) -> Header:
    """What was done, as JSON: by policy and reason, how many edits and the tokens they removed."""
    sums: dict[tuple[str, str], list[int]] = {}
    for edit, reason in zip(planned.edits, planned.reasons, strict=True):
        found = sums.setdefault((edit.policy, reason), [0, 0])
        found[0] += 1
        found[1] += edit.removed_tokens
    if planned.mended:
        sums["repair", "rule"] = [sums.get(("repair", "rule"), [0, 0])[0] + planned.mended, 0]
    told = [
        {"policy": policy, "reason": reason, "edits": edits, "removed_tokens": tokens}
        for (policy, reason), (edits, tokens) in sums.items()
    ]
    return APPLIED_EDITS, msgspec.json.encode(told)


def asks(value: bytes) -> bool:
    """Whether the value of a header that switches something on does so."""
    return value.strip().lower() not in (b"", b"0", b"false", b"no", b"off")


def budget(stood: Stood, *, ietf: bool = False) -> list[Header]:
    """`x-ratelimit-*` of the tightest limit of each kind."""
    headers = [*pair(stood.each, stood.at_seconds)] if ietf else []
    for terms, in_use in stood.shown:
        limit, left, reset = KINDS[terms.dimension]
        headers += (
            (limit, b"%d" % terms.capacity),
            (left, b"%d" % remaining(terms, in_use)),
            (reset, duration(terms.reset_seconds(in_use, stood.at_seconds)).encode()),
        )
    return headers


def pair(limits: Iterable[tuple[Terms, int]], now_seconds: float) -> Iterator[Header]:
    """`RateLimit-Policy` and `RateLimit` of every limit that refuses (draft-ietf-httpapi-ratelimit-headers-11)."""
    policies, states = [], []
    for each, used in limits:
        limit = each.limit
        if limit.mode != "enforce":
            continue
        window = "" if (seconds := window_seconds(each)) is None else f";w={seconds}"
        policies.append(f'"{limit.label}";q={min(limit.capacity, MOST_TOLD)}{window}{unit(limit)}')
        reset = math.ceil(each.reset_seconds(used, now_seconds))
        states.append(f'"{limit.label}";r={min(remaining(each, used), MOST_TOLD)};t={reset}')
    if policies:
        yield b"ratelimit-policy", ", ".join(policies).encode()
        yield b"ratelimit", ", ".join(states).encode()


def window_seconds(terms: Terms) -> int | None:
    """How long the limit's window is; None for calls at once. Of a rate, in which time its burst flows back."""
    if terms.window is not None:
        return terms.window.ends_at - terms.window.starts_at
    limit = terms.limit
    return None if limit.per_seconds is None else math.ceil(limit.per_seconds * limit.capacity / limit.amount)


def unit(limit: Limit) -> str:
    """The draft's own units where it has one, else one under our name."""
    match limit.dimension:
        case "requests":
            return ""
        case "concurrent_calls":
            return ';qu="concurrent-requests"'
        case other:
            return f';qu="kvgate-{other.replace("_", "-")}"'


def duration(seconds: float) -> str:
    """As OpenAI writes it: `12ms`, `1.5s`, `6m0s`, `1h0m5s`."""
    milliseconds = round(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{rest}s" if hours else f"{minutes}m{rest}s"
