"""Puts one gateway process together: started in this order, stopped in reverse.

Rule: everything that lives longer than a request is made here once and handed to whoever needs it; no module holds
state of its own. The tenants' port opens last and closes first.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from config.model import Config
from config.settings import Settings
from gateway import readings, sweeping
from gateway.admin import Admin
from gateway.admin_api import AdminApi
from gateway.books import Books
from gateway.client_connection import Limits
from gateway.clock import monotonic
from gateway.configuring import Configuring
from gateway.context import Context
from gateway.desk import Desk
from gateway.forecast import Forecast
from gateway.limit_desk import LimitDesk
from gateway.logs import log, log_defect
from gateway.making import Making
from gateway.measure import Measure
from gateway.metrics import Metrics
from gateway.pipeline import Pipeline
from gateway.pools import ServedPool
from gateway.renewing import Renewing
from gateway.resting import Resting
from gateway.roster import Following, Roster
from gateway.routes import Routes
from gateway.secret import secret_of
from gateway.server import Server
from gateway.snapshot import Snapshot
from gateway.starting import StartError, listening, opened_store
from gateway.store import Store
from gateway.stored import Stored
from gateway.summarizing import Summarizing
from gateway.summary_call import SummaryCall
from gateway.tasks import Tasks
from gateway.tenant_book import TenantBook
from gateway.vault import Vault, vault_of


@dataclass(slots=True)
class Gateway:
    """One running gateway process. `draining`: it answers what it has and is not ready for more."""

    metrics: Metrics
    store: Store
    configuring: Configuring
    snapshot: Snapshot
    background: Tasks
    vault: Vault = field(default_factory=Vault)
    port: int = 0
    admin_port: int = 0
    draining: bool = False
    requests: Tasks = field(default_factory=Tasks)
    summaries: Tasks = field(default_factory=Tasks)
    books: Books | None = None
    server: Server | None = None
    hurried: asyncio.Event = field(default_factory=asyncio.Event)

    def settlements_waiting(self) -> int:
        """Settlements that wait for the store."""
        return 0 if self.books is None else self.books.waiting

    def sessions_waiting(self) -> int:
        """Sessions that have turns which the store has not heard of."""
        return 0 if self.books is None else self.books.sessions_waiting

    def why_not_ready(self) -> str | None:
        """`None` when calls can be served. A store that is away does not count: limits say what happens then."""
        if self.draining:
            return "draining"
        pools = self.snapshot.pools.values()
        if not any(state.eligible for pool in pools for state in pool.pool.states()):
            return "no healthy replica"
        return None

    def pools(self) -> Mapping[str, ServedPool]:
        """Those of the configuration in force."""
        return self.snapshot.pools

    async def put(self, config: Config) -> None:
        """Put a checked configuration into force; open calls end under the one they began with."""
        self.snapshot = await self.configuring.snapshot(config, self.snapshot)
        if self.server is not None:
            self.server.limits = replace(self.server.limits, unread_seconds=config.routing.unread_timeout_seconds)

    def renew(self, tenants: Sequence[str]) -> None:
        """Take up what the store says of these tenants by now."""
        self.snapshot.renew(tenants)

    def stop_now(self) -> None:
        """End what still runs of a gateway that drains, each with its own error."""
        self.hurried.set()
        self.background.start(self.requests.close(), name="stop")

    async def close_pools(self) -> None:
        for pool in self.snapshot.pools.values():
            await pool.close()


@asynccontextmanager
async def running(config: Config, settings: Settings) -> AsyncIterator[Gateway]:
    """A gateway that serves until the block is left, which drains it.

    Raises `StartError`, `EmbeddedError`, `StoreError`, `SecretError` or `KeysError`: one line each.
    """
    vault = vault_of(settings.store_keys, settings.store_plain)
    async with AsyncExitStack() as ends:
        metrics = Metrics()
        background = Tasks(task_failed(metrics))
        ends.push_async_callback(background.close)
        store = await opened_store(settings, background, ends)
        secret, roster = secret_of(settings), Roster(settings.tenants_trust_seconds)
        following = Following(TenantBook(store), roster, secret)
        await following.look()
        configuring = Configuring(secret, metrics, background, settings.workers, roster, settings.worker)
        gateway = Gateway(metrics, store, configuring, await first_snapshot(configuring, config), background, vault)
        ends.push_async_callback(gateway.close_pools)
        forecast = Forecast()
        ends.push_async_callback(forecast.exchange, store)
        server = gateway.server = front(gateway, settings, forecast)
        ends.callback(server.close)
        readings.register(metrics, store, gateway.pools, server, gateway.settlements_waiting, gateway.sessions_waiting)
        readings.register_roster(metrics, roster)
        admin = Admin(metrics, gateway.why_not_ready, admin_api(gateway, settings, secret))
        ends.push_async_callback(admin.close)
        if settings.admin_socket is not None:
            await admin.start_on_socket(settings.admin_socket)
        else:
            gateway.admin_port = await listening(
                admin.start, settings.admin_host, settings.admin_port, "KVGATE_ADMIN_PORT"
            )
        background.start(following.follow(gateway.renew), name="tenants")
        sweeping.start(server, gateway.pools, background)
        background.start(forecast.keep_exchanging(store), name="what is learned")
        listen = partial(server.listen, shared=settings.admin_socket is not None)
        gateway.port = await listening(listen, settings.host, settings.port, "KVGATE_PORT")
        log(logging.INFO, "serving", port=gateway.port, admin_port=gateway.admin_port)
        try:
            yield gateway
        finally:
            gateway.draining = True
            await turned_away(gateway, settings.drain_delay_seconds)
            ended = await server.drain(settings.drain_seconds)
            log(logging.INFO, "stopped", cut=0 if ended else len(gateway.requests))
            await gateway.requests.close()
            await gateway.summaries.close()
            if gateway.books is not None:
                await gateway.books.written()


async def turned_away(gateway: Gateway, seconds: float) -> None:
    """Go on as before while `/readyz` says no, so that what is in front sends nothing here when the port closes."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await gateway.hurried.wait()


async def first_snapshot(configuring: Configuring, config: Config) -> Snapshot:
    """The snapshot to start with. Raises `StartError`: an encoding cannot be read, an engine's key is not set."""
    try:
        return await configuring.snapshot(config)
    except (ValueError, OSError) as error:
        raise StartError(f"the configuration cannot be used here: {error}") from error


def admin_api(gateway: Gateway, settings: Settings, secret: bytes) -> AdminApi:
    """Changes tenants under the configuration in force."""

    def sit(who: str) -> tuple[Desk, LimitDesk]:
        desk = Desk(lambda: gateway.snapshot.config, gateway.store, lambda: secret, who, "api")
        return desk, LimitDesk(desk, gateway.store)

    token = settings.admin_token
    return AdminApi(None if token is None else token.get_secret_value(), sit)


def front(gateway: Gateway, settings: Settings, forecast: Forecast) -> Server:
    """The pipeline behind its routes behind the server."""
    books = Books(gateway.store, gateway.metrics, forecast, gateway.background, gateway.vault)
    gateway.books = books
    readings.register_outstanding(gateway.metrics, books.outstanding)
    gateway.background.start(Renewing(gateway.store, books.outstanding).keep(), name="leases")
    context = Context(gateway.metrics, forecast.ratio, books.originals.hold)
    stored = Stored(gateway.store, gateway.vault, gateway.metrics, gateway.background)
    measure = Measure(gateway.metrics, monotonic)
    calls = SummaryCall(books, measure, monotonic)
    tasks = gateway.summaries
    tasks.on_failure = gateway.background.on_failure
    making = Making(books.summaries, calls, gateway.metrics, tasks, monotonic)
    summarizing = Summarizing(books.summaries, making, gateway.metrics, forecast.ratio, monotonic)
    summarizing.resting = Resting(making.make, lambda: gateway.snapshot, gateway.store, tasks, monotonic)
    learned = (
        ("summaries_characters", summarizing.remembered.records),
        ("reply_lengths", forecast.replies.known),
        ("sessions_edits", books.recollections.saved_ones),
        ("sessions_unsaved_messages", books.recollections),
    )
    readings.register_memory(gateway.metrics, lambda: (*gateway.snapshot.memories(), *learned))
    pipeline = Pipeline(context, books, stored, forecast, measure, monotonic, summarizing)
    routes = Routes(pipeline, lambda: gateway.snapshot, gateway.why_not_ready, gateway.metrics)
    unread_seconds = gateway.snapshot.config.routing.unread_timeout_seconds
    limits = Limits(body_bytes=settings.body_limit_bytes, unread_seconds=unread_seconds)
    return Server(routes.handle, routes.refuse, gateway.requests, monotonic, limits)


def task_failed(metrics: Metrics) -> Callable[[str, BaseException], None]:
    """What hears of background work that failed."""

    def failed(name: str, error: BaseException) -> None:
        metrics.faults.add(1, name.partition(" ")[0])
        log_defect("task failed", error, task=name)

    return failed
