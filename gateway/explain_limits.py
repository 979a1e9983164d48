"""`kvgate explain`: what a request would be asked for by every limit that bounds it, and when it would pass.

Rule: the same key, the same estimate and the same limits as in the pipeline; nothing is reserved, nothing is sent, and
no word of the key or of the prompt is told.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from budgets.foresight import NEVER, wait_seconds
from budgets.lease import Amounts
from budgets.limit import Limit, units
from budgets.statement import Account
from budgets.usage import Usage
from config.model import Config
from config.pools import Pool
from gateway import digests
from gateway.asker import Asker, identified
from gateway.call import Call
from gateway.clock import monotonic, wall
from gateway.counting import Counter
from gateway.degrading import Reached, reached
from gateway.denials import unpriced
from gateway.dispatch import Dispatch
from gateway.explain import dialect_of
from gateway.forecast import Forecast
from gateway.keys import PREFIX, mark_of
from gateway.lineage import recognised, session_id
from gateway.metrics import Metrics
from gateway.moments import told
from gateway.pools import ServedPool
from gateway.retrieval import announced
from gateway.roster import Roster
from gateway.service import Service
from gateway.snapshot import Snapshot
from gateway.statements import stated
from gateway.store import Store
from gateway.tenant_book import NOTHING_KNOWN, TenantBook
from gateway.tenant_changes import ChangeRefused
from gateway.tenants import Caller, Tenants
from gateway.tokens import counter

COLUMNS: Final = ("limit", "of", "dimension", "asks", "used", "reserved", "holds", "remaining", "passes")


@dataclass(frozen=True, slots=True)
class Explanation:
    """Lines before a table, its rows, and what they come to."""

    head: tuple[str, ...]
    rows: tuple[Mapping[str, object], ...]
    verdict: str


@dataclass(frozen=True, slots=True)
class Judged:
    """One limit, what the call asks of it, and how long it would wait."""

    account: Account
    asked: int
    wait_seconds: float

    @property
    def limit(self) -> Limit:
        return self.account.terms.limit

    @property
    def share(self) -> float:
        """How much of the limit is in use; 1 is all of it."""
        return (self.account.used + self.account.reserved) / self.limit.capacity


async def explanation(config: Config, store: Store, secret: bytes, asker: Asker, body: bytes) -> Explanation:
    """Raises a `Fault` where the request would be refused whatever the limits, `ChangeRefused`, or `StoreError`."""
    roster = Roster()
    roster.take(news := await TenantBook(store).news(NOTHING_KNOWN))
    if asker.key is not None and asker.key.startswith(PREFIX) and news.mark not in ("", mark_of(secret)):
        raise ChangeRefused("the keys in the store were made with another secret; set KVGATE_SECRET to it")
    tenants = Tenants(config, secret, roster)
    caller = identified(config, roster, tenants, secret, asker)
    call = dialect_of(body).parse(body)
    service = snapshot(config, tenants).service(caller, call.model)
    if service.announces:
        call = announced(call)
    if service.unpriced is not None and service.unpriced.mode == "enforce":
        raise unpriced(service.model.name, service.unpriced)
    forecast, session, now = await learned(call, service, store), session_of(call, service, asker.session), wall()
    accounts = await stated(store, service.scope_of(session))
    expected, judged = judge(forecast, call, service, accounts, now)
    holds = step_of(service, judged)
    if holds is not None and refusing(judged) is not None:
        expected, judged = judge(forecast, call, holds.stage.service, accounts, now)
    lines, rows = head(caller, service, session, expected, holds), [row(each) for each in judged]
    return Explanation(tuple(lines), tuple(rows), verdict(judged, now))


def snapshot(config: Config, tenants: Tenants) -> Snapshot:
    """What runs by the configuration, without connections and without the engines' keys."""
    pools = {name: ServedPool(pool, config.routing, monotonic, _no_keys(pool)) for name, pool in config.pools.items()}
    counters = {encoding: Counter(counter(encoding)) for encoding in {m.encoding for m in config.models.values()}}
    return Snapshot(config, tenants, pools, counters, Dispatch(config.routing, Metrics(), monotonic), 0)


def _no_keys(pool: Pool) -> dict[str, str]:
    return {} if pool.engine_key is None else {pool.engine_key.variable: "unused"}


async def learned(call: Call, service: Service, store: Store) -> Forecast:
    """What all gateways have learned of prompts and of the lengths of replies."""
    forecast = Forecast()
    forecast.usage(call, service)  # says of what the store is to be asked
    await forecast.exchange(store)
    return forecast


def session_of(call: Call, service: Service, id: str | None) -> str:
    """The session the request belongs to; "" if to none."""
    names = recognised(call.messages, digests.of_messages(call.messages), service.strip)
    headers = {b"x-session-id": id.encode()} if id is not None else {}
    return session_id(call, headers, service.key, names, service.caller.may.session.identity) if names else ""


def judge(
    forecast: Forecast, call: Call, service: Service, accounts: Sequence[Account], now: float
) -> tuple[Usage, list[Judged]]:
    """What is expected of the call, and what it asks of each limit."""
    expected, taken, ceiling = forecast.asked(call, service)
    return expected, [_judged(account, taken, ceiling, now) for account in accounts]


def _judged(account: Account, taken: Amounts, ceiling: Amounts | None, now: float) -> Judged:
    limit = account.terms.limit
    amounts = ceiling if ceiling is not None and limit.hardness == "strict" else taken
    parts = 1 if limit.kind == "slots" else limit.parts_of(amounts)
    return Judged(account, parts, wait_seconds(account, parts, now))


def refusing(judged: Sequence[Judged]) -> Judged | None:
    """The limit that would refuse: of several the one that takes longest to let the call pass."""
    waiting = [each for each in judged if each.limit.mode == "enforce" and each.wait_seconds > 0]
    return max(waiting, key=lambda each: each.wait_seconds, default=None)


def step_of(service: Service, judged: Sequence[Judged]) -> Reached | None:
    """The soft limit that would hold, if one does."""
    refused = refusing(judged)
    enforced = [each for each in judged if each.limit.mode == "enforce"] if refused is None else [refused]
    return reached(service.stages, [(each.limit.label, each.share) for each in enforced]).holds


def head(caller: Caller, service: Service, session: str, expected: Usage, holds: Reached | None) -> Iterator[str]:
    """Who asks for what, and what it will probably take."""
    key = f", key {caller.key}" if caller.key else ""
    of = f"tenant {caller.tenant}{key}, tier {caller.may.tier}"
    yield f"{of}, model {service.model.name}, session {session or 'none'}"
    yield f"expected: {expected.prompt_tokens} prompt tokens, {expected.decode_tokens} generated"
    if holds is not None:
        changes = ", ".join(f"{name} {value}" for name, value in holds.stage.soft.changes.items())
        yield f"soft limit: {holds.limit} is in use to {holds.stage.soft.label} or more; the tier gives less: {changes}"


def row(judged: Judged) -> Mapping[str, object]:
    """One limit as a line of the table."""
    account, limit = judged.account, judged.limit
    amounts = {
        "asks": judged.asked,
        "used": account.used,
        "reserved": account.reserved,
        "holds": limit.capacity,
        "remaining": account.remaining,
    }
    named = {"limit": limit.label, "of": account.terms.owner.label, "dimension": counts(limit)}
    passes = waiting(judged) + (" (shadow)" if limit.mode == "shadow" else "")
    return named | {name: units(limit.dimension, parts) for name, parts in amounts.items()} | {"passes": passes}


def counts(limit: Limit) -> str:
    """What a limit counts; of weighted tokens also for how much."""
    if limit.weighing is None:
        return limit.dimension
    return f"{limit.dimension} ({', '.join(f'{kind} {weight:g}' for kind, weight in limit.weighing.told.items())})"


def waiting(judged: Judged) -> str:
    """When the call would pass one limit."""
    if judged.wait_seconds <= 0:
        return "now"
    if judged.wait_seconds == NEVER:
        return "never"
    return "when a call ends" if judged.limit.kind == "slots" else f"in {judged.wait_seconds:.3f} s"


def verdict(judged: Sequence[Judged], now: float) -> str:
    """What all limits come to. The longest wait is the one that counts."""
    if not judged:
        return "no limit bounds it"
    worst = refusing(judged)
    if worst is None:
        return "it would pass now"
    by = f"it would be refused by {worst.limit.label} of {worst.account.terms.owner.label}"
    if worst.wait_seconds == NEVER:
        return f"{by}, always: it may use {units(worst.limit.dimension, worst.asked)} and the limit is strict"
    if worst.limit.kind == "slots":
        return f"{by}, until a call ends"
    return f"{by}, and pass in {worst.wait_seconds:.3f} s ({told(now + worst.wait_seconds)}) if nobody else uses any"
