"""More budget for a call that needs more than was expected: a prompt that turns out longer, a stream that goes on.

Rule: nothing per chunk but one comparison. What was reserved is used up when so many frames have passed; more is then
asked for while the stream goes on. Where there is no more, the limit says whether it goes on into debt or ends. A
prompt that was counted to be longer takes the difference without waiting: what is not there becomes debt.
"""

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from budgets import ledger
from budgets.grant import Grant
from budgets.limit import Limit
from budgets.script import Step
from budgets.usage import Usage
from gateway.call import Call
from gateway.outstanding import Outstanding
from gateway.service import Service
from gateway.store import Store

LEAST_STEP_TOKENS: Final = 64


class Meter(Protocol):
    """Told when so many frames have passed."""

    due_frames: int

    def due(self) -> None: ...


class Unmetered:
    """A stream that needs no more, whatever comes."""

    due_frames = sys.maxsize

    def due(self) -> None:
        """Never."""


class Extension:
    """The budget of one call, settled with all that was taken, heard of or not.

    `stop` ends the stream; `stopped_by` is the limit that made it.
    """

    def __init__(
        self, store: Store, grant: Grant, service: Service, expected: Usage, call: Call, outstanding: Outstanding
    ) -> None:
        self._grant = grant
        self.stop: Callable[[], object] | None = None
        self.stopped_by: Limit | None = None
        self.prompt_tokens = expected.prompt_tokens
        self._store = store
        self._outstanding = outstanding
        self._service = service
        self._call = call
        self._tokens = self._asked_tokens = expected.decode_tokens
        self._step_tokens = max(LEAST_STEP_TOKENS, expected.decode_tokens)
        self._asking: asyncio.Future[object] | None = None
        self.due_frames = self._tokens + 1  # the first frame opens a stream and brings nothing

    def due(self) -> None:
        """Ask for the next step, and with it for what was refused; the stream does not wait for it."""
        self._asked_tokens += self._step_tokens
        self._ask(self._asked_tokens, self._more(self.prompt_tokens, self._asked_tokens))

    def prompt_grew(self, prompt_tokens: int) -> None:
        """Take what a prompt has more than was expected; nobody waits for it."""
        more = self._more(prompt_tokens, self._tokens)
        self.prompt_tokens = prompt_tokens
        self._ask(self._tokens, more)

    async def ended(self) -> None:
        """Wait for the answer that is under way, if one is."""
        if self._asking is not None:
            await asyncio.wait([self._asking])

    def _more(self, prompt_tokens: int, tokens: int) -> ledger.Amounts:
        """What a call of this size needs beyond what is reserved, in every dimension."""
        before, after = (
            self._service.costs.amounts(Usage.estimated(*size), self._call.sequences, self._call.prompts)
            for size in ((self.prompt_tokens, self._tokens), (prompt_tokens, tokens))
        )
        return {dimension: units - before[dimension] for dimension, units in after.items()}

    def _ask(self, tokens: int, more: ledger.Amounts) -> None:
        step = ledger.extending(self._grant, more)
        self.due_frames = sys.maxsize
        self._asking = self._store.run(step.script, step.keys, step.args)
        self._asking.add_done_callback(partial(self._answered, step, tokens, more))

    def _answered(
        self, step: Step[Grant | Limit | None], tokens: int, more: ledger.Amounts, asked: "asyncio.Future[object]"
    ) -> None:
        if asked.cancelled():
            return
        if asked.exception() is not None:
            self._tokens = tokens  # taken or not: settling will find out
            self.due_frames = tokens + 1
            return
        found = step.read(asked.result())
        if isinstance(found, Grant):
            self._outstanding.extended(found, more)
            self._tokens = tokens
            self.due_frames = tokens + 1
        elif isinstance(found, Limit):
            if found.on_exceed == "stop" and tokens > self._tokens and self.stop is not None:
                self.stopped_by = found
                self.stop()
            else:  # into debt here; another limit may still end it, and a stream may find some when it needs it
                self.due_frames = tokens + 1
