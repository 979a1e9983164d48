"""A child ends with its parent, even when that is killed with SIGKILL."""

import os
import select
import subprocess
import sys
from pathlib import Path

from gateway import guarded

# Holds the writing end of a pipe for as long as it lives: end of file at the other end means that it is gone.
SLEEPER = "import time; time.sleep(600)"
PARENT = """
import sys, time
from gateway import guarded
guarded.start([sys.executable, "-c", sys.argv[2]], pass_fds=[int(sys.argv[1])])
print("started", flush=True)
time.sleep(600)
"""
PATIENCE_SECONDS = 30.0


def deaf(pipe: int) -> str:
    """A child that ignores SIGTERM, and says so once it does."""
    return f"import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.write({pipe}, b'x'); {SLEEPER}"


def ends(pipe: int) -> bool:
    """Whether everyone who held the other end is gone, waiting for it."""
    ready, _, _ = select.select([pipe], [], [], PATIENCE_SECONDS)
    return bool(ready) and os.read(pipe, 1) == b""


def parent_of(child: str, pipe: int) -> subprocess.Popen[bytes]:
    """A process that guards one child, which inherits `pipe`."""
    command = [sys.executable, "-c", PARENT, str(pipe), child]
    return subprocess.Popen(command, pass_fds=[pipe], stdout=subprocess.PIPE, start_new_session=True)


def test_a_child_is_stopped_by_its_owner() -> None:
    reading, writing = os.pipe()
    child = guarded.start([sys.executable, "-c", SLEEPER], pass_fds=[writing])
    os.close(writing)
    assert child.alive()
    child.close()
    child.close()
    assert not child.alive()
    assert ends(reading)
    os.close(reading)


def test_a_child_does_not_outlive_a_parent_that_was_killed() -> None:
    reading, writing = os.pipe()
    with parent_of(SLEEPER, writing) as parent:
        os.close(writing)
        assert parent.stdout is not None and parent.stdout.readline() == b"started\n"
        assert select.select([reading], [], [], 0)[0] == []  # the child is there
        parent.kill()
        parent.wait()
        assert ends(reading)
    os.close(reading)


def test_a_child_that_ends_by_itself_is_seen_and_leaves_nothing(tmp_path: Path) -> None:
    leftover, log = tmp_path / "leftover", tmp_path / "log"
    leftover.mkdir()
    command = [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"]
    child = guarded.start(command, log=log, leftover=str(leftover))
    assert child.guard.wait(PATIENCE_SECONDS) == 3
    assert not leftover.exists()
    assert sorted(log.read_text().split()) == ["err", "out"]
    child.close()


def test_a_child_that_will_not_go_is_killed() -> None:
    reading, writing = os.pipe()
    child = guarded.start([sys.executable, "-c", deaf(writing)], pass_fds=[writing])
    os.close(writing)
    assert os.read(reading, 1) == b"x"
    child.close(patience_seconds=0.1)
    assert ends(reading)
    os.close(reading)


def test_a_child_that_will_not_go_does_not_outlive_a_parent_that_was_killed() -> None:
    reading, writing = os.pipe()
    with parent_of(deaf(writing), writing) as parent:
        os.close(writing)
        assert os.read(reading, 1) == b"x"
        parent.kill()
        parent.wait()
        assert ends(reading)
    os.close(reading)
