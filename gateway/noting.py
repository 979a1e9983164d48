"""What operators are told of budgets and of the books: metrics for every call, a line in the log now and then.

Rule: a limit in shadow counts like one that refuses, under its own mode.
"""

import logging
from typing import Final

from budgets.ledger import Denied, Grant
from budgets.limit import Limit
from gateway.clock import monotonic
from gateway.degrading import NO_STAGES, Passed
from gateway.denials import unpriced
from gateway.logs import log
from gateway.metrics import Metrics
from gateway.service import Service
from gateway.vault import VaultError

WARN_EVERY_SECONDS: Final = 10.0


class Noting:
    """Counts, and warns."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._warned_at = -WARN_EVERY_SECONDS

    def unpriced(self, service: Service, limit: Limit) -> None:
        """A limit of money that would count nothing holds nobody: what it bounds is refused until there is a price."""
        tenant, model = service.caller.tenant, service.name
        self._metrics.unpriced.add(1, self._metrics.tenant(tenant), model, limit.mode)
        fault = unpriced(model, limit)
        self.warn("a budget of money bounds what has no price", fault)
        if limit.mode == "enforce":
            raise fault

    def denied(self, denied: Denied) -> None:
        """A limit that refused."""
        self._metrics.denied.add(1, self._metrics.tenant(denied.tenant), denied.label, "enforce")

    def granted(self, grant: Grant, passed: Passed) -> None:
        """What was special about a grant, if anything was; and the steps of soft limits that were reached."""
        if grant.local:
            self._metrics.local.add(1, self._metrics.tenant(grant.scope.tenant))
        if grant.would_deny or (grant.stood is not None and grant.stood.near):
            self._close_to(grant)
        for each in passed.all if passed is not NO_STAGES else ():
            tenant = self._metrics.tenant(grant.scope.tenant)
            for action in each.stage.actions:
                self._metrics.degraded.add(1, tenant, each.limit, action, each.stage.soft.mode)

    def unopened(self, error: VaultError) -> None:
        """Edits in force that no key of ours opens."""
        self._metrics.unopened.add(1, "edits")
        self.warn("the edits of a session cannot be opened, they are made anew", error)

    def unwritten(self, error: Exception) -> None:
        """A call whose end the store did not hear of."""
        self._metrics.unwritten.add(1)
        self.warn("calls are not written to the store", error)

    def warn(self, what: str, error: Exception) -> None:
        """Say it, but not for every call of an outage: the metrics count them all."""
        now = monotonic()
        if now - self._warned_at >= WARN_EVERY_SECONDS:
            self._warned_at = now
            log(logging.WARNING, what, error=str(error))

    def _close_to(self, grant: Grant) -> None:
        """Limits in shadow that would have refused, and limits that are nearly full."""
        tenant = self._metrics.tenant(grant.scope.tenant)
        for label in grant.would_deny:
            self._metrics.denied.add(1, tenant, label, "shadow")
        for limit in grant.stood.nearly if grant.stood is not None else ():
            self._metrics.near.add(1, tenant, limit.label, limit.mode)
