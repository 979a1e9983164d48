"""The headers that tell a client what was done and what is left.

Rule: on every answer of an engine's route the request id and the context report; budgets in OpenAI's own header set,
as far as it has words for them.
"""

from collections.abc import Iterator, Sequence

from budgets.grant import Grant, remaining
from budgets.scope import Terms
from gateway.context import Planned
from gateway.degrading import Reached
from gateway.responder import Header

KINDS = {"requests": b"requests", "total_tokens": b"tokens"}
"""The dimensions that OpenAI's headers have names for."""


def answer_headers(
    request_id: str, planned: Planned, grant: Grant, reached: Reached | None = None
) -> tuple[Header, ...]:
    """All headers of ours."""
    about = "" if planned.counted else "~"
    edits = len(planned.edits) + planned.mended
    context = f"original={about}{planned.original_tokens};sent={about}{planned.sent_tokens};edits={edits}"
    headers = [(b"x-request-id", request_id.encode()), (b"x-kvgate-context", context.encode())]
    if grant.in_use:
        headers += budget(grant.stands.terms, grant.in_use, grant.at_seconds)
    if grant.local:
        headers.append((b"x-kvgate-budget", b"local"))
    if reached is not None:
        headers.append(reached.header)
    return tuple(headers)


def budget(terms: Sequence[Terms], in_use: Sequence[int], now_seconds: float) -> Iterator[Header]:
    """`x-ratelimit-*` of the tightest limit of each kind; `in_use` are the ledger's micro-units."""
    tightest: dict[bytes, tuple[int, Terms, int]] = {}
    for each, used in zip(terms, in_use, strict=True):
        kind = KINDS.get(each.limit.dimension)
        if kind is not None and each.limit.mode == "enforce":
            left = remaining(each, used)
            if kind not in tightest or left < tightest[kind][0]:
                tightest[kind] = left, each, used
    for kind, (left, each, used) in tightest.items():
        yield b"x-ratelimit-limit-" + kind, b"%d" % each.limit.capacity
        yield b"x-ratelimit-remaining-" + kind, b"%d" % left
        yield b"x-ratelimit-reset-" + kind, duration(each.reset_seconds(used, now_seconds)).encode()


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
