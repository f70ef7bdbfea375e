"""The time and energy of an emulated device's operations, by its device model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from windtunnel.core.columns import Columns
from windtunnel.core.device import Device, Parameters
from windtunnel.core.errors import InputError, UnsupportedOperationError
from windtunnel.core.ops import OPERATIONS, one_row
from windtunnel.core.provenance import Provenance
from windtunnel.core.ticks import to_ticks
from windtunnel.runtime.interface import Interval
from windtunnel.runtime.kernels import Work

CONFIGURATION = "configuration"
"""The hardware engine that loads designs into a reconfigurable device."""


@dataclass(frozen=True)
class Price:
    """The cost of an operation: duration in ticks, energy above idle in J, and the hardware engine that executes it."""

    ticks: int
    joules: float
    engine: str


@dataclass(frozen=True)
class _LaunchParts:
    """How the time of a launch divides between host and device, in ticks."""

    dispatch: int
    latency: int
    back: int
    empty: int
    node: int


class DeviceCosts:
    """The prices of operations, and the overheads of the device's API.

    They are the best values of the device model, or by ``interval`` the low or high end of its 90% intervals.
    """

    def __init__(self, device: Device, interval: Interval) -> None:
        self.device, self.interval = device, interval
        self.provenance: Provenance | None = None
        """The least certain provenance of the times used so far; None as long as nothing took time."""
        self._prices: dict[tuple[Any, ...], Price] = {}
        self._seconds: dict[tuple[Any, ...], float] = {}
        self._launch_provenance = Provenance.MEASURED
        best, parts = self._launch_parts("best"), self._launch_parts(interval)
        # At an end of the interval, each part is at its own end and never on the other side of its best value.
        further = {"low": min, "best": max, "high": max}[interval]
        self.dispatch_ticks = further(best.dispatch, parts.dispatch)
        """The time that a launch takes on the host."""
        self.latency_ticks = further(best.latency, parts.latency)
        """The time from a launch on the host until the kernel may begin."""
        self.back_ticks = further(best.back, parts.back)
        """The time until a waiting host is notified."""
        self.empty_ticks = further(best.empty, parts.empty)
        """The duration of an empty kernel."""
        self.node_ticks = further(best.node, parts.node)
        """The time from node to node of a graph."""

    def _launch_parts(self, interval: Interval) -> _LaunchParts:
        """Divide the model's time of one launch and of many into the parts of host and device."""
        try:
            one_s, many_s = (self._launch_s(count, interval) for count in (1, 1001))
        except UnsupportedOperationError:
            one_s = many_s = 0.0
        gap = to_ticks((many_s - one_s) / 1000)
        floor = min(to_ticks(Parameters(self.device).get("kernel_floor_s") or 0.0), to_ticks(one_s))
        # Back to back, the slower of enqueuing and executing sets the pace. Where that is the device, the host is free
        # again after the API's own dispatch.
        dispatch = gap if gap > floor + 1 else min(self.overhead("dispatch_s", interval), gap)
        # A kernel may begin and end before the call that enqueues it has returned. Then the latency is negative.
        rest = max(to_ticks(one_s) - dispatch - floor, -dispatch)
        back = min(self.overhead("synchronize_s", interval), max(rest, 0))
        return _LaunchParts(dispatch, rest - back, back, floor, self.overhead("graph_node_s", interval))

    def _launch_s(self, count: int, interval: Interval) -> float:
        columns: Columns = {"mode": "stream", "count": count}
        seconds, self._launch_provenance, *_ = self._cost("launch", columns, interval)
        return seconds

    def overhead(self, name: str, interval: Interval | None = None) -> int:
        """Return an overhead of the API in ticks; 0 if its profile has none of this name."""
        sourced = self.device.api.values.get(name)
        if sourced is None:
            return 0
        return to_ticks(sourced.end(interval or self.interval))

    def note_overhead(self, name: str) -> None:
        """Record that an overhead of the API was spent."""
        provenance = self.device.api.values[name].provenance
        self.provenance = max(self.provenance or Provenance.MEASURED, provenance)

    def note(self, provenance: Provenance) -> None:
        """Record that a number of this provenance was used."""
        self.provenance = max(self.provenance or Provenance.MEASURED, provenance)

    def prices(self, op: str) -> bool:
        """Return whether the device has a cost model for an operation."""
        return op in self.device.kind.costs

    def seconds_of_work(self, works: Sequence[Work], interval: Interval) -> float:
        """Return the time of operations that are executed one after another (s), at an end of their interval."""
        total = 0.0
        for op, columns in map(_operation, works):
            key = (interval, op, *columns.items())
            if key not in self._seconds:
                self._seconds[key] = self._cost(op, columns, interval)[0]
            total += self._seconds[key]
        return total

    def price(self, op: str, columns: Columns) -> Price:
        """Return the price of one operation. Raises InputError, or UnsupportedOperationError."""
        key = (op, *columns.items())
        price = self._prices.get(key)
        if price is None:
            seconds, provenance, power_w, engine = self._cost(op, columns, self.interval)
            above_idle_w = max(power_w - self.device.idle_power_w, 0.0)
            price = self._prices[key] = Price(to_ticks(seconds), above_idle_w * seconds, engine)
            self.provenance = max(self.provenance or Provenance.MEASURED, provenance, self._launch_provenance)
        return price

    def price_of_copy(self, size: int, direction: str, memory: str) -> Price:
        """Return the price of a copy of ``size`` bytes."""
        return self.price("copy", {"bytes": max(size, 1), "direction": direction, "memory": memory})

    def price_of_work(self, works: Sequence[Work]) -> Price:
        """Return the price of operations that are executed one after another, on the engine of the first.

        Raises:
            InputError: If the work is not a list of operations.
            UnsupportedOperationError: If the device has no cost model for one of them.
        """
        prices = []
        if not works:
            raise InputError("a kernel's work is an empty list", expected="one operation, or several")
        for work in works:
            op, columns = _operation(work)
            try:
                prices.append(self.price(op, columns))
            except UnsupportedOperationError as error:
                raise UnsupportedOperationError(
                    f"no cost model for '{op}' on this device: {error}; declare the kernel's work with "
                    "@kernel(work=...)"
                ) from None
        if len(prices) == 1:
            return prices[0]
        return Price(sum(p.ticks for p in prices), sum(p.joules for p in prices), prices[0].engine)

    @cached_property
    def compute_engine(self) -> str:
        """The hardware engine that executes kernels."""
        try:
            return self._cost("kernel", {"threads": 1, "bytes": 1, "flops": 0.0}, "best")[3]
        except UnsupportedOperationError:
            return "compute"  # devices whose engines are of one kind

    def price_of_load(self) -> Price:
        """Return the price of loading a design into a reconfigurable device."""
        load = self.device.design_load()
        if load is None:
            return Price(0, 0.0, CONFIGURATION)
        seconds = {"low": load.duration_low_s, "best": load.duration_s, "high": load.duration_high_s}[self.interval]
        provenance = max(sourced.provenance for sourced in load.sources.values())
        self.provenance = max(self.provenance or Provenance.MEASURED, provenance)
        return Price(to_ticks(seconds), (load.power_w - self.device.idle_power_w) * seconds, CONFIGURATION)

    def _cost(self, op: str, columns: Columns, interval: Interval) -> tuple[float, Provenance, float, str]:
        """Return (seconds, their provenance, power in W, hardware engine) of an operation."""
        rows = one_row(OPERATIONS.find(op), columns)
        cost = self.device.cost(rows, intervals=interval != "best")
        durations = {"low": cost.duration_low_s, "best": cost.duration_s, "high": cost.duration_high_s}
        seconds = float(durations[interval][0])
        return seconds, Provenance(int(cost.provenance[0])), float(cost.power_w[0]), self.device.engine_of(rows)


def _operation(work: Work) -> tuple[str, Columns]:
    """Return the name and the columns of an operation. Raises InputError if it has no name."""
    if isinstance(work, tuple):
        return work[0], dict(work[1])
    columns = dict(work)
    if "op" not in columns:
        raise InputError(f"a kernel's work of {sorted(columns)} names no operation", expected="a key 'op'")
    return str(columns.pop("op")), columns
