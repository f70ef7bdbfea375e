"""An FPGA card: fixed pipelines at a fixed clock, memory banks that a kernel reaches by its ports, and a slow API.

A bitstream is a design. For each operation it has a clock, a number of lanes, a pipeline depth, an initiation interval
and memory ports. There is no arbitration, boost or implicit cache, so a kernel takes

    cycles = depth + ceil(ceil(items / lanes) * interval / issue_rate) - 1

periods of the clock, every time. Building a design takes hours and loading it seconds (``reconfigure_s``); neither is
part of an operation. A design executes one operation in one number format; products with a vector have a design of
their own. Sizes are arguments of a design. A load draws the base share of the power, because no logic runs meanwhile.

A GEMM is divided into square blocks; the next block is fetched while one is multiplied. If the rows of a block are
parts of longer rows, each is a separate burst. If each burst lies in another row of the memory, it takes the memory's
row cycle, however short it is: a block of float32 with 64 columns then gets a third of the port's rate.

The numbers of a design that was measured on a card are in that card's overlay (``calibration/``). The defaults here are
assumptions about a design of this sort without measurements.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windtunnel.core.device import Designs, Parameters, RawCost, StrArray
from windtunnel.core.ops import BYTES_PER_ELEMENT, Fft, FloatArray, Gemm, Rows, Stencil, VectorAdd
from windtunnel_models.kinds._shared import (
    active_power_w,
    api_time_s,
    copy_engine,
    launched_s,
    limit,
    linked_s,
    service,
)
from windtunnel_models.kinds._tables import read_kind


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
) -> RawCost:
    """Return the cost of ``rounds`` runs of a compute unit over ``items``; ``fill`` cycles precede the first result.

    Memory is a second pipeline in parallel, and the slower one determines the time. Both are counted in whole
    cycles, so that the time is an exact number of clock periods.
    """
    clock = p("clock_hz", design)
    waits = np.ceil(bytes_moved / _port_bytes_s(p, design) * clock)
    starts = _starts(p, design, items, lanes)
    waits = _cached(p, rows, waits)
    busiest, bound = limit(compute=starts, memory=waits)
    return _timed(p, rows, design, busiest, bound, starts=starts, waits=waits, rounds=rounds, fill=fill)


def _starts(p: Parameters, design: str, items: FloatArray, lanes: float) -> FloatArray:
    """Return the cycles in which a compute unit accepts ``items``, ``lanes`` at a time."""
    interval = p("initiation_interval", design) / p("issue_rate", design)
    cycles: FloatArray = np.ceil(np.ceil(items / lanes) * interval)
    return cycles


def _port_bytes_s(p: Parameters, design: str) -> float:
    """Return the rate (B/s) of a compute unit's memory ports: a word per cycle, or the bandwidth of their banks."""
    ports = min(p("memory_ports", design), p("memory_banks"))
    return ports * min(p("port_bytes") * p("clock_hz", design), p("bank_bytes_s") * p("memory_efficiency"))


def _cached(p: Parameters, rows: Rows, waits: FloatArray) -> FloatArray:
    """Return the cycles of the memory, or zero if operands are warm and fit into the block RAM."""
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
) -> RawCost:
    """Return the cost of ``rounds`` runs of ``busiest`` cycles, after the pipeline's depth and ``fill``."""
    clock = p("clock_hz", design)
    latency = p("pipeline_depth", design) + fill - 1.0
    cycles = np.ceil(latency) + busiest + (rounds - 1.0) * busiest  # rounds follow without draining the pipeline
    device_s = cycles / clock
    extra_s = api_time_s(p, rows)
    bound = np.where(latency > rounds * busiest, "latency", bound)
    bound = np.where(extra_s > device_s, "launch", bound)
    duration = device_s + extra_s
    busy = rounds / clock / duration
    return RawCost(duration, active_power_w(p, {"logic": starts * busy, "memory": waits * busy}), bound)


def _gemm(p: Parameters, rows: Rows) -> RawCost:
    n = rows.numbers
    thin = (n["m"] == 1) | (n["n"] == 1)
    if np.any(thin) and not np.all(thin):
        parts = [_gemm(p, _masked(rows, mask)) for mask in (thin, ~thin)]
        return _merged(thin, *parts)
    matrix = _matrix_matrix(p, rows)
    if not np.any(thin):
        return matrix
    # One design treats a vector as a thin matrix, and the other is made for it. The faster one is used.
    vector = _matrix_vector(p, rows)
    sooner = vector.duration_s <= matrix.duration_s
    return RawCost(
        np.where(sooner, vector.duration_s, matrix.duration_s),
        np.where(sooner, vector.power_w, matrix.power_w),
        np.where(sooner, vector.bound, matrix.bound),
    )


def _sooner_by_vector(p: Parameters, rows: Rows) -> npt.NDArray[np.bool_]:
    """Return whether the design for vectors executes each product."""
    n = rows.numbers
    thin: npt.NDArray[np.bool_] = (n["m"] == 1) | (n["n"] == 1)
    if np.any(thin):
        mine = _masked(rows, np.broadcast_to(thin, rows.shape))
        thin = np.broadcast_to(thin, rows.shape).copy()
        thin[thin] = _matrix_vector(p, mine).duration_s <= _matrix_matrix(p, mine).duration_s
    return thin


def _design(p: Parameters, rows: Rows) -> StrArray:
    """Return the design that each row needs: operation and number format; none for copies and empty commands."""
    op = rows.op.name
    if op not in _FORMATS:
        return np.array([""])
    dtype = rows.choices["dtype"]
    if op != "gemm":
        return np.array([f"{op}_{dtype}"])
    return np.where(_sooner_by_vector(p, rows), f"gemv_{dtype}", f"gemm_{dtype}")


def _load(p: Parameters) -> tuple[int, float, float]:
    """Return the number of regions, and the time (s) and power (W) of loading a design into one."""
    regions = int(p("regions"))
    duration_s = p("reconfigure_s") if regions == 1 else p("region_reconfigure_s")
    return regions, duration_s, float(active_power_w(p, {}))


def _matrix_vector(p: Parameters, rows: Rows) -> RawCost:
    n, dtype = rows.numbers, rows.choices["dtype"]
    # The kernel is as wide as its ports, so more of the narrower elements fit into a cycle.
    lanes = np.floor(p("lanes", "gemv") * 4.0 / BYTES_PER_ELEMENT[dtype])
    rounds = np.ceil(n["batch"] / p("compute_units", "gemv"))
    moved = Gemm.operand_bytes(rows.choices, n) / n["batch"]
    items = n["m"] * n["n"] * n["k"]
    return _pipeline(p, rows, "gemv", items=items, lanes=lanes, bytes_moved=moved, rounds=rounds, fill=np.zeros(()))


def _matrix_matrix(p: Parameters, rows: Rows) -> RawCost:
    n, dtype, design = rows.numbers, rows.choices["dtype"], "gemm"
    lanes = p("lanes", f"gemm_{dtype}")
    rounds = np.ceil(n["batch"] / p("compute_units", design))
    # The host pads the last blocks with zeros, which cost the same as numbers.
    tile = p("tile")
    m, n_, k = (np.ceil(n[name] / tile) * tile for name in ("m", "n", "k"))
    read, written = _blocked(p, m, n_, k, BYTES_PER_ELEMENT[dtype])
    starts, read, written = _starts(p, design, m * n_ * k, lanes), _cached(p, rows, read), _cached(p, rows, written)
    # For each block of C the first step is fetched before, and the last multiplied after, the overlapping steps. The
    # block is written when it is complete.
    longer, bound = limit(compute=starts, memory=read)
    busiest = longer + np.ceil(np.minimum(starts, read) * tile / k) + written
    waits = read + written
    return _timed(p, rows, design, busiest, bound, starts=starts, waits=waits, rounds=rounds, fill=np.zeros(()))


def _blocked(p: Parameters, m: FloatArray, n: FloatArray, k: FloatArray, size: float) -> tuple[FloatArray, FloatArray]:
    """Return the cycles in which a GEMM of whole blocks reads memory, and those in which it writes.

    A is read once for every column of blocks of C, B once for every row of them, and C is written once. The rows of a
    matrix no wider than a block are contiguous. The rows of a wider one are separate bursts; those that start within
    ``row_bytes`` of each other share the opening of a row of memory.
    """
    tile, out = p("tile"), max(size, 2.0)
    clock = p("clock_hz", "gemm")
    rate = _port_bytes_s(p, "gemm") / clock
    opening = p("row_cycle_s") * clock

    def cycles(rows: FloatArray, wide: FloatArray, element: float) -> FloatArray:
        openings = rows * wide / tile * np.minimum(wide * element / p("row_bytes"), 1.0) * opening
        whole_cycles: FloatArray = np.ceil(
            np.maximum(rows * wide * element / rate, np.where(wide > tile, openings, 0.0))
        )
        return whole_cycles

    read: FloatArray = n / tile * cycles(m, k, size) + m / tile * cycles(k, n, size)
    return read, cycles(m, n, out)


def _masked(rows: Rows, mask: npt.NDArray[np.bool_]) -> Rows:
    shape = rows.shape
    return Rows(rows.op, rows.choices, {k: np.broadcast_to(v, shape)[mask] for k, v in rows.numbers.items()})


def _merged(mask: npt.NDArray[np.bool_], where: RawCost, elsewhere: RawCost) -> RawCost:
    duration = np.empty(mask.shape)
    power = np.empty(mask.shape)
    bound = np.empty(mask.shape, dtype="<U16")
    for chosen, raw in ((mask, where), (~mask, elsewhere)):
        duration[chosen], power[chosen], bound[chosen] = raw.duration_s, raw.power_w, raw.bound
    return RawCost(duration, power, bound)


def _vector_add(p: Parameters, rows: Rows) -> RawCost:
    n = rows.numbers["n"]
    lanes = p("lanes", "vector_add") * 4.0 / BYTES_PER_ELEMENT[rows.choices["dtype"]]
    share = np.ceil(n / p("compute_units", "vector_add"))
    moved = VectorAdd.operand_bytes(rows.choices, rows.numbers) / p("compute_units", "vector_add")
    return _pipeline(
        p, rows, "vector_add", items=share, lanes=lanes, bytes_moved=moved, rounds=np.ones(()), fill=np.zeros(())
    )


def _stencil(p: Parameters, rows: Rows) -> RawCost:
    n = rows.numbers
    lanes = p("lanes", "stencil") * 4.0 / BYTES_PER_ELEMENT[rows.choices["dtype"]]
    units = p("compute_units", "stencil")
    # A shift register holds the neighbours: a plane (a row in 2D) must be read before the first cell is output.
    held = np.where(n["nz"] > 1, n["nx"] * n["ny"], n["nx"])
    moved = Stencil.operand_bytes(rows.choices, n) / units
    share = np.ceil(Stencil.cells(n) / units)
    fill = np.ceil(held / lanes)
    return _pipeline(p, rows, "stencil", items=share, lanes=lanes, bytes_moved=moved, rounds=np.ones(()), fill=fill)


def _fft(p: Parameters, rows: Rows) -> RawCost:
    n = rows.numbers
    lanes = p("lanes", "fft") * 4.0 / BYTES_PER_ELEMENT[rows.choices["dtype"]]
    # A streaming transform reorders its points, so a whole one must be read before the first point is output.
    rounds = np.ceil(n["batch"] / p("compute_units", "fft"))
    moved = Fft.operand_bytes(rows.choices, n) / n["batch"]
    fill = np.ceil(n["n"] / lanes)
    return _pipeline(p, rows, "fft", items=n["n"], lanes=lanes, bytes_moved=moved, rounds=rounds, fill=fill)


def _copy(p: Parameters, rows: Rows) -> RawCost:
    direction = rows.choices["direction"]
    if direction == "d2d":
        banks = p("memory_banks") * p("bank_bytes_s") * p("memory_efficiency")
        duration = p.api_cost("copy_setup_s") + 2.0 * rows.numbers["bytes"] / banks
        return RawCost(duration, active_power_w(p, {"memory": 1.0}), np.asarray("memory"))
    duration = linked_s(p, rows, p("host_link_bytes_s", direction))
    return RawCost(duration, active_power_w(p, {"memory": 0.2}), np.asarray("link"))


def _launch(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of empty commands that are all in flight; the cost of each falls with their number.

    A command costs ``dispatch_s`` times a share that falls from 1 to ``settled_share`` as ``1/(1 + count/settling)``
    does, so both the time and the rate rise with the count.
    """
    if rows.choices["mode"] != "stream":
        power_w = p.spinning_w(1.0) if rows.choices["mode"] == "persistent" else active_power_w(p, {})
        return RawCost(launched_s(p, rows), np.asarray(power_w), np.asarray("launch"))
    n = rows.numbers["count"]
    settled = p("settled_share")
    share = settled + (1.0 - settled) / (1.0 + (n - 1.0) / p("settling_commands"))
    duration = p.api_cost("round_trip_s") + (n - 1.0) * p.api_cost("dispatch_s") * share
    return RawCost(duration, active_power_w(p, {}), np.asarray("launch"))


_FORMATS: dict[str, tuple[str, ...]] = {
    op.name: next(column.choices for column in op.columns if column.name == "dtype")
    for op in (Gemm, VectorAdd, Stencil, Fft)
}
"""The number formats of each operation that needs a design."""

_NAMES = tuple(
    f"{design}_{dtype}"
    for op, formats in _FORMATS.items()
    for design in ((op, "gemv") if op == "gemm" else (op,))
    for dtype in formats
)

KIND = read_kind(
    "fpga",
    costs={
        "gemm": _gemm,
        "vector_add": _vector_add,
        "stencil": _stencil,
        "fft": _fft,
        "copy": _copy,
        "launch": _launch,
        "service": service,
    },
    engine=copy_engine,
    designs=Designs(_NAMES, _design, _load),
)
