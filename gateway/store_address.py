"""Where the store is and how to log in: what a store URL says.

Rule: a password is in the URL and in the login, and in no message or repr. Options of single servers are those of
redis-py's URLs; the two forms with several hosts are ours:

    redis+sentinel://[user:password@]host1:26379,host2:26379/service[/db]
    redis+cluster://[user:password@]host1:6379,host2:6379

`rediss` in place of `redis` means TLS in every form.
"""

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.sentinel import Sentinel
from redis.exceptions import RedisError

from gateway.store_call import StoreError, StoreUnavailable

Kind = Literal["single", "sentinel", "cluster"]
_DEFAULT_PORT = {"single": 6379, "sentinel": 26379, "cluster": 6379}


@dataclass(frozen=True, slots=True)
class Node:
    """One server: a host and port, or the path of a unix socket."""

    host: str
    port: int
    path: str | None = None

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


Locate = Callable[[], Awaitable[Node]]


@dataclass(frozen=True, slots=True)
class Address:
    """A store URL, read. `nodes` are the servers, the sentinels, or some servers of the cluster."""

    kind: Kind
    nodes: tuple[Node, ...]
    service: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    sentinel_options: tuple[tuple[str, Any], ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Raises StoreError, in one line that does not repeat the URL (it may hold a password)."""
        try:
            return _parse(url)
        except (ValueError, LookupError, TypeError, OSError, RedisError) as error:
            raise StoreError(
                "the store URL is not understood; it begins with redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://"
            ) from error

    def locate(self) -> Locate:
        """How to find the server that takes writes: known, or asked of the sentinels each time."""
        return self._ask_sentinels if self.kind == "sentinel" else self._first

    async def _first(self) -> Node:
        return self.nodes[0]

    async def _ask_sentinels(self) -> Node:
        hosts = [(node.host, node.port) for node in self.nodes]
        sentinel = Sentinel(hosts, sentinel_kwargs=dict(self.sentinel_options))  # type: ignore[no-untyped-call]
        try:
            host, port = await sentinel.discover_master(self.service)
        except Exception as error:  # redis-py fails in many ways where an answer is none
            raise StoreUnavailable(f"no sentinel knows a primary of {self.service}") from error
        finally:
            for client in sentinel.sentinels:
                await client.aclose()
        return Node(str(host), int(port))


def _parse(url: str) -> Address:
    parts = urlsplit(url)
    scheme, _, form = parts.scheme.partition("+")
    if form not in ("", "sentinel", "cluster") or (form and scheme not in ("redis", "rediss")):
        raise ValueError(parts.scheme)
    if form == "":
        options: dict[str, Any] = dict(parse_url(url))
        node = Node(options.get("host", "localhost"), options.get("port", 6379), options.get("path"))
        return _address("single", (node,), options)
    login, _, hosts = parts.netloc.rpartition("@")
    kind: Kind = "sentinel" if form == "sentinel" else "cluster"
    path = [part for part in parts.path.split("/") if part]
    service = path.pop(0) if kind == "sentinel" else ""
    single = f"{scheme}://{login + '@' if login else ''}localhost/{''.join(path)}?{parts.query}"
    nodes = tuple(_node(host, _DEFAULT_PORT[kind]) for host in hosts.split(",") if host)
    if not nodes:
        raise ValueError("no host")
    return _address(kind, nodes, dict(parse_url(single)), service)


def _node(text: str, default_port: int) -> Node:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("no host")
    return Node(parts.hostname, parts.port or default_port)


def _address(kind: Kind, nodes: tuple[Node, ...], options: dict[str, Any], service: str = "") -> Address:
    tls = options.get("connection_class") is SSLConnection
    return Address(
        kind,
        nodes,
        service,
        db=int(options.get("db", 0)),
        username=options.get("username"),
        password=options.get("password"),
        tls=_tls(options) if tls else None,
        sentinel_options=_sentinel_options(options, tls) if kind == "sentinel" else (),
    )


def _sentinel_options(options: dict[str, Any], tls: bool) -> tuple[tuple[str, Any], ...]:
    """The sentinels' own login (`sentinel_username`, `sentinel_password` in the query); TLS as for the servers."""
    login = {name: options.get(f"sentinel_{name}") for name in ("username", "password")}
    secure = {name: value for name, value in options.items() if name.startswith("ssl_")} | {"ssl": True}
    return tuple({"socket_timeout": 1.0, **login, **(secure if tls else {})}.items())


def _tls(options: dict[str, Any]) -> ssl.SSLContext:
    chosen = {name: value for name, value in options.items() if name.startswith("ssl_")}
    return SSLConnection(**chosen).ssl_context.get()
