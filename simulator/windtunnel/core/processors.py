"""The processors of this machine that this process may use."""

from __future__ import annotations

import os
import sys


def processors() -> int:
    """Return the number of processors that this process may run on."""
    if hasattr(os, "process_cpu_count"):  # Python 3.13
        return os.process_cpu_count() or 1
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
