"""The store's other forms against real servers: TLS, a cluster that moves its slots, sentinels that name a primary."""

import asyncio
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from redis.crc import key_slot

from budgets.ledger import Amounts, Denied, Grant, Scope, reserve, settle
from budgets.limit import Limit
from budgets.record import Entry, Record, stream_of
from budgets.scope import Owner
from config.settings import Settings
from gateway import embedded
from gateway.digests import Chain
from gateway.sessions import Progress, SessionLimits, Sessions
from gateway.store import Script, Store, StoreUnavailable
from gateway.tenant_book import Found, Note, TenantBook
from gateway.tenant_record import StoredTenant
from tests.integration.test_store import ECHO, connected, pid_of

COUNT = Script("count", "return redis.call('INCRBY', KEYS[1], ARGV[1])")


def free_port() -> int:
    """A port whose cluster bus port (10,000 above) is a port too, and free a moment ago."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port < 55_000:
            return port


@contextmanager
def server(folder: Path, port: int, *options: str, config: str | None = None) -> Iterator[None]:
    """A plain server on a TCP port, as an operator would run it."""
    folder.mkdir(exist_ok=True)
    argv = [str(embedded.runnable(Settings().store_program))]
    if config is not None:
        (folder / "server.conf").write_text(config)
        argv.append(str(folder / "server.conf"))
    argv += ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "", *options]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


async def until_up(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return


# TLS


def certificate(folder: Path) -> Path:
    """A self-signed certificate and its key in one file."""
    path = folder / "server.pem"
    key = folder / "key.pem"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext {names}"
    out = ["-keyout", str(key), "-out", str(path)]
    subprocess.run([*command.split(), *out], check=True, capture_output=True)
    path.write_text(path.read_text() + key.read_text())
    return path


@asynccontextmanager
async def tls_in_front_of(socket_path: str, pem: Path) -> AsyncIterator[int]:
    """A TLS listener that hands everything on to a unix socket; gives its port."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(socket_path)
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer), return_exceptions=True)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with listener:
        yield int(listener.sockets[0].getsockname()[1])


async def test_tls_is_spoken_and_the_certificate_is_checked(
    store: Store, valkey: embedded.EmbeddedServer, tmp_path: Path
) -> None:
    pem = certificate(tmp_path)
    async with tls_in_front_of(valkey.url.removeprefix("unix://"), pem) as port:
        async with connected(f"rediss://localhost:{port}/0?ssl_ca_certs={pem}") as secure:
            assert await secure.run(ECHO, ["k"], ["a", 1]) == [b"k", b"a", 1]
        with pytest.raises(StoreUnavailable):
            async with connected(f"rediss://localhost:{port}"):
                pass


# Cluster


class Cluster:
    """Three primaries that share the slots, and an administrator's connection to each."""

    def __init__(self, ports: list[int], admins: list[Store]) -> None:
        self.ports = ports
        self.admins = admins

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    async def owner_and_other(self, key: str) -> tuple[int, int]:
        """Which of the three owns the key's slot, and one that does not."""
        slots = await self.admins[0].command("CLUSTER", "SLOTS")
        assert isinstance(slots, list)
        slot = key_slot(key.encode())
        (port,) = (row[2][1] for row in slots if row[0] <= slot <= row[1])
        owner = self.ports.index(port)
        return owner, (owner + 1) % 3

    async def id_of(self, which: int) -> bytes:
        reply = await self.admins[which].command("CLUSTER", "MYID")
        assert isinstance(reply, bytes)
        return reply


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    ports = [free_port() for _ in range(3)]
    async with AsyncExitStack() as stack:
        for port in ports:
            stack.enter_context(server(tmp_path / str(port), port, "--cluster-enabled", "yes"))
            await until_up(port)
        admins = [await stack.enter_async_context(connected(f"redis://127.0.0.1:{port}")) for port in ports]
        for admin, first, last in zip(admins, (0, 5461, 10923), (5460, 10922, 16383), strict=True):
            await admin.command("CLUSTER", "ADDSLOTSRANGE", first, last)
        for port in ports[1:]:
            await admins[0].command("CLUSTER", "MEET", "127.0.0.1", port)
        for admin in admins:
            await until_agreed(admin)
        yield Cluster(ports, admins)


async def until_agreed(admin: Store) -> None:
    async with asyncio.timeout(60):
        while True:
            state = await admin.command("CLUSTER", "INFO")
            assert isinstance(state, bytes)
            if b"cluster_state:ok" in state and b"cluster_known_nodes:3" in state:
                return
            await asyncio.sleep(0.05)


async def test_a_cluster_gets_every_key_where_it_belongs(cluster: Cluster) -> None:
    async with connected(cluster.url) as store:
        keys = [f"kvgate:1:{{tenant-{n}}}:k" for n in range(60)]
        assert await asyncio.gather(*(store.run(COUNT, [key], [n]) for n, key in enumerate(keys))) == list(range(60))
        assert [await store.command("GET", key, key=key) for key in keys] == [str(n).encode() for n in range(60)]
        assert {(await cluster.owner_and_other(key))[0] for key in keys} == {0, 1, 2}


async def test_the_book_of_tenants_lies_on_one_server_of_a_cluster(cluster: Cluster) -> None:
    async with connected(cluster.url) as store:
        book = TenantBook(store)
        assert await book.put("beta", Found(None), StoredTenant("beta"), Note("ann", "cli", "tenant created", {}), "m")
        told = await book.news("")
        assert told.changed == {"beta": StoredTenant("beta")} and (await book.news(told.last)).changed == {}
        assert [entry.tenant for entry in await book.changes()] == ["beta"]


async def test_a_slot_that_moved_is_followed_and_remembered(cluster: Cluster) -> None:
    key = "kvgate:1:{moving}:k"
    async with connected(cluster.url) as store:
        old, new = await cluster.owner_and_other(key)
        target = await cluster.id_of(new)
        for which in (new, old, 3 - old - new):
            await cluster.admins[which].command("CLUSTER", "SETSLOT", key_slot(key.encode()), "NODE", target)
        assert await asyncio.gather(*(store.run(COUNT, [key], [1]) for _ in range(20))) == list(range(1, 21))
        calls = store.counters.calls
        assert await store.run(COUNT, [key], [1]) == 21
        assert store.counters.calls <= calls + 2, "the second time it knows (a slot map may be on its way)"


async def test_a_slot_on_the_move_is_asked_for_at_its_new_place(cluster: Cluster) -> None:
    key = "kvgate:1:{leaving}:k"
    slot = key_slot(key.encode())
    async with connected(cluster.url) as store:
        old, new = await cluster.owner_and_other(key)
        await cluster.admins[new].command("CLUSTER", "SETSLOT", slot, "IMPORTING", await cluster.id_of(old))
        await cluster.admins[old].command("CLUSTER", "SETSLOT", slot, "MIGRATING", await cluster.id_of(new))
        other = "kvgate:1:{staying}:k"
        replies = await asyncio.gather(*(store.run(COUNT, [name], [1]) for _ in range(10) for name in (key, other)))
        assert replies == [n for n in range(1, 11) for _ in (key, other)]
        count = await cluster.admins[new].command("CLUSTER", "COUNTKEYSINSLOT", slot)
        assert count == 1


async def test_one_dead_server_of_a_cluster_stops_its_own_keys_only(cluster: Cluster) -> None:
    keys = [f"kvgate:1:{{tenant-{n}}}:k" for n in range(20)]
    owners = [(await cluster.owner_and_other(key))[0] for key in keys]
    for admin in cluster.admins:
        await admin.command("CONFIG", "SET", "cluster-require-full-coverage", "no")
    async with connected(cluster.url) as store:
        os.kill(await pid_of(cluster.admins[owners[0]]), signal.SIGKILL)
        async with asyncio.timeout(60):
            while store.available:  # noqa: ASYNC110 - the store tells nobody, it is asked per call
                await asyncio.sleep(0.01)
        results = await asyncio.gather(*(store.run(COUNT, [key], [1]) for key in keys), return_exceptions=True)
        for owner, result in zip(owners, results, strict=True):
            assert isinstance(result, StoreUnavailable) if owner == owners[0] else result == 1


async def test_sessions_and_budgets_of_many_tenants_work_in_a_cluster(cluster: Cluster) -> None:
    limit = Limit(dimension="requests", amount=1, per_seconds=1e6)
    async with connected(cluster.url) as store:
        sessions = Sessions(store)
        for number in range(12):
            tenant = f"tenant-{number}"
            session = await sessions.load(tenant, "chat", Chain([b"a" * 16]))
            one = await reserve(store.run, Scope(tenant, (limit,)), {"requests": 1})
            assert isinstance(one, Grant)
            assert isinstance(await reserve(store.run, Scope(tenant, (limit,)), {"requests": 1}), Denied)
            assert await sessions.save(session, Progress(Chain([b"a" * 16])), SessionLimits(live_sessions=1))
            assert await settle(store.run, one, {"requests": 1})
            other = await sessions.load(tenant, "other", Chain([b"b" * 16]))
            assert await sessions.save(other, Progress(Chain([b"b" * 16])), SessionLimits(live_sessions=1))
            assert (await sessions.load(tenant, "other", Chain([b"b" * 16]))).status == "known"
            assert (await sessions.load(tenant, "chat", Chain([b"a" * 16]))).status == "new"


async def test_every_level_of_a_tree_is_decided_on_one_server(cluster: Cluster) -> None:
    """Organisation, tenant, key and session share a hash tag; trees spread over the cluster."""
    tokens = Limit(name="tokens", dimension="total_tokens", amount=100, every="month")
    lane = Limit(name="lane", dimension="concurrent_calls", amount=1)
    calls = Limit(name="calls", dimension="requests", amount=3, per_seconds=1e6)
    record = Record("acme", "main", "s", "demo", "any", "ok", "engine", 20, 10, 10, 1)
    async with connected(cluster.url) as store:
        owners = set()
        for number in range(6):
            group = f"group-{number}"
            owners.add((await cluster.owner_and_other(f"kvgate:2:{{{group}}}:buckets"))[0])
            scopes = []
            for tenant in ("acme", "zeta"):
                scope = Scope(tenant, (), organisation=group)
                scope = scope.joined_by((tokens,), Owner("organisation", group, f"organisation/{group}/"))
                scope = scope.joined_by((tokens,), scope.owner)
                scope = scope.joined_by((lane,), Owner("key", "laptop", f"key/{tenant}/laptop/"))
                scopes.append(scope.joined_by((calls,), Owner("session", "s", f"session/{tenant}/s/")))
            now = time.time()
            asked: Amounts = {"requests": 1, "total_tokens": 40}
            one = await reserve(store.run, scopes[0], asked, now)
            assert isinstance(one, Grant)
            busy = await reserve(store.run, scopes[0], asked, now)
            assert isinstance(busy, Denied) and busy.owner == "key:laptop"
            assert isinstance(await reserve(store.run, scopes[1], asked, now), Grant)
            assert await settle(store.run, one, asked, Entry(stream_of("acme", group), 10, (record,)))
            spent = await reserve(store.run, scopes[0], asked, now)
            assert isinstance(spent, Denied) and spent.owner == f"organisation:{group}"
            stream = stream_of("acme", group)
            assert await store.command("XLEN", stream, key=stream) == 1
        assert len(owners) > 1


# Sentinel


@asynccontextmanager
async def watched(folder: Path) -> AsyncIterator[tuple[int, Store]]:
    """A primary and its replica under one sentinel: the sentinel's port, and a connection to the replica."""
    first, second, watcher = (free_port() for _ in range(3))
    config = (
        f"sentinel monitor main 127.0.0.1 {first} 1\n"
        "sentinel down-after-milliseconds main 300\n"
        "sentinel failover-timeout main 5000\n"
    )
    async with AsyncExitStack() as stack:
        stack.enter_context(server(folder / "a", first, "--repl-diskless-sync-delay", "0"))
        await until_up(first)
        stack.enter_context(server(folder / "b", second, "--replicaof", f"127.0.0.1 {first}"))
        await until_up(second)
        replica = await stack.enter_async_context(connected(f"redis://127.0.0.1:{second}"))
        await until_in(replica, "replication", b"master_link_status:up")
        stack.enter_context(server(folder / "s", watcher, "--sentinel", config=config))
        await until_up(watcher)
        sentinel = await stack.enter_async_context(connected(f"redis://127.0.0.1:{watcher}"))
        await until_in(sentinel, "sentinel", b"slaves=1")
        yield watcher, replica


async def test_a_new_primary_is_found_through_the_sentinels(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        watcher, replica = await stack.enter_async_context(watched(tmp_path))
        url = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{watcher}/main/0"
        store = await stack.enter_async_context(connected(url))
        assert await store.run(COUNT, ["k"], [1]) == 1
        await until_in(replica, "keyspace", b"db0:keys=1")
        os.kill(await pid_of(store), signal.SIGKILL)
        assert await first_reply(store) == 2


async def first_reply(store: Store) -> object:
    """What the first call that gets through counts."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await store.run(COUNT, ["k"], [1])
            except StoreUnavailable:
                await asyncio.sleep(0.05)


async def until_in(server: Store, section: str, text: bytes) -> None:
    async with asyncio.timeout(60):
        while True:
            reply = await server.command("INFO", section)
            assert isinstance(reply, bytes)
            if text in reply:
                return
            await asyncio.sleep(0.05)
