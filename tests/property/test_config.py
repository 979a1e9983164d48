"""Whatever stands in a file, loading it gives a configuration or says where the mistake is."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from config.load import parse
from config.problems import ConfigError
from config.units import parse_duration
from tests.unit.config.samples import RIGHT

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10**12),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=8),
    st.sampled_from(
        ["demo", "standard", "32k", "1m", "env:X", "http://h:1", "trim_tool_output", "2TB", "llama-3.1-8b"]
    ),
    st.just([]),
    st.just({}),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.sampled_from(["name", "kind", "url", "x"]), st.text(max_size=4), max_size=2),
)


def places(part: object, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place below a part."""
    entries = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for step, entry in entries:
        yield (*above, step)
        yield from places(entry, (*above, step))


PLACES = sorted(places(dict(RIGHT)), key=str)


def replaced(data: Any, place: tuple[str | int, ...], value: object) -> None:
    for step in place[:-1]:
        data = data[step]
    data[place[-1]] = value


@given(st.lists(st.tuples(st.sampled_from(PLACES), JUNK), min_size=1, max_size=3))
def test_junk_anywhere_is_taken_or_told(changes: list[tuple[tuple[str | int, ...], object]]) -> None:
    data = deepcopy(dict(RIGHT))
    for place, value in changes:
        try:
            replaced(data, place, value)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change has taken the place away
    try:
        loaded = parse(yaml.safe_dump(data))
    except ConfigError as fault:
        assert fault.problems
        assert all(problem.message for problem in fault.problems)
    else:
        for tenant in loaded.tenants.values():
            assert loaded.effective(tenant).tenant == tenant.name
        assert all(loaded.pools_for(model) for model in loaded.models.values())


@given(st.text(max_size=60))
def test_any_text_is_a_file_or_told(text: str) -> None:
    try:
        parse(text)
    except ConfigError as fault:
        assert fault.problems


@given(st.integers(0, 99), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_durations_add_up(days: int, hours: int, minutes: int, seconds: int, milliseconds: int) -> None:
    expected = days * 86_400 + hours * 3_600 + minutes * 60 + seconds + milliseconds / 1_000
    assert abs(parse_duration(f"{days}d{hours}h{minutes}m{seconds}s{milliseconds}ms") - expected) < 1e-6
