"""A store that answers wrongly: whatever it says, every call ends, in time, and the gateway finds its way back."""

import asyncio
import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.store import Script, Store, StoreError, StoreSettings, StoreUnavailable
from tests.integration.test_store import connected, until_available
from tests.scripted_store import PONG, scripted_store, slots

RUN = Script("run", "return 1")
QUICK = StoreSettings(
    call_timeout_seconds=0.1,
    connect_timeout_seconds=20.0,
    misses_to_open=2,
    first_backoff_seconds=0.01,
    longest_backoff_seconds=0.02,
)
GREETING = {b"PING": PONG, b"INFO": b"$0\r\n\r\n"}


class Says:
    """Greets as a store does and says `reply` to the rest, in turn, the last one for ever."""

    def __init__(self, *replies: bytes | None) -> None:
        self.replies = list(replies)
        self.ports: tuple[int, ...] = ()

    def __call__(self, command: list[bytes]) -> bytes | None:
        if command[0] == b"CLUSTER":
            return slots(*self.ports)
        if command[0] in GREETING:
            return GREETING[command[0]]
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@pytest.fixture
def unhandled() -> Iterator[list[dict[str, Any]]]:
    """What the loop was told that nobody handled: nothing, in the end."""
    told: list[dict[str, Any]] = []
    yield told
    assert told == []


async def ended(store: Store, calls: int = 1) -> list[Any]:
    """How calls end; the test's own limit ends one that does not."""
    return await asyncio.gather(*(store.run(RUN, ["k"]) for _ in range(calls)), return_exceptions=True)


@pytest.mark.parametrize("code", ["LOADING", "OOM", "BUSY", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN"])
async def test_an_error_that_passes_may_be_tried_again(code: str) -> None:
    async with (
        scripted_store(Says(b"-%b for a while\r\n" % code.encode(), b":1\r\n")) as one,
        connected(f"redis://127.0.0.1:{one.port}", QUICK) as store,
    ):
        (failed,) = await ended(store)
        assert isinstance(failed, StoreUnavailable) and failed.retryable
        assert await ended(store) == [1], "the connection is kept"
        assert (one.connects, store.counters.failures) == (1, 1)


@pytest.mark.parametrize("error", [b"-NOAUTH first\r\n", b"-NOPERM no\r\n", b"-ERR\r\n", b"-\r\n", b"-\xff\xfe\r\n"])
async def test_an_error_that_stays_is_one(error: bytes) -> None:
    async with scripted_store(Says(error)) as one, connected(f"redis://127.0.0.1:{one.port}", QUICK) as store:
        (failed,) = await ended(store)
        assert isinstance(failed, StoreError) and not failed.retryable


async def test_a_script_that_is_never_known_is_sent_once_more_and_no_oftener() -> None:
    async with (
        scripted_store(Says(b"-NOSCRIPT no\r\n")) as one,
        connected(f"redis://127.0.0.1:{one.port}", QUICK) as store,
    ):
        (failed,) = await ended(store)
        assert isinstance(failed, StoreError)
        assert [command[0] for command in one.commands if command[0].startswith(b"EVAL")] == [b"EVALSHA", b"EVAL"]


@pytest.mark.parametrize("reply", [None, b"$10\r\nabc", b"what is this", b":1\r\n:2\r\n:3\r\n"])
async def test_an_answer_that_is_cut_or_none_ends_the_connection_and_a_new_one_is_made(reply: bytes | None) -> None:
    async with (
        scripted_store(Says(reply)) as one,
        connected(f"redis://127.0.0.1:{one.port}", QUICK) as store,
    ):
        for _ in range(4):
            await ended(store, 3)
        assert isinstance(one.answer, Says)
        one.answer.replies[:] = [b":7\r\n"]
        await until_good(store)
        assert one.connects >= 2


async def until_good(store: Store) -> None:
    """Until calls come through again, whatever was left in the line before."""
    async with asyncio.timeout(60):
        while await ended(store) != [7]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_store_that_is_loading_when_the_gateway_starts_is_one_that_is_away() -> None:
    def answer(command: list[bytes]) -> bytes:
        return b"-LOADING Redis is loading the dataset in memory\r\n"

    async with scripted_store(answer) as one:
        with pytest.raises(StoreUnavailable, match="LOADING"):
            async with connected(f"redis://127.0.0.1:{one.port}", QUICK):
                pass


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_it_says_every_call_ends(seed: int, unhandled: list[dict[str, Any]]) -> None:
    """Replies, errors, hints, garbage, silence and breaks at random, in a cluster of two, then sense again."""
    chance = random.Random(seed)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    nonsense: list[bytes | None] = [
        b":7\r\n", b":7\r\n", b":7\r\n", None, b"", b"$-1\r\n", b"*0\r\n", b"+OK\r\n:1\r\n", b"-NOSCRIPT x\r\n",
        b"-LOADING x\r\n", b"-READONLY x\r\n", b"-MOVED\r\n", b"-MOVED 1\r\n", b"-MOVED 1 x\r\n", b"-MOVED x y:z\r\n",
        b"-ASK 1 127.0.0.1:1\r\n", b"-MOVED 1 127.0.0.1:1\r\n", b"-MOVED 99999 :0\r\n", b"-ASK 1 ?:1\r\n",
        b"-MOVED 5 [::1]:x\r\n", b"-UNTOLD\r\n", b"\xff\xfe\r\n", b"$99999999999999\r\n", b"*1\r\n", b"-\xff\r\n",
    ]  # fmt: skip
    sound = Says(b":7\r\n")

    def answer(command: list[bytes]) -> bytes | None:
        if one.port == 0 or two.port == 0 or calm or chance.random() < 0.5:
            return sound(command)
        return chance.choice(nonsense)

    calm = True
    async with scripted_store(answer) as one, scripted_store(answer) as two:
        sound.ports = (one.port, two.port)
        async with connected(f"redis+cluster://127.0.0.1:{one.port}", QUICK) as store:
            calm = False
            for _ in range(10):
                for how in await asyncio.gather(
                    *(store.run(RUN, [f"{{{n}}}"]) for n in range(8)), return_exceptions=True
                ):
                    assert isinstance(how, StoreError) or not isinstance(how, BaseException), how
                assert store.available in (True, False)
            calm = True
            await until_good(store)


# A cluster


async def test_a_hint_that_is_none_ends_the_call() -> None:
    for hint in (b"MOVED", b"MOVED 1", b"MOVED 1 nowhere", b"MOVED x 127.0.0.1:y", b"ASK 1 :"):
        says = Says(b"-" + hint + b"\r\n")
        async with scripted_store(says) as one:
            says.ports = (one.port,)
            async with connected(f"redis+cluster://127.0.0.1:{one.port}", QUICK) as store:
                (failed,) = await ended(store)
                assert isinstance(failed, StoreUnavailable)
                says.replies[:] = [b":7\r\n"]
                await until_good(store)


@pytest.mark.parametrize("host", ["", "?"])
async def test_a_hint_without_a_host_means_the_server_that_gave_it(host: str) -> None:
    says = Says(b"")
    async with scripted_store(says) as one:
        says.ports = (one.port,)
        says.replies[:] = [f"-MOVED 7629 {host}:{one.port}\r\n".encode(), b":7\r\n"]
        async with connected(f"redis+cluster://127.0.0.1:{one.port}", QUICK) as store:
            assert await ended(store) == [7]
            assert one.connects == 1


async def test_many_hints_at_once_make_one_connection() -> None:
    first, second = Says(b""), Says(b":7\r\n")
    async with scripted_store(first) as one, scripted_store(second) as two:
        first.ports = (one.port,)
        first.replies[:] = [b"-ASK 7629 127.0.0.1:%d\r\n" % two.port]
        async with connected(f"redis+cluster://127.0.0.1:{one.port}", QUICK) as store:
            assert await ended(store, 50) == [7] * 50
            assert (one.connects, two.connects) == (1, 1)


async def test_a_call_that_is_sent_on_to_nobody_ends_in_its_time() -> None:
    says = Says(b"")
    with silent() as port:
        async with scripted_store(says) as one:
            says.ports = (one.port,)
            says.replies[:] = [b"-MOVED 7629 127.0.0.1:%d\r\n" % port, b":7\r\n"]
            async with connected(f"redis+cluster://127.0.0.1:{one.port}", QUICK) as store:
                loop = asyncio.get_running_loop()
                began = loop.time()
                call = store.run(RUN, ["k"])
                while not call.done():
                    assert store.available in (True, False), "it can be asked while a server is not known yet"
                    await asyncio.sleep(0.001)
                assert isinstance(call.exception(), StoreUnavailable)
                assert loop.time() - began < QUICK.connect_timeout_seconds / 2, "not until the connection is given up"
                await until_good(store)
                await until_available(store)


async def test_servers_that_send_a_call_to_and_fro_do_not_keep_it() -> None:
    first, second = Says(b""), Says(b"")
    async with scripted_store(first) as one, scripted_store(second) as two:
        first.ports = second.ports = (one.port, two.port)
        first.replies[:] = [b"-MOVED 7629 127.0.0.1:%d\r\n" % two.port]
        second.replies[:] = [b"-MOVED 7629 127.0.0.1:%d\r\n" % one.port]
        patient = StoreSettings(call_timeout_seconds=20.0, connect_timeout_seconds=20.0)
        async with connected(f"redis+cluster://127.0.0.1:{one.port}", patient) as store:
            (failed,) = await ended(store)
            assert isinstance(failed, StoreUnavailable) and "agree" in str(failed)
            asked = [command for server in (one, two) for command in server.commands if command[0] == b"EVALSHA"]
            assert len(asked) == 1 + 5


async def test_sentinels_that_talk_nonsense_are_asked_again() -> None:
    primary: list[bytes] = []
    words: list[bytes] = []

    def sentinel(command: list[bytes]) -> bytes:
        if command[0] != b"SENTINEL":
            return b"+OK\r\n"
        fields = words or [b"name", b"main", b"ip", b"127.0.0.1", *primary, b"flags", b"master", *NO_OTHERS]
        return b"*1\r\n" + packed(fields)

    def store_itself(command: list[bytes]) -> bytes | None:
        return b"*1\r\n$6\r\nmaster\r\n" if command[0] == b"ROLE" else says(command)

    says = Says(b":7\r\n")
    async with scripted_store(store_itself) as one, scripted_store(sentinel) as watcher:
        primary[:] = [b"port", b"%d" % one.port]
        async with connected(f"redis+sentinel://127.0.0.1:{watcher.port}/main/0", QUICK) as store:
            assert await ended(store) == [7]
            for nonsense in ([b"name", b"main"], [b"flags", b"master"], [b"name", b"main", b"port", b"x"]):
                words[:], asked = nonsense, len(watcher.commands)
                says.replies[:] = [None]
                await ended(store)
                while len(watcher.commands) < asked + 4:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                words.clear()
                says.replies[:] = [b":7\r\n"]
                await until_good(store)


NO_OTHERS = (b"num-other-sentinels", b"0")


def packed(fields: list[bytes]) -> bytes:
    """A map, as RESP3 writes it."""
    return b"%%%d\r\n" % (len(fields) // 2) + b"".join(b"$%d\r\n%b\r\n" % (len(field), field) for field in fields)


class silent:
    """A server that takes connections and never says a word."""

    def __enter__(self) -> int:
        self.socket = socket.create_server(("127.0.0.1", 0))
        return int(self.socket.getsockname()[1])

    def __exit__(self, *_: object) -> None:
        self.socket.close()


async def test_attempts_to_reach_a_store_come_ever_further_apart() -> None:
    gone: list[bool] = []

    def answer(command: list[bytes]) -> bytes | None:
        return None if gone else Says(b":7\r\n")(command)

    settings = StoreSettings(connect_timeout_seconds=20.0, first_backoff_seconds=0.05, longest_backoff_seconds=0.4)
    async with (
        scripted_store(answer) as one,
        connected(f"redis://127.0.0.1:{one.port}", settings) as store,
    ):
        loop = asyncio.get_running_loop()
        gone.append(True)
        await ended(store)
        began = loop.time()
        await asyncio.sleep(1.5)
        attempts, seconds = one.connects - 1, loop.time() - began
        # Half of each pause at least: 0, 0.025, 0.05, 0.1 and from then on 0.2.
        assert 2 <= attempts <= 5 + seconds / 0.2
        gone.clear()
        await until_available(store)


async def test_a_store_that_is_closed_while_it_is_looked_for_leaves_no_connection() -> None:
    silent_now: list[bool] = []

    def answer(command: list[bytes]) -> bytes | None:
        if command[0] != b"PING":
            return None if silent_now else Says(b":7\r\n")(command)
        return b"" if silent_now else PONG

    patient = StoreSettings(call_timeout_seconds=20.0, connect_timeout_seconds=20.0)
    async with (
        scripted_store(answer) as one,
        connected(f"redis://127.0.0.1:{one.port}", patient) as store,
    ):
        silent_now.append(True)
        await ended(store)
        pinged = [b"PING"]
        while one.commands[-1] != pinged:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        store.close()
        for writer in one.writers:
            writer.write(PONG)
        while one.writers:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert not store.available and one.connects == 2


async def test_a_store_too_slow_for_calls_is_given_up_although_those_that_wait_longer_are_answered() -> None:
    """Else every request would wait for its call in vain, for as long as the store stays so slow."""
    held: list[bytes] = []

    def answer(command: list[bytes]) -> bytes | None:
        if command[0] != b"EVALSHA":
            return says(command)
        held.append(b":7\r\n")
        if command[-1] == b"hot":
            return b""
        told = b"".join(held)
        held.clear()
        return told

    says = Says(b":7\r\n")
    async with (
        scripted_store(answer) as one,
        connected(f"redis://127.0.0.1:{one.port}", QUICK) as store,
    ):
        for _ in range(QUICK.misses_to_open):
            assert store.available
            with pytest.raises(StoreUnavailable):
                await store.run(RUN, ["k"], ["hot"])
            await asyncio.wait([store.run(RUN, ["k"], ["patient"], timeout_seconds=20.0)])
        async with asyncio.timeout(60):
            while one.connects == 1:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
