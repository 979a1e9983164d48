"""Which server of a cluster takes a call: the map of hash slots, and what MOVED and ASK say about it.

Rule: the map is a cache of what the servers know. A server that answers MOVED corrects it; a server that is away
makes us ask the others. A call follows at most five such hints.
"""

import asyncio

from redis.crc import key_slot

from gateway.store_address import Address, Locate, Node
from gateway.store_call import Call, StoreCounters, StoreError, StoreSettings, StoreUnavailable
from gateway.store_link import Link, OnError
from gateway.tasks import Tasks

_MOST_HOPS = 5
_REFRESH_PAUSE_SECONDS = 0.5
_UNTOLD_HOSTS = ("", "?")
"""How a server writes that it does not know its own address: it is where it was asked (CLUSTER SLOTS)."""


class Cluster:
    """Links to the primaries of a Redis or Valkey Cluster, one each."""

    def __init__(
        self, address: Address, settings: StoreSettings, counters: StoreCounters, tasks: Tasks, on_error: OnError
    ) -> None:
        self._address = address
        self._settings = settings
        self._counters = counters
        self._tasks = tasks
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._links: dict[Node, Link] = {}
        self._owners: dict[int, Node] = {}
        self._making: dict[Node, asyncio.Task[Link | StoreError]] = {}
        self._refreshing: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        links = map(self._links.get, set(self._owners.values()))
        return bool(self._owners) and all(link is not None and link.connected for link in links)

    async def open(self) -> None:
        """Read the slot map from the first server that answers. Raises StoreUnavailable or StoreRejected."""
        failure: StoreError = StoreUnavailable("no server of the cluster answers")
        for node in self._address.nodes:
            try:
                await self._learn_from(await self._opened(node))
            except StoreError as error:
                failure = error
            else:
                return
        raise failure

    def send(self, call: Call, key: str | None, /) -> None:
        node = self._owners.get(key_slot(key.encode())) if key is not None else next(iter(self._owners.values()), None)
        link = self._links.get(node) if node is not None else None
        if link is None or not link.connected:
            self._refresh_soon()
            call.fail(StoreUnavailable("a server of the cluster is not connected"))
        else:
            link.send(call)

    def redirect(self, link: Link, call: Call, message: str) -> None:
        """Follow `MOVED <slot> <host>:<port>` or `ASK <slot> <host>:<port>`."""
        try:
            slot, node = _hint(message, link.node)
        except ValueError:
            call.fail(StoreUnavailable("a server of the cluster does not say who owns a key"))
            return
        call.hops += 1
        call.asking = message.startswith("ASK")
        if not call.asking:
            self._owners[slot] = node
            self._refresh_soon()
        if call.hops > _MOST_HOPS:
            call.fail(StoreUnavailable("the servers of the cluster do not agree who owns a key"))
        elif (known := self._links.get(node)) is not None and known.connected:
            known.send(call)
        else:
            self._tasks.start(self._send_to_new(node, call), name="store cluster hop")

    def close(self) -> None:
        for link in self._links.values():
            link.close()

    async def _send_to_new(self, node: Node, call: Call) -> None:
        try:
            async with asyncio.timeout_at(call.deadline):
                link = await self._opened(node)
        except TimeoutError:
            call.fail(StoreUnavailable("a server of the cluster could not be reached in time"))
        except StoreError as error:
            call.fail(error)
        else:
            link.send(call)

    async def _opened(self, node: Node) -> Link:
        """The link to a server; who asks while it is being made waits for the same one."""
        if (link := self._links.get(node)) is not None:
            return link
        if node not in self._making:
            self._making[node] = self._tasks.start(self._made(node), name="store cluster link")
        made = await asyncio.shield(self._making[node])
        if isinstance(made, StoreError):
            raise type(made)(str(made))
        return made

    async def _made(self, node: Node) -> Link | StoreError:
        link = Link(self._address, _always(node), self._settings, self._counters, self._tasks, self._on_error)
        try:
            await link.open()
        except StoreError as error:
            return error
        finally:
            del self._making[node]
        self._links[node] = link
        return link

    async def _learn_from(self, link: Link) -> None:
        deadline = self._loop.time() + self._settings.connect_timeout_seconds
        call = Call(("CLUSTER", "SLOTS"), self._loop.create_future(), deadline)
        link.send(call)
        owners = _owners(await call.future, link.node.host if link.node else "")
        for node in set(owners.values()):
            await self._opened(node)
        self._owners = owners
        for node in set(self._links) - set(owners.values()):
            self._links.pop(node).close()

    def _refresh_soon(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._tasks.start(self._refresh(), name="store cluster map")

    async def _refresh(self) -> None:
        for link in list(self._links.values()):
            if not link.connected:
                continue
            try:
                await self._learn_from(link)
            except StoreError:
                continue
            break
        await asyncio.sleep(_REFRESH_PAUSE_SECONDS)  # at most one map per pause, however many calls ask for one


def _always(node: Node) -> Locate:
    async def locate() -> Node:
        return node

    return locate


def _hint(message: str, answering: Node | None) -> tuple[int, Node]:
    """The slot and the server of a MOVED or an ASK. Raises `ValueError`."""
    _, slot, place = message.split(" ")[:3]
    host, _, port = place.rpartition(":")
    if host in _UNTOLD_HOSTS:
        host = answering.host if answering is not None else ""
    return int(slot), Node(host, int(port))


def _owners(reply: object, asked_host: str) -> dict[int, Node]:
    """CLUSTER SLOTS: rows of first slot, last slot, primary (host, port, ...), replicas."""
    assert isinstance(reply, list)
    owners: dict[int, Node] = {}
    for first, last, (host, port, *_), *_ in reply:
        told = host.decode() if host else ""
        node = Node(asked_host if told in _UNTOLD_HOSTS else told, port)
        owners.update(dict.fromkeys(range(first, last + 1), node))
    if not owners:
        raise StoreUnavailable("the cluster has no slots assigned")
    return owners
