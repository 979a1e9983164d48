"""What the ledger keeps in a store, read back for those who look whether its books are right.

Rule: leases and buckets are taken apart by the ledger's own Lua, so their form is written down once.
"""

from dataclasses import dataclass
from typing import Final, cast

from budgets.script import Script
from gateway.store import Store

_OUTLINE: Final = """
local found = {}
for _, id in ipairs(call('ZRANGE', leases, 0, -1)) do
  if id ~= '' then
    local asked, names, rows, closed = opened(call('HGET', held, id))
    local lease = {id, not asked and 'settled' or closed and 'closed' or 'runs'}
    for n = 1, asked and #names or 0 do
      local kind, _, place = decode(ROW, rows, FIRST_ROW + (n - 1) * ROW_BYTES)
      if kind ~= CALLS then
        lease[#lease + 1] = {names[n], took(asked, place), kept(asked, place, rows, #names, n)}
      end
    end
    found[#found + 1] = lease
  end
end
return found
"""
_LEASES: Final = Script("leases", f"{Script.load('budgets', 'leases', 'buckets').source}\n{_OUTLINE}")
_IN_USE: Final = Script(
    "in_use",
    f"""{Script.load("budgets", "buckets").source}
local found = {{}}
for at, each in ipairs(call('HGETALL', buckets)) do
  found[at] = at % 2 == 1 and each or string.format('%.0f', (decode(BUCKET, each)))
end
return found
""",
)


@dataclass(frozen=True, slots=True)
class Lease:
    """`state`: it `runs`, it is `closed` as of a dead call, or it is only the mark of one `settled` unseen.

    `took` and `kept`: by bucket, in micro-units, what was taken, and what stays charged if nobody settles.
    """

    id: str
    state: str
    took: dict[str, int]
    kept: dict[str, int]


def keys_of(tree: str = "acme") -> tuple[str, ...]:
    """Buckets, deadlines of leases, leases, when to look at buckets, buckets of the version before."""
    parts = ("2:buckets", "2:leases", "2:held", "2:stale", "1:buckets")
    return tuple([f"kvgate:{version}:{{{tree}}}:{part}" for version, part in (each.split(":") for each in parts)])


async def in_use(store: Store, tree: str = "acme") -> dict[str, int]:
    """By bucket, in micro-units, as it was when it was last written."""
    found = cast("list[bytes]", await store.run(_IN_USE, keys_of(tree), ()))
    return {name.decode(): int(amount) for name, amount in zip(found[::2], found[1::2], strict=True)}


async def leases(store: Store, tree: str = "acme") -> list[Lease]:
    """Those that run, those that were closed, and marks."""
    found = cast("list[list[object]]", await store.run(_LEASES, keys_of(tree), ()))
    return [_lease(*each) for each in found]


async def running(store: Store, tree: str = "acme") -> int:
    """Reservations that nobody has settled and no lease has closed."""
    return sum(each.state == "runs" for each in await leases(store, tree))


async def run_out(store: Store, *ids: str, tree: str = "acme") -> None:
    """As if these leases, all that run if none is named, were as old as if nobody had been heard of since."""
    for id in ids or [each.id for each in await leases(store, tree) if each.state == "runs"]:
        await store.command("ZADD", keys_of(tree)[1], "XX", 1, id)


def _lease(id: object, state: object, *limits: object) -> Lease:
    rows = cast("list[tuple[bytes, int, int]]", limits)
    took = {name.decode(): amount for name, amount, _ in rows}
    kept = {name.decode(): amount for name, _, amount in rows}
    return Lease(cast("bytes", id).decode(), cast("bytes", state).decode(), took, kept)
