"""How many of a pool's calls may be tried again: a share of what was sent, so that retries never become a storm.

Rule: every call sent earns a part of a retry, every retry costs a whole one. When most calls fail the earnings are soon
spent, and failures then reach clients at once instead of doubling the load of engines in trouble.
"""

import msgspec


class RetryBudget(msgspec.Struct, frozen=True):
    """`balance` retries are left. `share` is earned by a call, at most `most` are saved up; it begins full."""

    share: float = 0.2
    most: float = 20.0
    balance: float = 20.0

    def earned(self) -> "RetryBudget":
        """After a first attempt."""
        if self.balance >= self.most:
            return self
        return RetryBudget(self.share, self.most, min(self.most, self.balance + self.share))

    def spent(self) -> "RetryBudget | None":
        """After a retry; `None`: there is none left."""
        return RetryBudget(self.share, self.most, self.balance - 1.0) if self.balance >= 1.0 else None
