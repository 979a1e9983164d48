"""Reading what `strace -c` counted.

Rule: a data call moves bytes of a connection; waiting, clocks and memory are counted in the total only.
"""

from collections.abc import Mapping
from typing import Final

DATA_CALLS: Final = frozenset(
    {"read", "readv", "recvfrom", "recvmsg", "recv", "write", "writev", "sendto", "sendmsg", "send", "sendfile"}
)


def counts(summary: str) -> dict[str, int]:
    """Calls by name in the summary of `strace -c`: its fourth column, the name in the last."""
    rows = (line.split() for line in summary.splitlines())
    return {row[-1]: int(row[3]) for row in rows if len(row) >= 5 and row[3].isdigit() and row[-1] != "total"}


def data_calls(calls: Mapping[str, int]) -> int:
    """How many of them moved bytes."""
    return sum(count for name, count in calls.items() if name in DATA_CALLS)
