"""Lines of JSON with what was named at the call, and never what an exception says."""

import json
import logging
from collections.abc import Callable, Iterator

import pytest

from gateway.logs import LOGGER, configure, log, log_defect

Lines = Callable[[], list[dict[str, object]]]
PROMPT = "the patient's name is on page two"


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Iterator[Lines]:
    """Every line since the last look. The log is configured anew by each test: pytest swaps standard error between."""
    yield lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    LOGGER.handlers, LOGGER.propagate = [], True


def fails(prompt: str) -> None:
    """Fails as careless code does, with the text in the error."""
    raise ValueError(f"cannot parse {prompt!r}")


def test_a_line_has_time_level_event_and_the_fields_given(lines: Lines) -> None:
    configure("info")
    log(logging.INFO, "serving", port=8080, host="h")
    (line,) = lines()
    assert isinstance(line.pop("time"), float)
    assert line == {"level": "info", "event": "serving", "port": 8080, "host": "h"}


def test_a_level_that_is_off_writes_nothing(lines: Lines) -> None:
    configure("info")
    log(logging.DEBUG, "detail")
    assert lines() == []


def test_one_event_is_one_line_whatever_it_holds(lines: Lines) -> None:
    configure("info")
    log(logging.WARNING, "store", warning="two\nlines", kind=ValueError)
    (line,) = lines()
    assert line["warning"] == "two\nlines"
    assert line["kind"] == "<class 'ValueError'>"


def test_a_defect_shows_its_kind_and_place_and_not_its_text(lines: Lines) -> None:
    configure("info")
    try:
        fails(PROMPT)
    except ValueError as error:
        log_defect("defect", error, request_id="r-1")
    (line,) = lines()
    assert (line["event"], line["error"], line["request_id"]) == ("defect", "ValueError", "r-1")
    assert "patient" not in json.dumps(line)
    places = line["at"]
    assert isinstance(places, list)
    assert all(place.startswith("test_logs.py:") for place in places)
    assert len(places) == 2


def test_no_other_logger_sees_the_lines(lines: Lines) -> None:
    seen: list[logging.LogRecord] = []
    listener = logging.Handler()
    listener.handle = seen.append  # type: ignore[method-assign, assignment]
    logging.getLogger().addHandler(listener)
    configure("info")
    log(logging.INFO, "ours")
    logging.getLogger().removeHandler(listener)
    assert seen == []
    assert len(lines()) == 1
