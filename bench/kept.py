"""What the ledger keeps in a store, read back for those who look whether its books are right.

Rule: leases and buckets are taken apart by the ledger's own Lua, so their form is written down once.
"""

from dataclasses import dataclass
from typing import Final, cast

from budgets.scope import Standing
from budgets.script import Script
from gateway.store import Store

_LEASES: Final = """
local found = {}
for _, id in ipairs(call('ZRANGE', leases, 0, -1)) do
  if id ~= '' then
    local asked, _, layouts, rows, closed = opened(call('HGET', held, id))
    local lease = {id, not asked and 'settled' or closed and 'closed' or 'runs'}
    for n, name in pairs(asked and names_of(layouts, rows) or {}) do
      local _, _, place = decode(ROW, rows, FIRST_ROW + (n - 1) * ROW_BYTES)
      lease[#lease + 1] = {n, name, (took(asked, place)), kept(asked, place, rows, layouts[#layouts], n)}
    end
    found[#found + 1] = lease
  end
end
return found
"""
_IN_USE: Final = """
local found = {}
for _, field in ipairs(call('HKEYS', buckets)) do
  local board = string.sub(field, 1, 1) ~= BEHIND and call('HGET', buckets, field)
  for name, bucket in pairs(buckets_of(field, board)) do
    found[#found + 1] = name
    found[#found + 1] = string.format('%.0f', (decode(BUCKET, bucket)))
  end
end
return found
"""
_OLDER: Final = """
local us = tonumber(ARGV[1])
for _, field in ipairs(call('HKEYS', buckets)) do
  if string.sub(field, 1, 1) ~= BEHIND then
    local board, written = call('HGET', buckets, field), {}
    local head = string.sub(board, 1, HEAD_BYTES)
    local numbers, format = numbers_of(board, head)
    for k = 1, #numbers - 1, 3 do numbers[k + 1], numbers[k + 2] = numbers[k + 1] - us, numbers[k + 2] - us end
    put(written, field, head, numbers, format)
    call('HSET', buckets, unpack(written))
  end
end
for _, id in ipairs(call('ZRANGE', leases, 0, -1)) do
  if id ~= '' then call('ZINCRBY', leases, -us, id) end
end
"""
_WRITE: Final = """
local fields, layouts = cmsgpack.unpack(ARGV[1])
for b = 1, #fields do
  local head, written, names = layouts[3 * b - 2], {}, cmsgpack.unpack(layouts[3 * b - 1])
  local board = arranged(fields[b], call('HGET', buckets, fields[b]), head, layouts[3 * b - 1], written)
  local numbers, format = numbers_of(board, head)
  for k = 1, 3 * #names do numbers[k] = tonumber(ARGV[2 + (k - 1) % 3]) end
  put(written, fields[b], head, numbers, format)
  call('HSET', buckets, unpack(written))
  call('ZADD', stale, 1, fields[b])
end
"""


def _script(name: str, source: str) -> Script:
    return Script(name, f"{Script.load('budgets', 'outstanding', 'buckets', 'leases').source}\n{source}")


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
    found = cast("list[bytes]", await store.run(_script("in_use", _IN_USE), keys_of(tree), ()))
    return {name.decode(): int(amount) for name, amount in zip(found[::2], found[1::2], strict=True)}


async def leases(store: Store, tree: str = "acme") -> list[Lease]:
    """Those that run, those that were closed, and marks."""
    found = cast("list[list[object]]", await store.run(_script("leases", _LEASES), keys_of(tree), ()))
    return [_lease(*each) for each in found]


async def running(store: Store, tree: str = "acme") -> int:
    """Reservations that nobody has settled and no lease has closed."""
    return sum(each.state == "runs" for each in await leases(store, tree))


async def run_out(store: Store, *ids: str, tree: str = "acme") -> None:
    """As if these leases, all that run if none is named, were as old as if nobody had been heard of since."""
    for id in ids or [each.id for each in await leases(store, tree) if each.state == "runs"]:
        await store.command("ZADD", keys_of(tree)[1], "XX", 1, id)


async def write(store: Store, standing: Standing, used: float, at: float, gone: float, tree: str = "acme") -> None:
    """Puts so much into all buckets of these terms, due to be looked at."""
    await store.run(_script("write", _WRITE), keys_of(tree), (standing.packed, *map(repr, (used, at, gone))))


async def pass_time(store: Store, seconds: float, tree: str = "acme") -> None:
    """As if buckets and leases were so much older than they are."""
    await store.run(_script("older", _OLDER), keys_of(tree), (int(seconds * 1e6),))


def _lease(id: object, state: object, *limits: object) -> Lease:
    rows = sorted(cast("list[tuple[int, bytes, int, int]]", limits))
    took = {name.decode(): amount for _, name, amount, _ in rows}
    kept = {name.decode(): amount for _, name, _, amount in rows}
    return Lease(cast("bytes", id).decode(), cast("bytes", state).decode(), took, kept)
