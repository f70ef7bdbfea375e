"""Timing work of a stream behind a kernel that blocks the stream until all of the work is enqueued.

Without it the device waits for the host between the first event and the first work, and between works that it executes
faster than the host enqueues them. A replay of a graph from Python takes the host 10 to 100 us.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.backends.cuda.context import CupyContext
from windtunnel.core.errors import LaunchError

HOLD = "windtunnel_hold"
SOURCE = """
// Does nothing for a number of cycles of the multiprocessor's clock.
extern "C" __global__ void windtunnel_hold(long long cycles) {
    long long began = clock64();
    while (clock64() - began < cycles) {}
}
"""
_CYCLES_HZ = 2e9
"""Approximate frequency of that clock. If it is wrong, the measurement is repeated with a longer hold."""
_LONGEST_S = 0.5
_MAX_HOLDS = 12
"""Number of attempts with increasing holds."""


@dataclass
class Hold:
    """Measures times in the default stream of ``context``, behind holds of ``least_s`` or longer."""

    context: CupyContext
    least_s: float = 2e-4
    _kernel: Any = None

    def __post_init__(self) -> None:
        self.seconds = self.least_s
        """The duration of the next hold."""

    def time_s(self, enqueue: Callable[[], None], what: str = "replay a graph") -> float:
        """Return the device time (s) of what ``enqueue`` adds to the stream. It is called again if it took too long."""
        context, driver = self.context, self.context.driver
        for _ in range(_MAX_HOLDS):
            context.synchronize()
            first, last = context.event(), context.event()
            self._block()
            first.record()
            began = context.clock_s
            enqueue()
            last.record()
            with context.driving(what):
                late = driver.reached(first.mark)
            enqueue_s = context.clock_s - began
            last.synchronize()
            if not late:
                # The next call may enqueue less.
                self.seconds = max(self.least_s, min(self.seconds, 2 * enqueue_s))
                return last.elapsed_s(first)
            self.seconds = min(max(2 * self.seconds, 1.5 * enqueue_s), _LONGEST_S)
        problem = f"the calls could not be enqueued within a hold of {self.seconds:g} s"
        raise context.error(LaunchError, what, problem)

    def _block(self) -> None:
        """Block the stream for about ``seconds``."""
        context, driver = self.context, self.context.driver
        with context.driving("hold a stream"):
            driver.make_current()
            if self._kernel is None:
                self._kernel = driver.load(SOURCE, HOLD, ("-std=c++17",))
            cycles = (np.int64(self.seconds * _CYCLES_HZ),)
            driver.start(self._kernel, (1, 1, 1), (1, 1, 1), cycles, context.default.native, 0)
