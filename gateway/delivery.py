"""What is known of a call's way to an engine, filled in as it goes, so that a call that breaks off is known too.

Rule: numbers are the engine's; what nobody reported is absent, not zero.
"""

import msgspec

from backends.frames import Usage
from budgets.charge import Spent
from gateway.call import Outcome


class Delivery(msgspec.Struct):
    """`sent`: a request went out. `frames`: data frames of a stream seen; `untold`: those of a stream that broke off
    which its usage does not hold. `said_tokens`: what a whole answer without usage says. `first_at`: when content
    first came.

    `sent_at`, when the last attempt began, and `ended_at`, both by the monotonic clock. `absorbed` are attempts that
    failed before their first byte although their engine may have worked.
    """

    outcome: Outcome = "failed"
    pool: str = ""
    replica: str = ""
    sent: bool = False
    usage: Usage | None = None
    frames: int = 0
    untold: int = 0
    said_tokens: int = 0
    first_at: float = 0.0
    sent_at: float = 0.0
    ended_at: float = 0.0
    network_bytes: int = 0
    absorbed: "tuple[Delivery, ...]" = ()

    def absorb(self, now: float) -> None:
        """The attempt that has just failed is nobody's to pay."""
        failed = Delivery(pool=self.pool, replica=self.replica, sent_at=self.sent_at, ended_at=now)
        self.absorbed = (*self.absorbed, failed)

    def spent(self, batch: float) -> Spent:
        """How long the engine held its KV. An answer that came as a whole grew evenly all the time."""
        if self.first_at:
            return Spent(self.first_at - self.sent_at, max(0.0, self.ended_at - self.first_at), batch)
        return Spent(0.0, max(0.0, self.ended_at - self.sent_at), batch)

    @property
    def tokens_seen(self) -> int:
        """Tokens generated, where only frames were counted: one a frame, less the first, which opens the stream."""
        return max(self.said_tokens, self.frames - 1)
