"""What a start depends on outside the process: the store, and ports that are free.

Rule: whatever is wrong there is told in one line that says what to do about it.
"""

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext

from config.settings import Settings
from gateway import embedded
from gateway.logs import log
from gateway.store import Store, StoreSettings, StoreUnavailable
from gateway.tasks import Tasks


class StartError(Exception):
    """The gateway cannot start. One line: what is wrong and what to do about it."""


@asynccontextmanager
async def using(settings: Settings) -> AsyncIterator[Store]:
    """The store of a gateway, for a command that reads it: the operator's, or the embedded one that runs already.

    Raises `StartError` or `StoreError`.
    """
    url = settings.store_url
    try:
        with embedded.joined(settings.data_dir / "store") if url is None else nullcontext(url) as at:
            tasks = Tasks()
            store = await Store.connect(at, tasks, StoreSettings(call_timeout_seconds=1.0))
            try:
                yield store
            finally:
                store.close()
                await tasks.close()
    except StoreUnavailable as error:
        hint = "start the gateway" if url is None else "start it"
        raise StartError(f"{error}; {hint}, or set KVGATE_STORE_URL") from error


async def opened_store(settings: Settings, tasks: Tasks, ends: AsyncExitStack) -> Store:
    """The operator's store, or the embedded one of the data folder."""
    url = settings.store_url
    if url is None:
        server = embedded.start(settings.data_dir / "store", settings.store_program)
        ends.callback(server.close)
        url = server.url
    seconds = settings.store_timeout_seconds
    patience = StoreSettings(call_timeout_seconds=seconds, connect_timeout_seconds=max(1.0, seconds))
    try:
        store = await Store.connect(url, tasks, patience)
    except StoreUnavailable as error:
        raise StartError(f"{error}; start it, or set KVGATE_STORE_URL to another store") from error
    ends.callback(store.close)
    for warning in store.warnings:
        log(logging.WARNING, "store", warning=warning)
    return store


async def listening(listen: Callable[[str, int], Awaitable[int]], host: str, port: int, variable: str) -> int:
    """The port it listens on. Raises `StartError` if it cannot."""
    try:
        return await listen(host, port)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise StartError(
            f"cannot listen on {host}:{port}: {reason}; stop what uses it, or set {variable} to another port"
        ) from error
