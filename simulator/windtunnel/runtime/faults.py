"""Faults on demand: which calls of a program fail, how, and when; declared, seeded, and missed when they never happen.

>>> with accelerator.faults({"kind": "out_of_memory", "call": 3}):
...     program()

A fault strikes by the number of a call (``call: 3``: the third that it concerns), by chance (``probability: 0.1``), or
from a moment of virtual time on (``after_s: 0.5``); ``times`` says how often (once unless it strikes by chance). ``on``
narrows it to calls of one operation, ``kernel`` to one kernel. A fault that was to strike and did not is an error when
the plan ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from windtunnel.core.errors import (
    CopyError,
    DeviceError,
    DeviceHang,
    DeviceLost,
    DeviceOutOfMemory,
    EccError,
    InputError,
    LaunchError,
    LinkDown,
    QueueFull,
    WindtunnelError,
    nearest,
    one_of,
)
from windtunnel.core.rng import stream

OPERATIONS = ("allocate", "copy_in", "copy_out", "copy_within", "launch", "synchronize", "send", "receive")
_COPIES = ("copy_in", "copy_out", "copy_within")


@dataclass(frozen=True)
class FaultKind:
    """A way to fail: the operations it may strike, the error it raises (None: the call goes on, badly), in words."""

    on: tuple[str, ...]
    error: type[DeviceError] | None
    text: str


KINDS: Mapping[str, FaultKind] = {
    "out_of_memory": FaultKind(("allocate",), DeviceOutOfMemory, "no memory is free"),
    "launch_failure": FaultKind(("launch",), LaunchError, "the kernel failed"),
    "device_lost": FaultKind(OPERATIONS, DeviceLost, "the device is gone"),
    "ecc": FaultKind((*_COPIES, "launch", "synchronize"), EccError, "an uncorrectable memory error"),
    "hang": FaultKind(("launch",), DeviceHang, "the kernel did not end, and a watchdog ended it"),
    "copy_failure": FaultKind(_COPIES, CopyError, "the copy failed"),
    "slow_copy": FaultKind(_COPIES, None, "the copy takes `factor` times as long"),
    "corrupt_copy": FaultKind(_COPIES, None, "one bit of what is copied is flipped"),
    "throttle": FaultKind(("launch",), None, "kernels take `factor` times as long"),
    "link_down": FaultKind(_COPIES, LinkDown, "the device cannot be reached"),
    "queue_full": FaultKind(("launch", *_COPIES, "send"), QueueFull, "the queue takes no more work"),
}


class FaultNotFired(WindtunnelError, AssertionError):
    """A fault that was expected to strike did not: what it was to test was not tested."""


@dataclass(frozen=True)
class Fault:
    """One fault as it was declared: see the module."""

    kind: str
    on: str | None = None
    kernel: str | None = None
    call: int | None = None
    probability: float | None = None
    after_s: float | None = None
    times: int | None = None
    factor: float = 4.0
    hang_s: float = 2.0
    """Virtual time (s) until the watchdog ends a kernel that hangs: Windows' and most desktops' two seconds."""

    def __str__(self) -> str:
        parts = [f"{name}={value}" for name, value in (("on", self.on), ("kernel", self.kernel)) if value is not None]
        for name in ("call", "probability", "after_s", "times"):
            value = getattr(self, name)
            if value is not None:
                parts.append(f"{name}={value:g}")
        return " ".join([self.kind, *parts])


def fault_from(data: Mapping[str, Any] | str) -> Fault:
    """A fault from plain data; InputError for unknown keys and kinds, and for what can never strike."""
    values = {"kind": data} if isinstance(data, str) else dict(data)
    known = list(Fault.__dataclass_fields__)
    for key in values:
        if key not in known:
            raise InputError(f"a fault has no '{key}'", expected=one_of(known), nearest=nearest(key, known))
    kind = values.get("kind")
    if kind not in KINDS:
        raise InputError(f"no fault is a '{kind}'", expected=one_of(KINDS), nearest=nearest(str(kind), KINDS))
    fault = Fault(**values)
    where = KINDS[fault.kind].on
    if fault.on is not None and fault.on not in where:
        raise InputError(
            f"'{fault.kind}' does not strike '{fault.on}'", expected=one_of(where), nearest=nearest(fault.on, where)
        )
    stated = [name for name in ("call", "probability", "after_s") if getattr(fault, name) is not None]
    if len(stated) > 1:
        raise InputError(f"a fault strikes by {' and by '.join(stated)}", expected="one of call, probability, after_s")
    if fault.call is not None and fault.call < 1:
        raise InputError(f"there is no call {fault.call}", expected="a call from 1")
    if fault.probability is not None and not 0.0 < fault.probability <= 1.0:
        raise InputError(f"{fault.probability!r} is no probability to strike with", expected="more than 0, at most 1")
    if fault.factor <= 1.0 or fault.hang_s <= 0.0 or (fault.times is not None and fault.times < 1):
        raise InputError(f"'{fault}' would change nothing", expected="factor > 1, hang_s > 0, times from 1")
    return fault


@dataclass
class _Armed:
    fault: Fault
    seen: int = 0
    struck: int = 0
    draws: np.random.Generator | None = None


@dataclass
class FaultPlan:
    """Faults that are armed, and what they have done. The same seed and the same calls are struck alike."""

    stated: Sequence[Fault]
    seed: int = 0
    log: list[str] = field(default_factory=list)
    """What struck, in order: fault, operation, virtual time."""

    def __post_init__(self) -> None:
        self._flips = 0
        self._armed = [_Armed(fault) for fault in self.stated]
        for number, armed in enumerate(self._armed):
            if armed.fault.probability is not None:
                armed.draws = stream(self.seed, "runtime faults", str(number), armed.fault.kind)

    def consult(self, operation: str, kernel: str | None, clock_s: float) -> list[Fault]:
        """The faults that strike this call."""
        found = []
        for armed in self._armed:
            fault = armed.fault
            if operation not in ((fault.on,) if fault.on is not None else KINDS[fault.kind].on):
                continue
            if fault.kernel is not None and kernel != fault.kernel:
                continue
            armed.seen += 1
            if self._strikes(armed, clock_s):
                armed.struck += 1
                self.log.append(f"{fault} struck {operation}{f' {kernel}' if kernel else ''} at {clock_s:.9g} s")
                found.append(fault)
        return found

    def _strikes(self, armed: _Armed, clock_s: float) -> bool:
        fault = armed.fault
        # A draw a call, whether it can strike or not: what was drawn before never moves what comes after.
        drawn = armed.draws is not None and armed.draws.random() < (fault.probability or 0.0)
        if armed.struck >= (fault.times or (2**62 if fault.probability is not None else 1)):
            return False
        if fault.probability is not None:
            return drawn
        if fault.after_s is not None:
            return clock_s >= fault.after_s
        return armed.seen >= (fault.call or 1)

    def finish(self) -> None:
        """FaultNotFired for what was to strike and did not; chance may stay away."""
        idle = [armed for armed in self._armed if not armed.struck and armed.fault.probability is None]
        if idle:
            said = "; ".join(f"{armed.fault} (of {armed.seen} calls that it concerns)" for armed in idle)
            raise FaultNotFired(f"never struck: {said}")

    def flip(self, data: np.ndarray) -> int:
        """Flip one bit of ``data`` (bytes), the n-th of a plan the same for the same seed; the bit's place."""
        self._flips += 1
        draws = stream(self.seed, "runtime faults", "bit", str(self._flips))
        bit = int(draws.integers(0, data.size * 8))
        data[bit // 8] ^= np.uint8(1 << bit % 8)
        return bit
