"""Gateways and commands as processes of their own: what one does, the others know."""

import asyncio
from pathlib import Path

import httpx

from gateway.embedded import EmbeddedServer
from gateway.keys import PREFIX
from tests import program

PATIENCE_SECONDS = 60.0


async def answered(port: int, key: str, status: int) -> None:
    """Wait until a gateway answers a key so."""
    async with asyncio.timeout(PATIENCE_SECONDS), httpx.AsyncClient(trust_env=False, timeout=60) as client:
        url, bearer = f"http://127.0.0.1:{port}/v1/models", {"authorization": f"Bearer {key}"}
        while (await client.get(url, headers=bearer)).status_code != status:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def ran(folder: Path, *words: str, **variables: str) -> str:
    """What a command printed that succeeded."""
    ended = await program.run(folder, *words, "-c", "kvgate.yaml", **variables)
    assert ended.code == 0, ended.lines
    return ended.out.strip()


async def test_two_gateways_and_commands_beside_them_share_tenants_and_keys(
    valkey: EmbeddedServer, tmp_path: Path
) -> None:
    common = {"KVGATE_STORE_URL": f"{valkey.url}?db=4", "KVGATE_SECRET": "s" * 32}
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    one, other = folders
    async with (
        program.serving(program.file(one), **common) as first,
        program.serving(program.file(other), **common) as second,
    ):
        await ran(one, "tenants", "create", "beta", "--tier", "standard", **common)
        old = await ran(other, "keys", "create", "beta", "laptop", **common)
        for gateway in (first, second):
            await answered(gateway.port, old, 200)
        new = await ran(one, "keys", "rotate", "beta", "laptop", "--overlap", "0s", **common)
        for gateway in (first, second):
            await answered(gateway.port, new, 200)
            await answered(gateway.port, old, 401)
        await ran(other, "tenants", "disable", "beta", **common)
        for gateway in (first, second):
            await answered(gateway.port, new, 401)


async def test_a_first_key_needs_nothing_but_the_folder_that_the_gateway_runs_in(tmp_path: Path) -> None:
    """The store that kvgate starts itself, the secret that it made."""
    async with program.serving(program.file(tmp_path)) as gateway:
        key = await ran(tmp_path, "keys", "create", "acme", "second")
        assert key.startswith(PREFIX)
        await answered(gateway.port, key, 200)
        gateway.process.terminate()
        out, said = await gateway.process.communicate()
    assert key[len(PREFIX) :] not in (out + said).decode()
