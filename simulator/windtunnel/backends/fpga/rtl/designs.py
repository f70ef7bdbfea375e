"""What each operation is as a design: operands as words, results read from words, and NumPy's answer in the same order.

Every reference is in the arithmetic of the design, one rounding after another in the design's order, so that results
are equal bit for bit or wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from windtunnel.backends.fpga.rtl.icarus import Design
from windtunnel.core.errors import InputError

if TYPE_CHECKING:
    from windtunnel.backends.fpga.rtl.icarus import Words

Columns = Mapping[str, Any]
Array = np.ndarray[Any, Any]

FLOATS: Mapping[str, tuple[Any, int, int]] = {
    "float32": (np.dtype(np.float32), 8, 23),
    "float16": (np.dtype(np.float16), 5, 10),
    "bfloat16": (np.dtype(ml_dtypes.bfloat16), 8, 7),
}
"""NumPy's type, bits of the exponent and of the fraction."""
ADD, MULTIPLY = 5, 4
"""Register stages of fp_add.v and fp_mul.v."""
CENTRE, SIDES = 0.25, 0.125
"""Coefficients of the stencil: exact in every type, so that only sums are rounded where they are."""
LOAD, ACT, FIRST, BEGIN, FINAL = 1, 2, 4, 8, 16
"""Flags of a word for gemm_ws.v."""
MOST_CELLS = 256
"""Rows and columns of an array: as many as the matrix units of TPUs have had."""
PASS_ROWS = 1024
"""Rows of A in a pass of gemm_ws.v at most: its sums below the array are so deep."""


@dataclass(frozen=True)
class Build:
    """What designs are built with: what a bitstream settles, and the clock that it closed at."""

    clock_hz: float = 300e6
    """Assumed: Vitis builds for 300 MHz by default. Nothing here is placed or routed."""
    port_bytes: int = 64
    """Elements that vector_add takes each cycle, in bytes of one operand: a 512-bit port."""
    stencil_bytes: int = 16
    """Cells that stencil takes each cycle."""
    rows: int = 16
    columns: int = 16
    """Of the array for int8."""
    float_rows: int = 4
    float_columns: int = 4
    """Of the array for floats."""
    dataflow: Mapping[str, str] = field(
        default_factory=lambda: {"int8": "output", **dict.fromkeys(FLOATS, "weight")}, hash=False
    )
    """``output`` or ``weight``: what stays in a cell. Sums of floats take five cycles, so those flow."""
    overlap: bool = True
    """Whether a tile begins before the one before has left the array."""

    def __post_init__(self) -> None:
        """InputError for what cannot be built."""
        if not (math.isfinite(self.clock_hz) and self.clock_hz > 0):
            raise InputError(f"clock_hz is {self.clock_hz}", expected="a frequency above 0 Hz")
        for name in ("port_bytes", "stencil_bytes"):
            if (value := getattr(self, name)) < 4 or value % 4:
                raise InputError(
                    f"{name} is {value}", expected="a multiple of 4, at least 4: whole elements of float32"
                )
        for name in ("rows", "columns", "float_rows", "float_columns"):
            if not 1 <= (value := getattr(self, name)) <= MOST_CELLS:
                raise InputError(f"{name} is {value}", expected=f"from 1 to {MOST_CELLS}")
        for dtype in ("int8", *FLOATS):
            flow = self.dataflow.get(dtype, "nothing")
            if flow not in ("output", "weight"):
                raise InputError(f"what stays in a cell for {dtype} is {flow}", expected="output or weight")
            if flow == "output" and dtype in FLOATS:
                raise InputError(
                    f"a cell that keeps its sum ends one each cycle, which a sum in {dtype} does not",
                    expected=f"dataflow weight for {dtype}",
                )


@dataclass(frozen=True)
class Work:
    """An operation's operands as words for a design, and what should come out."""

    design: Design
    words: Words
    out_words: int
    values: Callable[[Words], Array]
    """The result, from the words that came out."""
    reference: Callable[[], Array]
    """The same by NumPy."""
    note: str
    group: tuple[int, int] = (1, 1)
    """Words out that belong together, and how many starts of the pipeline make them: what an interval is counted in."""


def vector_add(columns: Columns, build: Build, rng: np.random.Generator) -> Work:
    """A sum, ``port_bytes`` of each operand a cycle."""
    n, dtype = int(columns["n"]), str(columns["dtype"])
    if dtype in FLOATS:
        kind, exponent, fraction = FLOATS[dtype]
        a, b = (rng.standard_normal(n).astype(kind) for _ in range(2))
    else:
        kind, exponent, fraction = np.dtype(np.int8), 0, 7
        a, b = (rng.integers(-128, 128, n, np.int8) for _ in range(2))
    return added(a, b, build.port_bytes // kind.itemsize, exponent, fraction)


def added(a: Array, b: Array, lanes: int, exponent: int, fraction: int) -> Work:
    """The sum of two arrays of one type, ``lanes`` elements a cycle; integers where there is no exponent."""
    size = a.dtype.itemsize
    parameters = {"LANES": lanes, "FLOAT": int(exponent > 0), "EXP": exponent, "MAN": fraction}
    design = Design("vector_add", parameters, 2 * lanes * size, lanes * size)
    words = np.concatenate([rows_of(a, lanes), rows_of(b, lanes)], axis=1)

    def reference() -> Array:
        with np.errstate(all="ignore"):
            total: Array = a + b
        return total

    return Work(
        design, words, len(words), lambda out: out.reshape(-1).view(a.dtype)[: a.size], reference, f"{lanes} lanes"
    )


def multiplied(a: Array, b: Array, lanes: int, kind: str, product: str) -> Work:
    """The product of two arrays of ``kind``, rounded to ``product``: for tests of fp_mul.v."""
    (_, exponent, fraction), (wide, wide_exponent, wide_fraction) = FLOATS[kind], FLOATS[product]
    parameters = {"LANES": lanes, "EXP": exponent, "MAN": fraction, "OEXP": wide_exponent, "OMAN": wide_fraction}
    design = Design("multiply", parameters, 2 * lanes * a.dtype.itemsize, lanes * wide.itemsize)
    words = np.concatenate([rows_of(a, lanes), rows_of(b, lanes)], axis=1)

    def reference() -> Array:
        with np.errstate(all="ignore"):
            found: Array = a.astype(wide) * b.astype(wide)
        return found

    return Work(
        design, words, len(words), lambda out: out.reshape(-1).view(wide)[: a.size], reference, f"{lanes} lanes"
    )


def stencil(columns: Columns, build: Build, rng: np.random.Generator) -> Work:
    """One sweep with zeros beyond the edges, through a shift register that holds two planes."""
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
    words = rows_of(padded.reshape(-1), lanes)
    return Work(
        Design("stencil", parameters, width, width),
        words,
        len(words),
        lambda out: out.reshape(-1).view(kind).reshape(padded.shape)[:, :, :nx],
        lambda: swept(grid),
        f"{lanes} lanes, zeros beyond the edges",
    )


def swept(grid: Array) -> Array:
    """One sweep by NumPy, each operation rounded to the grid's type, in the design's order."""
    edged = np.pad(grid, 1)
    west, east = edged[1:-1, 1:-1, :-2], edged[1:-1, 1:-1, 2:]
    north, south = edged[1:-1, :-2, 1:-1], edged[1:-1, 2:, 1:-1]
    above, below = edged[:-2, 1:-1, 1:-1], edged[2:, 1:-1, 1:-1]
    kind = grid.dtype.type
    found: Array = grid * kind(CENTRE) + (((west + east) + (north + south)) + (below + above)) * kind(SIDES)
    return found


def gemm(columns: Columns, build: Build, rng: np.random.Generator) -> Work:
    """C = A B on a systolic array: sums of int8 in 32-bit integers, of floats in float32."""
    dtype, m, n, k, batch = str(columns["dtype"]), *(int(columns[name]) for name in ("m", "n", "k", "batch"))
    if dtype == "int8":
        a, b = (rng.integers(-128, 128, (batch, *shape), np.int8) for shape in ((m, k), (k, n)))
        rows, across = build.rows, build.columns
    else:
        kind = FLOATS[dtype][0]
        a, b = (rng.standard_normal((batch, *shape)).astype(kind) for shape in ((m, k), (k, n)))
        rows, across = build.float_rows, build.float_columns
    arranged = output_stationary if build.dataflow[dtype] == "output" else weight_stationary
    return arranged(a, b, dtype, rows, across, overlap=build.overlap)


def output_stationary(a: Array, b: Array, _dtype: str, rows: int, columns: int, *, overlap: bool) -> Work:
    """Words for gemm_os.v: tiles of C one after another, a word for each k."""
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
        f"output-stationary array of {rows} x {columns}{_said(overlap)}",
        (rows, k),
    )


def weight_stationary(a: Array, b: Array, dtype: str, rows: int, columns: int, *, overlap: bool) -> Work:
    """Words for gemm_ws.v: for each tile of n all tiles of k, and through each of them all rows of A."""
    batch, m, k = a.shape
    n = b.shape[2]
    deep, right = math.ceil(k / rows), math.ceil(n / columns)
    a_, b_ = _padded(a, k=deep * rows), _padded(b, k=deep * rows, n=right * columns)
    size, stages = a.dtype.itemsize, ADD if dtype in FLOATS else 1
    width = (rows + columns) * size + 1
    passes = []  # (rows of A in each, its words)
    for item in range(batch):
        for tile in range(right):
            for at in range(0, m, PASS_ROWS):
                block = a_[item, at : at + PASS_ROWS]
                if deep > 1:  # a sum must be written before it is read for the next tile of k
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
    words = _merged(passes, rows, stages) if overlap else np.concatenate([part for pair in passes for part in pair])
    longest = max(sizes)
    parameters = {"ROWS": rows, "COLUMNS": columns, "OVERLAP": int(overlap), "DEPTH": 1 << (longest - 1).bit_length()}
    exponent, fraction = FLOATS[dtype][1:] if dtype in FLOATS else (0, 7)
    parameters |= {"FLOAT": int(dtype in FLOATS), "EXP": exponent, "MAN": fraction}
    sums = np.dtype(np.float32 if dtype in FLOATS else np.int32)

    def values(out: Words) -> Array:
        found = np.zeros((batch, m, right * columns), sums)
        lines, taken = out.reshape(-1).view(sums).reshape(-1, columns), 0
        for item in range(batch):
            for tile in range(right):
                for at in range(0, m, PASS_ROWS):
                    kept = min(PASS_ROWS, m - at)
                    place = found[item, at : at + kept, tile * columns : (tile + 1) * columns]
                    place[:] = lines[taken : taken + kept]
                    taken += kept if deep == 1 else max(kept, stages + 2)
        return found[:, :, :n]

    return Work(
        Design("gemm_ws", parameters, width, 4 * columns),
        words,
        sum(sizes),
        values,
        lambda: summed(a_, b_[:, :, :n], rows),
        f"weight-stationary array of {rows} x {columns}{_said(overlap)}",
        (longest, longest * deep),
    )


def _merged(passes: list[tuple[Words, Words]], rows: int, stages: int) -> Words:
    """Words in which the next tile's weights come beside rows of A, as late as they may or as early as they must.

    Row j of the array turns to its new weights j * stages cycles after the first row of A: its next may come then.
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


def summed(a: Array, b: Array, rows: int) -> Array:
    """A B as a weight-stationary array sums it: ``rows`` products one after another, then those sums one after another.

    In float32, a rounding after each product and each sum; in 32-bit integers, where no order matters.
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
    """Transforms of 2^STEPS points, two points a cycle, points i and i + n/2 in a word; in order once they are read."""
    n, batch = int(columns["n"]), int(columns["batch"])
    kind, exponent, fraction = FLOATS[str(columns["dtype"])]
    steps = n.bit_length() - 1
    points = rng.standard_normal((batch, n, 2)).astype(kind)
    words = np.ascontiguousarray(points.reshape(batch, 2, n // 2, 2).transpose(0, 2, 1, 3))
    width = 4 * kind.itemsize
    table = {"twiddle.hex": np.ascontiguousarray(twiddles(n, kind)).view(np.uint8)}
    order = np.array([int(f"{at:0{steps}b}"[::-1], 2) for at in range(n)])

    def values(out: Words) -> Array:
        found: Array = out.reshape(-1).view(kind).reshape(batch, n, 2)[:, order]
        return found

    return Work(
        Design("fft", {"STEPS": steps, "EXP": exponent, "MAN": fraction}, width, width, table),
        words.reshape(-1).view(np.uint8).reshape(-1, width),
        batch * n // 2,
        values,
        lambda: transformed(points),
        "radix 2, 2 points a cycle",
    )


def twiddles(n: int, kind: Any) -> Array:
    """exp(-2 pi i j / n) for j below n / 2: real and imaginary parts, rounded once."""
    angles = -2.0 * np.pi * np.arange(n // 2) / n
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(kind)


def transformed(points: Array) -> Array:
    """Transforms of (batch, n, 2) by NumPy, each operation rounded to the points' type, in the design's order."""
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
    found: Array = now.reshape(batch, n, 2)[:, order]
    return found


def _padded(array: Array, *, m: int = 0, n: int = 0, k: int = 0) -> Array:
    """Zeros at the ends: ``m`` and ``k`` are of A, ``n`` and ``k`` of B where both are given, as wanted."""
    wanted = (k or array.shape[1], n) if n else (m or array.shape[1], k or array.shape[2])
    return np.pad(array, ((0, 0), *((0, want - have) for want, have in zip(wanted, array.shape[1:], strict=True))))


def _said(overlap: bool) -> str:
    return ", tiles overlapping" if overlap else ", tiles one by one"


def rows_of(array: Array, lanes: int) -> Words:
    """Elements as words of ``lanes``, the last one filled up with zeros."""
    words = math.ceil(array.size / lanes)
    full = np.zeros(words * lanes, array.dtype)
    full[: array.size] = array
    return full.view(np.uint8).reshape(words, lanes * array.dtype.itemsize)


def same(found: Array, wanted: Array) -> bool:
    """Whether all bits are equal; one NaN is as good as another."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    bits = f"uint{8 * found.dtype.itemsize}"
    equal = np.ascontiguousarray(found).view(bits) == np.ascontiguousarray(wanted).view(bits)
    if found.dtype.kind != "i":
        equal |= np.isnan(found) & np.isnan(wanted)
    return bool(np.all(equal))


WORKS: Mapping[str, Callable[[Columns, Build, np.random.Generator], Work]] = {
    "fft": fft,
    "gemm": gemm,
    "stencil": stencil,
    "vector_add": vector_add,
}
"""Operations of the registry that have a design."""
