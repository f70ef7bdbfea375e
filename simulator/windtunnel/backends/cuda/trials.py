"""What NVIDIA's and AMD's devices do beside kernels of ours: vendors' libraries, commands to a kernel that stays."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from windtunnel.backends.common.trials import KernelOperations
from windtunnel.backends.cuda.driver import CupyContext
from windtunnel.backends.cuda.libraries import OPERATIONS as LIBRARY
from windtunnel.backends.cuda.libraries import Libraries
from windtunnel.backends.cuda.persistent import MESSAGE, Persistent
from windtunnel.core.errors import DeviceHang, InvalidArgument
from windtunnel.runtime.trial import Conditions, Timer, Trial

_WARM_UP = 32
"""Commands before those that count: the kernel has then begun, and the queue's pages are where they will be."""


class CupyOperations(KernelOperations):
    """`KernelOperations` over CuPy: products and transforms by the vendor's libraries, and a kernel that stays."""

    def __init__(self, context: CupyContext, versions: Mapping[str, str]) -> None:
        self.libraries = Libraries(context)
        super().__init__(context, {**versions, **self.libraries.versions})
        self._cupy = context

    def refusal(self, op: str, columns: Mapping[str, Any]) -> str | None:
        """See ``Operations``. No kernel of ours takes a library's place where that is missing."""
        return self.libraries.refusal(op, columns) if op in LIBRARY else super().refusal(op, columns)

    def _no_launch(self, columns: Mapping[str, Any]) -> str | None:
        if columns["mode"] != "persistent":
            return super()._no_launch(columns)
        return Persistent.refusal(self._cupy)

    def trial(self, op: str, columns: Mapping[str, Any]) -> Trial:
        """See ``Operations``."""
        if not self.accelerator.closed and self.refusal(op, columns) is None:
            if op in LIBRARY:
                return self.libraries.trial(self, op, columns)
            if op == "launch" and columns["mode"] == "persistent":
                return RingTrial(self._cupy, int(columns["count"]))
        return super().trial(op, columns)

    def conditions(self) -> Conditions:
        """See ``Conditioned``: what NVML says; nothing where it does not answer."""
        nvml = self._cupy.driver.nvml
        if nvml is None:
            return {}
        told = {**vars(nvml.state()), "power_limit_w": nvml.power_limit_w()}
        return {
            name: value if isinstance(value, float) else list(value)
            for name, value in told.items()
            if value is not None
        }

    def close(self) -> None:
        """See ``Operations``."""
        self.libraries.close()
        super().close()


class RingTrial:
    """``many`` commands written to a kernel that stays, one after another, and the answer of the last read."""

    timer: Timer = "host"

    def __init__(self, context: CupyContext, many: int) -> None:
        self.context, self.many = context, many
        self.note = (
            "commands of 64 bytes to a kernel of one thread that stays, over memory of the host's; Python's own part "
            "is in it"
        )
        self._wrong = 0
        self._ran = self._closed = False

    def run(self, count: int = 1) -> float:
        """See ``Trial``. The kernel stays for as long as this: nobody else waits for the device meanwhile."""
        if self._closed:
            raise self.context.error(InvalidArgument, "run", "the trial was closed")
        with Persistent(self.context) as ring:
            self._burst(ring, _WARM_UP)
            total = math.fsum(self._burst(ring, self.many) for _ in range(count))
        self._ran = True
        return total / count

    def _burst(self, ring: Persistent, many: int) -> float:
        """Seconds from the first command until the last reply; as many are under way as the queue takes."""
        host, clock = ring.host, time.perf_counter
        sent = received = 0
        began = last = clock()
        while received < many:
            if sent < many and host.send(sent.to_bytes(8, "little") * (MESSAGE // 8)):
                sent += 1
                continue
            reply = host.receive()
            if reply is not None:
                self._wrong += reply != received.to_bytes(8, "little") * (MESSAGE // 8)
                received += 1
                last = clock()
            elif clock() - last > ring.patience_s:
                problem = f"{many - received} replies have not come in {ring.patience_s:g} s"
                raise self.context.error(DeviceHang, "call the kernel that stays", problem)
        return clock() - began

    def check(self) -> float:
        """Every reply has to be its command."""
        return 0.0 if self._ran and not self._wrong else math.inf

    def close(self) -> None:
        """See ``Trial``."""
        self._closed = True
