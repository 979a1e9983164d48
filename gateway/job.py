"""One call ready to be sent.

Rule: nothing in it changes from one attempt to the next; what an attempt learns goes into the `Delivery`.
"""

from collections.abc import Sequence

import msgspec

from backends.demand import Demand, Phase
from gateway.call import Call
from gateway.extension import Extension
from gateway.pacing import Pace
from gateway.pools import ServedPool
from gateway.responder import Header
from gateway.service import Service


class Job(msgspec.Struct, frozen=True):
    """The rendered body, where it may go in order of preference, and what the head of its answer must carry.

    `reply_tokens`: what a policy clamped the reply to, if one did.
    """

    call: Call
    service: Service
    body: bytes
    candidates: Sequence[tuple[ServedPool, Demand]]
    phase: Phase
    headers: tuple[Header, ...]
    request_id: str
    trace: bytes
    extension: Extension | None = None
    reply_tokens: int | None = None
    pace: Pace | None = None
