"""Two tenants never share a cached prefix, and no client chooses its own salt.

Every gateway of these tests has a secret of its own, hence salts of its own: what an earlier test sent is cold.
"""

import httpx
import pytest

from gateway.app import Gateway

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


async def cached_tokens(gateway: Gateway, key: str, text: str, **fields: object) -> int:
    """Of the prompt `text` sent with this key."""
    async with httpx.AsyncClient(timeout=600) as client:
        reply = await client.post(
            f"http://127.0.0.1:{gateway.port}/v1/chat/completions",
            headers={"authorization": f"Bearer {key}"},
            json={"model": "smollm2", "messages": [{"role": "user", "content": text}], "max_tokens": 1, **fields},
        )
    reply.raise_for_status()
    cached: int = reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return cached


async def test_tenants_share_no_prefix(gateway: Gateway) -> None:
    text = "one two three four five " * 100
    assert await cached_tokens(gateway, "sk-alice", text) == 0
    assert await cached_tokens(gateway, "sk-alice", text) > 0
    assert await cached_tokens(gateway, "sk-bob", text) == 0
    assert await cached_tokens(gateway, "sk-bob", text) > 0


async def test_a_client_cannot_choose_its_salt(gateway: Gateway) -> None:
    text = "six seven eight nine ten " * 100
    assert await cached_tokens(gateway, "sk-alice", text, cache_salt="mine") == 0
    assert await cached_tokens(gateway, "sk-alice", text, cache_salt="another") > 0
    assert await cached_tokens(gateway, "sk-bob", text, cache_salt="mine") == 0
