"""Calls of two tenants of one organisation in random order on a real server, all kinds of limits at once.

Whatever happens: what is in use is the sum of what was used, what runs and what died; nothing strict is ever exceeded;
nothing outlives its lease.
"""

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import pytest

from bench import kept
from budgets.ledger import Amounts, Grant, Scope, extending, reserve, settle
from budgets.limit import Dimension, Limit
from budgets.scope import Owner, Terms
from budgets.weights import Weights
from gateway.store import Store

SPACE = "kvgate:1:{group}"
NEVER = 1e12  # seconds until a rate flows back: never, here

UNEVEN = Weights(prefill=701, cached=33, decode=2_345)

SHARED = (
    Limit(name="day", dimension="total_tokens", amount=9_000, every="day", time_zone="Europe/Paris"),
    Limit(name="cap", dimension="total_tokens", amount=7_000, per_seconds=NEVER, hardness="strict"),
    Limit(name="at-once", dimension="concurrent_calls", amount=9),
)
OWN = (
    Limit(name="calls", dimension="requests", amount=60, per_seconds=NEVER),
    Limit(name="reads", dimension="kv_read_bytes", amount=10**13, every="month", mode="shadow"),
    Limit(name="month", dimension="decode_tokens", amount=3_000, every="month", hardness="strict"),
    Limit(name="lanes", dimension="concurrent_calls", amount=5),
    Limit(name="work", dimension="weighted_tokens", amount=9_000_000, every="day"),
    Limit(
        name="most-work",
        dimension="weighted_tokens",
        amount=20_000_000,
        every="month",
        hardness="strict",
        weights=UNEVEN,
    ),
)


def scope(tenant: str) -> Scope:
    shared = Scope(tenant, (), organisation="group").joined_by(
        SHARED, Owner("organisation", "group", "organisation/group/")
    )
    return shared.joined_by(OWN, shared.owner)


SCOPES = {tenant: scope(tenant) for tenant in ("a", "b")}


def amounts(prompt: int, decode: int, cached: int = 0) -> Amounts:
    return {
        "requests": 1,
        "prefill_tokens": prompt - cached,
        "cached_tokens": cached,
        "decode_tokens": decode,
        "total_tokens": prompt + decode,
        "kv_read_bytes": 1000 * prompt * decode,
    }


@dataclass
class Call:
    """One admitted call. `died`: its lease has run out, and maybe been closed; it may still be settled, late."""

    grant: Grant
    expected: Amounts
    most: Amounts
    state: Literal["runs", "died", "settled"] = "runs"
    used: Amounts = field(default_factory=dict)
    more: Counter[Dimension] = field(default_factory=Counter)

    def charged(self, terms: Terms) -> int:
        """What its part of a bucket must be."""
        if self.state == "settled":
            units = terms.limit.parts_of(self.used)
        elif terms.limit.hardness == "strict":
            units = terms.limit.parts_of(self.most)
        elif self.state == "runs":
            units = terms.limit.parts_of(self.expected) + terms.limit.parts_of(self.more)
        else:
            units = self.stays(terms.limit) + terms.limit.parts_of(self.more)
        return units * terms.scale

    def stays(self, limit: Limit) -> int:
        """What is charged of what was expected: the request and its prompt, nothing that was yet to be generated."""
        dimension, prompt = limit.dimension, self.expected["prefill_tokens"]
        if limit.weighing is not None:
            return limit.weighing.of(prompt, 0, 0)
        if dimension == "total_tokens":
            return prompt
        return 0 if dimension in ("decode_tokens", "kv_read_bytes") else self.expected[dimension]


@dataclass
class Play:
    """One random run."""

    store: Store
    generator: random.Random
    calls: list[Call] = field(default_factory=list)

    def pick(self, *states: str) -> list[Call]:
        """Up to three calls in one of these states."""
        among = [call for call in self.calls if call.state in states]
        return self.generator.sample(among, min(len(among), self.generator.randint(0, 3)))

    async def turn(self) -> None:
        """Some calls begin while others end, some of them twice, or take more; then some die."""
        ending = self.pick("runs", "died") if self.generator.random() < 0.7 else []
        growing = [call for call in self.pick("runs") if call not in ending]
        await asyncio.gather(
            *(self.begin() for _ in range(self.generator.randint(0, 4))),
            *(self.end(call) for call in ending),
            *(self.grow(call) for call in growing),
        )
        for call in self.pick("runs") if self.generator.random() < 0.3 else []:
            await self.die(call)

    async def begin(self) -> None:
        prompt, decode = self.generator.randint(0, 300), self.generator.randint(0, 200)
        expected, most = amounts(prompt, decode // 2), amounts(prompt + 50, decode)
        tenant = self.generator.choice("ab")
        clock = time.time() + self.generator.choice((0.0, 0.0, -90_000.0, 90_000.0))
        answer = await reserve(self.store.run, SCOPES[tenant], expected, clock, most)
        if isinstance(answer, Grant):
            self.calls.append(Call(answer, expected, most))

    async def grow(self, call: Call) -> None:
        tokens = self.generator.randint(1, 100)
        more: Amounts = {"decode_tokens": tokens, "total_tokens": tokens, "kv_read_bytes": 1000 * tokens}
        step = extending(call.grant, more)
        found = step.read(await self.store.run(step.script, step.keys, step.args))
        if isinstance(found, Grant):
            call.more.update(more)

    async def end(self, call: Call) -> None:
        most = call.most
        prompt = self.generator.randint(0, most["prefill_tokens"])
        cached = self.generator.randint(0, prompt)
        call.used = amounts(prompt, self.generator.randint(0, most["decode_tokens"]), cached)
        results = await asyncio.gather(*(settle(self.store.run, call.grant, call.used) for _ in range(2)))
        assert sorted(results) == [False, True], "settled once, however often"
        call.state = "settled"

    async def die(self, call: Call) -> None:
        """Its lease and its slots are as old as if nobody had been heard of since."""
        await kept.run_out(self.store, call.grant.id, tree="group")
        for terms in call.grant.stands.terms:
            if terms.limit.kind == "slots":
                await self.store.command("ZADD", f"{SPACE}:slots:{terms.bucket}", "XX", 1, call.grant.id)
        call.state = "died"

    async def touch(self) -> None:
        """A reservation closes what has died; this one gives all back."""
        answer = await reserve(self.store.run, Scope("a", (), organisation="group").joined_by(OWN[1:2], TOUCHING), {})
        assert isinstance(answer, Grant)
        await settle(self.store.run, answer, {})

    async def hold(self) -> None:
        """What must be true between any two turns."""
        await self.touch()
        expected: Counter[str] = Counter()
        running: Counter[str] = Counter()
        for call in self.calls:
            for terms in call.grant.stands.terms:
                if terms.limit.kind == "slots":
                    running[terms.bucket] += call.state == "runs"
                else:
                    expected[terms.bucket] += call.charged(terms)
        for bucket, in_use in expected.items():
            assert await self.in_use(bucket) == in_use, bucket
        for bucket, count in running.items():
            assert await self.store.command("ZCOUNT", f"{SPACE}:slots:{bucket}", 2, "+inf") == count, bucket
        await self.bounded()

    async def bounded(self) -> None:
        for scope in SCOPES.values():
            for terms in scope.standing(time.time()).terms:
                if terms.limit.kind == "slots":
                    continue
                if terms.limit.hardness == "strict" or terms.dimension == "requests":
                    assert await self.in_use(terms.bucket) <= terms.limit.capacity * terms.scale, terms.bucket
        leases = await self.store.command("ZRANGEBYSCORE", kept.keys_of("group")[1], 0, 1)
        assert leases == [], "no reservation outlives its lease"

    async def in_use(self, bucket: str) -> int:
        return (await kept.in_use(self.store, "group")).get(bucket, 0)


TOUCHING = Owner("key", "touching", "key/a/touching/")


@pytest.mark.parametrize("seed", range(25))
async def test_whatever_the_order_the_books_are_right(store: Store, seed: int) -> None:
    play = Play(store, random.Random(seed))
    for _ in range(40):
        await play.turn()
        await play.hold()
    for call in play.calls:
        if call.state != "settled":
            await play.end(call)
    await play.hold()
    assert len(play.calls) > 20
    assert await kept.leases(store, "group") == [], "all is settled, late ones too"
    totals = [
        sum(call.used["total_tokens"] for call in play.calls),
        sum(call.used["decode_tokens"] for call in play.calls if call.grant.scope.tenant == "b"),
    ]
    now = time.time()
    buckets = [SCOPES["b"].standing(now).terms[at].bucket for at in (1, 5)]
    assert [await play.in_use(bucket) // 10**6 for bucket in buckets] == totals
