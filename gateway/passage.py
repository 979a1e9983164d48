"""What one request has become so far. Step 9 and the metrics read it, however the request ended.

Rule: filled in from top to bottom; nothing is taken back.
"""

from typing import Final

import msgspec

from backends.demand import Phase
from budgets.charge import Charge
from budgets.ledger import Grant
from budgets.usage import Usage
from gateway.call import Call
from gateway.context import Known, Planned
from gateway.degrading import Reached
from gateway.delivery import Delivery
from gateway.digests import Chain
from gateway.extension import Extension
from gateway.prefixes import Prefix
from gateway.service import Service
from gateway.sessions import Progress, Session
from gateway.stored import Turn
from policies.memory import EMPTY, Memory


class Opened(msgspec.Struct, frozen=True):
    """What step 3 gave: the session and what it remembers, the chain of digests, the grant for the expected usage.

    `unsaved`: what earlier calls of the session have added that the store has not heard of.
    """

    session: Session
    known: Known
    chain: Chain
    grant: Grant
    expected: Usage
    reached: Reached | None = None
    unsaved: Progress | None = None


class Bill(msgspec.Struct, frozen=True):
    """What a call that has ended used, and what that cost where it ran. Worked out once, for all who write it down."""

    used: Usage
    kv_read_bytes: int
    charge: Charge


CLIENT: Final = "client"


class Passage(msgspec.Struct):
    """One request on its way. Times by the monotonic clock.

    `label` says for whom, in the records of what was used; `session` of which session, where it is not the one opened.
    """

    call: Call
    service: Service
    request_id: str
    started_at: float
    delivery: Delivery = msgspec.field(default_factory=Delivery)
    planned: Planned | None = None
    prefix: Prefix | None = None
    extension: Extension | None = None
    turn: Turn | None = None
    phase: Phase = "decode"
    label: str = CLIENT
    session: str = ""

    @property
    def memory(self) -> Memory:
        """The edits in force after it."""
        return self.planned.memory if self.planned is not None else EMPTY

    @property
    def reached_engine(self) -> bool:
        """Whether an engine worked for this call in a way that is charged: a failed attempt is not."""
        return self.delivery.sent and self.delivery.outcome in ("ok", "broken", "client_gone", "client_slow")

    def bill(self, estimated_prompt_tokens: int) -> Bill | None:
        """`usage` and what it cost; `None` for nothing."""
        used, call = self.usage(estimated_prompt_tokens), self.call
        if used is None:
            return None
        read = self.service.costs.kv_read_bytes(used, call.choices, call.prompts)
        return Bill(used, read, self.service.costs.charge(used, call, self.delivery, read))

    def usage(self, estimated_prompt_tokens: int) -> Usage | None:
        """What is charged: the engine's report and a token for each frame since; else the prompt and what was relayed.

        `None` for nothing.
        """
        told = self.delivery.usage
        if told is not None and self.delivery.untold_tokens:
            return Usage.cut_off(
                told.prompt_tokens, told.cached_tokens, told.completion_tokens + self.delivery.untold_tokens
            )
        if told is not None:
            return Usage.reported(told.prompt_tokens, told.cached_tokens, told.completion_tokens, told.reasoning_tokens)
        if not self.reached_engine:
            return None
        return Usage.estimated(self.prompt_tokens(estimated_prompt_tokens), self.delivery.counted_tokens)

    def prompt_tokens(self, estimated: int) -> int:
        """The prompt as sent: as counted, else as estimated."""
        return self.planned.sent_tokens if self.planned and self.planned.counted else estimated
