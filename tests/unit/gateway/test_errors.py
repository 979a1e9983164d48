"""Every fault has an answer, and an answer says what the SDKs need to tell faults apart."""

from collections.abc import Iterator
from http import HTTPStatus

import pytest

from gateway import errors
from gateway.errors import ANSWERS, ClientFault, EngineFault, Fault, OurFault
from gateway.responder import STATUS_LINES

SIDES = (ClientFault, EngineFault, OurFault)


def below(kind: type[Fault]) -> Iterator[type[Fault]]:
    for child in kind.__subclasses__():
        yield child
        yield from below(child)


CONCRETE = [kind for kind in below(Fault) if kind not in SIDES and kind.__module__ == errors.__name__]


def test_every_fault_has_a_row_and_every_row_a_fault() -> None:
    assert set(ANSWERS) == set(CONCRETE)


@pytest.mark.parametrize("kind", CONCRETE)
def test_every_fault_is_somebodys(kind: type[Fault]) -> None:
    assert sum(issubclass(kind, side) for side in SIDES) == 1


@pytest.mark.parametrize("kind", CONCRETE)
def test_the_status_tells_whose_fault_it_is(kind: type[Fault]) -> None:
    status = ANSWERS[kind].status
    if issubclass(kind, ClientFault):
        assert 400 <= status < 500
    elif kind is errors.Saturated:
        assert status == HTTPStatus.TOO_MANY_REQUESTS  # the SDKs wait and try again
    else:
        assert status >= 500
    assert status in STATUS_LINES


@pytest.mark.parametrize("kind", CONCRETE)
def test_what_a_client_caused_is_not_worth_a_retry_unless_time_heals_it(kind: type[Fault]) -> None:
    if issubclass(kind, ClientFault):
        assert kind.retryable == (kind in (errors.RateLimited, errors.HistoryBusy))


def test_codes_are_distinct_where_they_are_given() -> None:
    codes = [row.code for row in ANSWERS.values() if row.code is not None]
    assert len(codes) == len(set(codes))


def test_an_answer_carries_what_the_fault_carries() -> None:
    fault = errors.ContextTooLong("too long", param="messages", headers=((b"a", b"b"),), extra={"limit": 8})
    assert errors.answer(fault) == errors.ErrorReply(
        400, "invalid_request_error", "context_length_exceeded", "too long", "messages", ((b"a", b"b"),), {"limit": 8}
    )
