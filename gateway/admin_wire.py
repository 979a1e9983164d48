"""The admin API's wire: what bodies look like, how they are read, and how answers are written.

Rule: a field that nobody knows is refused, and nothing that is answered may be kept by a cache.
"""

from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web

from gateway.clock import wall
from gateway.keys import without_keys
from gateway.moments import moment_of

MAX_BODY_BYTES: Final = 65_536
_HEADERS: Final = {"cache-control": "no-store"}

T = TypeVar("T")
Amount = int | float | str


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """What all bodies have in common."""


class NewTenant(Body):
    name: str
    settings: dict[str, Any]
    again: bool = False


class Settings(Body):
    settings: dict[str, Any]


class NewKey(Body):
    name: str
    expires: str | None = None
    budgets: tuple[dict[str, Any], ...] = ()


class Rotation(Body):
    overlap: Amount = "24h"


class Expiry(Body):
    at: Amount = "0s"


class Boosting(Body):
    amount: Amount
    until: Amount
    burst: Amount | None = None
    key: str | None = None
    organisation: bool = False
    session: str | None = None
    reason: str | None = None


class Used(Body):
    used: Amount
    reason: str
    key: str | None = None
    organisation: bool = False
    session: str | None = None


class Refused(Exception):
    """A request that never gets to the desk."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def named(request: web.Request, part: str) -> str:
    return request.match_info[part]


def moment(field: str, written: object) -> float:
    try:
        return moment_of(written, wall())
    except ValueError as error:
        raise Refused(400, f"{field}: {error}") from None


async def read(request: web.Request, kind: type[T]) -> T:
    """The body. An empty one has the defaults, where all fields have one."""
    if request.content_type != "application/json" and request.can_read_body:
        raise Refused(415, "send the body as application/json")
    body = await request.read()
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, f"the body: {error}" if isinstance(error, msgspec.ValidationError) else "no JSON") from None


def data_of(data: object, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode({"data": data}), status=status, content_type="application/json", headers=_HEADERS
    )


def done() -> web.Response:
    return web.Response(status=204, headers=_HEADERS)


def error_of(status: int, message: str) -> web.Response:
    headers = _HEADERS | ({"www-authenticate": "Bearer"} if status == 401 else {})
    body = msgspec.json.encode({"error": {"message": without_keys(message)}})
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)
