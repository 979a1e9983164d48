"""The function by which a model asks for an original, announced where the tier says so.

Rule: always the same bytes behind the client's own tools, from a session's first call on, so that the prefix stays the
same; never for a client without tools, which could not carry it out, nor beside the client's own of that name. The
client carries it out, with `GET /v1/artifacts/{handle}`.
"""

import re
from typing import Final

import msgspec

from gateway.call import Call
from gateway.dialects.fields import edited

NAME: Final = "kvgate_read_original"
_SOME: Final = re.compile(rb"\[\s*\{")
_HANDLE: Final = "The handle, such as kvo_mfzxk3djn5xw6y3b."
_CONTAINS: Final = "Give only the lines that contain this text, with their numbers."
_START: Final = "The first character to give, from 0 on."
_CHARACTERS: Final = "How many characters to give."
TOOL: Final = msgspec.json.encode(
    {
        "type": "function",
        "function": {
            "name": NAME,
            "description": (
                "Reads what a tool said in full, where its output was shortened, or earlier messages that were left "
                "out. The handle stands where they are missing, as in `kept as kvo_...` or `kvgate_original`. Ask for "
                "the part that is needed, not for all of it."
            ),
            "parameters": {
                "type": "object",
                "properties": {
                    "handle": {"type": "string", "description": _HANDLE},
                    "contains": {"type": "string", "description": _CONTAINS},
                    "start": {"type": "integer", "description": _START},
                    "characters": {"type": "integer", "description": _CHARACTERS},
                },
                "required": ["handle"],
            },
        },
    }
)


def announced(call: Call) -> Call:
    """The call with the function behind its tools; the very same call if it has none, or that one already."""
    tools = call.tools.strip()
    if not call.messages or _SOME.match(tools) is None or NAME.encode() in tools:
        return call
    more = b"".join((tools[:-1].rstrip(), b",", TOOL, b"]"))
    added = len(more) - len(call.tools)
    return msgspec.structs.replace(
        call,
        body=edited(call.body, {"tools": more}, {"tools": b""}),
        overhead=more + call.overhead[len(call.tools) :],
        tools=more,
        content_bytes=call.content_bytes + added,
        prompt_bytes=call.prompt_bytes + added,
    )
