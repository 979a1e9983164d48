"""One record a settled call, in the script that settles it, and reports that add up to what was charged."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from budgets.ledger import Amounts, Grant, Scope, reserve, settle
from budgets.limit import Limit
from budgets.record import Entry, Record, decoded, encoded, stream_of
from gateway.embedded import EmbeddedServer
from gateway.store import Store
from tests import program
from tests.house import house

TOKENS = Limit(name="tokens", dimension="total_tokens", amount=1000, per_seconds=1e6)
RECORD = Record("acme", "main", "s-1", "demo", "any", "ok", "engine", 60, 10, 30, 123)
STREAM = stream_of("acme", None)
ONE: Amounts = {"total_tokens": 100}


async def granted(store: Store, *limits: Limit) -> Grant:
    answer = await reserve(store.run, Scope("acme", limits), ONE)
    assert isinstance(answer, Grant)
    return answer


async def records(store: Store, stream: str = STREAM) -> list[Record]:
    found = await store.command("XRANGE", stream, "-", "+")
    assert isinstance(found, list)
    return [decoded(fields[1]) for _, fields in found]


async def test_a_call_settled_twice_is_recorded_once(store: Store) -> None:
    one = await granted(store, TOKENS)
    assert await settle(store.run, one, ONE, Entry(STREAM, 10, (RECORD,)))
    assert not await settle(store.run, one, ONE, Entry(STREAM, 10, (RECORD,)))
    assert await records(store) == [RECORD]
    left = await store.command("PTTL", STREAM)
    assert isinstance(left, int) and left > 399 * 86_400_000


async def test_a_call_without_limits_is_recorded_too_and_once(store: Store) -> None:
    one = await granted(store)
    assert await settle(store.run, one, ONE, Entry(STREAM, 10, (RECORD,)))
    assert not await settle(store.run, one, ONE, Entry(STREAM, 10, (RECORD,)))
    assert await settle(store.run, await granted(store), ONE, Entry(STREAM, 10, (RECORD,)))
    assert await records(store) == [RECORD] * 2
    keys = await store.command("KEYS", "*")
    assert isinstance(keys, list) and {*keys} == {STREAM.encode(), b"kvgate:1:{acme}:recorded"}
    left = await store.command("PTTL", "kvgate:1:{acme}:recorded")
    assert isinstance(left, int) and left > 3_600_000  # as long as anybody may send it again


async def test_a_stream_keeps_about_as_many_as_it_should(store: Store) -> None:
    for _ in range(300):
        await settle(store.run, await granted(store), ONE, Entry(STREAM, 100, (RECORD,)))
    assert 100 <= len(await records(store)) <= 200


async def test_what_is_recorded_is_what_was_charged(valkey: EmbeddedServer) -> None:
    async with house(valkey.url) as running:
        for number in range(4):
            assert (await running.chat(f"call {number}", session_id=f"s-{number % 2}")).status_code == 200
        await running.chat(model="nope")
        await running.quiet()
        found = await records(running.gateway.store)
        assert len(found) == 4
        assert {record.session for record in found} == {"s-0", "s-1"}
        assert {(each.tenant, each.key, each.model, each.pool, each.outcome, each.source) for each in found} == {
            ("acme", "main", "demo", "any", "ok", "engine")
        }
        total = sum(each.prefill_tokens + each.cached_tokens + each.decode_tokens for each in found)
        assert total == await running.charged()
        assert sum(each.kv_read_bytes for each in found) == await running.metric("kvgate_kv_read_bytes_total")


async def test_a_tier_may_keep_none(valkey: EmbeddedServer) -> None:
    def change(data: dict[str, Any]) -> None:
        data["tiers"]["standard"]["usage_records"] = 0

    async with house(valkey.url, change=change) as running:
        assert (await running.chat()).status_code == 200
        await running.quiet()
        assert await running.gateway.store.command("EXISTS", STREAM) == 0


DAY_MS = 86_400_000
NOON_MS = 1_699_963_200_000  # of 2023-11-14


@pytest.fixture
async def recorded(store: Store, valkey: EmbeddedServer, tmp_path: Path) -> Path:
    """A folder with a configuration, and a store with 2,400 calls of three days by two tenants."""
    program.file(tmp_path)
    for number in range(2_400):
        tenant = "zeta" if number % 5 == 0 else "acme"
        record = Record(tenant, "main", "", f"m-{number % 2}", "any", "ok", "engine", 1, 2, 3, number)
        at = f"{NOON_MS + number // 800 * DAY_MS + number}-0"
        await store.command("XADD", stream_of(tenant, None), at, "r", encoded(record))
    return tmp_path


async def usage(folder: Path, valkey: EmbeddedServer, *arguments: str) -> list[str]:
    ended = await program.run(folder, "usage", "-c", "kvgate.yaml", *arguments, KVGATE_STORE_URL=valkey.url)
    assert (ended.code, ended.lines) == (0, [])
    return ended.out.splitlines()


async def test_a_report_sums_up_by_what_is_asked(recorded: Path, valkey: EmbeddedServer) -> None:
    rows = list(csv.DictReader(await usage(recorded, valkey)))
    assert list(rows[0]) == [
        *("tenant", "model", "day", "calls"),
        *("prefill_tokens", "cached_tokens", "decode_tokens", "reasoning_tokens"),
        *("kv_read_bytes", "kv_byte_seconds", "gpu_seconds", "money", "network_bytes"),
    ]
    assert len(rows) == 2 * 2 * 3
    assert sum(int(row["calls"]) for row in rows) == 2_400
    assert sum(int(row["kv_read_bytes"]) for row in rows) == sum(range(2_400))
    assert {row["day"] for row in rows} == {"2023-11-14", "2023-11-15", "2023-11-16"}


async def test_a_report_of_one_tenant_and_one_day(recorded: Path, valkey: EmbeddedServer) -> None:
    only = ("--tenant", "zeta", "--since", "2023-11-15", "--until", "2023-11-15", "--format", "jsonl")
    assert [json.loads(line) for line in await usage(recorded, valkey, *only, "--by", "tenant")] == [
        {
            "tenant": "zeta",
            "calls": 160,
            "prefill_tokens": 160,
            "cached_tokens": 320,
            "decode_tokens": 480,
            "reasoning_tokens": 0,
            "kv_read_bytes": sum(range(800, 1600, 5)),
            "kv_byte_seconds": 0,
            "gpu_seconds": 0,
            "money": 0,
            "network_bytes": 0,
        }
    ]
    calls = [json.loads(line) for line in await usage(recorded, valkey, *only, "--by", "")]
    assert len(calls) == 160
    assert calls[0]["at"].startswith("2023-11-15T12:00:00.800")
    assert calls[0]["label"] == "client"


async def test_a_report_goes_into_a_file_too(recorded: Path, valkey: EmbeddedServer) -> None:
    assert await usage(recorded, valkey, "-o", "usage.csv") == []
    assert (recorded / "usage.csv").read_text().splitlines() == await usage(recorded, valkey)
    parquet = pytest.importorskip("pyarrow.parquet")
    assert await usage(recorded, valkey, "--by", "", "--format", "parquet", "--output", "usage.parquet") == []
    assert parquet.read_metadata(recorded / "usage.parquet").num_rows == 2_400


async def test_a_report_of_a_span_without_calls_has_its_columns(recorded: Path, valkey: EmbeddedServer) -> None:
    before = ("--until", "2001-01-01")
    for by in ("tenant,model,day", ""):
        assert await usage(recorded, valkey, *before, "--by", by) == (await usage(recorded, valkey, "--by", by))[:1]
    assert await usage(recorded, valkey, *before, "--format", "jsonl") == []
    parquet = pytest.importorskip("pyarrow.parquet")
    for file, span in (("full", ()), ("empty", before)):
        assert await usage(recorded, valkey, *span, "--format", "parquet", "-o", file) == []
    assert parquet.read_schema(recorded / "empty").equals(parquet.read_schema(recorded / "full"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--format", "parquet"), "--format parquet needs --output FILE"),
        (("--by", "colour"), "--by colour: choose from tenant, key, session, model, pool"),
    ],
)
async def test_what_cannot_be_reported_is_said_in_a_line(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    program.file(tmp_path)
    ended = await program.run(tmp_path, "usage", "-c", "kvgate.yaml", *arguments)
    assert ended.code == 1
    assert len(ended.lines) == 1 and ended.lines[0].startswith(said)


async def test_without_a_running_gateway_there_is_no_embedded_store_to_ask(tmp_path: Path) -> None:
    program.file(tmp_path)
    ended = await program.run(tmp_path, "usage", "-c", "kvgate.yaml")
    assert ended.code == 1
    assert len(ended.lines) == 1 and ended.lines[0].endswith("start the gateway, or set KVGATE_STORE_URL")


async def test_the_embedded_store_of_a_running_gateway_is_asked(tmp_path: Path) -> None:
    async with program.serving(program.file(tmp_path)):
        ended = await program.run(tmp_path, "usage", "-c", "kvgate.yaml")
        assert (ended.code, ended.out.count("\n"), ended.lines) == (0, 1, [])
