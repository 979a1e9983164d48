"""Error replies as servers really wrote them, and what each means.

Recorded from vLLM 0.32, llama.cpp, llama-cpp-python and transformers; TGI's and SGLang's are from their documentation.
"""

import pytest

from backends.engines import ENGINES
from backends.engines.errors import Classified, EngineError, classify, read_error
from backends.engines.kind import EngineKind

VLLM_LONG = (
    b'{"error":{"message":"This model\'s maximum context length is 2048 tokens. However, your prompt contains at least'
    b' 2049 input tokens.","type":"BadRequestError","param":"input_tokens","code":400}}'
)
VLLM_BUSY = (
    b'{"error":{"message":"The engine is currently busy and cannot accept new requests. Please try again later or on a'
    b' different instance.","type":"Service Unavailable","param":null,"code":503}}'
)
VLLM_500 = b'{"error":{"message":"Internal server error","type":"InternalServerError","param":null,"code":500}}'
LLAMACPP_LONG = (
    b'{"error":{"code":400,"message":"request (6013 tokens) exceeds the available context size (2048 tokens), try'
    b' increasing it","type":"exceed_context_size_error","n_prompt_tokens":6013,"n_ctx":2048}}'
)
TGI_LONG = (
    b'{"error":"Input validation error: `inputs` must have less than 100 tokens. Given: 200","error_type":"validation"}'
)
SGLANG_LONG = (
    b'{"object":"error","message":"The input (9000 tokens) is longer than the model\'s context length (4096 tokens).",'
    b'"type":"BadRequestError","param":null,"code":400}'
)

OVERFLOW = Classified("neutral", context_overflow=True)
BUSY = Classified("neutral", retryable=True, busy=True)
MISTAKE = Classified("neutral")
FAULT = Classified("failure", retryable=True)


@pytest.mark.parametrize(
    ("kind", "status", "body", "meaning"),
    [
        ("vllm", 200, b"", Classified("success")),
        ("vllm", 400, VLLM_LONG, OVERFLOW),
        ("vllm", 400, b'{"error":{"message":"max_tokens must be at least 1","param":"max_tokens"}}', MISTAKE),
        ("vllm", 404, b'{"error":{"message":"The model `nope` does not exist.","param":"model"}}', MISTAKE),
        ("vllm", 401, b'{"error":"Unauthorized"}', MISTAKE),
        ("vllm", 501, b'{"error":{"message":"not implemented"}}', MISTAKE),
        ("vllm", 503, VLLM_BUSY, BUSY),
        ("vllm", 503, b'{"error":"The model is currently scaling. Please try again later."}', BUSY),
        ("vllm", 503, b"", FAULT),
        ("vllm", 503, b"no healthy upstream", FAULT),
        ("vllm", 500, VLLM_500, FAULT),
        ("vllm", 502, b"<html>Bad Gateway</html>", FAULT),
        ("openai", 400, LLAMACPP_LONG, OVERFLOW),
        ("openai", 400, b'{"error":{"message":"too long","code":"context_length_exceeded"}}', OVERFLOW),
        ("openai", 422, b'{"detail":[{"type":"missing","loc":["body"],"msg":"Field required"}]}', MISTAKE),
        ("openai", 500, b"Internal Server Error", FAULT),
        ("openai", 429, b"", BUSY),
        ("tgi", 422, TGI_LONG, OVERFLOW),
        ("tgi", 429, b'{"error":"Model is overloaded","error_type":"overloaded"}', BUSY),
        ("tgi", 424, b'{"error":"Request failed during generation","error_type":"generation"}', FAULT),
        ("vllm", 424, b"{}", MISTAKE),
        ("sglang", 400, SGLANG_LONG, OVERFLOW),
        ("sglang", 500, b'{"object":"error","message":"The request queue is full.","code":500}', BUSY),
    ],
)
def test_what_a_reply_means(kind: EngineKind, status: int, body: bytes, meaning: Classified) -> None:
    assert classify(ENGINES[kind], status, body) == meaning


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (VLLM_500, EngineError("Internal server error", "InternalServerError", None, 500)),
        (b'{"error":"Unauthorized"}', EngineError("Unauthorized")),
        (
            b'{"error":"Model is overloaded","error_type":"overloaded"}',
            EngineError("Model is overloaded", "overloaded"),
        ),
        (b'{"detail":"Not Found"}', EngineError("Not Found")),
        (
            b'{"detail":[{"type":"json_invalid","loc":["body",31],"msg":"JSON decode error","input":{}}]}',
            EngineError("JSON decode error", "json_invalid", "body.31"),
        ),
        (
            b'{"object":"error","message":"m","type":"t","param":"p","code":400}',
            EngineError("m", "t", "p", 400),
        ),
        (b"Internal Server Error", EngineError("Internal Server Error", spoken=False)),
        (b'{"error":{}}', EngineError("The engine answered 500 and gave no reason.")),
        (b'{"error":{"message":7,"code":true}}', EngineError("The engine answered 500 and gave no reason.")),
    ],
)
def test_every_shape_is_read(body: bytes, error: EngineError) -> None:
    assert read_error(500, body) == error


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"<html>secret</html>",
        b"Traceback:\n /srv/x.py",
        b"x" * 301,
        b'{"error":null}',
        b"[" * 9999,
    ],
)
def test_what_is_no_message_is_not_told(body: bytes) -> None:
    assert read_error(502, body) == EngineError("The engine answered 502 and gave no reason.", spoken=False)


def test_a_stack_trace_in_a_message_is_cut_off() -> None:
    body = b'{"error":{"message":"1 validation error:\\n  bad\\n\\n  File \\"/srv/app.py\\", line 376, in create\\n"}}'
    assert read_error(500, body).message == "1 validation error:\n  bad"
