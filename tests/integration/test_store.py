"""The store against a real server: replies, batching, deadlines, the breaker, reconnecting, logins."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import uvloop

from budgets.script import Known
from gateway import embedded
from gateway.store import Script, Store, StoreError, StoreRejected, StoreSettings, StoreUnavailable
from gateway.tasks import Tasks
from tests.conftest import PATIENT

ECHO = Script("echo", "return {KEYS[1], ARGV[1], tonumber(ARGV[2])}")
IMPATIENT = StoreSettings(
    call_timeout_seconds=0.05,
    connect_timeout_seconds=20.0,
    misses_to_open=2,
    first_backoff_seconds=0.01,
    longest_backoff_seconds=0.05,
)


@asynccontextmanager
async def connected(url: str, settings: StoreSettings = PATIENT) -> AsyncIterator[Store]:
    tasks = Tasks()
    store = await Store.connect(url, tasks, settings)
    try:
        yield store
    finally:
        store.close()
        await tasks.close()


async def pid_of(store: Store) -> int:
    info = await store.command("INFO", "server", timeout_seconds=20.0)
    assert isinstance(info, bytes)
    return int(next(line for line in info.decode().splitlines() if line.startswith("process_id:")).split(":")[1])


async def until_available(store: Store) -> None:
    async with asyncio.timeout(60):
        while not store.available:  # noqa: ASYNC110 - the store tells nobody, it is asked per call
            await asyncio.sleep(0.01)


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """A server that accepts connections and never answers."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_script_gets_keys_and_arguments_and_gives_its_reply(store: Store) -> None:
    assert await store.run(ECHO, ["kvgate:1:{t}:k"], [b"\x00\xff", 7]) == [b"kvgate:1:{t}:k", b"\x00\xff", 7]


async def test_a_server_that_forgot_its_scripts_is_told_again(store: Store) -> None:
    await store.run(ECHO, ["k"], ["a", 1])
    await store.command("SCRIPT", "FLUSH")
    replies = await asyncio.gather(*(store.run(ECHO, ["k"], [str(n), n]) for n in range(20)))
    assert replies == [[b"k", str(n).encode(), n] for n in range(20)]


async def test_calls_of_one_loop_turn_leave_in_one_write(store: Store) -> None:
    await store.run(ECHO, ["k"], ["a", 1])
    before = store.counters.round_trips
    await asyncio.gather(*(store.run(ECHO, ["k"], ["a", n]) for n in range(50)))
    assert store.counters.round_trips == before + 1


async def test_a_failing_script_says_what_and_repeats_no_argument(store: Store) -> None:
    with pytest.raises(StoreRejected) as caught:
        await store.run(Script("bad", "return redis.call('NOSUCH', ARGV[1])"), ["k"], ["private text"])
    assert "private text" not in str(caught.value)
    assert not caught.value.retryable
    with pytest.raises(StoreRejected) as caught:
        await store.command("NOSUCH", "private text")
    assert "private text" not in str(caught.value)
    assert await store.command("PING") == b"PONG"


async def test_a_cancelled_call_does_not_shift_the_replies_of_others(store: Store) -> None:
    first, second, third = (store.run(ECHO, ["k"], [name, 1]) for name in ("a", "b", "c"))
    second.cancel()
    assert await first == [b"k", b"a", 1]
    assert await third == [b"k", b"c", 1]


async def test_a_large_value_comes_back_whole(store: Store) -> None:
    value = os.urandom(3_000_000)
    await store.command("SET", "big", value)
    assert await store.command("GET", "big") == value


async def test_an_evicting_store_is_a_warning(store: Store, valkey: embedded.EmbeddedServer) -> None:
    await store.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        async with connected(valkey.url) as other:
            (warning,) = other.warnings
            assert "allkeys-lru" in warning
            assert "noeviction" in warning
    finally:
        await store.command("CONFIG", "SET", "maxmemory-policy", "noeviction")


async def test_a_password_and_a_database_of_the_url_are_used(store: Store, valkey: embedded.EmbeddedServer) -> None:
    await store.command("CONFIG", "SET", "requirepass", "s3cret")
    try:
        with pytest.raises(StoreRejected, match="NOAUTH"):
            async with connected(valkey.url):
                pass
        with pytest.raises(StoreRejected, match="WRONGPASS") as caught:
            async with connected(valkey.url.replace("unix://", "unix://:wr0ng@")):
                pass
        assert "wr0ng" not in str(caught.value)
        async with connected(valkey.url.replace("unix://", "unix://:s3cret@") + "?db=3") as other:
            await other.command("SET", "in", "3")
        assert await store.command("GET", "in") is None
    finally:
        await store.command("CONFIG", "SET", "requirepass", "")


@pytest.mark.parametrize("url", ["http://x", "redis+cluster://", "redis+sentinel://host", "redis+odd://h", "nonsense"])
async def test_a_url_that_is_not_understood_is_one_line_without_the_url(url: str) -> None:
    with pytest.raises(StoreError, match="not understood") as caught:
        async with connected(url):
            pass
    assert "\n" not in str(caught.value)


async def test_nobody_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"no store at .*nowhere: No such file") as caught:
        async with connected(f"unix://{tmp_path}/nowhere"):
            pass
    assert "\n" not in str(caught.value)


async def test_a_host_whose_name_cannot_be_one_is_one_line() -> None:
    with pytest.raises(StoreUnavailable, match=r"no store at x{70}.example:6379") as caught:
        async with connected(f"redis://{'x' * 70}.example"):
            pass
    assert "\n" not in str(caught.value)


async def test_a_server_that_speaks_something_else_is_not_a_store() -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(StoreUnavailable):
            async with connected(f"redis://127.0.0.1:{port}"):
                pass


async def test_a_silent_store_times_out_then_fails_at_once_then_comes_back(tmp_path: Path) -> None:
    server = embedded.start(tmp_path)
    try:
        async with connected(server.url, IMPATIENT) as store:
            with frozen(await pid_of(store)):
                for _ in range(IMPATIENT.misses_to_open):
                    with pytest.raises(StoreUnavailable) as caught:
                        await store.run(ECHO, ["k"], ["a", 1])
                    assert caught.value.retryable
                assert store.counters.timeouts == IMPATIENT.misses_to_open
                await asyncio.sleep(0)  # the loop tells of a dropped connection one turn later
                assert not store.available
                refused = store.run(ECHO, ["k"], ["a", 1])
                assert refused.done(), "an open breaker answers without waiting"
                assert isinstance(refused.exception(), StoreUnavailable)
            await until_available(store)
            assert await store.run(ECHO, ["k"], ["a", 1], timeout_seconds=20.0) == [b"k", b"a", 1]
    finally:
        server.close()


async def test_a_late_reply_is_not_taken_for_the_next_one(tmp_path: Path) -> None:
    server = embedded.start(tmp_path)
    try:
        async with connected(server.url) as store:
            pid = await pid_of(store)
            with frozen(pid), pytest.raises(StoreUnavailable):
                await store.run(ECHO, ["k"], ["early", 1], timeout_seconds=0.02)
            assert await store.run(ECHO, ["k"], ["late", 2]) == [b"k", b"late", 2]
    finally:
        server.close()


async def test_a_lost_connection_fails_what_waits_and_is_made_again(tmp_path: Path) -> None:
    server = embedded.start(tmp_path)
    async with connected(server.url) as store:
        pid = await pid_of(store)
        os.kill(pid, signal.SIGSTOP)
        waiting = [store.run(ECHO, ["k"], ["a", n]) for n in range(10)]
        await asyncio.sleep(0)
        server.close(patience_seconds=0)
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [StoreUnavailable] * 10
        assert not store.available
        server = embedded.start(tmp_path)
        try:
            await until_available(store)
            assert await store.run(ECHO, ["k"], ["a", 1]) == [b"k", b"a", 1]
            assert store.counters.connects == 2
        finally:
            server.close()


async def test_a_primary_that_became_a_replica_is_left(valkey: embedded.EmbeddedServer, store: Store) -> None:
    await store.command("REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises(StoreUnavailable, match="changing its primary"):
            await store.command("SET", "a", "1")
    finally:
        await until_available(store)
        await store.command("REPLICAOF", "NO", "ONE")
    assert store.counters.connects == 2
    await store.command("SET", "a", "1")


def test_uvloop_runs_it_too(valkey: embedded.EmbeddedServer) -> None:
    async def work() -> object:
        async with connected(valkey.url) as store:
            return await asyncio.gather(*(store.run(ECHO, ["k"], ["a", n]) for n in range(100)))

    assert uvloop.run(work()) == [[b"k", b"a", n] for n in range(100)]


async def test_what_the_store_was_told_before_is_told_again_once(store: Store) -> None:
    forgetful = Script("forgetful", "return ARGV[1] ~= '' and ARGV[1] or error('UNTOLD')")
    before = store.counters.calls
    assert await store.run(forgetful, ["k"], [Known.of(b"all of it"), "more"]) == b"all of it"
    assert store.counters.calls == before + 3, "by its name, whole, and with what it was to know"
    never = Script("never", "return error('UNTOLD')")
    with pytest.raises(StoreRejected):
        await store.run(never, ["k"], [Known.of(b"all of it")])
