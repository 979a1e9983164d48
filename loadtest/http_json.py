"""JSON in and out of the routes.

Rule: every body is read and every JSON reply is written here, so that all routes refuse and answer alike.
"""

from array import array
from collections.abc import Sequence

from aiohttp import web

from loadtest.openai_requests import Request, read
from loadtest.wire import dump
from loadtest.wire_errors import invalid


async def read_body(kind: type[Request], request: web.Request) -> Request:
    """The body of a request, its types checked. Raises `WireError`."""
    return read(kind, request.headers.get("Content-Type", ""), await request.read())


def json_reply(value: object, status: int = 200) -> web.Response:
    return web.Response(status=status, body=dump(value), content_type="application/json")


def token_ids(values: Sequence[int]) -> "array[int]":
    """Token ids that a client sent. Raises `WireError` for what cannot be one."""
    try:
        return array("I", values)
    except OverflowError:
        raise invalid("Token ids must be between 0 and the size of the vocabulary.") from None
