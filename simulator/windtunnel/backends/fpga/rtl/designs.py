"""The designs of the operations: operands as words, results from words, and NumPy references in the same order.

Every reference computes in the arithmetic of the design, with the same roundings in the same order. Results are
therefore either equal bit for bit or wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from windtunnel.backends.fpga.rtl.icarus import Design
from windtunnel.core.columns import Columns
from windtunnel.core.errors import InputError

if TYPE_CHECKING:
    from windtunnel.backends.fpga.rtl.icarus import Words

Array = np.ndarray[Any, Any]

FLOATS: Mapping[str, tuple[Any, int, int]] = {
    "float32": (np.dtype(np.float32), 8, 23),
    "float16": (np.dtype(np.float16), 5, 10),
    "bfloat16": (np.dtype(ml_dtypes.bfloat16), 8, 7),
}
"""NumPy type, bits of the exponent, bits of the fraction."""
ADD, MULTIPLY = 5, 4
"""Register stages of fp_add.v and fp_mul.v."""
CENTRE, SIDES = 0.25, 0.125
"""Coefficients of the stencil. They are exact in every type, so that only sums are rounded."""
LOAD, ACT, FIRST, BEGIN, FINAL = 1, 2, 4, 8, 16
"""Flags of a word for gemm_ws.v."""
MAX_CELLS = 256
"""Largest number of rows and columns of an array: that of the matrix units of TPUs."""
PASS_ROWS = 1024
"""Largest number of rows of A in a pass of gemm_ws.v: the depth of its sums below the array."""


@dataclass(frozen=True)
class Build:
    """Parameters of the designs: what a bitstream fixes, and its clock."""

    clock_hz: float = 300e6
    """Assumed: Vitis builds for 300 MHz by default. Nothing is placed or routed."""
    port_bytes: int = 64
    """Bytes of one operand that vector_add takes each cycle: a 512-bit port."""
    stencil_bytes: int = 16
    """Bytes of cells that stencil takes each cycle."""
    rows: int = 16
    columns: int = 16
    """Size of the int8 array."""
    float_rows: int = 4
    float_columns: int = 4
    """Size of the floating-point array."""
    dataflow: Mapping[str, str] = field(
        default_factory=lambda: {"int8": "output", **dict.fromkeys(FLOATS, "weight")}, hash=False
    )
    """What stays in a cell: ``output`` or ``weight``. Floating-point sums take five cycles, so they must flow."""
    overlap: bool = True
    """Whether a tile begins before the previous tile has left the array."""

    def __post_init__(self) -> None:
        """Raise InputError for parameters that cannot be built."""
        if not (math.isfinite(self.clock_hz) and self.clock_hz > 0):
            raise InputError(f"clock_hz must be a frequency above 0 Hz, got {self.clock_hz}")
        for name in ("port_bytes", "stencil_bytes"):
            if (value := getattr(self, name)) < 4 or value % 4:
                raise InputError(f"{name} must be a multiple of 4, at least 4 (one float32), got {value}")
        for name in ("rows", "columns", "float_rows", "float_columns"):
            if not 1 <= (value := getattr(self, name)) <= MAX_CELLS:
                raise InputError(f"{name} must be from 1 to {MAX_CELLS}, got {value}")
        for dtype in ("int8", *FLOATS):
            flow = self.dataflow.get(dtype, "nothing")
            if flow not in ("output", "weight"):
                raise InputError(f"dataflow of {dtype} must be 'output' or 'weight', got '{flow}'")
            if flow == "output" and dtype in FLOATS:
                raise InputError(
                    f"dataflow 'output' needs one sum per cycle and cell, which {dtype} does not reach",
                    expected=f"dataflow 'weight' for {dtype}",
                )


@dataclass(frozen=True)
class Work:
    """An operation's operands as words of a design, and the expected result."""

    design: Design
    words: Words
    out_words: int
    values: Callable[[Words], Array]
    """Converts the words that came out to the result."""
    reference: Callable[[], Array]
    """Computes the same result with NumPy."""
    note: str
    group: tuple[int, int] = (1, 1)
    """Number of output words that belong together, and of pipeline starts that make them: the unit of an interval."""


def vector_add(columns: Columns, build: Build, rng: np.random.Generator) -> Work:
    """Return the sum of two vectors, ``port_bytes`` of each operand per cycle."""
    n, dtype = int(columns["n"]), str(columns["dtype"])
    if dtype in FLOATS:
        kind, exponent, fraction = FLOATS[dtype]
        a, b = (rng.standard_normal(n).astype(kind) for _ in range(2))
    else:
        kind, exponent, fraction = np.dtype(np.int8), 0, 7
        a, b = (rng.integers(-128, 128, n, np.int8) for _ in range(2))
    return vector_sum(a, b, build.port_bytes // kind.itemsize, exponent, fraction)


def vector_sum(a: Array, b: Array, lanes: int, exponent: int, fraction: int) -> Work:
    """Return the sum of two arrays of one type, ``lanes`` elements per cycle; without exponent bits, of integers."""
    size = a.dtype.itemsize
    parameters = {"LANES": lanes, "FLOAT": int(exponent > 0), "EXP": exponent, "MAN": fraction}
    design = Design("vector_add", parameters, 2 * lanes * size, lanes * size)
    words = np.concatenate([to_words(a, lanes), to_words(b, lanes)], axis=1)

    def reference() -> Array:
        with np.errstate(all="ignore"):
            total: Array = a + b
        return total

    return Work(
        design, words, len(words), lambda out: out.reshape(-1).view(a.dtype)[: a.size], reference, f"{lanes} lanes"
    )


def vector_product(a: Array, b: Array, lanes: int, kind: str, product: str) -> Work:
    """Return the product of two arrays of ``kind``, rounded to ``product``. Tests of fp_mul.v use it."""
    (_, exponent, fraction), (wide, wide_exponent, wide_fraction) = FLOATS[kind], FLOATS[product]
    parameters = {"LANES": lanes, "EXP": exponent, "MAN": fraction, "OEXP": wide_exponent, "OMAN": wide_fraction}
    design = Design("multiply", parameters, 2 * lanes * a.dtype.itemsize, lanes * wide.itemsize)
    words = np.concatenate([to_words(a, lanes), to_words(b, lanes)], axis=1)

    def reference() -> Array:
        with np.errstate(all="ignore"):
            products: Array = a.astype(wide) * b.astype(wide)
        return products

    return Work(
        design, words, len(words), lambda out: out.reshape(-1).view(wide)[: a.size], reference, f"{lanes} lanes"
    )


def stencil(columns: Columns, build: Build, rng: np.random.Generator) -> Work:
    """Return one sweep with zeros beyond the edges, through a shift register that holds two planes."""
    nx, ny, nz = (int(columns[name]) for name in ("nx", "ny", "nz"))
    kind, exponent, fraction = FLOATS[str(columns["dtype"])]
    lanes = build.stencil_bytes // kind.itemsize
    row_words = math.ceil(nx / lanes)
    grid = rng.standard_normal((nz, ny, nx)).astype(kind)
    padded = np.zeros((nz, ny, row_words * lanes), kind)
    padded[:, :, :nx] = grid
    bits = f"uint{8 * kind.itemsize}"
    centre, sides = (int(np.array(value, kind).view(bits)) for value in (CENTRE, SIDES))
    plane = row_words if nz == 1 else row_words * ny
    parameters = {
        "LANES": lanes,
        "EXP": exponent,
        "MAN": fraction,
        "DEPTH": 1 << max(plane - 1, 1).bit_length(),
        "C0": centre,
        "C1": sides,
        "ROW_WORDS": row_words,
        "ROWS": ny,
        "PLANES": nz,
    }
    width = lanes * kind.itemsize
    words = to_words(padded.reshape(-1), lanes)
    return Work(
        Design("stencil", parameters, width, width),
        words,
        len(words),
        lambda out: out.reshape(-1).view(kind).reshape(padded.shape)[:, :, :nx],
        lambda: stencil_reference(grid),
        f"{lanes} lanes, zeros beyond the edges",
    )


def stencil_reference(grid: Array) -> Array:
    """Return one sweep by NumPy; each operation is rounded to the grid's type, in the design's order."""
    edged = np.pad(grid, 1)
    west, east = edged[1:-1, 1:-1, :-2], edged[1:-1, 1:-1, 2:]
    north, south = edged[1:-1, :-2, 1:-1], edged[1:-1, 2:, 1:-1]
    above, below = edged[:-2, 1:-1, 1:-1], edged[2:, 1:-1, 1:-1]
    kind = grid.dtype.type
    result: Array = grid * kind(CENTRE) + (((west + east) + (north + south)) + (below + above)) * kind(SIDES)
    return result


def gemm(columns: Columns, build: Build, rng: np.random.Generator) -> Work:
    """Return C = A B on a systolic array: int8 products are summed in 32-bit integers, floats in float32."""
    dtype, m, n, k, batch = str(columns["dtype"]), *(int(columns[name]) for name in ("m", "n", "k", "batch"))
    if dtype == "int8":
        a, b = (rng.integers(-128, 128, (batch, *shape), np.int8) for shape in ((m, k), (k, n)))
        rows, across = build.rows, build.columns
    else:
        kind = FLOATS[dtype][0]
        a, b = (rng.standard_normal((batch, *shape)).astype(kind) for shape in ((m, k), (k, n)))
        rows, across = build.float_rows, build.float_columns
    arrangement = output_stationary if build.dataflow[dtype] == "output" else weight_stationary
    return arrangement(a, b, dtype, rows, across, overlap=build.overlap)


def output_stationary(a: Array, b: Array, _dtype: str, rows: int, columns: int, *, overlap: bool) -> Work:
    """Return the words for gemm_os.v: tiles of C one after another, one word for each k."""
    batch, m, k = a.shape
    n = b.shape[2]
    down, right = math.ceil(m / rows), math.ceil(n / columns)
    left = _padded(a, m=down * rows).reshape(batch, down, 1, rows, k).transpose(0, 1, 2, 4, 3)
    top = _padded(b, n=right * columns).reshape(batch, 1, k, right, columns).transpose(0, 1, 3, 2, 4)
    words = np.zeros((batch, down, right, k, rows + columns + 1), np.uint8)
    words[..., :rows] = left.view(np.uint8)
    words[..., rows:-1] = top.view(np.uint8)
    words[..., -1, -1] = 1
    parameters = {"ROWS": rows, "COLUMNS": columns, "OVERLAP": int(overlap)}

    def values(out: Words) -> Array:
        tiles = out.reshape(-1).view(np.int32).reshape(batch, down, right, rows, columns)
        return tiles.transpose(0, 1, 3, 2, 4).reshape(batch, down * rows, right * columns)[:, :m, :n]

    return Work(
        Design("gemm_os", parameters, rows + columns + 1, 4 * columns),
        words.reshape(-1, rows + columns + 1),
        batch * down * right * rows,
        values,
        lambda: np.matmul(a.astype(np.int32), b.astype(np.int32)),
        f"output-stationary array of {rows} x {columns}{_overlap_note(overlap)}",
        (rows, k),
    )


def weight_stationary(a: Array, b: Array, dtype: str, rows: int, columns: int, *, overlap: bool) -> Work:
    """Return the words for gemm_ws.v: for each tile of n all tiles of k, and for each of those all rows of A."""
    batch, m, k = a.shape
    n = b.shape[2]
    deep, right = math.ceil(k / rows), math.ceil(n / columns)
    a_, b_ = _padded(a, k=deep * rows), _padded(b, k=deep * rows, n=right * columns)
    size, stages = a.dtype.itemsize, ADD if dtype in FLOATS else 1
    width = (rows + columns) * size + 1
    passes = []  # (weights, rows of A) of each pass
    for item in range(batch):
        for tile in range(right):
            for at in range(0, m, PASS_ROWS):
                block = a_[item, at : at + PASS_ROWS]
                if deep > 1:  # a sum must be written before the next tile of k reads it
                    block = np.pad(block, ((0, max(stages + 2 - len(block), 0)), (0, 0)))
                for step in range(deep):
                    here = slice(step * rows, (step + 1) * rows)
                    loads = np.zeros((rows, width), np.uint8)
                    weights = np.ascontiguousarray(b_[item, here, tile * columns : (tile + 1) * columns])
                    loads[:, rows * size : -1] = weights.view(np.uint8)
                    loads[:, -1] = LOAD
                    acts = np.zeros((len(block), width), np.uint8)
                    acts[:, : rows * size] = np.ascontiguousarray(block[:, here]).view(np.uint8)
                    acts[:, -1] = ACT | BEGIN * (step == 0) | FINAL * (step == deep - 1)
                    acts[0, -1] |= FIRST
                    passes.append((loads, acts))
    sizes = [len(acts) for _, acts in passes][::deep]
    words = _overlapped(passes, rows, stages) if overlap else np.concatenate([part for pair in passes for part in pair])
    longest = max(sizes)
    parameters = {"ROWS": rows, "COLUMNS": columns, "OVERLAP": int(overlap), "DEPTH": 1 << (longest - 1).bit_length()}
    exponent, fraction = FLOATS[dtype][1:] if dtype in FLOATS else (0, 7)
    parameters |= {"FLOAT": int(dtype in FLOATS), "EXP": exponent, "MAN": fraction}
    sums = np.dtype(np.float32 if dtype in FLOATS else np.int32)

    def values(out: Words) -> Array:
        result = np.zeros((batch, m, right * columns), sums)
        lines, taken = out.reshape(-1).view(sums).reshape(-1, columns), 0
        for item in range(batch):
            for tile in range(right):
                for at in range(0, m, PASS_ROWS):
                    kept = min(PASS_ROWS, m - at)
                    place = result[item, at : at + kept, tile * columns : (tile + 1) * columns]
                    place[:] = lines[taken : taken + kept]
                    taken += kept if deep == 1 else max(kept, stages + 2)
        return result[:, :, :n]

    return Work(
        Design("gemm_ws", parameters, width, 4 * columns),
        words,
        sum(sizes),
        values,
        lambda: gemm_reference(a_, b_[:, :, :n], rows),
        f"weight-stationary array of {rows} x {columns}{_overlap_note(overlap)}",
        (longest, longest * deep),
    )


def _overlapped(passes: list[tuple[Words, Words]], rows: int, stages: int) -> Words:
    """Return words in which the next tile's weights are sent together with rows of A, as late as possible.

    Row j of the array switches to its new weights j * stages cycles after the first row of A, and can take the next
    weights from then on.
    """
    parts = [passes[0][0]]
    for at, (_, acts) in enumerate(passes):
        if at == len(passes) - 1:
            parts.append(acts)
            break
        begin = min(max(len(acts) - rows, (rows - 1) * (stages - 1)), len(acts))
        both = np.zeros((max(len(acts), begin + rows), acts.shape[1]), np.uint8)
        both[: len(acts)] = acts
        both[begin : begin + rows] |= passes[at + 1][0]
        parts.append(both)
    return np.concatenate(parts)


def gemm_reference(a: Array, b: Array, rows: int) -> Array:
    """Return A B summed as a weight-stationary array does: ``rows`` products in order, then those sums in order.

    Floats are rounded to float32 after each product and each sum. For 32-bit integers the order does not matter.
    """
    kind = np.int32 if a.dtype == np.int8 else np.float32
    a, b = a.astype(kind), b.astype(kind)
    total = np.zeros((*a.shape[:2], b.shape[2]), kind)
    for tile in range(0, a.shape[2], rows):
        part = np.zeros_like(total)
        for k in range(tile, tile + rows):
            part = part + a[:, :, k, None] * b[:, k, None, :]
        total = total + part
    return total


def fft(columns: Columns, build: Build, rng: np.random.Generator) -> Work:
    """Return transforms of 2^STEPS points: two points per cycle, i and i + n/2 in a word, in order after reading."""
    n, batch = int(columns["n"]), int(columns["batch"])
    kind, exponent, fraction = FLOATS[str(columns["dtype"])]
    steps = n.bit_length() - 1
    points = rng.standard_normal((batch, n, 2)).astype(kind)
    words = np.ascontiguousarray(points.reshape(batch, 2, n // 2, 2).transpose(0, 2, 1, 3))
    width = 4 * kind.itemsize
    table = {"twiddle.hex": np.ascontiguousarray(twiddles(n, kind)).view(np.uint8)}
    order = np.array([int(f"{at:0{steps}b}"[::-1], 2) for at in range(n)])

    def values(out: Words) -> Array:
        result: Array = out.reshape(-1).view(kind).reshape(batch, n, 2)[:, order]
        return result

    return Work(
        Design("fft", {"STEPS": steps, "EXP": exponent, "MAN": fraction}, width, width, table),
        words.reshape(-1).view(np.uint8).reshape(-1, width),
        batch * n // 2,
        values,
        lambda: fft_reference(points),
        "radix 2, 2 points per cycle",
    )


def twiddles(n: int, kind: Any) -> Array:
    """Return exp(-2 pi i j / n) for j below n / 2: real and imaginary parts, rounded once; shape (n / 2, 2)."""
    angles = -2.0 * np.pi * np.arange(n // 2) / n
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(kind)


def fft_reference(points: Array) -> Array:
    """Return transforms of (batch, n, 2) by NumPy; each operation is rounded to the points' type in design order."""
    batch, n, _ = points.shape
    factors, now = twiddles(n, points.dtype), points[:, None]
    while now.shape[2] > 1:
        half = now.shape[2] // 2
        upper, lower = now[:, :, :half], now[:, :, half:]
        total, apart = upper + lower, upper - lower
        if half > 1:
            factor = factors[:: n // 2 // half]
            re, im, c, s = apart[..., 0], apart[..., 1], factor[:, 0], factor[:, 1]
            apart = np.stack([re * c - im * s, re * s + im * c], axis=-1)
        now = np.stack([total, apart], axis=2).reshape(batch, -1, half, 2)
    steps = n.bit_length() - 1
    order = np.array([int(f"{at:0{steps}b}"[::-1], 2) for at in range(n)])
    result: Array = now.reshape(batch, n, 2)[:, order]
    return result


def _padded(array: Array, *, m: int = 0, n: int = 0, k: int = 0) -> Array:
    """Append zeros to reach the given sizes: ``m`` and ``k`` of A, or with ``n`` those of B (k, n)."""
    sizes = (k or array.shape[1], n) if n else (m or array.shape[1], k or array.shape[2])
    return np.pad(array, ((0, 0), *((0, size - have) for size, have in zip(sizes, array.shape[1:], strict=True))))


def _overlap_note(overlap: bool) -> str:
    return ", tiles overlapping" if overlap else ", tiles one by one"


def to_words(array: Array, lanes: int) -> Words:
    """Return the elements as words of ``lanes`` elements; the last word is padded with zeros."""
    words = math.ceil(array.size / lanes)
    full = np.zeros(words * lanes, array.dtype)
    full[: array.size] = array
    return full.view(np.uint8).reshape(words, lanes * array.dtype.itemsize)


def bits_equal(result: Array, expected: Array) -> bool:
    """Return whether all bits are equal. Any NaN equals any other NaN."""
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return False
    bits = f"uint{8 * result.dtype.itemsize}"
    equal = np.ascontiguousarray(result).view(bits) == np.ascontiguousarray(expected).view(bits)
    if result.dtype.kind != "i":
        equal |= np.isnan(result) & np.isnan(expected)
    return bool(np.all(equal))


WORKS: Mapping[str, Callable[[Columns, Build, np.random.Generator], Work]] = {
    "fft": fft,
    "gemm": gemm,
    "stencil": stencil,
    "vector_add": vector_add,
}
"""The registry's operations that have a design."""
