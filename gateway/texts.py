"""How much text a tenant has in the store, and what goes when it is too much.

Rule: whoever writes text counts it here in the same script run (`counting`, joined to its own step by `both`, or
`lua/texts.lua` before its own script), and deletes with `drop` what was taken off the list for it. Above the tenant's
cap the text unused for the longest time goes first. A text is named by its member: the rest of its key behind the
tenant's place.

The keys are described in docs/redis.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from budgets.script import Argument, Script, Step
from gateway.metrics import Metrics
from gateway.store import Store

LIBRARY: Final = "texts"
"""What stands before a script of this package that counts text by itself: `Script.load("gateway", name, LIBRARY)`."""
_COUNT: Final = Script.load("gateway", "texts_count", LIBRARY)
_UNBOUNDED: Final = 2**53
_DROP: Final = Script.load("gateway", "texts_drop")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tenant's own keys lie: all under one hash tag, that of its organisation if it has one."""

    tenant: str
    organisation: str | None = None

    @property
    def prefix(self) -> str:
        if self.organisation is None:
            return f"kvgate:1:{{{self.tenant}}}"
        return f"kvgate:1:{{{self.organisation}}}:tenant:{self.tenant}"

    def key(self, member: str) -> str:
        """The key of a text, or of anything else of the tenant's."""
        return f"{self.prefix}:{member}"

    @property
    def deleted(self) -> str:
        """The key of the list of sessions that a client has deleted."""
        return self.key("deleted")

    @property
    def texts(self) -> tuple[str, str, str]:
        """The keys of the list of texts: by last use, by end, bytes."""
        return self.key("texts"), self.key("texts:until"), self.key("texts:bytes")


@dataclass(frozen=True, slots=True)
class Text:
    """A text that is written or used now. `bytes`: as stored; None: as many as before; 0: it is gone."""

    member: str
    bytes: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Counted:
    """`stored_bytes` of the tenant now; `evicted`: members that went for it, those just written last of all."""

    stored_bytes: int
    evicted: tuple[str, ...] = ()


def counting(place: Place, texts: Sequence[Text], most_bytes: int) -> Step[Counted]:
    """Count texts of a tenant that may have `most_bytes`; to be run together with what writes them."""
    args: list[Argument] = [most_bytes]
    for text in texts:
        args += (text.member, "" if text.bytes is None else text.bytes, int(text.seconds * 1000))
    return Step(_COUNT, place.texts, args, counted)


def counted(reply: object) -> Counted:
    """What `texts_bounded` of lua/texts.lua gives: the bytes, and who went."""
    total, gone = cast("tuple[int, list[bytes]]", reply)
    return Counted(total, tuple([member.decode() for member in gone]))


class Texts:
    """Deletes what went, and knows the latest sums for the metrics."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics

    async def settle(self, place: Place, found: Counted) -> None:
        """Note the sum and delete what was taken off the list. Raises `StoreError`; what is left then expires."""
        tenant = self._metrics.tenant(place.tenant)
        self._metrics.stored_bytes.set(found.stored_bytes, tenant)
        if found.evicted:
            self._metrics.evicted_texts.add(len(found.evicted), tenant)
            await self.drop(place, found.evicted)

    async def forget(self, place: Place, members: Sequence[str]) -> bool:
        """Take texts off the list and delete them; false if there were none."""
        step = counting(place, [Text(member, 0, 0) for member in members], _UNBOUNDED)
        await self.settle(place, await self._store.ask(step))
        return await self.drop(place, members) > 0

    async def drop(self, place: Place, members: Sequence[str]) -> int:
        """Delete texts that are not on the list any more; how many there were."""
        keys = [place.texts[0], *(place.key(member) for member in members)]
        return cast(int, await self._store.run(_DROP, keys, members))
