"""Whatever happens to a tenant's originals between calls, every handle that a request shows is good when it leaves.

Sessions go on at two gateways, in any order and side by side; originals expire, are pushed out, are lost and are
deleted with their sessions. The engine itself asks for every handle it is shown, before it answers.
"""

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from gateway.embedded import EmbeddedServer
from gateway.store import Store
from gateway.texts import Text, counting
from tests.house import KEY, House, gateway
from tests.integration.test_gateway_edits import ANSWER, asked, call, result, wire
from tests.integration.test_originals import ACME, HANDLE, TURNS, expire, handles, keeping
from tests.upstream import Peer, reply, upstream

STEPS = 40
ROOMY = (5, 6)
"""Seeds whose tenants have room for all, the turns that a window drops too."""
OUTPUTS = ["\n".join(f"{number} {line}: what the tool said" for line in range(400)) for number in range(6)]


class Engine:
    """Answers calls once it has read every original that the prompt names; keeps what could not be read."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.houses: list[House] = []
        self.shown = self.turns = 0
        self.broken: list[str] = []

    async def script(self, peer: Peer) -> None:
        turns = TURNS.findall(peer.request.body.decode())
        self.turns += len(turns)
        for handle in (*handles(peer.request.body), *turns):
            self.shown += 1
            for house in self.houses:
                headers = {"authorization": f"Bearer {KEY}"}
                answer = await self.http.get(f"{house.url}/artifacts/{handle}", headers=headers)
                if answer.status_code != 200 or not is_whole(handle, answer.json()["content"]):
                    self.broken.append(f"{handle}: {answer.text[:80]}")
        await peer.send(reply(200, ANSWER))


def is_whole(handle: str, content: str) -> bool:
    """An output, or turns that were left out: whole ones, each from its question on."""
    if handle in TURNS.findall(handle):
        return content.startswith(("[user]\nStep ", "[assistant]")) and any(output in content for output in OUTPUTS)
    return content in OUTPUTS


def room_for(outputs: int) -> Any:
    def change(data: dict[str, Any]) -> None:
        keeping(data, stored_bytes=outputs * (len(OUTPUTS[0]) + 100))
        data["tiers"]["standard"]["policies"][0]["max_tokens"] = 300
        window = {"kind": "keep_recent_turns", "turns": 3, "high_water_turns": 6, "keep_original": "24h"}
        data["tiers"]["standard"]["policies"].append(window)

    return change


async def disturbed(dice: random.Random, store: Store, house: House) -> None:
    """One thing that may happen to what is stored."""
    found = await store.command("ZRANGE", ACME.texts[0], 0, -1, key=ACME.texts[0])
    assert isinstance(found, list)
    members = [member.decode() for member in found]
    match dice.randrange(6):
        case 0 if members:
            await expire(store, dice.choice(members).removeprefix("o:"), dice.choice([0, 1_000, 3_600_000]))
        case 1 if members:
            step = counting(ACME, [Text(dice.choice(members), None, 60)], 0)  # as for a tenant without room
            await store.run(step.script, step.keys, step.args)
        case 2:
            session = f"chat-{dice.randrange(3)}"
            await house.http.delete(f"/sessions/{session}", headers={"authorization": f"Bearer {KEY}"})
        case 3 if dice.random() < 0.3:
            await store.command("FLUSHALL")


async def turn(dice: random.Random, house: House, talks: Mapping[str, list[bytes]], session: str) -> None:
    messages = talks[session]
    number = len(messages)
    messages += [wire("user", f"Step {number}."), call(number), result(number, dice.choice(OUTPUTS))]
    await asked(house, list(messages), session_id=session)
    messages.append(wire("assistant", f"Done {number}."))


@pytest.mark.parametrize("seed", [0, 1, 2, *ROOMY])
async def test_every_handle_that_is_shown_is_good(valkey: EmbeddedServer, store: Store, seed: int) -> None:
    dice = random.Random(seed)
    talks: dict[str, list[bytes]] = {f"chat-{number}": [wire("system", f"{number}")] for number in range(3)}
    async with httpx.AsyncClient(timeout=30, trust_env=False) as http:
        engine = Engine(http)
        async with upstream(engine.script) as up:
            urls, change = {"any": {"one": up.url}}, room_for(dice.choice([2, 4, 100]))
            async with gateway(urls, valkey.url, change) as one, gateway(urls, valkey.url, change, flush=False) as two:
                engine.houses = [one, two]
                for _ in range(STEPS):
                    await turn(dice, dice.choice([one, two]), talks, dice.choice([*talks]))
                    await disturbed(dice, store, one)
                assert await one.metric("kvgate_context_violations_total") == 0
    assert not engine.broken
    assert engine.shown > STEPS / 2
    assert engine.turns > 0 or seed not in ROOMY


async def test_sessions_side_by_side_share_what_they_show(valkey: EmbeddedServer, store: Store) -> None:
    """With room for all, calls at the same moment never take an original from one another."""
    dice = random.Random(1)
    talks: dict[str, list[bytes]] = {f"chat-{number}": [wire("system", f"{number}")] for number in range(8)}
    async with httpx.AsyncClient(timeout=30, trust_env=False) as http:
        engine = Engine(http)
        async with upstream(engine.script) as up:
            urls, change = {"any": {"one": up.url}}, room_for(100)
            async with gateway(urls, valkey.url, change) as one, gateway(urls, valkey.url, change, flush=False) as two:
                engine.houses = [one, two]
                for _ in range(4):
                    await asyncio.gather(*(turn(dice, dice.choice([one, two]), talks, chat) for chat in talks))
    assert not engine.broken
    shown = {handle for request in up.requests for handle in HANDLE.findall(request.body.decode())}
    assert len(shown) == len(OUTPUTS), "one for each output, whichever session and gateway"
