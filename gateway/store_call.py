"""One command on its way to the store, the errors it may end in, and the settings all parts of the store share.

Rule: every call ends, by its reply, by an error of this module, or at its deadline; nothing else escapes the store.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from budgets.script import Argument, Known, Script

PASSING: Final = frozenset(
    {"LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "OOM", "MISCONF", "NOREPLICAS", "UNBLOCKED"}
)
"""Error codes after which the same call may succeed: the server is starting, failing over, full or busy."""


class StoreError(Exception):
    """The store did not do what was asked. `retryable`: the same call may succeed later."""

    retryable = False


class StoreUnavailable(StoreError):
    """The store is away, too slow, or changing its primary. The call may or may not have been carried out."""

    retryable = True


class StoreRejected(StoreError):
    """The store answered with an error: a wrong password, a right that is missing, a defect of a script."""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """How patient the store is. Times in seconds.

    `call_timeout_seconds` bounds every call of the hot path; when in `misses_to_open` such spans running a call
    timed out and no reply came in time, the connection is dropped, and calls fail at once until a new one has
    answered in time.
    """

    call_timeout_seconds: float = 0.05
    connect_timeout_seconds: float = 1.0
    misses_to_open: int = 3
    first_backoff_seconds: float = 0.05
    longest_backoff_seconds: float = 2.0


class StoreCounters:
    """What /metrics shows. Plain integers, changed on the loop's thread only."""

    __slots__ = ("calls", "connects", "failures", "round_trips", "timeouts")

    def __init__(self) -> None:
        self.calls = 0
        self.round_trips = 0  # batches written: the calls of one loop turn share one
        self.timeouts = 0
        self.failures = 0
        self.connects = 0


def as_it_is(reply: object) -> object:
    """What a reply means to whoever reads it himself."""
    return reply


class Call(msgspec.Struct, eq=False):
    """A command and the future of its reply. It may be sent more than once: after NOSCRIPT, MOVED or ASK.

    `read`: what the reply means, for the future. `patient`: it has a time of its own, so that its reply says nothing of
    whether the store is quick enough for the others.
    """

    command: tuple[Argument, ...]
    future: "asyncio.Future[Any]"
    deadline: float
    script: Script | None = None
    read: Callable[[Any], object] = as_it_is
    patient: bool = False
    hops: int = 0
    asking: bool = False

    def fail(self, error: StoreError) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def whole_script(self) -> None:
        """Send the source next time: the server does not know the script yet."""
        assert self.script is not None
        self.command = ("EVAL", self.script.source, *self.command[2:])
        self.script = None

    def whole_arguments(self) -> bool:
        """Send next time what the server was told before, and has forgotten; false if there is nothing of the kind."""
        command = tuple([part.whole if isinstance(part, Known) else part for part in self.command])
        forgotten, self.command = command != self.command, command
        return forgotten
