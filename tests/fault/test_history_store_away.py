"""The store goes while a history is wanted or written: a clear answer, and never half a conversation."""

from typing import Any

import pytest

from gateway import histories
from gateway.embedded import EmbeddedServer
from gateway.store import Store
from tests.fault.store_proxy import store_proxy
from tests.house import KEY, gateway, until
from tests.integration.test_histories import HELLO, NEXT, refusal, says, sent, storing, told
from tests.upstream import CHUNKED, END, Peer, Upstream, answers, chunk, frame, upstream

HISTORY = "kvgate:1:{acme}:h:chat"
CONTENTS = ["My name is Ada.", "Hello.", "What is my name?"]


def contents(up: Upstream) -> list[Any]:
    return [message["content"] for message in sent(up)]


async def test_away_when_a_turn_begins(valkey: EmbeddedServer) -> None:
    async with (
        store_proxy(valkey.url) as proxy,
        upstream(answers(says("Hello."))) as up,
        gateway({"any": {"one": up.url}}, proxy.url, storing) as running,
    ):
        await told(running, [HELLO], "stored; new")
        proxy.away()
        await until(lambda: not running.gateway.store.available)
        for context in ("stored", "stored; new", "stored; at=2"):
            away = await told(running, [NEXT], context)
            assert (refusal(away), away.headers["retry-after"]) == ((503, "store_unavailable"), "1")
        read = await running.http.get("/sessions/chat", headers={"authorization": f"Bearer {KEY}"})
        assert refusal(read) == (503, "store_unavailable")
        assert len(up.requests) == 1, "not even as an empty history"
        proxy.back()
        await until(lambda: running.gateway.store.available)
        assert (await told(running, [NEXT])).status_code == 200
        assert contents(up) == CONTENTS
        await running.nothing_left()


async def test_away_when_a_turn_ends(valkey: EmbeddedServer, store: Store) -> None:
    """The client has its answer, the history has it not: the next turn is told, and must answer before it goes on."""
    async with store_proxy(valkey.url) as proxy:

        async def loses(peer: Peer) -> None:
            await peer.send(CHUNKED, chunk(frame("Ada.")))
            proxy.away()
            await until(lambda: not running.gateway.store.available)
            await peer.send(chunk(frame(finish="stop")), chunk(b"data: [DONE]\n\n"), END)

        async with (
            upstream(answers(says("Hello.")), loses, answers(says("Ada."))) as up,
            gateway({"any": {"one": up.url}}, proxy.url, storing) as running,
        ):
            await told(running, [HELLO], "stored; new")
            whole = await told(running, [NEXT], stream=True)
            assert whole.status_code == 200 and "[DONE]" in whole.text
            assert await running.metric("kvgate_histories_total", what="unwritten") == 1
            proxy.back()
            await until(lambda: running.gateway.store.available)
            assert refusal(await told(running, [NEXT])) == (409, "history_busy"), "until the lease is over"
            await store.command("HSET", HISTORY, "until", 0)
            unsettled = await told(running, [NEXT])
            assert refusal(unsettled) == (409, "history_unsettled")
            assert unsettled.json()["error"]["stored_messages"] == 2
            assert (await told(running, [NEXT], "stored; at=2")).status_code == 200
            assert contents(up) == CONTENTS


async def test_the_answer_to_opening_a_turn_is_lost(valkey: EmbeddedServer, store: Store) -> None:
    """The store has given the history to a turn that nobody knows of: the gateway gives it back."""
    async with (
        store_proxy(valkey.url) as proxy,
        upstream(answers(says("Hello."))) as up,
        gateway({"any": {"one": up.url}}, proxy.url, storing, store_timeout_seconds=0.5) as running,
    ):
        while (await told(running, [HELLO], "stored; new")).status_code != 200:
            pass  # on a busy machine half a second may not do
        proxy.answering.clear()
        assert refusal(await told(running, [NEXT])) == (503, "store_unavailable")
        while await store.command("HEXISTS", HISTORY, "turn"):
            pass
        proxy.answering.set()
        assert len(up.requests) == 1


async def test_a_history_is_deleted_while_a_turn_is_under_way(valkey: EmbeddedServer, store: Store) -> None:
    async def deletes(peer: Peer) -> None:
        answer = await running.http.delete("/sessions/chat", headers={"authorization": f"Bearer {KEY}"})
        assert answer.status_code == 200
        await peer.send(says("Ada."))

    async with (
        upstream(answers(says("Hello.")), deletes) as up,
        gateway({"any": {"one": up.url}}, valkey.url, storing) as running,
    ):
        await told(running, [HELLO], "stored; new")
        assert (await told(running, [NEXT])).status_code == 200
        assert await running.metric("kvgate_histories_total", what="lost") == 1
        assert await store.command("EXISTS", HISTORY) == 0
        assert refusal(await told(running, [NEXT])) == (404, "history_not_found")


async def test_a_turn_keeps_its_history_for_as_long_as_it_takes(
    valkey: EmbeddedServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histories, "LEASE_SECONDS", 3.0)
    leases: set[object] = set()

    async def slow(peer: Peer) -> None:
        while len(leases) < 3:
            leases.add(await store.command("HGET", HISTORY, "until"))
        await peer.send(says("Ada."))

    async with (
        upstream(answers(says("Hello.")), slow) as up,
        gateway({"any": {"one": up.url}}, valkey.url, storing) as running,
    ):
        await told(running, [HELLO], "stored; new")
        assert (await told(running, [NEXT])).headers["x-kvgate-history"] == "4"
        assert await store.command("HGET", HISTORY, "messages") == b"4"
        await running.nothing_left()
