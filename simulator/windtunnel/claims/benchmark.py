"""The RTX Ada benchmark of the founding documents, as programs for the process engine.

Two ways to drive the same simulation. *Launch per command*: a 64x64x64 float32 grid. An injection changes one cell on
the host and uploads two whole arrays (current and previous pressure) from pageable memory. A step enqueues two kernels
(update, boundary) and returns; the next operation waits for their execution. A query reads the host's copy.
*Persistent*: a 24x24x24 grid; a command is one write to mapped memory, and the host's waiting loop sleeps between polls
of the acknowledgement. The mixed workload is 100 repetitions of inject, five steps and a query, counted as 300
operations.

The host is a further hardware engine (``host``), so that enqueuing and execution overlap as in a stream. Every time
below is a primitive with a source: the benchmark's stated facts, and the catalogue's device and API. The table's own
figures are not used. The documents also state a range for each phase of a launch; what their low ends would give is
a note of a row, not its value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from windtunnel.claims.bounds import Bound
from windtunnel.core.device import Device, Parameters, RawCost
from windtunnel.core.ops import Rows, Stencil
from windtunnel.core.provenance import Provenance, SourcedValue, assumed
from windtunnel.core.units import format_quantity as show

Stage = Mapping[str, object]
"""A stage of a program, as a scenario states it."""
Program = list[Stage]

SIDE = 64
"""Cells along each edge of the launched kernels' grid."""
PERSISTENT_SIDE = 24
"""Cells along each edge of the persistent kernel's grid."""
FACES = 6
STEPS = 5
REPETITIONS = 100
ARRAY_BYTES = 4 * SIDE**3

_SOURCE = "the benchmark's public source"
_DOCUMENT_PHASES = {"copy_setup_s": 20e-6, "round_trip_s": 10e-6, "synchronize_s": 5e-6}
"""The low ends of the founding documents' ranges: an empty copy, a kernel from its launch to its start, a wait (s)."""


@dataclass(frozen=True)
class Facts:
    """The stated facts of the benchmark's host (SI), each with its source; the rest is the catalogue's device."""

    pageable_bytes_per_s: SourcedValue
    cells_per_s: SourcedValue
    sleep_s: SourcedValue
    timer_slack_s: SourcedValue
    wake_s: SourcedValue


FACTS = Facts(
    pageable_bytes_per_s=SourcedValue(7.6e9, Provenance.PUBLISHED, _SOURCE),
    cells_per_s=SourcedValue(78_046e6, Provenance.PUBLISHED, f"{_SOURCE}: its stencil on the same GPU"),
    sleep_s=SourcedValue(100e-6, Provenance.PUBLISHED, f"{_SOURCE}: the host's waiting loop"),
    timer_slack_s=assumed(
        50e-6, 1e-6, 50e-6, "Linux gives a thread 50 us of timer slack unless it asks for less (PR_SET_TIMERSLACK)"
    ),
    wake_s=assumed(
        5e-6, 1e-6, 25e-6, "interrupt, scheduler and leaving an idle state, from a sleep's end to the thread running"
    ),
)


def benchmark_device(device: Device, facts: Facts) -> Device:
    """``device`` on the benchmark's host: its stated facts laid over the catalogue, and the host as an engine.

    ``service`` is host time here: it runs on the engine ``host`` and draws no power of the device. ``launch`` is a
    command on its way to the compute engine, during which neither is busy. ``stencil`` takes the floor of a kernel and
    then its cells at the stated rate. Nothing in the catalogue is changed.
    """
    kind = device.kind
    link = Parameters(device)("host_link_bytes_per_s") * Parameters(device)("host_link_efficiency")
    share = facts.pageable_bytes_per_s
    values = {
        **device.values,
        f"pageable_fraction.{device.api.name}": replace(share, value=share.value / link),
    }

    def host_time(p: Parameters, rows: Rows) -> RawCost:
        return RawCost(rows.numbers["mean"], np.asarray(p("idle_power_w")), np.asarray("host"))

    def on_the_way(p: Parameters, rows: Rows) -> RawCost:
        if rows.choices["mode"] == "persistent":
            seconds = p.api_cost("persistent_poll_s")
        else:
            # A round trip includes the empty kernel, which takes its floor.
            seconds = max(p.api_cost("round_trip_s") - p("kernel_floor_s") - p.api_cost("dispatch_s"), 0.0)
        return RawCost(np.asarray(max(seconds, 1e-12)), np.asarray(p("idle_power_w")), np.asarray("launch"))

    def stencil(p: Parameters, rows: Rows) -> RawCost:
        body_s = Stencil.cells(rows.numbers) / facts.cells_per_s.value
        return RawCost(p("kernel_floor_s") + body_s, np.asarray(p("idle_power_w")), np.asarray("memory"))

    def engine(p: Parameters, rows: Rows) -> str:
        return lanes.get(rows.op.name) or kind.engine(p, rows)

    lanes = {"service": "host", "launch": "front end"}
    costs = {**kind.costs, "service": host_time, "launch": on_the_way, "stencil": stencil}
    # What was learned of these operations on this device is of its own times, which are stated here instead.
    residuals = {op: learned for op, learned in device.residuals.items() if op not in (*lanes, "stencil", "copy")}
    return replace(device, values=values, kind=replace(kind, costs=costs, engine=engine), residuals=residuals)


def host(seconds: float) -> Stage:
    """A stage of host time."""
    return {"service": {"distribution": "deterministic", "mean": f"{seconds!r} s"}}


_API = (
    "dispatch_s",
    "persistent_write_s",
    "persistent_poll_s",
    "copy_setup_s",
    "round_trip_s",
    "synchronize_s",
)


@dataclass(frozen=True)
class _Row:
    """A row of the table: its program, and the numbers that it uses (facts, then the device's own)."""

    program: Callable[[Benchmark], Program]
    facts: tuple[str, ...] = ()
    device: tuple[str, ...] = ()


class Benchmark:
    """The programs of the table on one device; ``run(device, program)`` takes a job through the process engine (s)."""

    def __init__(self, device: Device, run: Callable[[Device, Program], float], facts: Facts = FACTS) -> None:
        self.facts = facts
        self.plain = device
        self.device = benchmark_device(device, facts)
        self._run = run
        p = Parameters(device)
        self.dispatch_s, self.write_s, self.notice_s, self.copy_setup_s, trip_s, self.synchronize_s = (
            p.api_cost(name) for name in _API
        )
        self.floor_s = p("kernel_floor_s")
        self.launch_latency_s = max(trip_s - self.floor_s, self.dispatch_s)
        self._used = p.used

    def seconds(self, row: str) -> float:
        """Return the modelled time of a row of the table, such as ``inject-launch`` (s)."""
        return self._run(self.device, ROWS[row].program(self))

    @property
    def look_s(self) -> float:
        """Return the time between two polls of the acknowledgement (s)."""
        return self.facts.sleep_s.value + self.facts.timer_slack_s.value + self.facts.wake_s.value

    def looks(self, steps: int) -> int:
        """Return the polls until a command of ``steps`` is seen as done; the first, at once, is always too early."""
        cells = PERSISTENT_SIDE**3 + FACES * PERSISTENT_SIDE**2
        step_s = 2.0 * self.floor_s + cells / self.facts.cells_per_s.value
        return math.ceil((self.notice_s + steps * step_s) / self.look_s)

    def injection(self) -> Program:
        """Return the upload of two arrays from pageable memory, one after the other; each call waits for its copy."""
        upload = {"copy": {"bytes": ARRAY_BYTES, "direction": "h2d", "memory": "pageable"}}
        return [upload, upload]

    def enqueued(self, steps: int) -> Program:
        """Return the host's part of ``steps``: it enqueues two kernels for each."""
        return [host(self.dispatch_s) for _ in range(2 * steps)]

    def executed(self, side: int, steps: int) -> Program:
        """Return the device's part: the update of every cell, then the six faces, in order on one stream."""
        update = {"stencil": {"nx": side, "ny": side, "nz": side}}
        boundary = {"stencil": {"nx": side, "ny": side, "nz": FACES}}
        return [update, boundary] * steps

    def launched(self) -> Program:
        """One repetition: inject, five steps, and the wait for them that the next pageable copy begins with.

        The first kernel starts a launch's latency after it was enqueued; the others are enqueued meanwhile.
        """
        enqueued = self.enqueued(STEPS)
        return [
            *self.injection(),
            enqueued[0],
            {"streams": [enqueued[1:], [{"launch": {"mode": "stream"}}, *self.executed(SIDE, STEPS)]]},
            host(self.synchronize_s),
        ]

    def acknowledged(self, steps: int) -> Program:
        """Return a command's write, and the host's sleeps between polls until the kernel has answered."""
        kernel = [{"launch": {"mode": "persistent"}}, *self.executed(PERSISTENT_SIDE, steps)]
        return [host(self.write_s), {"streams": [[host(self.look_s)] * self.looks(steps), kernel]}]

    def words(self, row: str) -> str:
        """Return the arithmetic of a row as text."""
        f = self.facts
        inject = (
            f"2 arrays x ({show(self.copy_setup_s, 's')} set-up + {show(ARRAY_BYTES, 'B')} at "
            f"{show(f.pageable_bytes_per_s.value, 'B/s')})"
        )
        wait = (
            f"{self.looks(STEPS)} x ({show(f.sleep_s.value, 's')} asleep + {show(f.timer_slack_s.value, 's')} timer "
            f"slack + {show(f.wake_s.value, 's')} to wake)"
        )
        kernels = (SIDE**3 / f.cells_per_s.value, FACES * SIDE**2 / f.cells_per_s.value)
        steps = (
            f"{STEPS} steps of two kernels ({', '.join(show(self.floor_s + k, 's') for k in kernels)}) behind enqueues "
            f"of {show(self.dispatch_s, 's')}, the first {show(self.launch_latency_s, 's')} on its way + "
            f"{show(self.synchronize_s, 's')} to wait for them"
        )
        return {
            "inject-launch": inject,
            "inject-persistent": f"one write to mapped memory of {show(self.write_s, 's')}",
            "step-launch": f"two kernels enqueued at {show(self.dispatch_s, 's')} each, not waited for",
            "step-persistent": f"a write of {show(self.write_s, 's')} + {wait}",
            "mixed-launch": f"{REPETITIONS} x ({inject} + {steps})",
            "mixed-persistent": f"{REPETITIONS} x (two writes of {show(self.write_s, 's')} + {wait})",
        }[row]

    def bound(self, row: str) -> Bound | None:
        """Return the bound of a row: the arrays over the nominal link, or a sleep that never ends early."""
        times = REPETITIONS if row.startswith("mixed") else 1
        if row in ("inject-launch", "mixed-launch"):
            link = self.plain.values["host_link_bytes_per_s"].value
            size = times * 2 * ARRAY_BYTES
            least = size / link
            why = f"{show(size, 'B')} over the nominal link of {show(link, 'B/s')} take {show(least, 's')}"
        elif row in ("step-persistent", "mixed-persistent"):
            sleep_s = self.facts.sleep_s.value
            least = times * sleep_s
            why = f"{times} x {show(sleep_s, 's')} asleep, which never ends early, make {show(least, 's')}"
        else:
            return None
        return Bound(least, least, why)

    def ends(self, row: str) -> tuple[float, float]:
        """Return the row with all uncertain numbers at their low ends, and at their high ends (s)."""
        seconds = []
        for end in ("low", "high"):
            facts = Facts(**{k: _moved(s, end) for k, s in vars(self.facts).items()})
            api = replace(
                self.plain.api, values={k: _moved(s, end) if k in _API else s for k, s in self.plain.api.values.items()}
            )
            own = {
                k: _moved(s, end) if k == "kernel_floor_s" or k.split(".")[0] in _API else s
                for k, s in self.plain.values.items()
            }
            seconds.append(Benchmark(replace(self.plain, api=api, values=own), self._run, facts).seconds(row))
        return min(seconds), max(seconds)

    def notes(self, row: str) -> tuple[str, ...]:
        """Return what the documents' own phases would give, or the part of a row that assumed sleeps are."""
        if row in ("inject-launch", "mixed-launch"):
            stated = _with_phases(self.plain, _DOCUMENT_PHASES)
            return (
                f"with the low ends of the document's own phases ({_listed(_DOCUMENT_PHASES)}) in place of the "
                f"catalogue's values, it would be {show(Benchmark(stated, self._run, self.facts).seconds(row), 's')}",
            )
        if row in ("step-persistent", "mixed-persistent"):
            f = self.facts
            late_s = f.timer_slack_s.value + f.wake_s.value
            brief = replace(f, timer_slack_s=_moved(f.timer_slack_s, "low"), wake_s=_moved(f.wake_s, "low"))
            return (
                f"{late_s / self.look_s:.0%} of each sleep, {show(f.timer_slack_s.value, 's')} of timer slack and "
                f"{show(f.wake_s.value, 's')} to wake, are assumed; with the least of both the row would be "
                f"{show(Benchmark(self.plain, self._run, brief).seconds(row), 's')}",
            )
        return ()

    def used_by(self, row: str) -> dict[str, SourcedValue]:
        """Return every number that the row uses."""
        facts = {f"benchmark.{name}": getattr(self.facts, name) for name in ROWS[row].facts}
        wanted = ROWS[row].device
        return facts | {k: s for k, s in self._used.items() if k.removeprefix("api.").split(".")[0] in wanted}


def _moved(sourced: SourcedValue, end: str) -> SourcedValue:
    value = getattr(sourced, end)
    return sourced if value is None else sourced.at(value)


def _with_phases(device: Device, phases: Mapping[str, float]) -> Device:
    """Return the device with other costs of its API (s). ``round_trip_s`` states the way of a kernel to its start."""
    stated = {
        name: SourcedValue(value, Provenance.PUBLISHED, "the founding documents") for name, value in phases.items()
    }
    floor_s = Parameters(device)("kernel_floor_s")
    stated["round_trip_s"] = replace(stated["round_trip_s"], value=phases["round_trip_s"] + floor_s)
    own = {k: s for k, s in device.values.items() if k.split(".")[0] not in phases}
    return replace(device, values=own, api=replace(device.api, values={**device.api.values, **stated}))


def _listed(phases: Mapping[str, float]) -> str:
    names = {"copy_setup_s": "copy", "round_trip_s": "launch", "synchronize_s": "synchronisation"}
    return ", ".join(f"{names[name]} {show(value, 's')}" for name, value in phases.items())


_COPY = ("pageable_bytes_per_s",)
_SLEEP = ("sleep_s", "timer_slack_s", "wake_s")
_POLLED = ("persistent_write_s", "persistent_poll_s", "kernel_floor_s")

ROWS = {
    "inject-launch": _Row(lambda b: b.injection(), _COPY, ("copy_setup_s",)),
    "inject-persistent": _Row(lambda b: [host(b.write_s)], (), ("persistent_write_s",)),
    "step-launch": _Row(lambda b: b.enqueued(1), (), ("dispatch_s",)),
    "step-persistent": _Row(lambda b: b.acknowledged(1), (*_SLEEP, "cells_per_s"), _POLLED),
    "mixed-launch": _Row(
        lambda b: [{"repeat": {"times": REPETITIONS, "ops": b.launched()}}],
        (*_COPY, "cells_per_s"),
        ("copy_setup_s", "round_trip_s", "synchronize_s", "dispatch_s", "kernel_floor_s"),
    ),
    "mixed-persistent": _Row(
        lambda b: [{"repeat": {"times": REPETITIONS, "ops": [host(b.write_s), *b.acknowledged(STEPS)]}}],
        (*_SLEEP, "cells_per_s"),
        _POLLED,
    ),
}
"""The rows of the table. A query reads the host's copy, and has no stage."""
