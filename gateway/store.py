"""The store: Redis or Valkey, spoken to by all requests of the process over one connection per server.

Rule: a slow store must not become a slow gateway. Every call has a deadline, a store that misses it is treated as
gone, and a store that is gone costs nothing: calls fail at once until it answers again.

Calls made in one turn of the event loop leave in one write. redis-py is used where it is good and rare: URLs, TLS
options, Sentinel, the hash slots of a cluster (`store_address`, `store_cluster`).
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol, TypeVar

from budgets.script import UNTOLD, Argument, Script, Step
from gateway.store_address import Address
from gateway.store_call import (
    PASSING,
    Call,
    StoreCounters,
    StoreError,
    StoreRejected,
    StoreSettings,
    StoreUnavailable,
    as_it_is,
)
from gateway.store_cluster import Cluster
from gateway.store_link import Link, OnError
from gateway.tasks import Tasks

__all__ = ["Script", "Store", "StoreCounters", "StoreError", "StoreRejected", "StoreSettings", "StoreUnavailable"]

T = TypeVar("T")


class _Route(Protocol):
    @property
    def connected(self) -> bool: ...
    async def open(self) -> None: ...
    def send(self, call: Call, key: str | None, /) -> None: ...
    def redirect(self, link: Link, call: Call, message: str) -> None: ...
    def close(self) -> None: ...


class Store:
    """Runs scripts and commands. Made by `Store.connect`, ended by `close()`; belongs to one event loop."""

    def __init__(self, address: Address, tasks: Tasks, settings: StoreSettings) -> None:
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self.counters = StoreCounters()
        self.warnings: tuple[str, ...] = ()
        route = Cluster if address.kind == "cluster" else _Single
        self._route: _Route = route(address, settings, self.counters, tasks, self._failed)

    @classmethod
    async def connect(cls, url: str, tasks: Tasks, settings: StoreSettings | None = None) -> "Store":
        """Connect to the store at `url` (forms: see `store_address`) and look for settings that endanger data.

        What it finds is in `warnings`. Raises StoreError in one line: the URL is not understood, nobody answers
        there, or the login is refused.
        """
        store = cls(Address.parse(url), tasks, settings or StoreSettings())
        try:
            await store._route.open()
            store.warnings = await store._dangers()
        except BaseException:
            store.close()
            raise
        return store

    @property
    def available(self) -> bool:
        """Whether calls go out at all; false while the breaker is open."""
        return self._route.connected

    def run(
        self,
        script: Script,
        keys: Sequence[str],
        args: Sequence[Argument] = (),
        timeout_seconds: float | None = None,
    ) -> "asyncio.Future[object]":
        """Run a script; its reply, or StoreUnavailable or StoreRejected, arrives in the future.

        All keys of a call share one hash tag; the first decides which server of a cluster gets it.
        """
        return self.ask(Step(script, keys, args, as_it_is), timeout_seconds)

    def ask(self, step: Step[T], timeout_seconds: float | None = None) -> "asyncio.Future[T]":
        """`run` for a step: what its reply means arrives in the future."""
        script, keys = step.script, step.keys
        command = ("EVALSHA", script.sha1, len(keys), *keys, *step.args)
        seconds = self._settings.call_timeout_seconds if timeout_seconds is None else timeout_seconds
        future: asyncio.Future[T] = self._loop.create_future()
        patient = timeout_seconds is not None
        call = Call(command, future, self._loop.time() + seconds, script, step.read, patient)
        self._route.send(call, keys[0] if keys else None)
        return future

    def command(
        self, *parts: Argument, key: str | None = None, timeout_seconds: float | None = None
    ) -> "asyncio.Future[object]":
        """Run a plain command. In a cluster `key` decides where; without one, any server gets it."""
        seconds = self._settings.call_timeout_seconds if timeout_seconds is None else timeout_seconds
        future: asyncio.Future[object] = self._loop.create_future()
        patient = timeout_seconds is not None
        self._route.send(Call(parts, future, self._loop.time() + seconds, patient=patient), key)
        return future

    def close(self) -> None:
        self._route.close()

    def _failed(self, link: Link, call: Call, message: str) -> None:
        code = message.partition(" ")[0]
        if code == "NOSCRIPT" and call.script is not None:
            call.whole_script()
            link.send(call)
        elif code in ("MOVED", "ASK"):
            self._route.redirect(link, call, message)
        elif UNTOLD in message and call.whole_arguments():
            link.send(call)
        elif code == "READONLY":
            link.drop()  # the primary has become a replica
            call.fail(StoreUnavailable("the store is changing its primary"))
        elif code in PASSING:
            self.counters.failures += 1
            call.fail(StoreUnavailable(f"the store cannot answer now: {code}"))
        else:
            self.counters.failures += 1
            # Redis quotes arguments in some messages; what is quoted is ours or a tenant's and stays out.
            call.fail(StoreRejected(message.partition("'")[0].strip()[:200]))

    async def _dangers(self) -> tuple[str, ...]:
        try:
            memory = await self.command("INFO", "memory", timeout_seconds=self._settings.connect_timeout_seconds)
        except StoreRejected:
            return ("the store does not tell its maxmemory-policy; it must be noeviction",)
        lines = memory.decode().splitlines() if isinstance(memory, bytes) else []
        policy = next((line.partition(":")[2] for line in lines if line.startswith("maxmemory_policy:")), "unknown")
        if policy == "noeviction":
            return ()
        return (
            f"the store's maxmemory-policy is {policy}: when memory is short it evicts budgets and sessions, "
            "which silently resets them; set it to noeviction",
        )


class _Single:
    """One server, or the primary that the sentinels name."""

    def __init__(
        self, address: Address, settings: StoreSettings, counters: StoreCounters, tasks: Tasks, on_error: OnError
    ) -> None:
        self._link = Link(address, address.locate(), settings, counters, tasks, on_error)
        self.open = self._link.open
        self.send = self._link.send
        self.close = self._link.close

    @property
    def connected(self) -> bool:
        return self._link.connected

    def redirect(self, link: Link, call: Call, message: str) -> None:
        call.fail(StoreRejected("the store is part of a cluster; use a redis+cluster:// URL"))
