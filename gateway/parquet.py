"""A report as a Parquet file, for whoever keeps accounts in a data lake.

Rule: nothing is rounded. Amounts of bytes have 38 digits, because a fleet reads more in a month than 64 bits count;
time of GPUs and money are decimals. The library is the extra `kvgate[parquet]`, imported when a file is written.
"""

import importlib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from gateway.usage_report import DECIMALS, Row

DIGITS: Final = 38
LARGE: Final = ("kv_read_bytes", "kv_byte_seconds")


class NoParquetError(Exception):
    """The library is not here."""


def write(rows: Sequence[Row], file: Path, blank: Row) -> None:
    """The rows as one file, with the columns of a blank one.

    Raises `NoParquetError`, or `OSError` for a file that cannot be written.
    """
    arrow, parquet = _library()
    columns = {
        name: arrow.array([_value(name, row[name]) for row in rows], _type(arrow, name, value))
        for name, value in blank.items()
    }
    parquet.write_table(arrow.table(columns), str(file))


def _library() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise NoParquetError("--format parquet needs pyarrow: pip install 'kvgate[parquet]'") from None


def _value(name: str, value: str | int | Decimal) -> str | int | Decimal:
    return Decimal(value) if name in LARGE else value


def _type(arrow: Any, name: str, value: str | int | Decimal) -> Any:
    decimals = dict(DECIMALS.values())
    if name in decimals or name in LARGE:
        return arrow.decimal128(DIGITS, decimals.get(name, 0))
    return arrow.string() if isinstance(value, str) else arrow.int64()
