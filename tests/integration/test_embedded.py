"""The embedded server as a user meets it: it starts, it keeps, it goes, and it says what is wrong in one line."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway import embedded
from gateway.store import Store
from gateway.tasks import Tasks
from tests.conftest import PATIENT

PARENT = """
import sys, time
from pathlib import Path
from gateway import embedded
server = embedded.start(Path(sys.argv[1]))
print(server.url, flush=True)
time.sleep(600)
"""


def refuses(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return True
    return False


def running(pid: int) -> bool:
    """Whether the process still runs; one that waits to be reaped does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.strip().startswith("Z")


def wait_until(what: str, condition: object, seconds: float = 30.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)


async def server_pid(url: str) -> int:
    tasks = Tasks()
    store = await Store.connect(url, tasks, PATIENT)
    info = await store.command("INFO", "server")
    store.close()
    await tasks.close()
    assert isinstance(info, bytes)
    return int(next(line for line in info.decode().splitlines() if line.startswith("process_id:")).split(":")[1])


async def test_it_listens_on_the_socket_only_and_logs_every_write(tmp_path: Path) -> None:
    server = embedded.start(tmp_path)
    tasks = Tasks()
    store = await Store.connect(server.url, tasks, PATIENT)
    try:
        assert await store.command("CONFIG", "GET", "port") == [b"port", b"0"]
        assert await store.command("CONFIG", "GET", "appendonly") == [b"appendonly", b"yes"]
        assert store.warnings == ()
    finally:
        store.close()
        await tasks.close()
        server.close()


async def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    for expected in (None, b"1"):
        server = embedded.start(tmp_path)
        tasks = Tasks()
        store = await Store.connect(server.url, tasks, PATIENT)
        assert await store.command("GET", "kept") == expected
        await store.command("SET", "kept", "1")
        store.close()
        await tasks.close()
        server.close()


def test_it_goes_when_its_program_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        url = parent.stdout.readline().strip()
        path = url.removeprefix("unix://")
        pid = asyncio.run(server_pid(url))
        assert running(pid)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    wait_until("the server to go", lambda: not running(pid) and refuses(path))
    embedded.start(tmp_path).close()


def test_it_goes_even_if_it_hangs_when_its_program_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = asyncio.run(server_pid(parent.stdout.readline().strip()))
        os.kill(pid, signal.SIGSTOP)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    wait_until("the server to go", lambda: not running(pid))


def test_it_goes_when_its_guard_and_its_program_are_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = asyncio.run(server_pid(parent.stdout.readline().strip()))
        guard = int(subprocess.check_output(["ps", "-o", "ppid=", "-p", str(pid)], text=True))
        os.kill(guard, signal.SIGKILL)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    wait_until("the server to go", lambda: not running(pid))


def test_a_data_folder_has_one_owner(tmp_path: Path) -> None:
    server = embedded.start(tmp_path)
    try:
        with pytest.raises(embedded.EmbeddedError, match=rf"in use by process {os.getpid()}; stop it or") as caught:
            embedded.start(tmp_path)
        assert "\n" not in str(caught.value)
    finally:
        server.close()


def test_a_long_folder_path_works_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temp = tmp_path / "t"
    temp.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temp))
    server = embedded.start(tmp_path / ("long folder " * 12))
    path = server.url.removeprefix("unix://")
    assert len(os.fsencode(path)) <= 100
    assert not refuses(path)
    server.close()
    assert not os.path.lexists(Path(path).parent.parent)
    assert list(temp.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(embedded.EmbeddedError, match="cannot be used: Not a directory") as caught:
        embedded.start(tmp_path / "file" / "data")
    assert "\n" not in str(caught.value)


def test_a_program_that_is_none_is_one_line_that_names_the_variable(
    tmp_path: Path,
) -> None:
    with pytest.raises(embedded.EmbeddedError, match="KVGATE_STORE_PROGRAM does not name a program that can be run"):
        embedded.start(tmp_path / "data", tmp_path)


def test_the_program_that_is_named_is_the_one_that_runs(tmp_path: Path) -> None:
    named = tmp_path / "server-of-mine"
    named.write_text(f'#!/bin/sh\ntouch {tmp_path}/ran\nexec {embedded.runnable(None)} "$@"\n')
    named.chmod(0o755)
    embedded.start(tmp_path / "data", named).close()
    assert (tmp_path / "ran").exists()


def test_a_damaged_file_is_one_line_that_quotes_the_log(tmp_path: Path) -> None:
    embedded.start(tmp_path).close()
    (manifest,) = (tmp_path / "appendonlydir").glob("*.manifest")
    manifest.write_text("nonsense")
    with pytest.raises(embedded.EmbeddedError, match=r"did not start: .*valkey\.log") as caught:
        embedded.start(tmp_path)
    assert "\n" not in str(caught.value)


def test_closing_twice_is_fine_and_a_stopped_server_is_killed(tmp_path: Path) -> None:
    server = embedded.start(tmp_path)
    pid = asyncio.run(server_pid(server.url))
    os.kill(pid, signal.SIGSTOP)
    server.close(patience_seconds=0.1)
    server.close()
    assert not server.alive()
    wait_until("the server to go", lambda: not running(pid))
