"""Event: the configuration changes while calls are open. Nobody is dropped; a broken file changes nothing."""

import asyncio
from pathlib import Path
from typing import Any

import yaml

from gateway.configuring import retire
from gateway.embedded import EmbeddedServer
from gateway.reloading import Reloading
from tests.fault.store_proxy import store_proxy
from tests.house import OTHER_KEY, document, events, gateway, house, until
from tests.upstream import CHUNKED, chunk, frame, stalls_after, upstream


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
        await until(lambda: not kept.busy)
        async with asyncio.timeout(60):
            await retire(kept, 0.0)
        assert kept.open_connections == 0, "as it does by itself once no call can come to it any more"
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


async def test_a_call_that_comes_late_to_a_pool_that_is_gone_has_its_limits(
    valkey: EmbeddedServer, tmp_path: Path
) -> None:
    """It had begun under the old configuration and was still being opened when that went: nobody else watches it."""
    script = stalls_after(CHUNKED, chunk(frame("one")), chunk(frame("two")))
    async with (
        store_proxy(valkey.url) as proxy,
        upstream(script) as up,
        gateway({"any": {"one": up.url}}, proxy.url, impatient) as here,
    ):
        old = here.gateway.snapshot.pools["any"]
        proxy.answering.clear()
        call = asyncio.create_task(here.chat(stream=True))
        await until(lambda: len(here.gateway.requests) == 1)
        file = tmp_path / "kvgate.yaml"
        urls({"any": {"other": up.url}}, file, routing={"probe_interval": "1h", "idle_timeout": "100ms"})
        await Reloading(file, here.gateway.put, here.gateway.metrics).reload()
        assert here.gateway.snapshot.pools["any"] is not old
        await asyncio.sleep(0.01)  # time enough to close it, if it were closed at once
        proxy.answering.set()
        assert '"engine_timeout"' in events((await call).text)[-1]
        await up.peers[0].gone.wait()
        assert not old.busy
        await here.nothing_left()


def impatient(data: dict[str, Any]) -> None:
    data["routing"]["idle_timeout"] = "100ms"
