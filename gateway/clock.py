"""The two clocks of the gateway, read at the edge and handed on as numbers.

Rule: durations come from the monotonic clock, wall time is only for what leaves the process.
"""

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds since an arbitrary start, never going back."""

monotonic: Clock = time.perf_counter
wall: Clock = time.time
