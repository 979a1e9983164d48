"""`DELETE /v1/sessions/{id}`: all of a session goes, of the caller's own tenant only."""

import httpx
import pytest

from gateway.embedded import EmbeddedServer
from gateway.store import Store
from tests.fault.store_proxy import store_proxy
from tests.house import KEY, House, house, until

ID = "thread-7"


async def said(running: House, id: str = ID) -> None:
    headers = {"authorization": f"Bearer {KEY}", "x-session-id": id}
    body = {"model": "demo", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 2}
    assert (await running.http.post("/chat/completions", json=body, headers=headers)).status_code == 200
    await running.quiet()


async def deleted(running: House, id: str = ID, key: str = KEY, method: str = "DELETE") -> httpx.Response:
    return await running.http.request(method, f"/sessions/{id}", headers={"authorization": f"Bearer {key}"})


async def left(store: Store) -> list[bytes]:
    listed = await store.command("ZRANGE", "kvgate:1:{acme}:sessions", 0, -1, key="kvgate:1:{acme}:sessions")
    assert isinstance(listed, list)
    return listed


async def test_all_of_it_goes(valkey: EmbeddedServer, store: Store) -> None:
    async with house(valkey.url, {"any": ["one"]}) as running:
        await said(running)
        await said(running, "another")
        answer = await deleted(running)
        assert (answer.status_code, answer.json()) == (200, {"id": ID, "object": "session", "deleted": True})
        assert answer.headers["x-request-id"]
        key = "kvgate:1:{acme}:s:" + ID
        assert await store.command("EXISTS", key, key=key) == 0
        assert await left(store) == [b"another"]
        again = await deleted(running)
        assert (again.status_code, again.json()["error"]["code"]) == (404, "session_not_found")
        before = await running.metric("kvgate_sessions_total", found="new")
        await said(running)
        assert await running.metric("kvgate_sessions_total", found="new") == before + 1


async def test_a_long_id_is_found_as_it_was_given(valkey: EmbeddedServer, store: Store) -> None:
    async with house(valkey.url, {"any": ["one"]}) as running:
        await said(running, "x" * 200)
        assert (await deleted(running, "x" * 200)).json()["deleted"] is True
        assert await left(store) == []


@pytest.mark.parametrize("id", ["", "%0A", "a%20b", "a%00", "x" * 300, "a|", "%F0%9F%99%82"])
async def test_what_is_no_id_is_not_found(valkey: EmbeddedServer, id: str) -> None:
    async with house(valkey.url, {"any": ["one"]}) as running:
        assert (await deleted(running, id)).status_code == 404


async def test_a_key_is_needed_and_no_other_method_is_known(valkey: EmbeddedServer, store: Store) -> None:
    async with house(valkey.url, {"any": ["one"]}) as running:
        await said(running)
        assert (await deleted(running, key="sk-wrong")).status_code == 401
        refused = await deleted(running, method="PUT")
        assert (refused.status_code, refused.headers["allow"]) == (405, "DELETE, GET, HEAD")
        assert await left(store) == [ID.encode()]


async def test_without_a_store_it_says_so(valkey: EmbeddedServer) -> None:
    async with store_proxy(valkey.url) as proxy, house(proxy.url, {"any": ["one"]}) as running:
        proxy.away()
        await until(lambda: not running.gateway.store.available)
        answer = await deleted(running)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
