"""What is known of a call's way to an engine, filled in as it goes, so that a call that breaks off is known too.

Rule: numbers are the engine's; what nobody reported is absent, not zero.
"""

from dataclasses import dataclass

from backends.frames import Usage
from gateway.call import Outcome


@dataclass(slots=True)
class Delivery:
    """`sent`: a request went out. `frames`: data frames of a stream seen. `first_at`: when content first came."""

    outcome: Outcome = "failed"
    pool: str = ""
    replica: str = ""
    sent: bool = False
    usage: Usage | None = None
    frames: int = 0
    first_at: float = 0.0

    @property
    def tokens_seen(self) -> int:
        """Tokens generated, where only frames were counted: one a frame, less the first, which opens the stream."""
        return max(0, self.frames - 1)
