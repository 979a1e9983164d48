"""What an engine tells its metrics: one vocabulary, whatever names a kind of engine exposes.

Rule: the driver and the routes say what happened; which series that moves is decided in one class per kind of engine.
"""

from collections.abc import Sequence
from typing import Protocol

from loadtest.scheduler import Scheduler, Step, Token


class Meter(Protocol):
    """Counts for one engine. Seconds are real ones."""

    content_type: str

    def watch(self, scheduler: Scheduler) -> None:
        """Read the gauges off this scheduler at every scrape."""

    def planned(self, step: Step) -> None:
        """A step begins."""

    def computed(self, step: Step, tokens: Sequence[Token], now_seconds: float) -> None:
        """A step has ended and generated these tokens."""

    def asked(self, choices: int, max_tokens: int) -> None:
        """A request was accepted."""

    def refused(self) -> None:
        """A request found the queue full."""

    def dropped(self) -> None:
        """A sequence was aborted because its client left."""

    def transferred(self, transfer_bytes: int, seconds: float) -> None:
        """The KV of a prompt came from another engine."""

    def transfer_failed(self) -> None:
        """It did not come."""

    def transfer_expired(self) -> None:
        """A prompt was prefilled for an engine that never asked for it."""

    def scrape(self) -> bytes:
        """The exposition in text form."""
