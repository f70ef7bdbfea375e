"""An FPGA card: fixed pipelines at a fixed clock, memory banks that a kernel reaches by its ports, and a slow API.

A bitstream is a design: for each operation a clock, a number of lanes, a pipeline depth, an initiation
interval and the memory ports it was built with. Nothing arbitrates, boosts or caches behind the designer's
back, so a kernel takes

    cycles = depth + ceil(ceil(items / lanes) * interval / issue_rate) - 1

and its time is that many periods of the clock, every time. Building a design takes hours and loading it
seconds (``reconfigure_s``); neither is charged to an operation.

A matrix product is cut into square blocks, the next one fetched while one is multiplied. The rows of a block that are
parts of longer rows are bursts of their own, and where each lies in another row of the memory, a burst takes the
memory's row cycle however short it is: a 64-wide block of float32 then comes at a third of the port's rate.

The numbers of a design that somebody timed on a card are that card's overlay (``calibration/``). The defaults here are
what a design of this sort is taken to be before anybody timed it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windtunnel.core.device import Kind, Parameter, Parameters, Raw, StrArray
from windtunnel.core.ops import BYTES_PER_ELEMENT, Fft, FloatArray, Gemm, Rows, Stencil, VectorAdd
from windtunnel.core.provenance import Provenance, Sourced, assumed
from windtunnel_models.kinds._shared import (
    COMMON,
    EXACT,
    active_power_w,
    api_time_s,
    launched_s,
    limit,
    linked_s,
    power_shares,
    service,
)

DESIGNS = ("gemm", "gemv", "vector_add", "stencil", "fft")
LANES = ("gemm_float32", "gemm_float16", "gemm_int8", "gemv", "vector_add", "stencil", "fft")

_GEMM = "Xilinx/Vitis_Libraries blas L2_benchmark_gemm.rst, gemm_4CU"
_GEMV = "Xilinx/Vitis_Libraries blas L2_benchmark_gemv.rst, gemvStreamCh16"
_CLOSED_AT = "Vitis builds for 300 MHz by default; published designs closed at 242 to 333"
_FFT = "pc2/hpcc_fpga_eval_21 experiments/1_fpga/fft_N1-929864.out (fft1d_float_8, two kernels, 239 GFLOP/s)"
_STREAM = "pc2/hpcc_fpga_eval_21 (STREAM triad 33.9 of 38.5 GB/s on two DDR banks, U280; 67.7 of 76.8 on four, 520N)"
_WIDE_PORT = "a 512-bit AXI port carries sixteen 4-byte elements a cycle; that is what HLS builds unless told otherwise"


def _published(value: float, source: str) -> Sourced:
    return Sourced(value, Provenance.PUBLISHED, source)


_PARAMETERS = (
    *COMMON,
    Parameter("memory_bytes", "B", "memory on the card that operands must fit in", required=True),
    Parameter("memory_banks", "1", "independent memory banks: DDR channels or HBM pseudo-channels", required=True),
    Parameter("bank_bytes_s", "B/s", "peak rate of one memory bank", required=True),
    Parameter(
        "memory_efficiency",
        "1",
        "attained fraction of the banks' peak in long bursts",
        default=_published(0.88, _STREAM),
    ),
    Parameter(
        "on_chip_bytes",
        "B",
        "block RAM that can hold operands between kernels (cache=warm)",
        default=assumed(16e6, 4e6, 40e6, "what a design leaves of 24 to 57 MB of block RAM is the designer's choice"),
    ),
    Parameter("host_link_bytes_s", "B/s", "attained rate to and from the host", keys=("h2d", "d2h"), required=True),
    Parameter(
        "clock_hz",
        "Hz",
        "clock of the design for an operation",
        keys=DESIGNS,
        defaults={
            "gemm": assumed(250e6, 200e6, 333e6, f"{_CLOSED_AT}, those that fill the card at the low end"),
            "fft": _published(250e6, f"{_FFT}: implied by the rate"),
            **{design: assumed(300e6, 240e6, 333e6, _CLOSED_AT) for design in ("gemv", "vector_add", "stencil")},
        },
    ),
    Parameter(
        "lanes",
        "1",
        "items a compute unit takes each initiation interval: multiply-adds (gemm, gemv), elements, cells, points",
        keys=LANES,
        defaults={
            "gemm_float32": _published(256, f"{_GEMM}: efficiencies are stated against 256 multiply-adds a cycle"),
            "gemm_float16": assumed(512, 256, 1024, "half the DSP slices a multiply-add of float32 takes"),
            "gemm_int8": assumed(1024, 512, 4096, "a DSP slice does two 8-bit multiply-adds; float32 takes about five"),
            "gemv": _published(64, f"{_GEMV}: efficiencies are stated against 64 multiply-adds a cycle, 16 channels"),
            "vector_add": assumed(16, 8, 16, _WIDE_PORT),
            "stencil": assumed(16, 4, 32, _WIDE_PORT),
            "fft": _published(8, _FFT),
        },
    ),
    Parameter(
        "initiation_interval",
        "1",
        "cycles between two starts",
        keys=DESIGNS,
        defaults={
            design: Sourced(1.0, Provenance.DATASHEET, "a pipelined loop that meets its timing starts every cycle")
            for design in DESIGNS
        },
    ),
    Parameter(
        "issue_rate",
        "1",
        "fraction of the intervals in which an iteration starts: the rest wait for memory",
        keys=DESIGNS,
        defaults={
            "gemv": assumed(
                0.85, 0.65, 1.0, "a stream as wide as its memory ports waits for refresh and row changes of the memory"
            ),
            **{
                design: Sourced(1.0, Provenance.DATASHEET, "streams: the memory term carries the waiting")
                for design in ("gemm", "vector_add", "stencil", "fft")
            },
        },
    ),
    Parameter(
        "pipeline_depth",
        "1",
        "cycles from the first item in to the first result out, first memory access included",
        keys=DESIGNS,
        defaults={
            **{
                design: assumed(
                    1500, 400, 4000, "memory, kernel start, array and result each take some hundred cycles, in turn"
                )
                for design in ("gemm", "gemv")
            },
            **{
                design: assumed(200, 60, 600, "a read from card memory is 60 to 150 cycles, the datapath tens more")
                for design in ("vector_add", "stencil", "fft")
            },
        },
    ),
    Parameter(
        "compute_units",
        "1",
        "copies of the kernel: a batch is dealt out among them, one item runs on one",
        keys=DESIGNS,
        defaults={
            "gemm": _published(4, _GEMM),
            "gemv": _published(1, _GEMV),
            "vector_add": assumed(1, 1, 4, "one kernel, as a first HLS design has"),
            "stencil": assumed(1, 1, 4, "one kernel, as a first HLS design has"),
            "fft": _published(2, _FFT),
        },
    ),
    Parameter(
        "memory_ports",
        "1",
        "memory banks a compute unit of the design is wired to",
        keys=DESIGNS,
        defaults={
            "gemm": _published(1, _GEMM),
            "gemv": _published(16, f"{_GEMV}: sixteen channels"),
            "vector_add": assumed(3, 1, 3, "one port for each operand where there are banks enough"),
            "stencil": assumed(2, 1, 2, "one port in, one out"),
            "fft": assumed(2, 1, 2, "one port in, one out"),
        },
    ),
    Parameter(
        "port_bytes",
        "B",
        "bytes that a memory port carries each cycle",
        default=Sourced(64.0, Provenance.DATASHEET, "512 bits, the widest AXI port of Vitis HLS"),
    ),
    Parameter(
        "tile",
        "1",
        "edge of the square blocks in which a product is worked off",
        default=assumed(
            64, 64, 128, "Vitis BLAS builds its float32 kernel for 4 blocks of 16 (gemmMBlocks, ddrWidth) unless told"
        ),
    ),
    Parameter(
        "row_cycle_s",
        "s",
        "from opening one row of a memory bank to opening the next (tRC)",
        default=Sourced(46e-9, Provenance.DATASHEET, "JEDEC DDR4 speed bins: 45 to 47 ns; HBM2 as much", 40e-9, 50e-9),
    ),
    Parameter(
        "row_bytes",
        "B",
        "bytes of an open row that bursts in turn can use",
        default=assumed(2048, 1024, 4096, "a DDR4 device has rows of 1 or 2 KiB; a controller may interleave some"),
    ),
    Parameter(
        "reconfigure_s",
        "s",
        "loading a bitstream; building one takes 2 to 12 hours and happens elsewhere",
        default=_published(6.96, f"{_GEMM} on an Alveo U250: loadXclbin 6960.98 ms"),
    ),
    Parameter(
        "round_trip_s",
        "s",
        "an empty kernel launched and waited for on this card, by API",
        keys=("xrt", "opencl"),
        defaults={
            "xrt": assumed(
                90e-6, 30e-6, 250e-6, "OpenCL measured 79 us on a U280 and 180 us on a 520N; XRT lies below it"
            ),
        },
    ),
    Parameter(
        "dispatch_s",
        "s",
        "host time to enqueue one kernel on this card, back to back, by API",
        keys=("xrt", "opencl"),
        defaults={
            "xrt": assumed(
                4e-6, 1.5e-6, 12e-6, "a command written to the card's scheduler; OpenCL enqueues take 6.55 us elsewhere"
            ),
        },
    ),
    Parameter(
        "settled_share",
        "1",
        "what a command costs once very many are in flight, as a share of what the first ones cost",
        default=assumed(0.95, 0.8, 1.0, "the scheduler and the host fetch completions of many commands at once"),
    ),
    Parameter(
        "settling_commands",
        "1",
        "commands in flight at which half of that saving is reached",
        default=assumed(10e3, 300, 100e3, "of the order of the queues between host and scheduler; not documented"),
    ),
    power_shares(base=0.3, logic=0.5, memory=0.2),
)


def _pipeline(
    p: Parameters,
    rows: Rows,
    design: str,
    *,
    items: FloatArray,
    lanes: float,
    bytes_moved: FloatArray,
    rounds: FloatArray,
    fill: FloatArray,
) -> Raw:
    """``rounds`` runs of one compute unit over ``items`` each; ``fill`` cycles more before the first result.

    Memory is a second pipeline beside the first: the slower one sets the pace. Both are counted in whole
    cycles, so that the time is an exact number of clock periods.
    """
    clock = p("clock_hz", design)
    waits = np.ceil(bytes_moved / _port_bytes_s(p, design) * clock)
    starts = _starts(p, design, items, lanes)
    waits = _cached(p, rows, waits)
    busiest, bound = limit(compute=starts, memory=waits)
    return _timed(p, rows, design, busiest, bound, starts=starts, waits=waits, rounds=rounds, fill=fill)


def _starts(p: Parameters, design: str, items: FloatArray, lanes: float) -> FloatArray:
    """Cycles in which a compute unit takes ``items``, ``lanes`` at a time."""
    interval = p("initiation_interval", design) / p("issue_rate", design)
    found: FloatArray = np.ceil(np.ceil(items / lanes) * interval)
    return found


def _port_bytes_s(p: Parameters, design: str) -> float:
    """What the memory ports of one compute unit carry together: a word each cycle, or what their banks deliver."""
    ports = min(p("memory_ports", design), p("memory_banks"))
    return ports * min(p("port_bytes") * p("clock_hz", design), p("bank_bytes_s") * p("memory_efficiency"))


def _cached(p: Parameters, rows: Rows, waits: FloatArray) -> FloatArray:
    """Cycles of the memory: none where operands are warm and fit the block RAM."""
    if rows.choices["cache"] != "warm":
        return waits
    return np.where(rows.footprint_bytes() <= p("on_chip_bytes"), 0.0, waits)


def _timed(
    p: Parameters,
    rows: Rows,
    design: str,
    busiest: FloatArray,
    bound: StrArray,
    *,
    starts: FloatArray,
    waits: FloatArray,
    rounds: FloatArray,
    fill: FloatArray,
) -> Raw:
    """The answer for ``rounds`` runs of ``busiest`` cycles behind the pipeline's depth and ``fill``."""
    clock = p("clock_hz", design)
    latency = p("pipeline_depth", design) + fill - 1.0
    cycles = np.ceil(latency) + busiest + (rounds - 1.0) * busiest  # rounds follow without draining the pipeline
    device_s = cycles / clock
    extra_s = api_time_s(p, rows)
    bound = np.where(latency > rounds * busiest, "latency", bound)
    bound = np.where(extra_s > device_s, "launch", bound)
    duration = device_s + extra_s
    busy = rounds / clock / duration
    return Raw(duration, active_power_w(p, {"logic": starts * busy, "memory": waits * busy}), bound)


def _gemm(p: Parameters, rows: Rows) -> Raw:
    n = rows.numbers
    thin = (n["m"] == 1) | (n["n"] == 1)
    if np.any(thin) and not np.all(thin):
        parts = [_gemm(p, _masked(rows, mask)) for mask in (thin, ~thin)]
        return _merged(thin, *parts)
    matrix = _matrix_matrix(p, rows)
    if not np.any(thin):
        return matrix
    # A vector is a thin matrix to the one design and what the other is made for: it runs where it is done sooner.
    vector = _matrix_vector(p, rows)
    sooner = vector.duration_s <= matrix.duration_s
    return Raw(
        np.where(sooner, vector.duration_s, matrix.duration_s),
        np.where(sooner, vector.power_w, matrix.power_w),
        np.where(sooner, vector.bound, matrix.bound),
    )


def _matrix_vector(p: Parameters, rows: Rows) -> Raw:
    n, dtype = rows.numbers, rows.choices["dtype"]
    # The kernel is as wide as its ports, so narrower elements come more to a cycle.
    lanes = np.floor(p("lanes", "gemv") * 4.0 / BYTES_PER_ELEMENT[dtype])
    rounds = np.ceil(n["batch"] / p("compute_units", "gemv"))
    moved = Gemm.operand_bytes(rows.choices, n) / n["batch"]
    items = n["m"] * n["n"] * n["k"]
    return _pipeline(p, rows, "gemv", items=items, lanes=lanes, bytes_moved=moved, rounds=rounds, fill=np.zeros(()))


def _matrix_matrix(p: Parameters, rows: Rows) -> Raw:
    n, dtype, design = rows.numbers, rows.choices["dtype"], "gemm"
    lanes = p("lanes", f"gemm_{dtype}")
    rounds = np.ceil(n["batch"] / p("compute_units", design))
    # The host fills the last blocks up with zeros, which cost what numbers do.
    tile = p("tile")
    m, n_, k = (np.ceil(n[name] / tile) * tile for name in ("m", "n", "k"))
    read, written = _blocked(p, m, n_, k, BYTES_PER_ELEMENT[dtype])
    starts, read, written = _starts(p, design, m * n_ * k, lanes), _cached(p, rows, read), _cached(p, rows, written)
    # Of every block of C the first step is fetched before, and the last multiplied after, the others overlap; the block
    # is written once it is done.
    longer, bound = limit(compute=starts, memory=read)
    busiest = longer + np.ceil(np.minimum(starts, read) * tile / k) + written
    waits = read + written
    return _timed(p, rows, design, busiest, bound, starts=starts, waits=waits, rounds=rounds, fill=np.zeros(()))


def _blocked(p: Parameters, m: FloatArray, n: FloatArray, k: FloatArray, size: float) -> tuple[FloatArray, FloatArray]:
    """Cycles in which a product of whole blocks reads memory, and writes it.

    A is read once for every column of blocks of C, B once for every row of them, C is written once. The rows of a
    matrix no wider than a block lie one behind the other; those of a wider one are bursts apart, of which as many as
    start within ``row_bytes`` of each other share the opening of a row of memory.
    """
    tile, out = p("tile"), max(size, 2.0)
    clock = p("clock_hz", "gemm")
    rate = _port_bytes_s(p, "gemm") / clock
    opening = p("row_cycle_s") * clock

    def cycles(rows: FloatArray, wide: FloatArray, element: float) -> FloatArray:
        openings = rows * wide / tile * np.minimum(wide * element / p("row_bytes"), 1.0) * opening
        found: FloatArray = np.ceil(np.maximum(rows * wide * element / rate, np.where(wide > tile, openings, 0.0)))
        return found

    read: FloatArray = n / tile * cycles(m, k, size) + m / tile * cycles(k, n, size)
    return read, cycles(m, n, out)


def _masked(rows: Rows, mask: npt.NDArray[np.bool_]) -> Rows:
    shape = rows.shape
    return Rows(rows.op, rows.choices, {k: np.broadcast_to(v, shape)[mask] for k, v in rows.numbers.items()})


def _merged(mask: npt.NDArray[np.bool_], where: Raw, elsewhere: Raw) -> Raw:
    duration = np.empty(mask.shape)
    power = np.empty(mask.shape)
    bound = np.empty(mask.shape, dtype="<U16")
    for chosen, raw in ((mask, where), (~mask, elsewhere)):
        duration[chosen], power[chosen], bound[chosen] = raw.duration_s, raw.power_w, raw.bound
    return Raw(duration, power, bound)


def _vector_add(p: Parameters, rows: Rows) -> Raw:
    n = rows.numbers["n"]
    lanes = p("lanes", "vector_add") * 4.0 / BYTES_PER_ELEMENT[rows.choices["dtype"]]
    share = np.ceil(n / p("compute_units", "vector_add"))
    moved = VectorAdd.operand_bytes(rows.choices, rows.numbers) / p("compute_units", "vector_add")
    return _pipeline(
        p, rows, "vector_add", items=share, lanes=lanes, bytes_moved=moved, rounds=np.ones(()), fill=np.zeros(())
    )


def _stencil(p: Parameters, rows: Rows) -> Raw:
    n = rows.numbers
    lanes = p("lanes", "stencil") * 4.0 / BYTES_PER_ELEMENT[rows.choices["dtype"]]
    units = p("compute_units", "stencil")
    # A shift register holds the neighbours: a plane (a row in 2D) must be in before the first cell comes out.
    held = np.where(n["nz"] > 1, n["nx"] * n["ny"], n["nx"])
    moved = Stencil.operand_bytes(rows.choices, n) / units
    share = np.ceil(Stencil.cells(n) / units)
    fill = np.ceil(held / lanes)
    return _pipeline(p, rows, "stencil", items=share, lanes=lanes, bytes_moved=moved, rounds=np.ones(()), fill=fill)


def _fft(p: Parameters, rows: Rows) -> Raw:
    n = rows.numbers
    lanes = p("lanes", "fft") * 4.0 / BYTES_PER_ELEMENT[rows.choices["dtype"]]
    # A streaming transform reorders its points, so a whole one is in before the first point comes out.
    rounds = np.ceil(n["batch"] / p("compute_units", "fft"))
    moved = Fft.operand_bytes(rows.choices, n) / n["batch"]
    fill = np.ceil(n["n"] / lanes)
    return _pipeline(p, rows, "fft", items=n["n"], lanes=lanes, bytes_moved=moved, rounds=rounds, fill=fill)


def _copy(p: Parameters, rows: Rows) -> Raw:
    direction = rows.choices["direction"]
    if direction == "d2d":
        banks = p("memory_banks") * p("bank_bytes_s") * p("memory_efficiency")
        duration = p.api_cost("copy_setup_s") + 2.0 * rows.numbers["bytes"] / banks
        return Raw(duration, active_power_w(p, {"memory": 1.0}), np.asarray("memory"))
    duration = linked_s(p, rows, p("host_link_bytes_s", direction))
    return Raw(duration, active_power_w(p, {"memory": 0.2}), np.asarray("link"))


def _launch(p: Parameters, rows: Rows) -> Raw:
    """Empty commands, all in flight at once: each costs its dispatch, the less the more of them there are.

    A command costs ``dispatch_s`` times a share that falls from 1 to ``settled_share`` as ``1/(1 + count/settling)``
    does, so that time rises with the count and so does the rate.
    """
    if rows.choices["mode"] != "stream":
        return Raw(launched_s(p, rows), active_power_w(p, {}), np.asarray("launch"))
    n = rows.numbers["count"]
    settled = p("settled_share")
    share = settled + (1.0 - settled) / (1.0 + (n - 1.0) / p("settling_commands"))
    duration = p.api_cost("round_trip_s") + (n - 1.0) * p.api_cost("dispatch_s") * share
    return Raw(duration, active_power_w(p, {}), np.asarray("launch"))


def _engine(_p: Parameters, rows: Rows) -> str:
    if rows.op.name == "copy" and rows.choices["direction"] != "d2d":
        return f"copy_{rows.choices['direction']}"
    return "compute"


_ANOTHER_DESIGN = "the pipeline is exact for a known design; another engineer's design differs by this much"

KIND = Kind(
    name="fpga",
    doc="fixed pipelines at a fixed clock; memory banks; deterministic",
    parameters=_PARAMETERS,
    costs={
        "gemm": _gemm,
        "vector_add": _vector_add,
        "stencil": _stencil,
        "fft": _fft,
        "copy": _copy,
        "launch": _launch,
        "service": service,
    },
    errors={
        "gemm": _published(
            1.12,
            "gemm on a U250 and gemv on a U280, each of 13 kernel times left out of its fit: 12 lie within this",
        ),
        "vector_add": assumed(1.3, 1.1, 2.0, _ANOTHER_DESIGN),
        "stencil": assumed(1.5, 1.2, 3.0, _ANOTHER_DESIGN),
        "fft": assumed(1.3, 1.1, 2.0, _ANOTHER_DESIGN),
        "copy": assumed(1.25, 1.1, 1.6, "links attain 70 to 95% of what was measured on another host"),
        "launch": _published(1.15, "each of 15 counts of commands left out of the fit: 13 lie within this"),
        "service": EXACT,
    },
    engine=_engine,
    fits={
        "gemm": {"issue_rate": 0.12, "pipeline_depth": 0.6, "row_cycle_s": 0.08},
        "vector_add": {"memory_efficiency": 0.1, "pipeline_depth": 0.6},
        "stencil": {"memory_efficiency": 0.1, "pipeline_depth": 0.6},
        "fft": {"memory_efficiency": 0.1, "pipeline_depth": 0.6, "clock_hz": 0.15},
        "launch": {"round_trip_s": 0.6, "dispatch_s": 0.6, "settled_share": 0.1, "settling_commands": 1.5},
    },
)
