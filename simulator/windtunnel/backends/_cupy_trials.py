"""What NVIDIA's and AMD's devices do beside kernels of ours: commands to a kernel that stays; and their clocks."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from windtunnel.backends._cupy import CupyContext
from windtunnel.backends._cupy_ring import MESSAGE, Persistent
from windtunnel.backends._trials import KernelOperations
from windtunnel.core.errors import DeviceHang, InvalidArgument
from windtunnel.runtime.trial import Timer, Trial

_WARM_UP = 32
"""Commands before those that count: the kernel has then begun, and the queue's pages are where they will be."""


class CupyOperations(KernelOperations):
    """`KernelOperations` over CuPy, with a kernel that stays where the API has one."""

    def __init__(self, context: CupyContext, versions: Mapping[str, str]) -> None:
        super().__init__(context, {**versions, **_clocks(context)})
        self._cupy = context

    def _no_launch(self, columns: Mapping[str, Any]) -> str | None:
        if columns["mode"] != "persistent":
            return super()._no_launch(columns)
        return Persistent.refusal(self._cupy)

    def trial(self, op: str, columns: Mapping[str, Any]) -> Trial:
        """See ``Operations``."""
        if op == "launch" and columns["mode"] == "persistent" and not self.accelerator.closed:
            refused = self.refusal(op, columns)
            if refused is None:
                return RingTrial(self._cupy, int(columns["count"]))
        return super().trial(op, columns)


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


def _clocks(context: CupyContext) -> dict[str, str]:
    """What NVML says of the device's state when it is opened; nothing where it does not answer."""
    nvml = context.driver.nvml
    if nvml is None:
        return {}
    state = nvml.state()
    return {name: str(value) for name, value in vars(state).items() if value not in (None, "", ())}
