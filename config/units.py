"""Durations, counts, sizes and money as people write them: `30m`, `32k`, `2TB`, `0.15`.

Rule: a plain number is in the base unit (seconds, pieces, bytes); an error says what was expected. Decimal prefixes
are powers of 1,000 and those with an `i` powers of 1,024, in every type.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

SECONDS: Mapping[str, Decimal] = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3_600),
    "d": Decimal(86_400),
    "w": Decimal(604_800),
}
PREFIXES: Mapping[str, int] = {
    "": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15,
    "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "pi": 2**50,
}  # fmt: skip

_NUMBER = r"\d+(?:_\d+)*(?:\.\d+)?"
_DURATION = re.compile(rf"(?:{_NUMBER}(?:ms|[smhdw])\s*)+")
_DURATION_PART = re.compile(rf"({_NUMBER})(ms|[smhdw])")
_SCALED = re.compile(rf"({_NUMBER})\s*([kmgtp]?i?)(b?)", re.IGNORECASE)

DURATION_EXPECTED = "a duration such as 250ms, 30s, 30m, 1h30m or 2d, or a number of seconds"
COUNT_EXPECTED = "a count such as 200, 32k (32,000) or 32Ki (32,768)"
SIZE_EXPECTED = "a size in bytes such as 500kB, 2TB or 64MiB, or a number of bytes"
SHARE_EXPECTED = "a share such as 80%, or a number between 0 and 1"
MONEY_EXPECTED = "an amount of money such as 12, 2.49 or 0.15, with at most nine decimals"
WEIGHT_EXPECTED = "a weight from 0 to 100, such as 1, 0.1 or 2.5, with at most three decimals"
NANOS = 10**9
"""Money is kept in billionths of whatever currency all prices of a file are in."""


def parse_duration(value: object) -> float:
    """Seconds; `ValueError` for anything that is neither a number nor a duration."""
    if (number := _number(value)) is not None:
        return float(number)
    text = value.strip() if isinstance(value, str) else ""
    if not _DURATION.fullmatch(text):
        raise ValueError(f"expected {DURATION_EXPECTED}")
    return float(sum(Decimal(number) * SECONDS[unit] for number, unit in _DURATION_PART.findall(text)))


def parse_count(value: object) -> int:
    """A whole number of pieces; `ValueError` for anything else."""
    return _scaled(value, COUNT_EXPECTED, unit="")


def parse_size(value: object) -> int:
    """A whole number of bytes; `ValueError` for anything else."""
    return _scaled(value, SIZE_EXPECTED, unit="b")


def parse_share(value: object) -> float:
    """A part of a whole; `ValueError` for anything that is not between 0 and 1, both left out."""
    percent = isinstance(value, str) and value.strip().endswith("%")
    number = _number(str(value).strip().removesuffix("%").rstrip() if percent else value)
    share = None if number is None else float(number / 100 if percent else number)
    if share is None or not 0 < share < 1:
        raise ValueError(f"expected {SHARE_EXPECTED}")
    return share


def parse_money(value: object) -> int:
    """Billionths of the currency; `ValueError` for anything that is no number or has more than nine decimals."""
    if (number := _number(value)) is None or (nanos := number * NANOS) != int(nanos):
        raise ValueError(f"expected {MONEY_EXPECTED}")
    return int(nanos)


def parse_weight(value: object, parts: int) -> int:
    """A weight in so many parts of 1; `ValueError` for anything that is no number from 0 to 100 or is finer."""
    number = _number(value)
    if number is None or not 0 <= number <= 100 or (whole := number * parts) != int(whole):
        raise ValueError(f"expected {WEIGHT_EXPECTED}")
    return int(whole)


def plain_numbers(part: object) -> object:
    """A part of the file for a model that knows plain numbers only: the ends of names say what their values are.

    What cannot be read stays as it is, for the model's own check to name.
    """
    if isinstance(part, Mapping):
        return {key: _plain(str(key), value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [plain_numbers(entry) for entry in part]
    return part


def _plain(name: str, value: object) -> object:
    parse = next((parse for end, parse in ENDS.items() if name.endswith(end)), None)
    if parse is None or not isinstance(value, str):
        return plain_numbers(value)
    try:
        return parse(value)
    except ValueError:
        return value


ENDS: Mapping[str, Callable[[object], float]] = {
    "_tokens": parse_count,
    "_params": parse_count,
    "_seconds": parse_duration,
    "keep_original": parse_duration,
    "_bytes": parse_size,
    "_bytes_per_second": parse_size,
}


def _scaled(value: object, expected: str, unit: str) -> int:
    if (number := _number(value)) is None:
        match = _SCALED.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None or match[2].lower() not in PREFIXES or match[3].lower() not in ("", unit):
            raise ValueError(f"expected {expected}")
        number = Decimal(match[1]) * PREFIXES[match[2].lower()]
    if number != int(number):
        raise ValueError(f"expected {expected}, and a whole number")
    return int(number)


def _number(value: object) -> Decimal | None:
    """A number, or a text of nothing but one (as environment variables and quoted YAML give it)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and re.fullmatch(_NUMBER, value.strip()):
        return Decimal(value.strip())
    if not isinstance(value, int | float):
        return None
    if not abs(value) < float("inf"):
        raise ValueError("expected a finite number")
    return Decimal(str(value))


def _schema(kind: str, expected: str) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"type": kind}, {"type": "string"}], "description": expected})


def _before(parse: Callable[[object], float]) -> BeforeValidator:
    return BeforeValidator(parse)


Duration = Annotated[float, _before(parse_duration), Field(ge=0), _schema("number", DURATION_EXPECTED)]
"""Seconds, zero allowed."""

Count = Annotated[int, _before(parse_count), Field(ge=0), _schema("integer", COUNT_EXPECTED)]
"""Pieces (tokens, requests), zero allowed."""

Size = Annotated[int, _before(parse_size), Field(ge=0), _schema("integer", SIZE_EXPECTED)]
"""Bytes, zero allowed."""

Share = Annotated[float, _before(parse_share), _schema("number", SHARE_EXPECTED)]
"""A part of a whole, between 0 and 1."""
Money = Annotated[int, _before(parse_money), Field(ge=0), _schema("number", MONEY_EXPECTED)]
"""Billionths of the currency, zero allowed."""
