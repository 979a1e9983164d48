"""Durations, counts and sizes as people write them."""

from collections.abc import Callable

import pytest

from config.units import parse_count, parse_duration, parse_size, plain_numbers


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("30s", 30),
        ("30m", 1_800),
        ("1h30m", 5_400),
        ("1h 30m", 5_400),
        ("2d", 172_800),
        ("1w", 604_800),
        ("1.5h", 5_400),
        ("0.1s", 0.1),
        (" 5s ", 5),
        (15, 15),
        (0.5, 0.5),
        ("15", 15),
        (0, 0),
    ],
)
def test_durations(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("200", 200),
        ("32k", 32_000),
        ("32K", 32_000),
        ("32Ki", 32_768),
        ("1.5k", 1_500),
        ("2M", 2_000_000),
        ("2Mi", 2 * 1024**2),
        ("3G", 3 * 10**9),
        ("3Gi", 3 * 1024**3),
        ("4Ti", 4 * 1024**4),
        ("5Pi", 5 * 1024**5),
        ("1_000", 1_000),
        ("1 k", 1_000),
        (7, 7),
        (7.0, 7),
        (0, 0),
    ],
)
def test_counts(text: object, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500kB", 500_000),
        ("2TB", 2 * 10**12),
        ("64MiB", 64 * 1024**2),
        ("64Mi", 64 * 1024**2),
        ("64mib", 64 * 1024**2),
        ("10B", 10),
        ("1PB", 10**15),
        (4096, 4096),
    ],
)
def test_sizes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("parse", [parse_duration, parse_count, parse_size])
@pytest.mark.parametrize("value", ["", "-1s", "k", "1x", "1 2", "1e3", None, True, [], {}, "½"])
def test_anything_else_says_what_was_expected(parse: Callable[[object], float], value: object) -> None:
    with pytest.raises(ValueError, match="expected a"):
        parse(value)


@pytest.mark.parametrize(
    ("parse", "value", "expected"),
    [
        (parse_duration, "30 minutes", "30m, 1h30m"),
        (parse_count, "2TB", r"32k \(32,000\)"),
        (parse_count, "1.5", "and a whole number"),
        (parse_size, "1.0001kB", "and a whole number"),
        (parse_duration, float("inf"), "finite"),
        (parse_count, float("nan"), "finite"),
    ],
)
def test_errors_name_the_form(parse: Callable[[object], float], value: object, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        parse(value)


def test_numbers_for_models_that_know_plain_ones_only() -> None:
    part = {
        "max_tokens": "4k",
        "age_seconds": "1h",
        "memory_bytes": "80GB",
        "memory_bytes_per_second": "3TB",
        "total_params": "8G",
        "name": "4k",
        "groups": [{"window_tokens": "1Ki"}],
        "odd_tokens": "many",
    }
    assert plain_numbers(part) == {
        "max_tokens": 4_000,
        "age_seconds": 3_600,
        "memory_bytes": 80 * 10**9,
        "memory_bytes_per_second": 3 * 10**12,
        "total_params": 8 * 10**9,
        "name": "4k",
        "groups": [{"window_tokens": 1_024}],
        "odd_tokens": "many",
    }
