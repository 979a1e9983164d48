"""The admin API where a supervisor has the port: requests are handed to a worker's own listener.

Rule: bytes and status as they are. What may have reached a worker is never sent to another one.
"""

from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web

from gateway.admin_api import WHO
from gateway.admin_wire import error_of

API_PATHS: Final = ("/tenants", "/tenants/{rest:.+}", "/changes")
_ASKED: Final = ("authorization", "content-type", WHO)
_ANSWERED: Final = ("content-type", "cache-control", "www-authenticate")
_PATIENCE: Final = aiohttp.ClientTimeout(total=30.0)


async def forwarded(socket: Path, request: web.Request, body: bytes) -> web.Response | None:
    """What the worker at this socket answers; None if it was not reached."""
    headers = {name: value for name in _ASKED if (value := request.headers.get(name)) is not None}
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket)), timeout=_PATIENCE) as session,
            session.request(
                request.method, f"http://worker{request.raw_path}", data=body or None, headers=headers
            ) as answer,
        ):
            kept = {name: value for name in _ANSWERED if (value := answer.headers.get(name)) is not None}
            return web.Response(status=answer.status, body=await answer.read(), headers=kept)
    except (aiohttp.ClientConnectorError, FileNotFoundError):
        return None
    except (aiohttp.ClientError, OSError, TimeoutError):
        return error_of(502, "the worker did not answer; what was asked may have been done or not")
