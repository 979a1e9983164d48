"""The admin API: nothing without the token, and with it all that the commands do."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.admin_api import WHO
from gateway.embedded import EmbeddedServer
from gateway.keys import PREFIX
from gateway.logs import LOGGER
from tests import program
from tests.house import KEY, House, house
from tests.integration.test_gateway_secrecy import Lines

TOKEN = "the-token-of-operators"
RAW = TOKEN.encode()
HUGE = {"dimension": "requests", "amount": "10000g", "every": "day"}
BEARER = {"authorization": f"Bearer {TOKEN}"}
PATIENCE_SECONDS = 60.0

ROUTES = [
    ("GET", "/tenants"),
    ("POST", "/tenants"),
    ("GET", "/tenants/acme"),
    ("PATCH", "/tenants/acme"),
    ("DELETE", "/tenants/acme"),
    ("POST", "/tenants/acme/disable"),
    ("POST", "/tenants/acme/enable"),
    ("POST", "/tenants/acme/keys"),
    ("POST", "/tenants/acme/keys/main/rotate"),
    ("POST", "/tenants/acme/keys/main/expire"),
    ("POST", "/tenants/acme/keys/main/disable"),
    ("POST", "/tenants/acme/keys/main/enable"),
    ("DELETE", "/tenants/acme/keys/main"),
    ("GET", "/tenants/acme/limits"),
    ("PUT", "/tenants/acme/limits/tokens/boost"),
    ("DELETE", "/tenants/acme/limits/tokens/boost"),
    ("PUT", "/tenants/acme/limits/tokens/used"),
    ("GET", "/changes"),
]


@asynccontextmanager
async def admin(running: House, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    url = f"http://127.0.0.1:{running.gateway.admin_port}"
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture
async def running(valkey: EmbeddedServer) -> AsyncIterator[House]:
    async with house(valkey.url, admin_token=TOKEN) as running:
        yield running


@pytest.fixture
async def client(running: House) -> AsyncIterator[httpx.AsyncClient]:
    async with admin(running, **BEARER) as client:
        yield client


@pytest.fixture
def lines() -> Iterator[list[str]]:
    handler = Lines()
    LOGGER.addHandler(handler)
    before = LOGGER.level
    LOGGER.setLevel(logging.DEBUG)
    yield handler.written
    LOGGER.removeHandler(handler)
    LOGGER.setLevel(before)


async def answered(running: House, key: str, status: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await running.chat(key=key)).status_code != status:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "header",
    [None, b"Bearer", b"Basic " + RAW, RAW, b"Bearer " + RAW + b"x", b"Bearer " + KEY.encode(), b"Bearer \xe4\xff"],
)
async def test_nothing_is_told_or_changed_without_the_token(running: House, header: bytes | None) -> None:
    given = {} if header is None else {b"authorization": header}
    async with admin(running) as client:
        for method, path in ROUTES:
            answer = await client.request(method, path, headers=given, json={"name": "x", "settings": {}})
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), path
            assert TOKEN not in answer.text and "acme" not in answer.text
    async with admin(running, **BEARER) as client:
        assert (await client.get("/changes")).json()["data"] == []


async def test_without_a_token_in_the_environment_there_is_no_such_api(valkey: EmbeddedServer) -> None:
    async with house(valkey.url) as running, admin(running, authorization="Bearer") as client:
        for method, path in ROUTES:
            answer = await client.request(method, path)
            assert answer.status_code == 403 and "KVGATE_ADMIN_TOKEN" in answer.text
        assert (await client.get("/metrics")).status_code == 200


async def test_the_list_of_routes_here_is_complete(client: httpx.AsyncClient) -> None:
    from gateway.admin_api import AdminApi

    def never(who: str) -> Any:
        raise AssertionError

    named = {"tenant": "acme", "key": "main", "limit": "tokens"}
    told = set()
    for route in AdminApi(TOKEN, never).routes():
        for switch in ("enable", "disable"):
            path = route.path.replace("{switch:enable|disable}", switch)
            told.add((route.method, path.format(**named)))
    assert told == set(ROUTES)


async def test_the_tenants_port_knows_nothing_of_it(running: House) -> None:
    for path in ("/tenants", "/changes", "/v1/tenants"):
        url = f"http://127.0.0.1:{running.gateway.port}{path}"
        assert (await running.http.get(url, headers=BEARER)).status_code == 404


async def test_from_a_tenant_to_a_call_and_back(running: House, client: httpx.AsyncClient, lines: list[str]) -> None:
    client.headers[WHO] = "ann"
    made = await client.post("/tenants", json={"name": "beta", "settings": {"tier": "standard", "priority": 1}})
    assert (made.status_code, made.json()["data"]["from"]) == (201, "store")
    first = await client.post("/tenants/beta/keys", json={"name": "laptop", "expires": "90d"})
    assert (first.status_code, first.headers["cache-control"]) == (201, "no-store")
    key = first.json()["data"]["key"]
    await answered(running, key, 200)
    assert (await client.patch("/tenants/beta", json={"settings": {"priority": None}})).status_code == 200
    rotated = await client.post("/tenants/beta/keys/laptop/rotate", json={"overlap": 0})
    new = rotated.json()["data"]["key"]
    await answered(running, new, 200)
    await answered(running, key, 401)
    for path in ("/tenants/beta/disable", "/tenants/beta/keys/laptop/disable", "/tenants/beta/keys/laptop/expire"):
        assert (await client.post(path)).status_code == 204
        await answered(running, new, 401)
        undo = path.replace("disable", "enable")
        assert (await client.post(undo, json={"at": "never"} if undo == path else {})).status_code == 204
        await answered(running, new, 200)
    shown = (await client.get("/tenants/beta")).json()["data"]
    assert shown["settings"] == {"tier": "standard"} and shown["keys"][0]["state"] == "valid"
    assert [each["name"] for each in (await client.get("/tenants")).json()["data"]] == ["acme", "beta", "zeta"]
    assert (await client.delete("/tenants/beta/keys/laptop")).status_code == 204
    assert (await client.delete("/tenants/beta")).status_code == 204
    await answered(running, new, 401)
    changes = await client.get("/changes", params={"tenant": "beta", "last": 20})
    assert {(each["who"], each["via"]) for each in changes.json()["data"]} == {("ann", "api")}
    assert len(changes.json()["data"]) == 12
    written = "\n".join(lines)
    assert '"route":"/tenants/{tenant}/keys"' in written
    for secret in (key, new):
        assert secret[len(PREFIX) :] not in changes.text + written + str(shown)
    assert TOKEN not in written


async def test_limits_are_shown_boosted_and_corrected(running: House, client: httpx.AsyncClient) -> None:
    limit = "/tenants/acme/limits/tokens"
    boost = await client.put(f"{limit}/boost", json={"amount": "2g", "until": "2h", "reason": "a launch"})
    assert boost.status_code == 204
    (shown,) = (await client.get("/tenants/acme/limits")).json()["data"]
    assert (shown["name"], shown["limit"], shown["used"]) == ("tokens", 2 * 10**9, 0)
    used = await client.put(f"{limit}/used", json={"used": "1k", "reason": "counted elsewhere"})
    assert used.json()["data"] == {"was": 0, "reserved": 0}
    assert await running.charged() == 1_000
    assert (await client.delete(f"{limit}/boost")).status_code == 204
    (shown,) = (await client.get("/tenants/acme/limits", params={"key": "main"})).json()["data"]
    assert (shown["limit"], shown["used"]) == (10**9, 1_000)


async def test_a_burst_grows_no_further_than_it_can_be_counted(client: httpx.AsyncClient) -> None:
    reads = {"name": "reads", "dimension": "kv_read_bytes", "amount": "1TB", "burst": "4TB", "per": "1h"}
    made = {"name": "beta", "settings": {"tier": "standard", "budgets": [reads]}}
    assert (await client.post("/tenants", json=made)).status_code == 201
    boost = {"amount": "500000000000TB", "until": "2h"}
    refused = await client.put("/tenants/beta/limits/reads/boost", json=boost)
    assert (refused.status_code, f"kv_read_bytes, not 2{'0' * 24}" in refused.text) == (400, True)
    assert refused.json()["error"]["message"].startswith("burst, which grows as the amount does: expected at most 1000")
    assert (
        await client.put("/tenants/beta/limits/reads/boost", json=boost | {"burst": "500000000000TB"})
    ).status_code == 204


async def test_a_place_is_named_in_the_body_and_in_the_query(client: httpx.AsyncClient) -> None:
    session = {"budgets": [{"name": "turns", "dimension": "requests", "amount": 9, "every": "day"}]}
    made = {"name": "beta", "settings": {"tier": "standard", "session": session}}
    assert (await client.post("/tenants", json=made)).status_code == 201
    boost = {"amount": 20, "until": "2h", "session": "chat-7"}
    assert (await client.put("/tenants/beta/limits/turns/boost", json=boost)).status_code == 204
    told = (await client.get("/tenants/beta/limits", params={"session": "chat-7"})).json()["data"]
    assert [(limit["scope"], limit["limit"]) for limit in told if limit["name"] == "turns"] == [("session:chat-7", 20)]
    (boosted,) = (await client.get("/tenants/beta")).json()["data"]["boosts"]
    assert boosted["session"] == "chat-7"
    used = {"used": 3, "reason": "counted elsewhere", "session": "chat-7"}
    assert (await client.put("/tenants/beta/limits/turns/used", json=used)).json()["data"] == {"was": 0, "reserved": 0}
    for query, status in (({"session": "chat-8"}, 404), ({"session": "chat-7"}, 204)):
        assert (await client.delete("/tenants/beta/limits/turns/boost", params=query)).status_code == status


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("GET", "/tenants/nobody", None, 404, "there is no tenant"),
        ("GET", f"/tenants/{PREFIX}{'x' * 43}", None, 404, "(a key)"),
        ("POST", "/tenants", {"name": "beta"}, 400, "missing required field `settings`"),
        ("POST", "/tenants", {"name": "beta", "settings": {}, "extra": 1}, 400, "unknown field `extra`"),
        ("POST", "/tenants", {"name": "beta", "settings": {"tier": "gold"}}, 400, "unknown tier 'gold'"),
        ("POST", "/tenants", {"name": "acme", "settings": {"tier": "standard"}}, 400, "stands in the file"),
        ("POST", "/tenants", b"{", 400, "no JSON"),
        ("POST", "/tenants/acme/keys", {"name": "two", "expires": "soon"}, 400, "expires: expected a duration"),
        ("POST", "/tenants/acme/keys", {"name": "two", "budgets": [{"dimension": "x"}]}, 400, "budgets[0]"),
        ("POST", "/tenants/acme/keys/main/rotate", {}, 404, "has no key 'main' in the store"),
        ("POST", "/tenants/acme/keys/main/rotate", {"overlap": "long"}, 400, "overlap: expected a duration"),
        ("PUT", "/tenants/acme/limits/nothing/boost", {"amount": 1, "until": "2h"}, 404, "known: tokens"),
        (
            "PUT",
            "/tenants/acme/limits/tokens/boost",
            {"amount": 1e40, "until": "2h"},
            400,
            "amount: expected at most 9000000000000 in total_tokens, not 1e+40",
        ),
        (
            "PUT",
            "/tenants/acme/limits/tokens/used",
            {"used": "10000g", "reason": "x"},
            400,
            "used: expected at most 9000",
        ),
        ("POST", "/tenants/acme/keys", {"name": "two", "budgets": [HUGE]}, 400, "budgets[0].amount: expected at most"),
        ("PUT", "/tenants/acme/limits/tokens/used", {"used": -1, "reason": "x"}, 400, "used: expected"),
        ("DELETE", "/tenants/acme/limits/tokens/boost", None, 404, "no boost"),
        ("DELETE", "/tenants/acme/limits/all/boost?organisation=true", None, 404, "is in no organisation"),
        ("DELETE", "/tenants/acme/limits/all/boost?organisation=yes", None, 400, "expected true or false"),
        ("GET", "/changes?last=0", None, 400, "last: expected 1 to"),
    ],
)
async def test_what_cannot_be_done_says_so(
    client: httpx.AsyncClient, method: str, path: str, body: Any, status: int, said: str
) -> None:
    content = {"content": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
    answer = await client.request(method, path, headers={"content-type": "application/json"}, **content)
    assert (answer.status_code, said in answer.json()["error"]["message"]) == (status, True), answer.text
    assert (await client.get("/changes")).json()["data"] == []


async def test_the_token_is_no_name_for_who_asks(client: httpx.AsyncClient) -> None:
    """Else the list of changes, which many may read, would hold it."""
    answer = await client.post("/tenants/acme/disable", headers={"x-kvgate-operator": TOKEN})
    assert (answer.status_code, "no key" in answer.text) == (400, True)
    assert (await client.get("/changes")).json()["data"] == []


async def test_bodies_are_json_of_a_bounded_size(client: httpx.AsyncClient) -> None:
    form = await client.post("/tenants", content=b"name=beta", headers={"content-type": "text/plain"})
    assert form.status_code == 415
    assert (await client.post("/tenants", json={"name": "x" * 100_000})).status_code == 413


async def test_a_store_that_is_away_is_a_503(running: House, client: httpx.AsyncClient) -> None:
    running.gateway.store.close()
    answer = await client.post("/tenants/acme/disable")
    assert (answer.status_code, "may have been done or not" in answer.text) == (503, True)


async def test_with_several_workers_a_key_is_made_once_and_known_to_all(
    valkey: EmbeddedServer, tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    ports = {"KVGATE_PORT": str(unused_tcp_port_factory()), "KVGATE_ADMIN_PORT": str(unused_tcp_port_factory())}
    store = {"KVGATE_STORE_URL": f"{valkey.url}?db=3", "KVGATE_ADMIN_TOKEN": TOKEN, "KVGATE_WORKERS": "2"}
    process = await program.started(tmp_path, "serve", "-c", str(program.file(tmp_path)), **ports, **store)
    admin_url, url = (f"http://127.0.0.1:{ports[f'KVGATE_{name}']}" for name in ("ADMIN_PORT", "PORT"))
    try:
        async with httpx.AsyncClient(base_url=admin_url, headers=BEARER, timeout=60, trust_env=False) as client:
            await all_ready(client)
            assert (await client.get("/tenants", headers={"authorization": "Bearer no"})).status_code == 401
            made = await client.post("/tenants/acme/keys", json={"name": "two"})
            assert made.status_code == 201
            key = made.json()["data"]["key"]
            await accepted(url, key, 200)
            assert (await client.delete("/tenants/acme/keys/two")).status_code == 204
            await accepted(url, key, 401)
            assert len((await client.get("/changes?tenant=acme")).json()["data"]) == 2
    finally:
        process.terminate()
        said = (await process.communicate())[1].decode()
    assert key[len(PREFIX) :] not in said and TOKEN not in said


async def all_ready(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                if (await client.get("/readyz")).text.startswith("2 of 2"):
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)


async def accepted(url: str, key: str, status: int) -> None:
    """Until thirty connections in a row, which the system deals out among the workers, are answered so."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        row = 0
        while row < 30:
            async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                answer = await client.get(f"{url}/v1/models", headers={"authorization": f"Bearer {key}"})
            row = row + 1 if answer.status_code == status else 0
