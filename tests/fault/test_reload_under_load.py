"""Event: the configuration changes while calls are open. Nobody is dropped; a broken file changes nothing."""

import asyncio
from pathlib import Path

import yaml

from gateway.embedded import EmbeddedServer
from gateway.reloading import Reloading
from tests.house import OTHER_KEY, document, events, gateway, house, until


def urls(pools: dict[str, dict[str, str]], path: Path, **changes: object) -> None:
    path.write_text(yaml.safe_dump(document(pools) | changes))


async def test_open_streams_end_under_the_configuration_they_began_with(valkey: EmbeddedServer, tmp_path: Path) -> None:
    async with house(valkey.url) as here:
        pools = {"any": {name: engine.url for name, engine in here.engines.items()}}
        file = tmp_path / "kvgate.yaml"
        urls(pools, file)
        reloading = Reloading(file, here.gateway.put, here.gateway.metrics)
        old = here.gateway.snapshot
        kept = old.pools["any"]
        streams = [asyncio.create_task(here.chat(stream=True, max_tokens=400, ignore_eos=True)) for _ in range(8)]
        await until(lambda: sum(state.in_flight for state in kept.pool.states()) == 8)

        moved = {"any": {"two": pools["any"]["two"]}}  # one replica leaves, so the pool is made anew
        urls(moved, file)
        await reloading.reload()
        assert here.gateway.snapshot is not old
        assert here.gateway.snapshot.pools["any"] is not kept

        answers = await asyncio.gather(*streams)
        assert all(events(answer.text)[-1] == "[DONE]" for answer in answers)
        assert (await here.chat()).status_code == 200
        assert await here.metric("kvgate_config_reloads_total", result="done") == 1
        await until(lambda: not kept.open_connections)
        await here.nothing_left()


async def test_a_pool_that_did_not_change_is_kept_with_its_state(valkey: EmbeddedServer, tmp_path: Path) -> None:
    async with house(valkey.url) as here:
        pools = {"any": {name: engine.url for name, engine in here.engines.items()}}
        file = tmp_path / "kvgate.yaml"
        data = document(pools)
        del data["tenants"]["zeta"]
        file.write_text(yaml.safe_dump(data))
        assert (await here.chat(key=OTHER_KEY)).status_code == 200
        kept = here.gateway.snapshot.pools["any"]
        await Reloading(file, here.gateway.put, here.gateway.metrics).reload()
        assert here.gateway.snapshot.pools["any"] is kept
        assert (await here.chat(key=OTHER_KEY)).status_code == 401
        assert (await here.chat()).status_code == 200


async def test_a_broken_file_keeps_the_old_configuration_and_says_so(valkey: EmbeddedServer, tmp_path: Path) -> None:
    async with house(valkey.url) as here:
        file = tmp_path / "kvgate.yaml"
        file.write_text("models: {demo: {geometry: no-such-model}}")
        before = here.gateway.snapshot
        await Reloading(file, here.gateway.put, here.gateway.metrics).reload()
        assert here.gateway.snapshot is before
        assert await here.metric("kvgate_config_reloads_total", result="refused") == 1
        assert (await here.chat()).status_code == 200


async def test_the_file_is_read_again_when_it_changes_or_when_asked(valkey: EmbeddedServer, tmp_path: Path) -> None:
    async with gateway({"any": {"one": "http://127.0.0.1:1"}}, valkey.url) as here:
        file = tmp_path / "kvgate.yaml"
        urls({"any": {"one": "http://127.0.0.1:1"}}, file)
        reloading = Reloading(file, here.gateway.put, here.gateway.metrics)
        watching = asyncio.create_task(reloading.watch())
        done = here.gateway.metrics.reloads.values
        reloading.ask()
        await until(lambda: done[("done",)] == 1)
        urls({"any": {"one": "http://127.0.0.1:1", "two": "http://127.0.0.1:2"}}, file)
        await until(lambda: done[("done",)] == 2)
        assert len(here.gateway.snapshot.pools["any"].pool.replicas) == 2
        watching.cancel()
