"""The kernel's account of a tree of processes: CPU time to the nanosecond, and memory.

Rule: a gateway is all its processes and all their threads. `/proc/PID/task/*/schedstat` counts run time exactly, where
`utime` and `stime` come in ticks of 10 ms.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Account:
    """What a tree has used so far: seconds of CPU of the processes alive, and resident bytes now."""

    run_seconds: float
    rss_bytes: int
    processes: int


def family(root: int, parents: Mapping[int, int]) -> frozenset[int]:
    """`root` and all that descend from it. `parents` maps a process to its parent."""
    found = {root}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return frozenset(found)


def parent_of(stat: str) -> int:
    """The parent in a line of `/proc/PID/stat`; the name in brackets may hold spaces and brackets."""
    return int(stat.rpartition(")")[2].split()[1])


def run_seconds(schedstats: Iterable[str]) -> float:
    """The sum over threads; the first number of a `schedstat` line is nanoseconds on a CPU."""
    return sum(int(line.split()[0]) for line in schedstats) / 1e9


def account(root: int, proc: Path = PROC) -> Account:
    """The account of a process and its descendants. A process that ends meanwhile counts as nothing."""
    parents = {int(stat.parent.name): parent_of(text) for stat in proc.glob("[0-9]*/stat") if (text := _read(stat))}
    members = family(root, parents)
    lines = [
        text for pid in members for path in (proc / str(pid) / "task").glob("*/schedstat") if (text := _read(path))
    ]
    pages = sum(int(text.split()[1]) for pid in members if (text := _read(proc / str(pid) / "statm")))
    return Account(run_seconds(lines), pages * os.sysconf("SC_PAGE_SIZE"), len(members & parents.keys()))


def slope(points: Iterable[tuple[float, float]]) -> float:
    """The least-squares slope through (x, y). Raises `ValueError` for fewer than two different x."""
    xs, ys = zip(*points, strict=True)
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    if not spread:
        raise ValueError("a slope needs two different x")
    return float(sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
