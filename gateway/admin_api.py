"""The admin API: what the commands `tenants`, `keys` and `limits` do, over HTTP on the admin port.

Rule: nothing without the token from the environment, reading included; without a token set there is no such API. The
table is closed, bodies have no unknown fields, and no answer but the one that makes a key holds one.
"""

import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from budgets.limit import units
from config.units import parse_duration
from gateway.admin_wire import (
    Boosting,
    Expiry,
    NewKey,
    NewTenant,
    Refused,
    Rotation,
    Settings,
    Used,
    data_of,
    done,
    error_of,
    moment,
    named,
    read,
)
from gateway.desk import Desk
from gateway.limit_desk import LimitDesk, Place
from gateway.logs import log, log_defect
from gateway.statements import line
from gateway.store import StoreError
from gateway.tenant_changes import ChangeRefused

WHO: Final = "x-kvgate-operator"
NOBODY: Final = "admin token"
MOST_CHANGES: Final = 1_000

Sit = Callable[[str], tuple[Desk, LimitDesk]]
"""Seats somebody, by the name that they give, at the desk."""


class AdminApi:
    """`token` None: every route is refused, saying so."""

    def __init__(self, token: str | None, sit: Sit) -> None:
        self._token = None if token is None else _digest(token.encode())
        self._sit = sit

    def routes(self) -> list[web.RouteDef]:
        tenant, key, limit = "/tenants/{tenant}", "/tenants/{tenant}/keys/{key}", "/tenants/{tenant}/limits/{limit}"
        table: list[tuple[str, str, Callable[[web.Request], Awaitable[web.Response]]]] = [
            ("GET", "/tenants", self._tenants),
            ("POST", "/tenants", self._create),
            ("GET", tenant, self._tenant),
            ("PATCH", tenant, self._alter),
            ("DELETE", tenant, self._delete),
            ("POST", f"{tenant}/{{switch:enable|disable}}", self._switch),
            ("POST", f"{tenant}/keys", self._create_key),
            ("POST", f"{key}/rotate", self._rotate),
            ("POST", f"{key}/expire", self._expire),
            ("POST", f"{key}/{{switch:enable|disable}}", self._switch_key),
            ("DELETE", key, self._delete_key),
            ("GET", f"{tenant}/limits", self._limits),
            ("PUT", f"{limit}/boost", self._boost),
            ("DELETE", f"{limit}/boost", self._end_boost),
            ("PUT", f"{limit}/used", self._set_used),
            ("GET", "/changes", self._changes),
        ]
        return [web.route(method, path, self._guarded(work)) for method, path, work in table]

    def _guarded(
        self, work: Callable[[web.Request], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """The work behind the token; what is refused is answered here."""

        async def answer(request: web.Request) -> web.Response:
            try:
                self._authenticate(request)
                response = await work(request)
            except Refused as refused:
                response = error_of(refused.status, str(refused))
            except ChangeRefused as refused:
                response = error_of(404 if refused.missing else 400, str(refused))
            except StoreError:
                response = error_of(503, "the store cannot be reached now; what was asked may have been done or not")
            except web.HTTPException:  # aiohttp's own: a body that is too large
                raise
            except Exception as defect:  # noqa: BLE001 - the last resort: a defect is answered and logged
                log_defect("defect", defect)
                response = error_of(500, "the gateway failed")
            if request.method != "GET" or response.status != 200:
                log(logging.INFO, "admin", method=request.method, route=_route(request), status=response.status)
            return response

        return answer

    def _authenticate(self, request: web.Request) -> None:
        if self._token is None:
            raise Refused(403, "there is no admin API here: set KVGATE_ADMIN_TOKEN, and start again")
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        digest = _digest(given.strip().encode("utf-8", "surrogateescape"))
        if not hmac.compare_digest(digest, self._token) or scheme.lower() != "bearer":
            raise Refused(401, "send the admin token as `Authorization: Bearer TOKEN`")

    def _desk(self, request: web.Request) -> Desk:
        return self._sit(self._who(request))[0]

    def _limit_desk(self, request: web.Request) -> LimitDesk:
        return self._sit(self._who(request))[1]

    def _who(self, request: web.Request) -> str:
        """Who somebody says to be: kept with every change, so the token is no name."""
        who = request.headers.get(WHO, NOBODY)
        if self._token is not None and hmac.compare_digest(
            _digest(who.encode("utf-8", "surrogateescape")), self._token
        ):
            raise Refused(400, f"{WHO} says who you are, with no key in it")
        return who

    async def _tenants(self, request: web.Request) -> web.Response:
        return data_of(await self._desk(request).tenants())

    async def _create(self, request: web.Request) -> web.Response:
        body = await read(request, NewTenant)
        desk = self._desk(request)
        await desk.create(body.name, body.settings, again=body.again)
        return data_of(await desk.tenant(body.name), 201)

    async def _tenant(self, request: web.Request) -> web.Response:
        return data_of(await self._desk(request).tenant(named(request, "tenant")))

    async def _alter(self, request: web.Request) -> web.Response:
        body, tenant, desk = await read(request, Settings), named(request, "tenant"), self._desk(request)
        await desk.alter(tenant, body.settings)
        return data_of(await desk.tenant(tenant))

    async def _delete(self, request: web.Request) -> web.Response:
        await self._desk(request).delete(named(request, "tenant"))
        return done()

    async def _switch(self, request: web.Request) -> web.Response:
        await self._desk(request).switch(named(request, "tenant"), named(request, "switch") == "enable")
        return done()

    async def _create_key(self, request: web.Request) -> web.Response:
        body, tenant = await read(request, NewKey), named(request, "tenant")
        until = None if body.expires is None else moment("expires", body.expires)
        key = await self._desk(request).create_key(tenant, body.name, until, body.budgets)
        return data_of({"tenant": tenant, "name": body.name, "key": key}, 201)

    async def _rotate(self, request: web.Request) -> web.Response:
        body, tenant, name = await read(request, Rotation), named(request, "tenant"), named(request, "key")
        try:
            overlap_seconds = parse_duration(body.overlap)
        except ValueError as error:
            raise Refused(400, f"overlap: {error}") from None
        key = await self._desk(request).rotate(tenant, name, overlap_seconds)
        return data_of({"tenant": tenant, "name": name, "key": key}, 201)

    async def _expire(self, request: web.Request) -> web.Response:
        body = await read(request, Expiry)
        until = None if body.at == "never" else moment("at", body.at)
        await self._desk(request).expire(named(request, "tenant"), named(request, "key"), until)
        return done()

    async def _switch_key(self, request: web.Request) -> web.Response:
        tenant, key, on = named(request, "tenant"), named(request, "key"), named(request, "switch") == "enable"
        await self._desk(request).switch_key(tenant, key, on)
        return done()

    async def _delete_key(self, request: web.Request) -> web.Response:
        await self._desk(request).delete_key(named(request, "tenant"), named(request, "key"))
        return done()

    async def _limits(self, request: web.Request) -> web.Response:
        key, session = request.query.get("key"), request.query.get("session")
        found = await self._limit_desk(request).accounts(named(request, "tenant"), key, session)
        return data_of([line(account) for account in found])

    async def _boost(self, request: web.Request) -> web.Response:
        body = await read(request, Boosting)
        until = moment("until", body.until)
        place = placed(request, body.key, body.session, organisation=body.organisation)
        await self._limit_desk(request).boost(place, body.amount, until, body.burst, body.reason)
        return done()

    async def _end_boost(self, request: web.Request) -> web.Response:
        key, session, organisation = map(request.query.get, ("key", "session", "organisation"))
        if organisation not in (None, "true", "false"):
            raise Refused(400, "organisation: expected true or false")
        place = placed(request, key, session, organisation=organisation == "true")
        await self._limit_desk(request).end_boost(place)
        return done()

    async def _set_used(self, request: web.Request) -> web.Response:
        body = await read(request, Used)
        place = placed(request, body.key, body.session, organisation=body.organisation)
        limit, before = await self._limit_desk(request).set_used(place, body.used, body.reason)
        told = {"was": units(limit.dimension, before.before), "reserved": units(limit.dimension, before.reserved)}
        return data_of(told)

    async def _changes(self, request: web.Request) -> web.Response:
        last = request.query.get("last", "100")
        if not (last.isascii() and last.isdigit() and 0 < int(last) <= MOST_CHANGES):
            raise Refused(400, f"last: expected 1 to {MOST_CHANGES}")
        return data_of(await self._desk(request).changes(request.query.get("tenant"), int(last)))


def placed(request: web.Request, key: str | None, session: str | None, *, organisation: bool) -> Place:
    """The limit that a request is about. Raises `ChangeRefused`."""
    return Place(named(request, "tenant"), named(request, "limit"), key, organisation, session)


def _route(request: web.Request) -> str | None:
    """The route as the table has it, without the names that a request puts there."""
    resource = request.match_info.route.resource
    return None if resource is None else resource.canonical


def _digest(token: bytes) -> bytes:
    """Of one length whatever was given, so that comparing tells nothing of it."""
    return hashlib.sha256(token).digest()
