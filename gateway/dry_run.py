"""A call that asks what would become of it: planned as it would be, and answered with the plan.

Rule: nothing is sent to an engine, kept or charged. What was reserved is given back; the session is read, not written;
the metrics count the call and nothing of its plan.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from gateway.context import Context
from gateway.forecast import Forecast
from gateway.metrics import Metrics
from gateway.passage import Opened, Passage
from gateway.plan_view import PlanView, lines, predict, view
from gateway.reports import asks
from gateway.service import Service
from gateway.shown import Makers

HEADER: Final = b"x-kvgate-dry-run"


class DryRun:
    """Plans calls without carrying anything out."""

    def __init__(self, forecast: Forecast) -> None:
        self._forecast = forecast
        self._context = Context(Metrics(), forecast.ratio, _all_kept)

    @staticmethod
    def asked(headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request is one."""
        return HEADER in headers and asks(headers[HEADER])

    async def answer(self, passage: Passage, opened: Opened) -> bytes:
        """The plan as JSON. Raises `ContextTooLong` where the call would be refused."""
        call, service, known = passage.call, passage.service, opened.known
        planned = await self._context.plan(call, service, known)
        passage.planned = planned
        messages = call.dialect.messages(call, known.digests) if call.messages else ()
        decode_tokens = opened.expected.decode_tokens
        predicted = None
        if service.pools:
            sent_before = known.known_messages
            known_tokens = 0 if planned.counted else self._forecast.known_tokens(call, service, sent_before)
            pace = service.paces[0]
            predicted = predict(planned, service.model.geometry, pace, sent_before, decode_tokens, known_tokens)
        shown = view(service.model.name, planned, messages, predicted)
        return _written(shown, opened)


async def _all_kept(
    service: Service, session: str, there: Mapping[str, float], shown: Makers, read_ms: int, /
) -> frozenset[str]:
    """As if every original could be kept; none is, and no handle is shown."""
    return frozenset(shown)


def _written(shown: PlanView, opened: Opened) -> bytes:
    session = opened.session
    plan: dict[str, object] = msgspec.to_builtins(shown)
    plan["session"] = {"status": session.status, "known_messages": session.known_messages}
    plan["diff"] = "\n".join(lines(shown))
    return msgspec.json.encode(plan)
