"""What passes through the gateway is the very bytes that came, both ways, but for the fields and headers it owns."""

import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.embedded import EmbeddedServer
from gateway.tokens import counter
from tests.house import KEY, OTHER_KEY, House, gateway
from tests.upstream import (
    CHUNKED,
    DONE,
    END,
    Received,
    Script,
    Upstream,
    answers,
    chunk,
    frame,
    reply,
    streams,
    upstream,
)

BODY = (
    b'{ "messages" : [ {"role":"user","content":"\\u00fc \xc3\xbc \\ud83d\\ude00 1.50"} ],\n\t"top_p":1.0E0,'
    b'"unknown":{"b":1,"a":[1e3,-0.0]}, "model":"demo" ,"stream":%b}\n'
)
ENGINE_KEY = "engine-secret"
USAGE = frame(usage={"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": None})
FRAMES = (frame("a \u00fc"), b": a comment\n\n", frame("b", finish="stop"), DONE)


@pytest.fixture
async def up() -> AsyncIterator[Upstream]:
    async with upstream(streams(*FRAMES[:-1], USAGE, DONE)) as running:
        yield running


@pytest.fixture
async def house(valkey: EmbeddedServer, up: Upstream, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    monkeypatch.setenv("TEST_ENGINE_KEY", ENGINE_KEY)

    def change(data: dict[str, Any]) -> None:
        data["pools"]["any"]["engine_key"] = "env:TEST_ENGINE_KEY"

    async with gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        yield running


async def asked(house: House, up: Upstream, body: bytes, *lines: str, key: str = KEY) -> Received:
    """What the engine received for this body and these header lines."""
    reader, writer = await house.send_raw(body, f"authorization: Bearer {key}", *lines)
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
    await reader.readuntil(b"0\r\n\r\n")
    writer.close()
    return up.requests[-1]


async def answered(house: House, script: Script, up: Upstream, body: bytes) -> bytes:
    """The body of the answer that the client gets, its chunks joined."""
    up.scripts = [script]
    answer = await house.http.post(
        "/chat/completions",
        content=body,
        headers={"authorization": f"Bearer {KEY}", "content-type": "application/json"},
    )
    assert answer.status_code == 200
    return answer.content


def without_owned(body: bytes) -> dict[str, Any]:
    owned = ("cache_salt", "stream_options")
    return {name: value for name, value in json.loads(body).items() if name not in owned}


async def test_a_request_keeps_every_byte_that_is_not_ours(house: House, up: Upstream) -> None:
    body = BODY % b"true"
    sent = (await asked(house, up, body)).body
    salt = json.loads(sent)["cache_salt"]
    added = b'"cache_salt":"%b","stream_options":{"include_usage":true},' % salt.encode()
    assert sent == b"{" + added + body[1:]


async def test_usage_that_was_asked_for_adds_nothing(house: House, up: Upstream) -> None:
    options = b'"stream_options": { "include_usage" : true, "continuous_usage_stats":false },'
    body = (BODY % b"true").replace(b'"top_p"', options + b'"top_p"')
    sent = (await asked(house, up, body)).body
    salt = json.loads(sent)["cache_salt"].encode()
    assert sent == b'{"cache_salt":"%b",' % salt + body[1:]


async def test_other_stream_options_are_kept(house: House, up: Upstream) -> None:
    options = b'"stream_options":{"include_usage":false,"include_obfuscation":true},'
    body = (BODY % b"true").replace(b'"top_p"', options + b'"top_p"')
    sent = json.loads((await asked(house, up, body)).body)
    assert sent["stream_options"] == {"include_usage": True, "include_obfuscation": True}


async def test_the_salt_is_ours_and_each_tenant_s_own(house: House, up: Upstream) -> None:
    with_salt = (BODY % b"true").replace(b'"top_p"', b'"cache_salt":"zeta","top_p"')
    ours = json.loads((await asked(house, up, with_salt)).body)["cache_salt"]
    again = json.loads((await asked(house, up, BODY % b"true")).body)["cache_salt"]
    other = json.loads((await asked(house, up, BODY % b"true", key=OTHER_KEY)).body)["cache_salt"]
    assert ours == again != other
    assert len(ours) == 64 and "zeta" not in ours


FORBIDDEN = {
    "priority": -1,
    "request_id": "mine",
    "kv_transfer_params": {"do_remote_prefill": True, "remote_host": "10.0.0.1"},
    "chat_template": "{{ 1 }}",
    "mm_processor_kwargs": {},
    "bootstrap_host": "10.0.0.1",
    "routed_dp_rank": 1,
    "rid": "x",
}


@pytest.mark.parametrize("name", FORBIDDEN)
@pytest.mark.parametrize("place", ["first", "middle", "last"])
async def test_what_steers_an_engine_never_comes_from_a_client(
    house: House, up: Upstream, name: str, place: str
) -> None:
    field = b'"%b":%b' % (name.encode(), json.dumps(FORBIDDEN[name]).encode())
    plain = BODY % b"true"
    body = {
        "first": plain.replace(b"{ ", b"{ " + field + b", ", 1),
        "middle": plain.replace(b'"top_p"', field + b', "top_p"'),
        "last": plain.replace(b"}\n", b" , " + field + b" }\n"),
    }[place]
    sent = (await asked(house, up, body)).body
    assert name.encode() not in sent
    assert without_owned(sent) == json.loads(plain)


async def test_the_same_name_deeper_in_the_body_is_not_ours(house: House, up: Upstream) -> None:
    body = (BODY % b"true").replace(b'"b":1', b'"priority":1,"model":"x","cache_salt":"y"')
    sent = (await asked(house, up, body)).body
    assert without_owned(sent) == json.loads(body)


@pytest.mark.parametrize("name", [b"model", b"stream_options", b"cache_salt", b"priority"])
async def test_an_owned_field_twice_is_refused(house: House, up: Upstream, name: bytes) -> None:
    value = b'"demo"' if name in (b"model", b"cache_salt") else b"null"
    twice = b'"%b":%b,' % (name, value) * (1 if name == b"model" else 2)
    answer = await house.http.post(
        "/chat/completions",
        content=(BODY % b"true").replace(b'"top_p"', twice + b'"top_p"'),
        headers={"authorization": f"Bearer {KEY}", "content-type": "application/json"},
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == name.decode()
    assert not up.requests


async def test_an_owned_field_twice_is_found_however_it_is_spelled(house: House, up: Upstream) -> None:
    answer = await house.http.post(
        "/chat/completions",
        content=(BODY % b"true").replace(b'"top_p"', b'"mod\\u0065l":"other","top_p"'),
        headers={"authorization": f"Bearer {KEY}", "content-type": "application/json"},
    )
    assert answer.status_code == 400
    assert not up.requests


CLIENT_S_OWN = (
    "cookie: session=1",
    "x-api-key-backup: z",
    "x-request-id: client-chosen",
    "x-vllm-priority: -100",
    "x-data-parallel-rank: 3",
    "x-forwarded-for: 1.2.3.4",
    "x-forwarded-host: evil",
    "forwarded: for=1.2.3.4",
    "x-real-ip: 1.2.3.4",
    "te: trailers",
    "proxy-authorization: Basic eDp5",
    "x-kvgate-fault: die",
    "x-session-id: chat-1",
    "user-agent: curl",
)


async def test_no_header_of_the_client_but_its_trace_reaches_the_engine(house: House, up: Upstream) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    received = await asked(house, up, BODY % b"true", *CLIENT_S_OWN, f"traceparent: {trace}", "tracestate: a=b")
    names = {name for name, _ in received.headers}
    assert names <= {
        *(b"host", b"content-type", b"content-length", b"accept-encoding", b"authorization", b"x-request-id"),
        *(b"traceparent", b"tracestate"),
    }
    assert received.get(b"authorization") == [b"Bearer " + ENGINE_KEY.encode()]
    assert received.get(b"traceparent") == [trace.encode()]
    assert received.get(b"x-request-id") != [b"client-chosen"] and len(received.get(b"x-request-id")) == 1
    assert received.get(b"host") == [up.url.removeprefix("http://").encode()]
    assert KEY.encode() not in b"".join(value for _, value in received.headers) + received.body


async def test_the_request_id_is_the_same_on_both_sides(house: House, up: Upstream) -> None:
    answer = await house.chat(stream=True)
    assert [answer.headers["x-request-id"].encode()] == up.requests[0].get(b"x-request-id")


@pytest.mark.parametrize("hop", ["connection: close, x-secret-hop", "keep-alive: timeout=5", "upgrade: h2c"])
async def test_hop_by_hop_headers_end_here(house: House, up: Upstream, hop: str) -> None:
    received = await asked(house, up, BODY % b"true", hop, "x-secret-hop: 1")
    assert not {b"keep-alive", b"upgrade", b"x-secret-hop"} & {name for name, _ in received.headers}


async def test_a_stream_keeps_every_byte_but_the_usage_nobody_asked_for(house: House, up: Upstream) -> None:
    script = streams(*FRAMES[:-1], USAGE, DONE)
    assert await answered(house, script, up, BODY % b"true") == b"".join(FRAMES)
    asking = (BODY % b"true").replace(b'"top_p"', b'"stream_options":{"include_usage":true},"top_p"')
    assert await answered(house, script, up, asking) == b"".join(FRAMES[:-1]) + USAGE + DONE


@pytest.mark.parametrize("size", [1, 7, 1_000])
async def test_however_the_network_cuts_the_stream(house: House, up: Upstream, size: int) -> None:
    whole = b"".join((*FRAMES[:-1], USAGE, DONE))
    pieces = [chunk(whole[at : at + size]) for at in range(0, len(whole), size)]
    assert await answered(house, answers(CHUNKED, *pieces, END), up, BODY % b"true") == b"".join(FRAMES)


async def test_usage_that_an_engine_sends_with_content_stays(house: House, up: Upstream) -> None:
    odd = (
        b'data: {"choices":[{"index":0,"delta":{"content":"x"}}],"usage":{"prompt_tokens":5,"completion_tokens":1}}\n\n'
    )
    frames = (odd, frame("b", finish="stop"), DONE)
    assert await answered(house, streams(*frames), up, BODY % b"true") == b"".join(frames)


async def test_a_whole_answer_keeps_every_byte(house: House, up: Upstream) -> None:
    body = b'{ "id":"1", "model":"demo","choices" : [], "usage": {"prompt_tokens":5,"completion_tokens":2 } }\n'
    assert await answered(house, answers(reply(200, body)), up, BODY % b"false") == body
    await house.nothing_left()
    assert await house.charged() == 7


async def test_an_engine_s_refusal_keeps_every_byte(house: House, up: Upstream) -> None:
    body = b'{"error":{"message":"Not like this.","type":"BadRequestError","param":"top_p","code":400}}'
    up.scripts = [answers(reply(400, body))]
    answer = await house.chat()
    assert (answer.status_code, answer.content) == (400, body)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_is_compressed_although_it_must_not_be_is_no_answer(
    house: House, up: Upstream, stream: bool
) -> None:
    """The client would get bytes that nothing says how to read."""
    media = b"text/event-stream" if stream else b"application/json"
    body = gzip.compress(b"".join(FRAMES) if stream else b'{"choices":[]}')
    up.scripts = [answers(reply(200, body, b"Content-Encoding: gzip", media=media))]
    answer = await house.chat(stream=stream)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_error")
    assert await house.metric("kvgate_attempts_total", outcome="failure") == 1


@pytest.mark.parametrize("head", [b"204 No Content\r\n", b"200 OK\r\ncontent-length: 0\r\n"])
async def test_an_empty_answer_is_no_answer(house: House, up: Upstream, head: bytes) -> None:
    up.scripts = [answers(b"HTTP/1.1 " + head + b"\r\n")]
    answer = await house.chat()
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_error")


async def test_an_answer_may_say_that_it_is_not_compressed(house: House, up: Upstream) -> None:
    up.scripts = [answers(reply(200, b'{"choices":[]}', b"content-encoding: Identity"))]
    answer = await house.chat()
    assert (answer.status_code, answer.content) == (200, b'{"choices":[]}')


async def test_a_refusal_that_is_compressed_is_told_without_its_bytes(house: House, up: Upstream) -> None:
    up.scripts = [answers(reply(400, gzip.compress(b'{"error":{"message":"x"}}'), b"content-encoding: gzip"))]
    answer = await house.chat()
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].isprintable()


async def test_headers_of_the_engine_stay_with_it(house: House, up: Upstream) -> None:
    lines = (b"server: uvicorn", b"set-cookie: a=b", b"x-request-id: engine", b"x-internal: 10.0.0.1")
    up.scripts = [answers(reply(200, b'{"choices":[]}', *lines))]
    answer = await house.chat()
    assert not {"server", "set-cookie", "x-internal"} & set(answer.headers)
    assert answer.headers["x-request-id"] != "engine"


@pytest.mark.parametrize("space", [b"", b" "])
@pytest.mark.parametrize("size", [1, 9, 10_000])
async def test_an_alias_is_all_that_changes(house: House, up: Upstream, space: bytes, size: int) -> None:
    """However the engine writes its JSON, and wherever the network cuts it."""
    whole = b"".join((*FRAMES[:-1], USAGE, DONE)).replace(b'":', b'":' + space)
    pieces = [chunk(whole[at : at + size]) for at in range(0, len(whole), size)]
    asking = b'"stream_options":{"include_usage":true},"top_p"'
    body = (BODY % b"true").replace(b'"demo"', b'"gpt-4o-mini"').replace(b'"top_p"', asking)
    answer = await answered(house, answers(CHUNKED, *pieces, END), up, body)
    assert answer == whole.replace(b'"demo"', b'"gpt-4o-mini"')
    assert json.loads(up.requests[-1].body)["model"] == "demo"


@pytest.mark.parametrize("space", [b"", b" "])
async def test_an_alias_in_a_whole_answer(house: House, up: Upstream, space: bytes) -> None:
    whole = b'{"id":%b"1","model":%b"demo","choices":[{"text":"\\"model\\":\\"demo\\""}]}' % (space, space)
    body = (BODY % b"false").replace(b'"demo"', b'"gpt-4o-mini"')
    answer = await answered(house, answers(reply(200, whole)), up, body)
    assert answer == whole.replace(b'"demo"', b'"gpt-4o-mini"')


async def test_vectors_as_bytes_come_with_the_header_that_tells_them_apart(house: House, up: Upstream) -> None:
    """vLLM's `encoding_format: bytes`: the vectors are the body, and what would stand around them is a header."""
    vectors = bytes(range(256)) * 2 + b'"model":"demo"'
    told = b'{"id": "e", "model": "demo", "data": [{"index": 0, "start": 0}], "usage": {"prompt_tokens": 7}}'
    up.scripts = [answers(reply(200, vectors, b"metadata: " + told, media=b"application/octet-stream"))]
    for model in ("demo", "gpt-4o-mini"):
        answer = await house.http.post(
            "/embeddings",
            json={"model": model, "input": "x", "encoding_format": "bytes"},
            headers={"authorization": f"Bearer {KEY}"},
        )
        assert (answer.headers["content-type"], answer.content) == ("application/octet-stream", vectors)
        assert answer.headers["metadata"].encode() == told.replace(b"demo", model.encode())
    await house.quiet()
    assert await house.charged() == 2 * 7


async def test_what_only_our_count_finds_longer_than_the_engine_s_window_is_the_engine_s_to_judge(
    house: House, up: Upstream
) -> None:
    """Models take a third of our tokens for Hindi: prompts were refused that they had room for."""
    headers = {"authorization": f"Bearer {KEY}"}
    window = (await house.http.get("/models/demo", headers=headers)).json()["max_model_len"]
    text = "\u0928\u092e\u0938\u094d\u0924\u0947 " * (window // 4)
    assert window < counter()(text) < 3 * window
    overflow = reply(400, b'{"error":{"message":"This model\'s maximum context length is 32768 tokens.","code":400}}')
    usage = frame(usage={"prompt_tokens": window - 100, "completion_tokens": 2})
    for script, status in ((streams(*FRAMES[:-1], usage, DONE), 200), (answers(overflow), 400)):
        up.scripts = [script]
        answer = await house.chat(text, stream=True)
        assert answer.status_code == status
    assert answer.content == overflow.partition(b"\r\n\r\n")[2], "in the engine's own words"
    assert (await house.chat(text * 20)).json()["error"]["code"] == "context_length_exceeded", "none makes this fit"
    assert len(up.requests) == 2
