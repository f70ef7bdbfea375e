"""Operations on FPGA designs in Verilog, simulated cycle by cycle by Icarus Verilog.

The operands go into a design of `fpga.rtl` as words, and the result is read from the words that come out. The time of
an operation is the number of cycles over a stated clock frequency: nothing is placed or routed, so no frequency is
measured. Operands are at the design's ports, as if in block RAM (``cache=warm``). Card memory, the host and its runtime
are not simulated, and operations that need them are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.backends.fpga.rtl import icarus
from windtunnel.backends.fpga.rtl.designs import FLOATS, WORKS, Build, Work, bits_equal
from windtunnel.backends.fpga.rtl.icarus import API, STEADY, Compiled, Flow, Run
from windtunnel.core.columns import Columns
from windtunnel.core.errors import InvalidArgument, LaunchError, UnsupportedOperationError, list_choices
from windtunnel.core.ops import OPERATIONS
from windtunnel.runtime.codes import code_of
from windtunnel.runtime.interface import DeviceInfo
from windtunnel.runtime.limits import limits_of
from windtunnel.runtime.trial import Timer

MAX_SIMULATION_S = 60.0
"""Longest simulation that is accepted, estimated from the rates below."""
FLOAT_S, INT8_CELL_S, INT8_ADD_S = 50e-6, 16e-6, 5e-6
"""Time of Icarus 11 for an operation on floats, a multiply-add of an int8 array, and an int8 sum (s; one core of a
shared 2-core x86 host). They decide what is refused and enter no result."""
SEED = 7
"""Seed of the operands."""


@dataclass(frozen=True)
class Pipeline:
    """Observed timing of a design, in cycles of its clock."""

    cycles: int
    """Cycles from the first word in to the last word out, both included."""
    latency: int
    """Cycles from the first word in to the first word out, both included."""
    initiation_interval: float
    """Cycles between two starts, from the distance of their results; NaN if there are too few results."""


def measure_pipeline(op: str, columns: Columns, build: Build | None = None, flow: Flow = STEADY) -> Pipeline:
    """Simulate the operation once and return its timing.

    ``columns`` are completed with the registry's defaults; the context of the measurement is ignored.

    Raises:
        InputError: if a column is invalid.
        UnsupportedOperationError: if the operation has no design.
        DeviceNotPresentError: if Icarus Verilog is not installed.

    """
    build = build or Build()
    complete = OPERATIONS.find(op).complete(columns)
    refused = _refusal(op, complete, build)
    if refused:
        raise UnsupportedOperationError(refused)
    work = WORKS[op](complete, build, np.random.default_rng(SEED))
    compiled = Compiled(work.design, work.words, work.out_words)
    try:
        (run,) = compiled.simulate(1, flow)
    finally:
        compiled.close()
    return pipeline(run, work)


def pipeline(run: Run, work: Work) -> Pipeline:
    """Return cycles, latency and initiation interval of a run.

    The interval is measured between words that are a whole number of groups apart, so that no group is divided.
    """
    words, starts = work.group
    groups = (len(run.outs) - 1) // words
    distance = float(run.outs[groups * words] - run.outs[0])
    return Pipeline(
        cycles=run.cycles,
        latency=run.first_out - run.first_in + 1,
        initiation_interval=distance / (groups * starts) if groups else math.nan,
    )


class RtlTrial:
    """An operation's operands and its compiled design."""

    timer: Timer = "device"

    def __init__(self, device: RtlDevice, op: str, columns: Columns) -> None:
        self._device, self._op = device, op
        build = device.build
        self._work = WORKS[op](columns, build, np.random.default_rng(SEED))
        self.note = (
            f"{self._work.design.module}.v in Icarus Verilog {device.version}, {self._work.note}, cycles at "
            f"{build.clock_hz / 1e6:g} MHz (assumed); operands on chip"
        )
        self._compiled = Compiled(self._work.design, self._work.words, self._work.out_words)
        self._last: Run | None = None

    def run(self, count: int = 1) -> float:
        """Return the seconds of one operation at the stated clock.

        A design has no noise, so at most two runs are simulated. Raises LaunchError if the second takes another number
        of cycles than the first, because state of one run then affects the next.
        """
        if count < 1:
            raise InvalidArgument(
                f"count must be at least 1, got {count}",
                operation=f"run {self._op}",
                device=icarus.LABEL,
                code=code_of(API, InvalidArgument),
            )
        runs = self._simulated(min(count, 2))
        if runs[-1].cycles != runs[0].cycles:
            raise LaunchError(
                f"one run took {runs[0].cycles} cycles and the next {runs[-1].cycles}",
                operation=f"run {self._op}",
                device=icarus.LABEL,
                code=code_of(API, LaunchError),
            )
        self._last = runs[-1]
        return runs[-1].cycles / self._device.build.clock_hz

    def _simulated(self, runs: int) -> list[Run]:
        self._device.require_open(f"run {self._op}")
        return self._compiled.simulate(runs)

    def check(self) -> float:
        """Return 0 if every bit equals NumPy's arithmetic in the design's order, else infinity."""
        return 0.0 if bits_equal(self.result(), self._work.reference()) else math.inf

    def result(self) -> np.ndarray[Any, Any]:
        """Return the result of the last run, after running the operation if it has not run yet."""
        if self._last is None:
            self.run()
        assert self._last is not None  # noqa: S101  a run sets it or raises
        return self._work.values(self._last.words)

    @property
    def pipeline(self) -> Pipeline:
        """Timing of the last run; the operation is run if it has not run yet."""
        if self._last is None:
            self.run()
        assert self._last is not None  # noqa: S101  a run sets it or raises
        return pipeline(self._last, self._work)

    def close(self) -> None:
        """Delete the simulation's folder. Closing again does nothing."""
        self._compiled.close()


class RtlDevice:
    """The designs of `fpga.rtl` as a device for single operations, with the parameters of ``build``."""

    def __init__(self, build: Build | None = None) -> None:
        self.build = build or Build()
        self.version = icarus.version()
        self._closed = False

    @property
    def info(self) -> DeviceInfo:
        """Description of the device: a simulator, and therefore software."""
        return DeviceInfo(
            name=f"{icarus.LABEL} {self.version}",
            kind="fpga",
            api=API,
            memory_bytes=0.0,
            limits=limits_of(API),
            features=frozenset(),
            virtual=False,
            software=True,
            driver=f"{icarus.LABEL} {self.version}",
        )

    @property
    def versions(self) -> Mapping[str, str]:
        """The simulator's version."""
        return {icarus.LABEL: self.version}

    def refusal(self, op: str, columns: Columns) -> str | None:
        """Return why the operation is not supported, or None if it is."""
        OPERATIONS.find(op)
        refused = _refusal(op, columns, self.build)
        if refused:
            return refused
        if columns["dispatch"] != "device":
            return f"no host launches a design here: dispatch={columns['dispatch']} is not supported (dispatch=device)"
        if columns["clock"] != "burst":
            return "the clock is stated and no run is long enough to lower it: clock=sustained is not supported"
        if columns["cache"] != "warm":
            return "card memory is not simulated: operands are on the chip (cache=warm)"
        return None

    def trial(self, op: str, columns: Columns) -> RtlTrial:
        """Create the operands and compile the design."""
        self.require_open(f"prepare {op}")
        refused = self.refusal(op, columns)
        if refused:
            raise UnsupportedOperationError(refused)
        return RtlTrial(self, op, columns)

    def require_open(self, what: str) -> None:
        """Raise InvalidArgument if the device was closed."""
        if self._closed:
            raise InvalidArgument(
                "the device is closed", operation=what, device=icarus.LABEL, code=code_of(API, InvalidArgument)
            )

    def energy_j(self) -> float | None:
        """Return None: simulated hardware has no energy counter."""
        return None

    def close(self) -> None:
        """Close the device. Closing again does nothing."""
        self._closed = True


def _refusal(op: str, columns: Columns, build: Build) -> str | None:
    """Return why no design supports the operation, whatever the context; None if one does."""
    if op not in WORKS:
        return f"there is no RTL design for '{op}'; expected {list_choices(sorted(WORKS))}"
    dtype = str(columns["dtype"])
    if dtype != "int8" and dtype not in FLOATS:
        return f"there is no RTL design for {dtype}; expected {list_choices([*FLOATS, 'int8'])}"
    if op == "fft" and (float(columns["n"]) < 4 or int(columns["n"]) & (int(columns["n"]) - 1)):
        return f"the design transforms powers of two of at least 4 points, not {int(columns['n'])} points"
    int8_step_s = INT8_ADD_S if op == "vector_add" else INT8_CELL_S
    steps, step_s = _effort(op, columns, build), FLOAT_S if dtype in FLOATS else int8_step_s
    if steps * step_s > MAX_SIMULATION_S:
        return (
            f"{steps:.3g} arithmetic operations of {op} in {dtype} take about {steps * step_s:.0f} s of simulation; "
            f"the limit is {MAX_SIMULATION_S / step_s:.3g}, about {MAX_SIMULATION_S:.0f} s"
        )
    return None


def _effort(op: str, columns: Columns, build: Build) -> float:
    """Return unit-cycles: how many adders, multipliers or cells work in how many cycles. Simulation time follows it."""
    if op == "vector_add":
        return float(columns["n"])
    if op == "stencil":
        # Eight units, while a grid goes in and the buffered plane comes out.
        nx, ny, nz = (float(columns[name]) for name in ("nx", "ny", "nz"))
        return 8.0 * nx * ny * (nz + 1.0)
    if op == "fft":
        # Four adders per step, six units of a complex product except in the last, and one more transform to drain.
        n, batch = float(columns["n"]), float(columns["batch"])
        return (10.0 * math.log2(n) - 6.0) * n / 2.0 * (batch + 1.0)
    m, n, k, batch = (float(columns[name]) for name in ("m", "n", "k", "batch"))
    if columns["dtype"] == "int8":
        rows, across, units = build.rows, build.columns, 1.0
    else:
        rows, across, units = build.float_rows, build.float_columns, 2.0
    if build.dataflow[str(columns["dtype"])] == "output":
        tiles, cycles = math.ceil(m / rows) * math.ceil(n / across), max(k, rows)
    else:
        tiles, cycles = math.ceil(k / rows) * math.ceil(n / across), m + rows
    if not build.overlap:
        cycles += rows + across
    return units * rows * across * batch * tiles * cycles
