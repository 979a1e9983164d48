"""The benchmark's account of processes: what it adds up, and that the kernel's own figures read that way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.accounting import account, family, parent_of, run_seconds, slope
from bench.machine import busy_seconds


def test_a_family_is_all_generations_and_nobody_else() -> None:
    parents = {2: 1, 3: 2, 4: 3, 5: 1, 6: 5}
    assert family(2, parents) == {2, 3, 4}
    assert family(9, parents) == {9}


def test_a_name_with_brackets_and_spaces_does_not_hide_the_parent() -> None:
    assert parent_of("42 (a) b (c) S 7 42 42 0 -1") == 7


def test_run_time_is_the_sum_of_the_first_numbers_in_nanoseconds() -> None:
    assert run_seconds(["1500000000 99 3\n", "500000000 1 1\n"]) == 2.0


def written(proc: Path, pid: int, parent: int, threads: dict[int, int], pages: int) -> None:
    """A process as /proc shows it. `threads` maps a thread to its nanoseconds."""
    for thread, nanoseconds in threads.items():
        folder = proc / str(pid) / "task" / str(thread)
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text(f"{nanoseconds} 5 1\n")
    (proc / str(pid) / "stat").write_text(f"{pid} (worker) S {parent} 0 0\n")
    (proc / str(pid) / "statm").write_text(f"900 {pages} 3 1 0 2 0\n")


def test_an_account_is_of_all_threads_of_all_descendants(tmp_path: Path) -> None:
    written(tmp_path, 10, 1, {10: 1_000_000_000}, pages=2)
    written(tmp_path, 11, 10, {11: 250_000_000, 12: 250_000_000}, pages=3)
    written(tmp_path, 20, 1, {20: 7_000_000_000}, pages=50)
    told = account(10, tmp_path)
    assert (told.run_seconds, told.processes) == (1.5, 2)
    assert told.rss_bytes == 5 * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="needs Linux with schedstat")
def test_the_kernel_is_read_in_the_same_units() -> None:
    spin = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    shell = [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}])"]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        told = account(parent.pid)
        parent.communicate(b"\n")
    assert told.processes == 2
    assert told.run_seconds >= 0.2  # the child's own clock said so before the line came
    assert told.rss_bytes > 1_000_000


def test_busy_time_leaves_out_idle_and_waiting() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    line = f"cpu  {ticks} {ticks} {ticks} {50 * ticks} {60 * ticks} 0 0 {ticks} 0 0"
    assert busy_seconds(f"{line}\ncpu0 1 2 3\n") == 4.0


def test_the_slope_of_a_line_is_found_whatever_its_start() -> None:
    assert slope([(500, 100 + 500 * 18), (1000, 100 + 1000 * 18), (4000, 100 + 4000 * 18)]) == pytest.approx(18)


def test_one_point_has_no_slope() -> None:
    with pytest.raises(ValueError, match="two different"):
        slope([(500, 1.0), (500, 2.0)])
