"""The closed table of routes, and how each refusal reads."""

import json

import pytest

from gateway.call import Request
from gateway.routes import DIALECTS, normal
from tests.unit.gateway.samples import BEARER, KEY, responder
from tests.unit.gateway.wholes import Front

JSON = {b"content-type": b"application/json"}
BODY = b'{"model":"demo","messages":[{"role":"user","content":"Hi"}]}'


def request(method: str, path: str, headers: dict[bytes, bytes] | None = None, body: bytes = BODY) -> Request:
    return Request(method, path, {**BEARER, **JSON} if headers is None else headers, body)


def status(answer: bytes) -> int:
    return int(answer.split(b" ")[1])


def error(answer: bytes) -> dict[str, object]:
    found: dict[str, object] = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    return found


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/v1/models", "/v1/models"),
        ("/models", "/v1/models"),
        ("/v1", "/v1"),
        ("/", "/v1"),
    ],
)
def test_base_urls_with_and_without_v1(path: str, expected: str) -> None:
    assert normal(path) == expected


@pytest.mark.parametrize(
    "path",
    [
        "",
        "*",
        "/",
        "/v1",
        "/v2/chat/completions",
        "/v1/v1/v1/chat/completions",
        "/v1beta/chat/completions",
        "/v1/chat/completions/x",
        "/V1/chat/completions",
        "//v1/chat/completions",
        "/v1/../v1/chat/completions",
        "/v1/audio/speech",
        "/metrics",
        "/tokenize",
        "/v1/modelsx",
        "/v1/load_lora_adapter",
        "/abort_requests",
        "/scale_elastic_ep",
        "/is_sleeping",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_what_is_not_in_the_table_is_a_404(path: str, method: str) -> None:
    front = Front()
    answer = await front.ask(request(method, path))
    assert (status(answer), error(answer)["code"]) == (404, "unknown_url")
    assert all(path in str(error(answer)["message"]) for path in DIALECTS), "a wrong base URL is soon mended"
    assert front.books.opened == 0


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
async def test_what_comes_later_says_so(path: str) -> None:
    answer = await Front().ask(request("POST", path))
    assert status(answer) == 404
    assert "not served yet" in str(error(answer)["message"])


@pytest.mark.parametrize("path", sorted(DIALECTS))
async def test_routes_of_engines_take_post_only(path: str) -> None:
    answer = await Front().ask(request("GET", path))
    assert status(answer) == 405
    assert b"\r\nallow: POST\r\n" in answer


@pytest.mark.parametrize("path", ["/v1/models", "/healthz", "/readyz"])
async def test_look_ups_take_get_only_and_name_the_path_as_asked(path: str) -> None:
    answer = await Front().ask(request("POST", path))
    assert status(answer) == 405
    assert b"\r\nallow: GET, HEAD\r\n" in answer
    assert str(error(answer)["message"]).startswith(f"{path} takes")


@pytest.mark.parametrize("path", [*sorted(DIALECTS), "/v1/models", "/v1/models/demo"])
async def test_every_route_but_the_probes_needs_a_key(path: str) -> None:
    method = "POST" if path in DIALECTS else "GET"
    front = Front()
    for headers in ({}, {b"x-api-key": b"sk-guessed"}):
        answer = await front.ask(request(method, path, {**headers, **JSON}))
        assert (status(answer), error(answer)["code"]) == (401, "invalid_api_key")
        assert b"guessed" not in answer
    assert front.books.opened == 0


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_probes_need_none(path: str) -> None:
    assert status(await Front().ask(request("GET", path, {}))) == 200


async def test_not_ready_says_why() -> None:
    front = Front(not_ready="no healthy replica")
    ready, healthy = await front.ask(request("GET", "/readyz", {})), await front.ask(request("GET", "/healthz", {}))
    assert (status(ready), status(healthy)) == (503, 200)
    assert ready.endswith(b"no healthy replica\n")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {b"content-type": b"text/plain"},
        {b"content-type": b"application/x-www-form-urlencoded"},
        JSON | {b"content-encoding": b"gzip"},
    ],
)
async def test_bodies_are_plain_json(headers: dict[bytes, bytes]) -> None:
    answer = await Front().ask(request("POST", "/v1/chat/completions", {**BEARER, **headers}))
    assert status(answer) == 400


@pytest.mark.parametrize("kind", [b"application/json; charset=utf-8", b"Application/JSON", b" application/json "])
async def test_json_may_be_declared_in_many_ways(kind: bytes) -> None:
    front = Front()
    await front.ask(request("POST", "/v1/chat/completions", {**BEARER, b"content-type": kind}))
    assert front.books.opened == 1


async def test_an_unknown_model_is_a_404_before_anything_is_reserved() -> None:
    front = Front()
    answer = await front.ask(request("POST", "/v1/chat/completions", body=BODY.replace(b"demo", b"nothing")))
    assert (status(answer), error(answer)["code"], error(answer)["param"]) == (404, "model_not_found", "model")
    assert front.books.opened == 0


async def test_a_defect_is_a_500_that_tells_nothing() -> None:
    front = Front()
    answer = await front.ask(request("POST", "/v1/chat/completions"))
    assert (status(answer), error(answer)["code"]) == (500, "internal_error")
    assert b"prompt" not in answer
    assert front.metrics.faults.values == {("request",): 1}


async def test_every_answer_has_a_request_id_of_ours() -> None:
    front = Front()
    theirs = {**BEARER, b"x-request-id": b"theirs"}
    seen = set()
    for path in ("/v1/models", "/v1/models", "/nowhere"):
        answer = await front.ask(request("GET", path, theirs))
        (line,) = [line for line in answer.split(b"\r\n") if line.startswith(b"x-request-id: ")]
        seen.add(line)
        assert b"theirs" not in answer
    assert len(seen) == 3


async def test_no_answer_repeats_the_key() -> None:
    front = Front()
    for path in ("/v1/models", "/v1/models/none", "/nowhere", "/v1/responses"):
        assert KEY.encode() not in await front.ask(request("GET", path))


@pytest.mark.parametrize(
    ("code", "expected"), [(400, None), (408, "request_timeout"), (413, "request_too_large"), (431, None), (501, None)]
)
def test_what_never_became_a_request_is_answered_in_the_same_shape(code: int, expected: str | None) -> None:
    to, line = responder(keep=False)
    Front().routes.refuse(code, "Not like this.", to)
    found = error(line.bytes)
    assert (status(line.bytes), found["code"], found["message"]) == (code, expected, "Not like this.")
    assert line.kept is False
