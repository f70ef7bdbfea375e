"""Kernels as RTL, simulated cycle by cycle: what an FPGA card would do, counted and not timed.

Icarus Verilog runs the designs of ``_rtl``: an operation's operands go in as words, its results are read from the words
that come out, and its time is the cycles that the design took at a clock that is stated, not found: nothing here is
placed or routed. Operands stand at the design's ports as if in block RAM (``cache=warm``): card memory, the host and
its runtime are not simulated, so what is asked of them is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.backends.fpga.rtl import icarus
from windtunnel.backends.fpga.rtl.designs import FLOATS, WORKS, Build, Work, same
from windtunnel.backends.fpga.rtl.icarus import API, STEADY, Compiled, Flow, Run
from windtunnel.core.errors import (
    InvalidArgument,
    LaunchError,
    UnsupportedOperationError,
    one_of,
)
from windtunnel.core.ops import OPERATIONS
from windtunnel.runtime.codes import code_of
from windtunnel.runtime.interface import DeviceInfo
from windtunnel.runtime.limits import limits_of
from windtunnel.runtime.trial import Timer

PATIENCE_S = 60.0
"""What a simulation may take, by the rates below."""
FLOAT_S, INT8_CELL_S, INT8_ADD_S = 50e-6, 16e-6, 5e-6
"""Icarus 11 for an operation on floats, a multiply-add of an array for int8, a sum of int8 (s; one core of a shared
2-core x86 host). They say what is refused, and nothing of a result."""
SEED = 7
"""Of the operands."""


@dataclass(frozen=True)
class Pipeline:
    """What a design was seen to do, in cycles of its clock."""

    cycles: int
    """From the cycle that takes the first word in to that in which the last one is out, both counted."""
    latency: int
    """From the cycle that takes the first word in to that in which the first one is out, both counted."""
    initiation_interval: float
    """Cycles between two starts, from the distance of what they make; nan where too little came out to tell."""


def measured(op: str, columns: Mapping[str, Any], build: Build | None = None, flow: Flow = STEADY) -> Pipeline:
    """Run the operation once and say when words came out.

    ``columns`` are completed with the registry's defaults; the context is not looked at. InputError for wrong ones,
    UnsupportedOperationError for an operation without a design, DeviceNotPresentError without Icarus.
    """
    build = build or Build()
    complete = OPERATIONS.find(op).complete(columns)
    refused = _refused(op, complete, build)
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
    """A run's cycles, latency and initiation interval.

    The interval is the distance of words that are a whole number of groups apart, so that it holds no part of one.
    """
    words, starts = work.group
    groups = (len(run.outs) - 1) // words
    apart = float(run.outs[groups * words] - run.outs[0])
    return Pipeline(
        cycles=run.cycles,
        latency=run.first_out - run.first_in + 1,
        initiation_interval=apart / (groups * starts) if groups else math.nan,
    )


class RtlTrial:
    """An operation's operands and its design, compiled."""

    timer: Timer = "device"

    def __init__(self, device: RtlDevice, op: str, columns: Mapping[str, Any]) -> None:
        self._device, self._op = device, op
        build = device.build
        self._work = WORKS[op](columns, build, np.random.default_rng(SEED))
        self.note = (
            f"{self._work.design.module}.v in Icarus Verilog {device.version}, {self._work.note}, cycles at "
            f"{build.clock_hz / 1e6:g} MHz (assumed); operands on the chip"
        )
        self._compiled = Compiled(self._work.design, self._work.words, self._work.out_words)
        self._last: Run | None = None

    def run(self, count: int = 1) -> float:
        """Seconds of one at the stated clock.

        A design has no noise, so of many runs the first two are simulated, and the second has to take the cycles of
        the first: what one leaves behind does not change the next. LaunchError where it does.
        """
        if count < 1:
            raise InvalidArgument(
                f"{count} runs", operation=f"run {self._op}", device=icarus.LABEL, code=code_of(API, InvalidArgument)
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
        self._device.must_be_open(f"run {self._op}")
        return self._compiled.simulate(runs)

    def check(self) -> float:
        """0 where every bit is that of NumPy's arithmetic in the design's order, infinite where one is not."""
        return 0.0 if same(self.result(), self._work.reference()) else math.inf

    def result(self) -> np.ndarray[Any, Any]:
        """The numbers of the last run; of a run made now, where there was none."""
        if self._last is None:
            self.run()
        assert self._last is not None  # noqa: S101  a run sets it or raises
        return self._work.values(self._last.words)

    @property
    def pipeline(self) -> Pipeline:
        """What the last run was seen to do; of a run made now, where there was none."""
        if self._last is None:
            self.run()
        assert self._last is not None  # noqa: S101  a run sets it or raises
        return pipeline(self._last, self._work)

    def close(self) -> None:
        """Take the simulation's folder away. Closing again does nothing."""
        self._compiled.close()


class RtlDevice:
    """The designs of ``_rtl`` as a device that does operations, built as ``build`` says."""

    def __init__(self, build: Build | None = None) -> None:
        self.build = build or Build()
        self.version = icarus.version()
        self._closed = False

    @property
    def info(self) -> DeviceInfo:
        """A simulator: software, though the designs are real."""
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
        """The simulator's."""
        return {icarus.LABEL: self.version}

    def refusal(self, op: str, columns: Mapping[str, Any]) -> str | None:
        """In words: an operation without a design, what needs a host or card memory, or too long a simulation."""
        OPERATIONS.find(op)
        refused = _refused(op, columns, self.build)
        if refused:
            return refused
        if columns["dispatch"] != "device":
            return f"no host launches a design here: dispatch={columns['dispatch']} is not measured, dispatch=device is"
        if columns["clock"] != "burst":
            return "the clock is stated, and no run is long enough to lower it: clock=sustained is not measured"
        if columns["cache"] != "warm":
            return "card memory is not simulated: operands stand on the chip, which is cache=warm"
        return None

    def trial(self, op: str, columns: Mapping[str, Any]) -> RtlTrial:
        """Operands made and the design compiled."""
        self.must_be_open(f"make {op} ready")
        refused = self.refusal(op, columns)
        if refused:
            raise UnsupportedOperationError(refused)
        return RtlTrial(self, op, columns)

    def must_be_open(self, what: str) -> None:
        """InvalidArgument once it is closed."""
        if self._closed:
            raise InvalidArgument(
                "it was given back", operation=what, device=icarus.LABEL, code=code_of(API, InvalidArgument)
            )

    def energy_j(self) -> float | None:
        """See ``Operations``: simulated hardware has no counter."""
        return None

    def close(self) -> None:
        """Give it back. Closing again does nothing."""
        self._closed = True


def _refused(op: str, columns: Mapping[str, Any], build: Build) -> str | None:
    """Why no design does it, whatever the context; None where one does."""
    if op not in WORKS:
        return f"no design in RTL does {op}: expected {one_of(sorted(WORKS))}"
    dtype = str(columns["dtype"])
    if dtype != "int8" and dtype not in FLOATS:
        return f"no design in RTL takes {dtype}: expected {one_of([*FLOATS, 'int8'])}"
    if op == "fft" and (columns["n"] < 4 or int(columns["n"]) & (int(columns["n"]) - 1)):
        return f"the design transforms powers of two from 4, not {int(columns['n'])} points"
    each = INT8_ADD_S if op == "vector_add" else INT8_CELL_S
    steps, step_s = _effort(op, columns, build), FLOAT_S if dtype in FLOATS else each
    if steps * step_s > PATIENCE_S:
        return (
            f"{steps:.3g} arithmetic operations of {op} in {dtype} are about {steps * step_s:.0f} s of simulation: "
            f"at most {PATIENCE_S / step_s:.3g} are done, in about {PATIENCE_S:.0f} s"
        )
    return None


def _effort(op: str, columns: Mapping[str, Any], build: Build) -> float:
    """How many adders, multipliers or cells are busy in how many cycles: what a simulation's time goes with."""
    if op == "vector_add":
        return float(columns["n"])
    if op == "stencil":
        # Eight units, while a grid goes in and the plane that is held comes out.
        nx, ny, nz = (float(columns[name]) for name in ("nx", "ny", "nz"))
        return 8.0 * nx * ny * (nz + 1.0)
    if op == "fft":
        # Four adders a step, and six units of a complex product but in the last; a transform more to come out.
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
