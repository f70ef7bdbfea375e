"""What the parts of an emulated device share: its model, clock, streams' order, and the enqueuing of operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.errors import Finding, LaunchError
from windtunnel.emulator.device.costs import DeviceCosts, Price
from windtunnel.emulator.device.memory import EmulatedMemory
from windtunnel.emulator.device.stream_order import StreamOrder
from windtunnel.emulator.device.timeline import Around, DeviceTime, Host, Span, StreamTime
from windtunnel.emulator.device.tracked_memory import StreamAccess
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.codes import ErrorKind, Reason, code_of, same_kind
from windtunnel.runtime.interface import DeviceInfo, Interval
from windtunnel.runtime.kernels import Kernel
from windtunnel.runtime.limits import limits_of
from windtunnel.runtime.ring import Pattern

_DTYPES = {"float16": "float16", "bfloat16": "bfloat16", "int8": "int8", "fp8": "fp8", "fp4": "nvfp4"}
"""Features that name a number format, and the format in the lists of matrix units."""


class RunningRing(Protocol):
    """A ring kernel that has not been terminated."""

    name: str
    pattern: Pattern
    design: Hashable
    """What it needs of a reconfigurable device."""

    def advance(self, until: int) -> None:
        """Execute what the kernel does until a tick."""

    def kill(self) -> None:
        """End with the device."""


def _features(device: Device) -> frozenset[str]:
    """Return the features of the API, without number formats and matrix units for which the device has no rate."""
    rates = {name.partition(".")[2] for name in device.values if name.startswith(("matrix_flops", "vector_flops"))}
    has_matrix_units = any(name.startswith("matrix_flops") for name in device.values)
    return frozenset(
        feature
        for feature in device.api.features
        if (feature not in _DTYPES or not rates or _DTYPES[feature] in rates)
        and (has_matrix_units or feature != "matrix")
    )


def _nothing() -> None:
    pass


class EmulatedDevice:
    """An emulated device, as its context, streams, kernels, graphs and ring kernels see it."""

    def __init__(self, device: Device, host: Host | None, interval: Interval, *, checked: bool) -> None:
        self.device, self.host = device, host or Host()
        self.costs = DeviceCosts(device, interval)
        if host is not None:
            self.spend_overhead("context_s")
        api = device.api
        self.info = DeviceInfo(
            name=device.label,
            kind=device.kind.name,
            api=api.name,
            memory_bytes=device.memory_bytes,
            limits=limits_of(api.name),
            features=_features(device),
            virtual=True,
            compute_units=int(device.number("compute_units") or device.number("cores") or 1),
        )
        self.time = DeviceTime(self.host, device.idle_power_w, opened_at=self.host.now)
        self.order = StreamOrder(self.host, self.info.name) if checked else None
        self.findings: list[Finding] = []
        """The findings that were raised, in order."""
        self.on_finding: Callable[[Finding], None] | None = None
        """What is told of each finding."""
        self.error_kind: ErrorKind = same_kind
        """What replaces the classes of errors by those of another interface, for a program that is written for it."""
        self.duration_scale = 1.0
        """The factor on the duration of work that is enqueued now; see ``scale_durations``."""
        self.rings: list[RunningRing] = []
        load = device.design_load()
        self.regions = 0 if load is None else load.regions
        """How many designs a reconfigurable device holds at once; 0 for other devices."""
        self.resident: list[Hashable] = []
        """The designs that it holds, the most recently used first."""
        self.units = device.number("compute_units") or device.number("cores") or 1.0
        # The memory of a processor is the host's.
        self.shares_memory = device.kind.name == "cpu" or (device.number("unified_memory") or 0.0) >= 0.5
        self.capturing: Any = None
        self.before_mark: Callable[[str], None] = lambda _: None
        self.before_wait: Callable[[], None] = _nothing
        self.after_wait: Callable[[], None] = _nothing

    def error(self, kind: type[Any], operation: str, problem: str, reason: Reason | None = None) -> Any:
        """Return a device error of this device, with the code of its API."""
        raised = self.error_kind(kind, operation, reason)
        return raised(problem, operation=operation, device=self.info.name, code=code_of(self.info.api, kind, reason))

    def view(self, memory: EmulatedMemory, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        """Return memory as an array."""
        return memory.data[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)

    def as_array(self, argument: Any) -> Any:
        """Return the array of a buffer, and any other argument unchanged."""
        if not isinstance(argument, Buffer):
            return argument
        memory = argument.memory
        assert isinstance(memory, EmulatedMemory)  # noqa: S101  the accelerator has checked that it is of this context
        return self.view(memory, argument.dtype, argument.shape)

    def spend_overhead(self, name: str) -> None:
        """Advance the host's clock by an overhead of the API."""
        ticks = self.costs.overhead(name)
        if ticks:
            self.host.spend(ticks)
            self.costs.note_overhead(name)

    def share_of(self, blocks: int) -> float:
        """Return the share of the compute engine that a kernel of so many blocks uses."""
        return min(blocks / self.units, 1.0)

    def enqueue(
        self, stream: StreamTime, price: Price, name: str, *, share: float = 1.0, latency: int = 0, size: int = 0
    ) -> Span:
        """Enqueue an operation and return its span. Raises LaunchError if ring kernels leave it no room.

        It uses ``share`` of its hardware engine and does not start before ``latency`` ticks from now. ``size`` is the
        number of bytes that it copies.
        """
        ticks, share = self.fit(price, share, name)
        return self.time.enqueue(
            stream,
            price.engine,
            name,
            ticks if self.duration_scale == 1.0 else round(ticks * self.duration_scale),
            joules=price.joules,
            share=share,
            after=(self.host.now + latency,),
            size=size,
        )

    def fit(self, price: Price, share: float, name: str) -> tuple[int, float]:
        """Return (ticks, share) of an operation on the part of its engine that persistent kernels leave.

        It takes longer in proportion. Raises LaunchError if they leave nothing.
        """
        free = self.time.engine(price.engine).free
        if share <= free:
            return price.ticks, share
        if free * self.units < 1.0 - 1e-9:
            running = ", ".join(f"'{ring.name}'" for ring in self.rings)
            problem = f"it could not begin: ring kernel {running} holds all {self.units:g} compute units until it ends"
            raise self.error(LaunchError, f"launch {name}", problem)
        return round(price.ticks * share / free), free

    def require_design(self, stream: StreamTime, kernel: Kernel, arguments: Sequence[Any]) -> Hashable:
        """Let a reconfigurable device hold the design of a kernel, and return what identifies it.

        A design is a kernel with the formats of its arrays. If the device does not hold it, the design that was used
        least recently goes, and the host waits: for all work that was enqueued before, and for the load. A device that
        was opened holds none. Raises LaunchError if persistent kernels occupy all regions.
        """
        if not self.regions:
            return None
        formats = tuple(str(argument.dtype) for argument in arguments if isinstance(argument, np.ndarray))
        design = (kernel.function, formats)
        if design not in self.resident:
            if len(self.resident) == self.regions:
                held = [ring.design for ring in self.rings if ring.pattern == "persistent"]
                free = [other for other in self.resident if other not in held]
                if not free:
                    running = ", ".join(f"'{ring.name}'" for ring in self.rings)
                    problem = f"its design would replace that of ring kernel {running}, which runs until it ends"
                    raise self.error(LaunchError, f"launch {kernel.name}", problem)
                self.resident.remove(free[-1])
            price = self.costs.price_of_load()
            span = self.time.enqueue(
                stream,
                price.engine,
                f"load design {kernel.name}",
                price.ticks,
                joules=price.joules,
                after=(self.time.last(),),
            )
            self.host.wait_until(span.end)
        else:
            self.resident.remove(design)
        self.resident.insert(0, design)
        return design

    def wait(self, tick: int) -> None:
        """Let the host wait until ``tick``, and add the time until it is notified."""
        self.before_wait()
        self.host.wait_until(tick)
        if self.costs.back_ticks:
            self.host.spend(self.costs.back_ticks)
            self.costs.note_overhead("synchronize_s")
        self.after_wait()

    def watching(self, access: StreamAccess | None, array: np.ndarray) -> Around:
        """Watch an array of the host until a copy to it has ended, and return what has to be around its change."""
        if access is None or access.has_ended or self.order is None:
            return nullcontext
        access.watch(array)
        return partial(self.order.landing, array)

    def raise_pending_finding(self) -> None:
        """Raise the stream race that was found, if there is one."""
        finding = None if self.order is None else self.order.take_finding()
        if finding is not None:
            raise self.found(finding)

    def found(self, finding: Finding) -> Finding:
        """Record a finding, unless it is recorded already, and return it to be raised."""
        if any(finding is known for known in self.findings):
            return finding
        self.findings.append(finding)
        if self.on_finding is not None:
            self.on_finding(finding)
        return finding
