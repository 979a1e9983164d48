"""`kvgate usage`: what was used, read from the streams of settled calls, call by call or summed up.

Rule: what the streams hold is what was charged; nothing is worked out anew. A stream keeps so many records as its tier
says, so a report goes back as far as they do.
"""

import csv
import io
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, Literal, cast, get_args

import msgspec

from budgets.record import OPERATOR, Record, decoded, stream_of
from gateway.payers import Payer
from gateway.store import Store

Column = Literal["tenant", "key", "session", "model", "pool", "label", "outcome", "source", "day"]
Format = Literal["csv", "jsonl", "parquet"]
Row = Mapping[str, str | int | Decimal]

COLUMNS: Final[tuple[Column, ...]] = get_args(Column)
SUMS: Final = (
    "prefill_tokens",
    "cached_tokens",
    "decode_tokens",
    "reasoning_tokens",
    "kv_read_bytes",
    "kv_byte_seconds",
    "gpu_microseconds",
    "money_nanos",
    "network_bytes",
)
DECIMALS: Final[Mapping[str, tuple[str, int]]] = {"gpu_microseconds": ("gpu_seconds", 6), "money_nanos": ("money", 9)}
"""What is told in other units than it is kept in, with all of its decimals."""
LARGEST_JSON: Final = 2**63
FORMULA: Final = ("=", "+", "-", "@")
"""How a cell begins that spreadsheets would run; clients choose the names of their sessions."""
PAGE: Final = 1_000
PAGE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Span:
    """From the first millisecond to the last, both since 1970 and both included; None: as far as there is."""

    first_ms: int | None = None
    last_ms: int | None = None

    @classmethod
    def of_days(cls, since: datetime | None, until: datetime | None) -> "Span":
        """Whole days of UTC; `until` is the last of them."""
        day_ms = 86_400_000
        return cls(None if since is None else _ms(since), None if until is None else _ms(until) + day_ms - 1)


@dataclass(frozen=True, slots=True)
class Settled:
    """A record and when it was settled, in milliseconds since 1970."""

    at_ms: int
    record: Record

    def column(self, name: Column) -> str:
        if name == "day":
            return _moment(self.at_ms).date().isoformat()
        return cast("str", getattr(self.record, name))


async def settled(store: Store, tenants: Sequence[Payer], span: Span) -> AsyncIterator[Settled]:
    """Every record of these tenants in a span, a tenant at a time, the oldest first."""
    for tenant in tenants:
        stream, first = stream_of(tenant.name, tenant.organisation), str(span.first_ms or "-")
        last = "+" if span.last_ms is None else str(span.last_ms)
        while page := await _page(store, stream, first, last):
            for id, fields in page:
                yield Settled(int(id.partition(b"-")[0]), decoded(fields[1]))
            first = f"({page[-1][0].decode()}"


async def _page(store: Store, stream: str, first: str, last: str) -> list[tuple[bytes, list[bytes]]]:
    reply = await store.command("XRANGE", stream, first, last, "COUNT", PAGE, key=stream, timeout_seconds=PAGE_SECONDS)
    return cast("list[tuple[bytes, list[bytes]]]", reply)


async def summed(calls: AsyncIterator[Settled], by: Sequence[Column]) -> list[Row]:
    """A row for each combination of the columns, in order, with calls and sums.

    What nobody is charged for is in none of them, unless the rows are told apart by label.
    """
    totals: defaultdict[tuple[str, ...], list[int]] = defaultdict(lambda: [0] * (1 + len(SUMS)))
    async for call in calls:
        if call.record.label == OPERATOR and "label" not in by:
            continue
        total = totals[tuple([call.column(name) for name in by])]
        for at, value in enumerate((1, *(getattr(call.record, name) for name in SUMS))):
            total[at] += value
    return [told(zip((*by, "calls", *SUMS), (*key, *total), strict=True)) for key, total in sorted(totals.items())]


async def single(calls: AsyncIterator[Settled]) -> list[Row]:
    """A row for each call."""
    return [
        {"at": _moment(call.at_ms).isoformat(timespec="milliseconds")}
        | told(msgspec.structs.asdict(call.record).items())
        async for call in calls
    ]


def blank(by: Sequence[Column]) -> Row:
    """A row of nothing, by these columns or of a call: which columns a report has, and of which types, without any."""
    if by:
        return told(zip((*by, "calls", *SUMS), (*[""] * len(by), *[0] * (1 + len(SUMS))), strict=True))
    nothing = Record("", "", "", "", "", "", "engine", 0, 0, 0, 0)
    return {"at": ""} | told(msgspec.structs.asdict(nothing).items())


def told(fields: Iterable[tuple[str, str | int]]) -> dict[str, str | int | Decimal]:
    """A row in the units that people read."""
    row: dict[str, str | int | Decimal] = {}
    for name, value in fields:
        if name in DECIMALS:
            name, places = DECIMALS[name]
            row[name] = Decimal(value).scaleb(-places)
        else:
            row[name] = value
    return row


def written(rows: Sequence[Row], form: Format, columns: Iterable[str]) -> Iterator[str]:
    """The rows as lines of CSV with a head, or of JSON."""
    if form == "jsonl":
        for row in rows:
            yield msgspec.json.encode({name: _json(value) for name, value in row.items()}).decode()
    else:
        yield _line(columns)
        yield from (_line(row.values()) for row in rows)


async def report(store: Store, tenants: Sequence[Payer], span: Span, by: Sequence[Column]) -> list[Row]:
    """The rows of a report about some tenants; no columns: one row a call."""
    calls = settled(store, tenants, span)
    return await summed(calls, by) if by else await single(calls)


def _line(values: Iterable[object]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(map(_cell, values))
    return line.getvalue()


def _json(value: str | int | Decimal) -> object:
    """Numbers with all of their digits, however many those are."""
    if isinstance(value, Decimal):
        return msgspec.Raw(format(value, "f").encode())
    return msgspec.Raw(b"%d" % value) if isinstance(value, int) and value >= LARGEST_JSON else value


def _cell(value: object) -> object:
    if isinstance(value, Decimal):
        return format(value, "f")
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def _ms(day: datetime) -> int:
    return int(day.replace(tzinfo=UTC).timestamp() * 1000)
