"""Child processes that never outlive this program, not even when it is killed with SIGKILL.

Rule: a small `sh` holds the reading end of a pipe whose writing end only this process has. End of file means that this
process is gone, and `sh` stops the child. Works wherever there is a POSIX shell.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# $1 is a folder to remove afterwards ("" for none), the rest is the child's command line. The shell waits for the
# child, so the child's end is the shell's end and its exit code ours. Its second half reads the pipe, then asks the
# child to go and, after 5 s, makes it. The naps are short because a nap outlives its shell, and holds what the child
# inherited.
_GUARD = """
leftover=$1; shift
exec 3<&0
"$@" </dev/null 3<&- &
child=$!
{
  read -r _ <&3
  kill "$child"
  n=0; while [ "$n" -lt 25 ]; do sleep 0.2; n=$((n + 1)); done
  kill -9 "$child"
} 2>/dev/null &
reader=$!
exec 3<&-
wait "$child"; code=$?
kill "$reader" 2>/dev/null
[ -z "$leftover" ] || rm -rf -- "$leftover"
exit "$code"
"""


@dataclass(frozen=True, slots=True)
class Child:
    """A guarded child. `close()` stops it and may be called twice."""

    guard: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """The guard's process, whose group the child is in."""
        return self.guard.pid

    def alive(self) -> bool:
        return self.guard.poll() is None

    def close(self, patience_seconds: float = 5.0) -> None:
        """Ask it to stop (SIGTERM); after `patience_seconds` it is killed."""
        if self.guard.stdin is not None:
            self.guard.stdin.close()
        try:
            self.guard.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.guard.pid, signal.SIGKILL)
            self.guard.wait()


def start(
    command: Sequence[str], *, log: Path | None = None, leftover: str = "", pass_fds: Sequence[int] = ()
) -> Child:
    """Start `command`; what it prints goes to the file `log`, or nowhere.

    Ctrl-C on the terminal reaches this program only, which then stops the child. The process that calls this must not
    `fork` without `exec` while the child runs: the copy would hold the pipe.
    """
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if log else subprocess.DEVNULL
    try:
        guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "kvgate-guard", leftover, *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    finally:
        if log:
            os.close(output)
    return Child(guard)
