"""Turns of one session on two gateways, begun and ended in random order on a real server.

Whatever the order: every message that was saved is known, every call counts once, and no edit is lost or kept twice.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
import pytest
from msgspec.structs import replace

from budgets.script import Step
from gateway.digests import Chain, of_messages
from gateway.embedded import EmbeddedServer
from gateway.memories import Memories
from gateway.sessions import Other, Progress, Saved, Session, SessionLimits, loading, loading_whole, saving
from gateway.store import Store
from gateway.tasks import Tasks
from gateway.vault import Vault, VaultError
from policies.memory import EMPTY, InForce, Memory, Trim
from tests.conftest import PATIENT

LIMITS = SessionLimits()
MOST_BRANCHES = 8


def never(error: VaultError) -> None:
    raise AssertionError("what a gateway sealed opens on the other") from error


def chain(text: str) -> Chain:
    return Chain(of_messages(letter.encode() for letter in text))


def trim(letter: str) -> Trim:
    (digest,) = of_messages([letter.encode()])
    return Trim(digest, "text", 10, 5)


def leaves(texts: list[str]) -> set[str]:
    """Those that none of the others goes on from."""
    return {text for text in texts if not any(other != text and other.startswith(text) for other in texts)}


@dataclass
class Gateway:
    """One gateway's way to the sessions, as `Books` goes it."""

    store: Store
    memories: Memories = field(default_factory=lambda: Memories(Vault({"k": b"k" * 32}), never))

    async def load(self, text: str) -> Session:
        step = loading("acme", "chat", chain(text))
        session = step.read(await self.store.run(step.script, step.keys, step.args))
        if session.status == "part":
            step = loading_whole(session, chain(text))
            session = step.read(await self.store.run(step.script, step.keys, step.args))
        return session

    async def run(self, step: Step[Other | None], /) -> Other | None:
        return step.read(await self.store.run(step.script, step.keys, step.args))

    async def save(self, turn: "Turn") -> Saved:
        memory = self.memories.changed(turn.session, turn.read, turn.memory)
        step = saving(turn.session, Progress(chain(turn.text), memory=memory, home="one"), LIMITS)
        saved = step.read(await self.store.run(step.script, step.keys, step.args))
        await self.memories.join(self.run, turn.session, saved, turn.memory)
        return saved


@dataclass
class Turn:
    """One call under way: what it read, and the edits that it makes."""

    text: str
    session: Session
    read: Memory
    memory: Memory


@dataclass
class Play:
    """One random run. Messages are letters; those in capitals are trimmed when they arrive."""

    gateways: list[Gateway]
    generator: random.Random
    texts: list[str] = field(default_factory=lambda: ["a"])
    saved: list[Turn] = field(default_factory=list)
    running: list[Turn] = field(default_factory=list)

    async def begin(self) -> None:
        text = self.chosen()
        self.texts.append(text)
        gateway = self.generator.choice(self.gateways)
        session = await gateway.load(text)
        read = gateway.memories.of(session) or EMPTY
        self.running.append(Turn(text, session, read, self.planned(text, session, read)))

    def chosen(self) -> str:
        """A conversation that goes on, parts or is repeated, so that no more branches come than a session keeps."""
        text = self.generator.choice(self.texts)
        if self.generator.random() < 0.2:
            text = text[: self.generator.randint(1, len(text))]
        more = "".join(self.generator.choices("abcXYZ", k=self.generator.choice((1, 2, 3, 20))))
        return text + more if len(leaves([*self.texts, text + more])) <= MOST_BRANCHES else text

    def planned(self, text: str, session: Session, read: Memory) -> Memory:
        """What a plan would remember: edits in force of these messages, those of new ones, and maybe a step's."""
        letters = [letter for letter in text[session.known_messages :] if letter.isupper()]
        letters += self.generator.sample("ABCDEFGHIJKLMNOPQRSTUVW", 1) if self.generator.random() < 0.3 else []
        names = {name.digest for name in map(trim, [*text, *"ABCDEFGHIJKLMNOPQRSTUVW"])}
        trims = {known.digest: known for known in read.enforced.trims if known.digest in names}
        trims |= {each.digest: each for each in map(trim, letters)}
        made = Memory(InForce(tuple(trims.values()))) if trims else EMPTY
        return read if made == read else made

    async def end(self, count: int) -> None:
        ending = self.generator.sample(self.running, min(count, len(self.running)))
        self.running = [turn for turn in self.running if turn not in ending]
        self.saved += ending
        results = await asyncio.gather(*(self.generator.choice(self.gateways).save(turn) for turn in ending))
        assert all(results)

    async def calls(self) -> int:
        """Of all branches, those that are equal to the last message too."""
        key = "kvgate:1:{acme}:s:chat"
        fields = await self.gateways[0].store.command("HGETALL", key, key=key)
        assert isinstance(fields, list)
        stored = dict(zip(fields[::2], fields[1::2], strict=True))
        branches = (value for name, value in stored.items() if name[:1] == b"m")
        numbers = [msgspec.msgpack.decode(branch, type=list[msgspec.Raw]) for branch in branches]
        return sum(msgspec.msgpack.decode(each[4], type=int) for each in numbers)

    async def own(self, found: dict[int, tuple[Session, str]]) -> list[tuple[str, list[bytes]]]:
        """What is remembered in branches that end where another ends too, which is found first."""
        key, texts = "kvgate:1:{acme}:s:chat", {turn.text for turn in self.saved}
        heads = {chain(text).link(len(text)): text for text in texts}
        kept = []
        for number in set(range(32)) - found.keys():
            packed = await self.gateways[0].store.command("HGET", key, f"m{number}", key=key)
            sealed = await self.gateways[0].store.command("HGET", key, f"e{number}", key=key)
            if isinstance(packed, bytes) and isinstance(sealed, bytes):
                head = bytes(msgspec.msgpack.decode(packed, type=list[msgspec.Raw])[1])[-16:]
                session = replace(self.saved[0].session, memory=sealed)
                kept.append((heads[head], self.trims(session)))
        return kept

    async def hold(self) -> None:
        """What must be true of every turn that was saved."""
        branches: dict[int, tuple[Session, str]] = {}
        for turn in self.saved:
            found = await self.gateways[0].load(turn.text + "n")
            assert found.known_messages == len(turn.text), turn.text
        for leaf in {turn.text for turn in self.saved}:
            found = await self.gateways[1].load(leaf)
            if found.status == "known" and found.branch is not None:
                branches[found.branch] = found, leaf
        assert await self.calls() == len(self.saved)
        kept = [(leaf, self.trims(session)) for session, leaf in branches.values()] + await self.own(branches)
        for turn in self.saved:
            made = {each.digest for each in turn.memory.enforced.trims}
            assert any(leaf.startswith(turn.text) and made <= set(trims) for leaf, trims in kept), turn.text
        for _, trims in kept:
            assert len(trims) == len(set(trims)), "kept once"

    def trims(self, session: Session) -> list[bytes]:
        memory = self.gateways[0].memories.of(session)
        assert memory is not None
        return [each.digest for each in memory.enforced.trims]


@asynccontextmanager
async def gateways(valkey: EmbeddedServer, tasks: Tasks) -> AsyncIterator[list[Gateway]]:
    stores = [await Store.connect(valkey.url, tasks, PATIENT) for _ in range(2)]
    try:
        await stores[0].command("FLUSHALL")
        yield [Gateway(store) for store in stores]
    finally:
        for store in stores:
            store.close()


@pytest.mark.parametrize("seed", range(30))
async def test_nothing_is_lost_or_doubled(valkey: EmbeddedServer, tasks: Tasks, seed: int) -> None:
    generator = random.Random(seed)
    async with gateways(valkey, tasks) as both:
        play = Play(both, generator)
        for _ in range(20):
            await asyncio.gather(*(play.begin() for _ in range(generator.randint(0, 3))))
            await play.end(generator.randint(0, 4))
        await play.end(len(play.running))
        await play.hold()
        assert len(play.saved) > 10
