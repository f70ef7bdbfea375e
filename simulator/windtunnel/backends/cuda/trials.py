"""Operations on NVIDIA and AMD GPUs: Windtunnel's kernels, vendor libraries, and a persistent kernel."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from windtunnel.backends.common.trials import KernelOperations
from windtunnel.backends.cuda.context import CupyContext
from windtunnel.backends.cuda.hold import Hold
from windtunnel.backends.cuda.libraries import OPERATIONS as LIBRARY
from windtunnel.backends.cuda.libraries import Libraries
from windtunnel.backends.cuda.persistent import MESSAGE, PersistentKernel
from windtunnel.core.columns import Columns
from windtunnel.core.errors import InvalidArgument
from windtunnel.runtime.trial import Timer, Trial

_WARM_UP = 32
"""Commands that are not timed, after which the kernel runs and the queue's pages are where they will stay."""


class CupyOperations(KernelOperations):
    """`KernelOperations` over CuPy, with GEMM and FFT by the vendor's libraries and a persistent kernel."""

    def __init__(self, context: CupyContext, versions: Mapping[str, str]) -> None:
        self.libraries = Libraries(context)
        super().__init__(context, {**versions, **self.libraries.versions}, nvml=context.driver.nvml)
        self._cupy = context
        self.timed = Hold(context).time_s

    def refusal(self, op: str, columns: Columns) -> str | None:
        """Return why ``op`` is not supported, or None. If a library is missing, no kernel replaces it."""
        return self.libraries.refusal(op, columns) if op in LIBRARY else super().refusal(op, columns)

    def _launch_refusal(self, columns: Columns) -> str | None:
        if columns["mode"] != "persistent":
            return super()._launch_refusal(columns)
        return PersistentKernel.refusal(self._cupy)

    def trial(self, op: str, columns: Columns) -> Trial:
        """Prepare ``op``."""
        if not self.accelerator.closed and self.refusal(op, columns) is None:
            if op in LIBRARY:
                return self.libraries.trial(self, op, columns)
            if op == "launch" and columns["mode"] == "persistent":
                return PersistentTrial(self._cupy, int(columns["count"]))
        return super().trial(op, columns)

    def close(self) -> None:
        """Close the libraries and the device."""
        self.libraries.close()
        super().close()


class PersistentTrial:
    """Sends ``commands`` commands to a persistent kernel, and waits for all replies."""

    timer: Timer = "host"

    def __init__(self, context: CupyContext, commands: int) -> None:
        self.context, self.commands = context, commands
        self.note = (
            "commands of 64 bytes to a persistent kernel of one thread, through host memory; includes Python's own time"
        )
        self._wrong = 0
        self._ran = self._closed = False

    def run(self, count: int = 1) -> float:
        """Run ``count`` times; return the mean seconds. The kernel runs only during this call."""
        if self._closed:
            raise self.context.error(InvalidArgument, "run", "the trial was closed")
        with PersistentKernel(self.context) as kernel:
            self._burst(kernel, _WARM_UP)
            total = math.fsum(self._burst(kernel, self.commands) for _ in range(count))
        self._ran = True
        return total / count

    def _burst(self, kernel: PersistentKernel, commands: int) -> float:
        """Return the seconds from the first command to the last reply. The queue is kept as full as possible."""
        host, clock = kernel.host, time.perf_counter
        sent = received = 0
        began = last = clock()
        while received < commands:
            if sent < commands and host.send(sent.to_bytes(8, "little") * (MESSAGE // 8)):
                sent += 1
                continue
            reply = host.receive()
            if reply is not None:
                self._wrong += reply != received.to_bytes(8, "little") * (MESSAGE // 8)
                received += 1
                last = clock()
            elif clock() - last > kernel.timeout_s:
                raise kernel.hang(f"{commands - received} replies did not arrive within {kernel.timeout_s:g} s")
        return clock() - began

    def check(self) -> float:
        """Return 0 if every reply equals its command, else infinity."""
        return 0.0 if self._ran and not self._wrong else math.inf

    def close(self) -> None:
        """Refuse further runs."""
        self._closed = True
