"""`GET /v1/usage`: every limit of the caller's, used and reserved apart, and nobody else's."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from bench import kept
from budgets.ledger import Amounts, Grant, Scope, reserve, settle
from budgets.limit import Limit
from budgets.statement import Account, stating
from gateway.embedded import EmbeddedServer
from gateway.errors import RateLimited
from gateway.statements import MOST_ASKED, Statements
from gateway.store import Store
from tests.fault.store_proxy import store_proxy
from tests.house import KEY, House, house, until
from tests.unit.gateway.samples import caller

LIMITS = (
    Limit(name="tokens", dimension="total_tokens", amount=1000, per_seconds=1e6),
    Limit(name="daily", dimension="requests", amount=10, every="day"),
    Limit(name="bytes", dimension="kv_read_bytes", amount=10**12, every="month", mode="shadow"),
    Limit(name="calls", dimension="concurrent_calls", amount=4),
)


async def accounts(store: Store, now: float) -> list[tuple[int, int, int]]:
    step = stating(Scope("acme", LIMITS), now)
    found = step.read(await store.run(step.script, step.keys, step.args))
    assert isinstance(found, tuple)
    return [figures(each) for each in found]


def figures(account: Account) -> tuple[int, int, int]:
    return account.used, account.reserved, account.remaining


async def test_what_is_used_and_what_is_reserved_are_told_apart(store: Store) -> None:
    now = datetime.now(UTC).timestamp()
    assert await accounts(store, now) == [(0, 0, 1000), (0, 0, 10), (0, 0, 10**12), (0, 0, 4)]
    grants = [await reserve(store.run, Scope("acme", LIMITS), {"requests": 1, "total_tokens": 90}, now) for _ in "ab"]
    assert await accounts(store, now) == [(0, 180, 820), (0, 2, 8), (0, 0, 10**12), (0, 2, 2)]
    assert isinstance(grants[0], Grant)
    await settle(store.run, grants[0], {"requests": 1, "total_tokens": 2000, "kv_read_bytes": 7})
    assert await accounts(store, now) == [(2000, 90, 0), (1, 1, 8), (7, 0, 10**12 - 7), (0, 1, 3)]


async def test_what_a_dead_worker_holds_is_told_as_the_next_reservation_finds_it(store: Store) -> None:
    now = datetime.now(UTC).timestamp()
    prompt: Amounts = {"requests": 1, "total_tokens": 90, "prefill_tokens": 60, "kv_read_bytes": 7}
    for _ in range(600):  # more than one reservation used to close
        await reserve(store.run, Scope("acme", LIMITS[:1]), {"total_tokens": 1}, now)
    assert isinstance(await reserve(store.run, Scope("acme", LIMITS), prompt, now), Grant)
    assert (await accounts(store, now))[0] == (0, 690, 310)
    await kept.pass_time(store, 901)
    assert (await accounts(store, now))[:3] == [(60, 0, 940), (1, 0, 9), (0, 0, 10**12)]
    assert isinstance(await reserve(store.run, Scope("acme", LIMITS[:1]), {"total_tokens": 800}, now), Grant)


async def asked(running: House, key: str = KEY, method: str = "GET") -> Any:
    return await running.http.request(method, "/usage", headers={"authorization": f"Bearer {key}"})


def levels(data: dict[str, Any]) -> None:
    data["organisations"] = {"group": {"budgets": [{"dimension": "requests", "amount": 100, "every": "week"}]}}
    data["tenants"]["acme"]["organisation"] = "group"
    data["tenants"]["acme"]["keys"][0]["budgets"] = [{"dimension": "concurrent_calls", "amount": 2, "model": "demo"}]


async def test_a_caller_sees_its_own_limits_on_every_level(valkey: EmbeddedServer) -> None:
    async with house(valkey.url, change=levels) as running:
        assert (await running.chat()).status_code == 200
        await running.quiet()
        told = (await asked(running)).json()
        assert told["object"] == "list"
        rows = {row["scope"]: row for row in told["data"]}
        assert list(rows) == ["organisation:group", "tenant:acme", "key:main"]
        week = rows["organisation:group"]
        assert (week["used"], week["remaining"], week["kind"]) == (1, 99, "quota")
        assert datetime.fromisoformat(week["resets_at"]).weekday() == 0
        assert rows["tenant:acme"]["used"] > 0 == rows["tenant:acme"]["reserved"]
        assert (rows["key:main"]["model"], rows["key:main"]["limit"]) == ("demo", 2)
        other = (await asked(running, "sk-test-zeta")).json()["data"]
        assert [(row["scope"], row["used"]) for row in other] == [("tenant:zeta", 0)]


async def test_a_caller_who_names_a_session_sees_its_limits_too(valkey: EmbeddedServer) -> None:
    def change(data: dict[str, Any]) -> None:
        turns = {"name": "turns", "dimension": "requests", "amount": 9, "every": "day"}
        data["tiers"]["standard"]["session"] = {"budgets": [turns]}

    async with house(valkey.url, change=change) as running:
        assert (await running.chat(session_id="chat-7")).status_code == 200
        await running.quiet()
        for id, scopes in (("chat-7", {"tenant:acme", "session:chat-7"}), ("no id", {"tenant:acme"})):
            headers = {"authorization": f"Bearer {KEY}", "x-session-id": id}
            rows = {row["scope"]: row for row in (await running.http.get("/usage", headers=headers)).json()["data"]}
            assert rows.keys() == scopes
            assert id == "no id" or (rows["session:chat-7"]["used"], rows["session:chat-7"]["remaining"]) == (1, 8)


async def test_whoever_asks_without_end_asks_the_store_once_a_second(store: Store) -> None:
    now = [100.0]
    statements = Statements(store, lambda: now[0])
    for _ in range(5):
        await statements.of(caller())
    asked_once = store.counters.calls
    now[0] += 0.99
    await statements.of(caller())
    assert store.counters.calls == asked_once
    now[0] += 0.01
    await statements.of(caller())
    assert store.counters.calls == asked_once + 1


async def test_new_sessions_without_end_do_not_keep_the_store_busy_either(store: Store) -> None:
    now = [100.0]
    statements = Statements(store, lambda: now[0])
    session = ("tiers/standard/session", {"budgets": [{"dimension": "requests", "amount": 9, "every": "hour"}]})
    for number in range(MOST_ASKED):
        await statements.of(caller(session), f"chat-{number}")
    calls = store.counters.calls
    with pytest.raises(RateLimited) as refused:
        await statements.of(caller(session), "one-more")
    assert (b"retry-after", b"1") in refused.value.headers
    assert store.counters.calls == calls
    await statements.of(caller(session), "chat-0")
    assert store.counters.calls == calls, "what is known is told"
    now[0] += 1
    await statements.of(caller(session), "one-more")
    assert store.counters.calls == calls + 1


async def test_without_limits_of_sessions_all_have_one_answer(store: Store) -> None:
    statements = Statements(store, lambda: 100.0)
    told = await statements.of(caller())
    calls = store.counters.calls
    for number in range(2 * MOST_ASKED):
        assert await statements.of(caller(), f"chat-{number}") == told
    assert store.counters.calls == calls


async def test_no_limits_no_question(store: Store) -> None:
    before = store.counters.calls
    told = await Statements(store).of(caller(("tiers/standard/budgets", [])))
    assert json.loads(told) == {"object": "list", "data": []}
    assert store.counters.calls == before


@pytest.mark.parametrize(
    ("key", "method", "status"), [("sk-wrong", "GET", 401), (KEY, "POST", 405), (KEY, "HEAD", 200)]
)
async def test_it_is_a_route_like_the_others(valkey: EmbeddedServer, key: str, method: str, status: int) -> None:
    async with house(valkey.url) as running:
        assert (await asked(running, key, method)).status_code == status


async def test_without_the_store_there_is_no_answer_and_no_guess(valkey: EmbeddedServer) -> None:
    async with store_proxy(valkey.url) as proxy, house(proxy.url) as running:
        proxy.away()
        await until(lambda: not running.gateway.store.available)
        answer = await asked(running)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
