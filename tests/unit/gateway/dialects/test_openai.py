"""Errors in OpenAI's shape: an object, alone or as one frame of a stream."""

import json

from backends.frames import payload_of
from gateway.dialects.openai import OpenAIDialect
from gateway.errors import ErrorReply

DIALECT = OpenAIDialect()
FORGED = ErrorReply(502, "server_error", "engine_error", 'x"}\n\ndata: {"choices":[]}\n\ndata: [DONE]\n\n')


def test_the_object_has_what_the_sdks_read() -> None:
    reply = ErrorReply(429, "tokens", "rate_limit_exceeded", "Wait.", "messages", (), {"limit": 5, "used": 7})
    assert json.loads(DIALECT.error(reply)) == {
        "error": {
            "message": "Wait.",
            "type": "tokens",
            "param": "messages",
            "code": "rate_limit_exceeded",
            "limit": 5,
            "used": 7,
        }
    }


def test_a_frame_is_one_frame_whatever_the_text() -> None:
    frame = DIALECT.error_frame(FORGED)
    assert frame.count(b"\n\n") == 1
    assert frame.endswith(b"\n\n")
    payload = payload_of(frame)
    assert payload is not None
    assert json.loads(payload)["error"]["message"] == FORGED.message
