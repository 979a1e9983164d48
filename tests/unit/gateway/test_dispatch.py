"""Every call to an engine: what goes out, when another replica is tried, and that a broken stream says so."""

import json

import pytest

from backends.pool import NoReplica
from gateway import errors
from gateway.clock import monotonic
from gateway.dispatch import JITTER_SECONDS, no_replica
from tests.unit.gateway.engines import DONE, HELLO, OK, STOP, STREAM, chat, dispatched, engines, whole
from tests.unit.gateway.samples import KEY
from tests.unit.gateway.streams import sent as streamed

ANSWER = b'{"id":"x","model":"demo","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}'
FAILURES = {
    "refuses": b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n",
    "is busy": whole(b'{"error":{"message":"queue full","type":"x"}}', b"503 Service Unavailable"),
    "closes": b"",
    "dies after its head": STREAM,
    "dies in its first frame": STREAM + HELLO[:20],
    "dies in a whole answer": OK + b"content-length: 100\r\n\r\n{",
    "does not speak HTTP": b"SSH-2.0-x\r\n\r\n",
    "rejects our key": whole(b'{"error":"Unauthorized"}', b"401 Unauthorized"),
}


async def test_an_answer_reaches_the_client_as_it_came() -> None:
    async with engines([whole(ANSWER)]) as made:
        sent = await dispatched(chat(), made)
    assert (sent.status, sent.body, sent.delivery.outcome) == (200, ANSWER, "ok")
    assert b"x-request-id: r-1\r\n" in sent.line.bytes
    assert sent.delivery.usage is not None and sent.delivery.usage.prompt_tokens == 9


async def test_what_goes_out_is_the_body_and_headers_of_ours() -> None:
    call = chat(temperature=0.5)
    async with engines([whole(ANSWER)]) as made:
        await dispatched(call, made, engine_key="env:ENGINE_KEY", features={"cache_salt": False})
    head, _, body = made[0].asked[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert b"authorization: Bearer engine-secret" in head
    assert KEY.encode() not in made[0].asked[0]
    assert body == call.body


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_a_failure_before_the_first_byte_is_tried_elsewhere(failure: bytes) -> None:
    async with engines([failure], [STREAM + HELLO + STOP + DONE]) as made:
        sent = await dispatched(chat(stream=True), made)
    assert [len(engine.asked) for engine in made] == [1, 1]
    assert streamed(sent.line) == HELLO + STOP + DONE
    assert (sent.delivery.outcome, sent.delivery.replica) == ("ok", "replica-1")


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_when_all_fail_the_last_fault_is_the_answer(failure: bytes) -> None:
    async with engines([failure], [failure]) as made:
        with pytest.raises(errors.EngineFault) as failed:
            await dispatched(chat(), made)
    assert [len(engine.asked) for engine in made] == [1, 1]
    assert "127.0.0.1" not in failed.value.message


async def test_no_more_engines_are_asked_than_a_call_has_attempts() -> None:
    async with engines(*[[FAILURES["refuses"]]] * 4) as made:
        with pytest.raises(errors.EngineError):
            await dispatched(chat(), made)
    assert sum(len(engine.asked) for engine in made) == 2


async def test_calls_that_failed_together_do_not_come_back_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a call waits before it is tried again is left to chance."""
    for chance in (0.0, 1.0):
        monkeypatch.setattr("random.random", lambda chance=chance: chance)
        async with engines([FAILURES["refuses"]], [whole(ANSWER)]) as made:
            began = monotonic()
            await dispatched(chat(), made)
        assert monotonic() - began >= chance * JITTER_SECONDS


async def test_what_the_client_did_wrong_is_told_and_not_tried_again() -> None:
    error = b'{"error":{"message":"temperature must be non-negative","type":"BadRequestError","param":null,"code":400}}'
    async with engines([whole(error, b"400 Bad Request")], [whole(ANSWER)]) as made:
        sent = await dispatched(chat(), made)
    assert (sent.status, sent.body, sent.delivery.outcome) == (400, error, "engine_refused")
    assert made[1].asked == []


async def test_a_stream_that_breaks_off_ends_in_an_error_event_and_no_done() -> None:
    async with engines([STREAM + HELLO + STOP[:30]], [whole(ANSWER)]) as made:
        sent = await dispatched(chat(stream=True), made)
    body = streamed(sent.line)
    assert body.startswith(HELLO)
    event = json.loads(body.removeprefix(HELLO).removeprefix(b"data: "))
    assert event["error"]["code"] == "engine_broke_off"
    assert b"[DONE]" not in body
    assert (sent.delivery.outcome, made[1].asked) == ("broken", [])
    assert sent.line.kept is True


async def test_an_engines_own_error_event_passes_unchanged() -> None:
    event = b'data: {"error":{"message":"out of blocks","type":"x","code":500}}\n\n'
    async with engines([STREAM + HELLO + event + DONE]) as made:
        sent = await dispatched(chat(stream=True), made)
    assert streamed(sent.line) == HELLO + event + DONE
    assert sent.delivery.outcome == "broken"


async def test_the_model_is_called_what_the_client_called_it() -> None:
    async with engines([whole(ANSWER)]) as made:
        sent = await dispatched(chat(model="gpt-4o-mini"), made)
    assert json.loads(made[0].asked[0].partition(b"\r\n\r\n")[2])["model"] == "demo"
    assert sent.body == ANSWER.replace(b'"demo"', b'"gpt-4o-mini"')


async def test_attempts_are_counted_by_replica_and_outcome() -> None:
    async with engines([FAILURES["closes"]], [whole(ANSWER)]) as made:
        sent = await dispatched(chat(), made)
    assert sent.metrics.attempts.values == {("main", "replica-0", "failure"): 1, ("main", "replica-1", "success"): 1}


@pytest.mark.parametrize(
    ("reason", "fault"),
    [
        ("saturated", errors.Saturated),
        ("timeout", errors.Saturated),
        ("unhealthy", errors.NoReplica),
        ("draining", errors.NoReplica),
    ],
)
def test_why_there_is_no_replica(reason: str, fault: type[errors.Fault]) -> None:
    found = no_replica(NoReplica(reason))  # type: ignore[arg-type]
    assert type(found) is fault
    assert dict(found.headers)[b"retry-after"] == b"1"
