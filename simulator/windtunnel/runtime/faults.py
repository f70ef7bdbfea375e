"""Declared faults: which calls of a program fail, how and when. A fault that does not occur is reported.

>>> with accelerator.faults({"kind": "out_of_memory", "call": 3}):
...     program()

A fault occurs at a call by its number (``call: 3``, the third eligible call), at random (``probability: 0.1``), or from
a virtual time on (``after_s: 0.5``). ``times`` is the number of occurrences (default: once, or unlimited at random).
``on`` limits it to one operation, ``kernel`` to one kernel. A fault that did not occur is an error when the plan ends.
If a fault ends a call, other faults that are due wait for the next call.

Every wait counts as a call of ``synchronize``: for the device, a stream, an event, or unified memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real

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
    list_choices,
    nearest,
)
from windtunnel.core.rng import stream

OPERATIONS = ("allocate", "copy_in", "copy_out", "copy_within", "launch", "synchronize", "send", "receive", "compile")
_SLOWEST = 1e6
"""The largest slowdown factor, and the longest hang (s), so that virtual time stays finite."""
_COPIES = ("copy_in", "copy_out", "copy_within")


@dataclass(frozen=True)
class FaultKind:
    """A kind of fault: the operations it affects, the error it raises (None: the call continues), and a description."""

    on: tuple[str, ...]
    error: type[DeviceError] | None
    text: str
    takes: tuple[str, ...] = ()
    """Keys that only this kind has."""

    @property
    def ends(self) -> bool:
        """Whether the fault ends the affected call; a slow or corrupted call and a hanging kernel do not end it."""
        return self.error is not None and "watchdog_timeout_s" not in self.takes


KINDS: Mapping[str, FaultKind] = {
    "out_of_memory": FaultKind(("allocate",), DeviceOutOfMemory, "no memory is free"),
    "launch_failure": FaultKind(("launch",), LaunchError, "no resources are free for the kernel"),
    "device_lost": FaultKind(OPERATIONS, DeviceLost, "the device is lost"),
    "ecc": FaultKind((*_COPIES, "launch", "synchronize"), EccError, "an uncorrectable memory error"),
    "hang": FaultKind(
        ("launch",), DeviceHang, "the kernel did not end, and a watchdog ended it", ("watchdog_timeout_s",)
    ),
    "copy_failure": FaultKind(_COPIES, CopyError, "the copy failed"),
    "slow_copy": FaultKind(_COPIES, None, "the copy takes `factor` times as long", ("factor",)),
    "corrupt_copy": FaultKind(_COPIES, None, "one bit of what is copied is flipped"),
    "throttle": FaultKind(("launch",), None, "kernels take `factor` times as long", ("factor",)),
    "link_down": FaultKind(_COPIES, LinkDown, "the device cannot be reached"),
    "queue_full": FaultKind(("launch", *_COPIES, "send"), QueueFull, "the queue takes no more work"),
}


class FaultNotFired(WindtunnelError, AssertionError):
    """An expected fault did not occur, so the program's reaction to it was not tested."""


@dataclass(frozen=True)
class Fault:
    """A declared fault: see the module. Raises InputError if it could never occur or would have no effect."""

    kind: str
    on: str | None = None
    kernel: str | None = None
    call: int | None = None
    probability: float | None = None
    after_s: float | None = None
    times: int | None = None
    factor: float = 4.0
    watchdog_timeout_s: float = 2.0
    """The virtual time (s) until the watchdog ends a hanging kernel; default: the two seconds of Windows."""

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in KINDS:
            raise InputError(
                f"'{self.kind}' is not a valid fault",
                expected=list_choices(KINDS),
                nearest=nearest(str(self.kind), KINDS),
            )
        for name, kinds, words in _TYPES:
            value = getattr(self, name)
            if value is None and Fault.__dataclass_fields__[name].default is None:
                continue
            if isinstance(value, bool) or not isinstance(value, kinds):
                raise InputError(f"'{name}' of a fault is {value!r}", expected=words)
            if isinstance(value, Real) and not math.isfinite(value):
                raise InputError(f"'{name}' of a fault is {value!r}", expected="a finite number")
        self._check_where()
        self._check_when()

    def _check_where(self) -> None:
        where = KINDS[self.kind].on
        if self.on is not None and self.on not in where:
            raise InputError(
                f"'{self.kind}' cannot be injected into '{self.on}'",
                expected=list_choices(where),
                nearest=nearest(self.on, where),
            )
        if self.kernel is not None and "launch" not in ((self.on,) if self.on is not None else where):
            raise InputError(
                f"'{self.on or self.kind}' does not affect kernels, so '{self.kernel}' is never affected",
                expected="'kernel' with faults of launches",
            )

    def _check_when(self) -> None:
        stated = [name for name in ("call", "probability", "after_s") if getattr(self, name) is not None]
        if len(stated) > 1:
            raise InputError(f"a fault has {' and '.join(stated)}", expected="one of call, probability, after_s")
        if self.call is not None and self.call < 1:
            raise InputError(f"call {self.call} does not exist", expected="a call from 1")
        if self.after_s is not None and self.after_s < 0.0:
            raise InputError(f"after_s is {self.after_s!r}", expected="after_s from 0")
        if self.probability is not None and not 0.0 < self.probability <= 1.0:
            raise InputError(f"{self.probability!r} is not a valid probability", expected="more than 0, at most 1")
        if self.factor > _SLOWEST or self.watchdog_timeout_s > _SLOWEST:
            raise InputError(f"'{self}' lasts too long", expected=f"factor and watchdog_timeout_s up to {_SLOWEST:g}")
        if self.factor <= 1.0 or self.watchdog_timeout_s <= 0.0 or (self.times is not None and self.times < 1):
            raise InputError(
                f"'{self}' would change nothing", expected="factor > 1, watchdog_timeout_s > 0, times from 1"
            )

    def __str__(self) -> str:
        parts = [f"{name}={value}" for name, value in (("on", self.on), ("kernel", self.kernel)) if value is not None]
        for name in ("call", "probability", "after_s", "times"):
            value = getattr(self, name)
            if value is not None:
                parts.append(f"{name}={value:g}")
        return " ".join([self.kind, *parts])


_TYPES: Sequence[tuple[str, type | tuple[type, ...], str]] = (
    ("on", str, "the name of an operation"),
    ("kernel", str, "the name of a kernel"),
    ("call", Integral, "a whole number"),
    ("times", Integral, "a whole number"),
    ("probability", Real, "a number"),
    ("after_s", Real, "a number of seconds"),
    ("factor", Real, "a number"),
    ("watchdog_timeout_s", Real, "a number of seconds"),
)


_RENAMED_KEYS: Mapping[str, str] = dict.fromkeys(("hang", "hang_s"), "watchdog_timeout_s")
"""Former names of keys, and close ones that a comparison of letters does not find."""


def fault_from(data: Mapping[str, object] | str) -> Fault:
    """Return a fault from plain data. Raises InputError for unknown keys and kinds, and for one that cannot occur."""
    if not isinstance(data, (str, Mapping)):
        raise InputError(f"{data!r} is not a fault", expected="a kind, or a mapping such as {'kind': 'ecc', 'call': 3}")
    values = {"kind": data} if isinstance(data, str) else dict(data)
    known = list(Fault.__dataclass_fields__)
    for key in values:
        if key not in known:
            closest = _RENAMED_KEYS.get(key) or nearest(str(key), known)
            raise InputError(f"a fault has no '{key}'", expected=list_choices(known), nearest=closest)
    if "kind" not in values:
        raise InputError(f"the fault {values} has no kind", expected=list_choices(KINDS))
    fault = Fault(**values)
    for name in ("factor", "watchdog_timeout_s"):
        if name in values and name not in KINDS[fault.kind].takes:
            takers = [kind for kind, definition in KINDS.items() if name in definition.takes]
            raise InputError(f"'{name}' changes nothing of '{fault.kind}'", expected=f"it with {' or '.join(takers)}")
    return fault


@dataclass
class _Armed:
    fault: Fault
    seen: int = 0
    occurrences: int = 0
    draws: np.random.Generator | None = None


@dataclass
class FaultPlan:
    """Armed faults and their log. The same seed and the same calls give the same faults."""

    faults: Sequence[Fault]
    seed: int = 0
    log: list[str] = field(default_factory=list)
    """The injected faults in order: fault, operation, virtual time."""

    def __post_init__(self) -> None:
        self._flips = 0
        self._armed = [_Armed(fault) for fault in self.faults]
        for number, armed in enumerate(self._armed):
            if armed.fault.probability is not None:
                armed.draws = stream(self.seed, "runtime faults", str(number), armed.fault.kind)

    def next_effects(self, operation: str, kernel: str | None, clock_s: float) -> list[tuple[Fault, int]]:
        """Return the faults of this call, each with its position in the log."""
        due = []
        for armed in self._armed:
            fault = armed.fault
            if operation not in ((fault.on,) if fault.on is not None else KINDS[fault.kind].on):
                continue
            if fault.kernel is not None and kernel != fault.kernel:
                continue
            armed.seen += 1
            if self._is_due(armed, clock_s):
                due.append(armed)
        # A fault that ends the call leaves nothing for the others, which therefore do not occur.
        ending = [armed for armed in due if KINDS[armed.fault.kind].ends][:1]
        effects = []
        for armed in ending or due:
            armed.occurrences += 1
            effects.append((armed.fault, len(self.log)))
            self.log.append(
                f"{armed.fault} injected into {operation}{f' {kernel}' if kernel else ''} at {clock_s:.9g} s"
            )
        return effects

    def _is_due(self, armed: _Armed, clock_s: float) -> bool:
        fault = armed.fault
        # One draw for every call, whether the fault can occur or not, so that later draws do not shift.
        drawn = armed.draws is not None and armed.draws.random() < (fault.probability or 0.0)
        if armed.occurrences >= (fault.times or (2**62 if fault.probability is not None else 1)):
            return False
        if fault.probability is not None:
            return drawn
        if fault.after_s is not None:
            return clock_s >= fault.after_s
        return armed.seen >= (fault.call or 1)

    def finish(self) -> None:
        """Raise FaultNotFired for faults that did not occur; a random fault need not occur."""
        idle = [armed for armed in self._armed if not armed.occurrences and armed.fault.probability is None]
        if idle:
            missing = "; ".join(f"{armed.fault} (of {armed.seen} eligible calls)" for armed in idle)
            raise FaultNotFired(f"never occurred: {missing}; seed {self.seed}")

    def corrupt(self, data: np.ndarray, position: int) -> None:
        """Flip one bit of ``data`` (bytes) and record it in the log's line; the seed determines the bit."""
        if not data.size:
            self.log[position] += ": nothing was copied"
            return
        self._flips += 1
        draws = stream(self.seed, "runtime faults", "bit", str(self._flips))
        bit = int(draws.integers(0, data.size * 8))
        data[bit // 8] ^= np.uint8(1 << bit % 8)
        self.log[position] += f": bit {bit}"
