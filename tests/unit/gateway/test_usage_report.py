"""Reports: what is summed up by what, and how it is written."""

import sys
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from budgets.record import Record, decoded, encoded, stream_of
from gateway.parquet import NoParquetError, write
from gateway.usage_report import Column, Settled, Span, blank, single, summed, written

RECORD = Record("acme", "main", "s,1", "demo", "any", "ok", "engine", 60, 10, 30, 123)
LAST_MS = 1_699_999_999_999


async def calls(*settled: Settled) -> AsyncIterator[Settled]:
    for each in settled:
        yield each


def test_a_record_is_small_and_reads_as_it_was_written() -> None:
    assert decoded(encoded(RECORD)) == RECORD
    assert len(encoded(RECORD)) < 100
    assert decoded(encoded(RECORD)[:-1] + b',"of a later version"]') == RECORD


def test_the_stream_is_under_the_tag_of_the_budgets() -> None:
    assert stream_of("acme", None) == "kvgate:1:{acme}:usage:acme"
    assert stream_of("acme", "group") == "kvgate:1:{group}:usage:acme"


async def test_sums_are_by_the_columns_that_are_asked() -> None:
    after_midnight = Settled(LAST_MS + 6_400_001, RECORD)
    rows = await summed(calls(Settled(LAST_MS, RECORD), after_midnight, Settled(LAST_MS, RECORD)), ("day", "session"))
    assert [(row["day"], row["session"], row["calls"], row["decode_tokens"]) for row in rows] == [
        ("2023-11-14", "s,1", 2, 60),
        ("2023-11-15", "s,1", 1, 30),
    ]
    assert list(written(rows, "csv", blank(("day", "session"))))[1].startswith('2023-11-14,"s,1",2,')


async def test_what_nobody_is_charged_for_is_in_no_sum_of_what_was_charged() -> None:
    absorbed = Settled(LAST_MS, msgspec.structs.replace(RECORD, label="operator", outcome="engine_failed"))
    summary = Settled(LAST_MS, msgspec.structs.replace(RECORD, label="summary"))
    every = (Settled(LAST_MS, RECORD), absorbed, summary)
    assert [row["calls"] for row in await summed(calls(*every), ("tenant", "outcome"))] == [2]
    by_label = await summed(calls(*every), ("tenant", "label"))
    assert {row["label"]: row["calls"] for row in by_label} == {"client": 1, "operator": 1, "summary": 1}
    assert len(await single(calls(*every))) == 3


COSTLY = msgspec.structs.replace(
    RECORD, reasoning_tokens=12, kv_byte_seconds=2**62, gpu_microseconds=1_500_001, money_nanos=350
)


async def test_costs_are_told_in_the_units_that_people_read_with_all_their_digits() -> None:
    rows = await summed(calls(*[Settled(LAST_MS, COSTLY)] * 3), ("tenant",))
    head, line = written(rows, "csv", blank(("tenant",)))
    assert dict(zip(head.split(","), line.split(","), strict=True)) == {
        "tenant": "acme",
        "calls": "3",
        "prefill_tokens": "180",
        "cached_tokens": "30",
        "decode_tokens": "90",
        "reasoning_tokens": "36",
        "kv_read_bytes": "369",
        "kv_byte_seconds": str(3 * 2**62),
        "gpu_seconds": "4.500003",
        "money": "0.000001050",
        "network_bytes": "0",
    }
    (text,) = written(rows, "jsonl", blank(("tenant",)))
    assert (
        '"kv_byte_seconds":13835058055282163712,"gpu_seconds":4.500003,"money":0.000001050,"network_bytes":0}' in text
    )


TENANT_DAY: tuple[Column, ...] = ("tenant", "day")


@pytest.mark.parametrize("by", [TENANT_DAY, ()])
async def test_a_report_of_nothing_has_the_columns_of_a_full_one(tmp_path: Path, by: tuple[Column, ...]) -> None:
    call = calls(Settled(LAST_MS, COSTLY))
    rows = await summed(call, by) if by else await single(call)
    assert list(written([], "csv", blank(by))) == list(written(rows, "csv", blank(by)))[:1]
    parquet = pytest.importorskip("pyarrow.parquet")
    for name, some in (("full", rows), ("empty", [])):
        write(some, tmp_path / name, blank(by))
    assert parquet.read_schema(tmp_path / "empty").equals(parquet.read_schema(tmp_path / "full"))
    assert parquet.read_metadata(tmp_path / "empty").num_rows == 0


async def test_parquet_holds_what_the_other_forms_do(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for number, (rows, by) in enumerate(
        (
            (await summed(calls(*[Settled(LAST_MS, COSTLY)] * 3), TENANT_DAY), TENANT_DAY),
            (await single(calls(Settled(1, RECORD))), ()),
        )
    ):
        write(rows, tmp_path / f"{number}.parquet", blank(by))
        assert parquet.read_table(tmp_path / f"{number}.parquet").to_pylist() == rows
    schema = parquet.read_schema(tmp_path / "0.parquet")
    types = {name: str(schema.field(name).type) for name in ("tenant", "calls", "kv_read_bytes", "money")}
    assert types == {
        "tenant": "string",
        "calls": "int64",
        "kv_read_bytes": "decimal128(38, 0)",
        "money": "decimal128(38, 9)",
    }


def test_without_the_library_parquet_is_a_line_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(NoParquetError, match=r"pip install 'kvgate\[parquet\]'"):
        write([], tmp_path / "usage.parquet", blank(()))


async def test_a_record_of_before_is_read_as_one_without_costs() -> None:
    old = b'["acme","main","s","demo","any","ok","engine",60,10,30,123,"client",1]'
    (row,) = await single(calls(Settled(LAST_MS, decoded(old))))
    assert (row["version"], row["kv_read_bytes"], row["money"], row["reasoning_tokens"]) == (1, 123, 0, 0)


async def test_single_calls_have_their_moment() -> None:
    (row,) = await single(calls(Settled(LAST_MS, RECORD)))
    assert row["at"] == "2023-11-14T22:13:19.999+00:00"
    assert row["kv_read_bytes"] == 123


def test_nothing_is_no_line_of_json() -> None:
    assert list(written([], "jsonl", blank(()))) == []


def test_a_span_is_of_whole_days_and_its_last_day_is_in_it() -> None:
    day = datetime(2023, 11, 14)
    assert Span.of_days(day, day) == Span(1_699_920_000_000, 1_700_006_399_999)
    assert Span.of_days(None, None) == Span()


def test_no_cell_of_csv_is_a_formula() -> None:
    row: dict[str, str | int] = {
        "session": "=cmd",
        "key": "+1",
        "model": "@x",
        "pool": "-2",
        "label": "a=b",
        "calls": -3,
    }
    assert list(written([row], "csv", row))[1] == "'=cmd,'+1,'@x,'-2,a=b,-3"
    assert '"=cmd"' in next(iter(written([row], "jsonl", row)))
