"""Plans of operations by kernels: what is allocated, launched and compared for one set of operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from windtunnel.backends.common import kernels
from windtunnel.core.columns import Columns, numbers_of
from windtunnel.core.ops import BYTES_PER_ELEMENT
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.interface import DeviceInfo, Dims
from windtunnel.runtime.kernels import Kernel

_DTYPES: Mapping[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "tf32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int8": np.dtype(np.int8),
}
_RANDOM = 1_000_003
"""Count of random numbers in an operand, which repeat. It is prime, so that rows and columns of a matrix differ."""
_TOLERANCE = {"float32": 2e-5, "tf32": 1e-3, "float16": 4e-3, "bfloat16": 3e-2}
"""Relative tolerance: some rounding errors of the type, and of sums in f32."""


@dataclass
class Step:
    """One launch of a trial on one set of operands."""

    kernel: Kernel
    grid: Dims
    block: Dims
    arguments: Sequence[Any]


@dataclass
class Plan:
    """What an operation allocates, launches and compares, for one set of operands."""

    arrays: Mapping[str, np.ndarray]
    """Operands by name, as the host makes them; results, too, as zeros."""
    steps: Callable[[Mapping[str, Buffer]], Sequence[Step]]
    result: Sequence[str]
    expected: Callable[[], Sequence[np.ndarray]]
    tolerance: float
    note: str


def _one_thread_each(elements: int) -> tuple[Dims, Dims]:
    """Return (grid, block) for one thread per element, as `kernels.element` numbers them."""
    blocks = -(-elements // kernels.THREADS)
    rows = -(-blocks // 65535)
    return (-(-blocks // rows), rows, 1), (kernels.THREADS, 1, 1)


def _random(rng: np.random.Generator, size: int, dtype: str) -> np.ndarray:
    """Return normally distributed numbers, like activations; small integers for ``int8``.

    Only the first `_RANDOM` are drawn and then repeated, because drawing takes longer than the measurement.
    """
    count = min(size, _RANDOM)
    if dtype == "int8":
        return np.resize(rng.integers(-60, 61, count, dtype=np.int8), size)
    return np.resize(rng.standard_normal(count, dtype=np.float32).astype(_DTYPES[dtype]), size)


def _vector_add(columns: Columns, _: DeviceInfo) -> Plan:
    n, dtype = int(columns["n"]), str(columns["dtype"])
    rng = np.random.default_rng(0)
    a, b = (_random(rng, n, dtype) for _ in range(2))
    return Plan(
        {"a": a, "b": b, "c": np.zeros(n, a.dtype)},
        lambda held: [Step(kernels.add, *_one_thread_each(n), (held["a"], held["b"], held["c"], n))],
        ("c",),
        lambda: [a + b],
        _TOLERANCE.get(dtype, 1e-9),
        f"a kernel of one thread per element, {dtype}",
    )


_BINARY: Mapping[str, Kernel] = {"add": kernels.add, "mul": kernels.mul, "div": kernels.div, "pow": kernels.power}
_UNARY: Mapping[str, Kernel] = {
    "addu": kernels.addu, "mulu": kernels.mulu, "divu": kernels.divu, "powu": kernels.powu, "relu": kernels.relu,
    "gelu": kernels.gelu, "tanh": kernels.tanh,
}  # fmt: skip
_ROWWISE: Mapping[str, Kernel] = {"softmax": kernels.softmax, "ln": kernels.layer_norm}
_POSITIVE = ("div", "pow", "powu")


def reference(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compute an elementwise operation in float64; ``softmax`` and ``ln`` along the last axis."""
    result: np.ndarray = _REFERENCES[op](a, b)
    return result


def _softmax(a: np.ndarray, _: np.ndarray) -> Any:
    e = np.exp(a - a.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _layer_norm(a: np.ndarray, _: np.ndarray) -> Any:
    return (a - a.mean(axis=-1, keepdims=True)) / np.sqrt(a.var(axis=-1, keepdims=True) + 1e-5)


_REFERENCES: Mapping[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pow": lambda a, b: a**b,
    "addu": lambda a, _: a + 1.5,
    "mulu": lambda a, _: a * 1.5,
    "divu": lambda a, _: a / 1.5,
    "powu": lambda a, _: a**1.5,
    "relu": lambda a, _: np.maximum(a, 0.0),
    "gelu": lambda a, _: 0.5 * a * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (a + 0.044715 * a**3))),
    "tanh": lambda a, _: np.tanh(a),
    "softmax": _softmax,
    "ln": _layer_norm,
}


def operands(op: str, rows: int, width: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return two operands of an elementwise operation, shape (rows, width); positive and moderate where necessary."""
    rng = np.random.default_rng(0)
    a, b = (_random(rng, rows * width, dtype) for _ in range(2))
    if op in _POSITIVE:
        a, b = (np.abs(x.astype(np.float32)).astype(x.dtype) + x.dtype.type(0.5) for x in (a, b))
    return a.reshape(rows, width), b.reshape(rows, width)


def _elementwise(columns: Columns, _: DeviceInfo) -> Plan:
    rows, width, dtype, op = int(columns["rows"]), int(columns["width"]), str(columns["dtype"]), str(columns["op"])
    a, b = operands(op, rows, width, dtype)
    arrays = {"a": a.reshape(-1), "out": np.zeros(rows * width, a.dtype)}
    if op in _BINARY:
        arrays["b"] = b.reshape(-1)
    count = rows * width

    def steps(held: Mapping[str, Buffer]) -> Sequence[Step]:
        if op in _ROWWISE:
            return [Step(_ROWWISE[op], (rows, 1, 1), (kernels.THREADS, 1, 1), (held["a"], held["out"], width))]
        if op in _BINARY:
            return [Step(_BINARY[op], *_one_thread_each(count), (held["a"], held["b"], held["out"], count))]
        return [Step(_UNARY[op], *_one_thread_each(count), (held["a"], held["out"], count))]

    def expected() -> Sequence[np.ndarray]:
        return [reference(op, a.astype(np.float64), b.astype(np.float64)).reshape(-1)]

    method = "one block per row" if op in _ROWWISE else "a kernel of one thread per element"
    return Plan(arrays, steps, ("out",), expected, _TOLERANCE[dtype], f"{method}, {dtype}")


def gemm_data(columns: Columns) -> tuple[dict[str, np.ndarray], Callable[[], Sequence[np.ndarray]], float]:
    """Return a GEMM's row-major ``a``, ``b``, ``c``, a function of the expected ``c`` (float64), and the tolerance."""
    m, n, k, batch = (int(columns[name]) for name in ("m", "n", "k", "batch"))
    dtype = str(columns["dtype"])
    rng = np.random.default_rng(0)
    a, b = _random(rng, batch * m * k, dtype), _random(rng, batch * k * n, dtype)
    integers = dtype == "int8"
    c = np.zeros(batch * m * n, np.int32 if integers else a.dtype)

    def expected() -> Sequence[np.ndarray]:
        wide = np.float64
        return [np.matmul(a.reshape(batch, m, k).astype(wide), b.reshape(batch, k, n).astype(wide)).reshape(-1)]

    # The error of a sum of products grows with the square root of their number.
    tolerance = _TOLERANCE.get(dtype, 1e-9) * (1.0 if integers else max(math.sqrt(k) / 16, 1.0))
    return {"a": a, "b": b, "c": c}, expected, tolerance


def _gemm(columns: Columns, info: DeviceInfo) -> Plan:
    m, n, k, batch = (int(columns[name]) for name in ("m", "n", "k", "batch"))
    dtype = str(columns["dtype"])
    arrays, expected, tolerance = gemm_data(columns)
    integers = dtype == "int8"
    grid = (-(-n // kernels.TILE), -(-m // kernels.TILE), batch)
    kernel = kernels.gemm_int8 if integers else kernels.gemm_unfused if info.kind == "cpu" else kernels.gemm
    return Plan(
        arrays,
        lambda held: [Step(kernel, grid, (kernels.SIDE, kernels.SIDE, 1), (held["a"], held["b"], held["c"], m, n, k))],
        ("c",),
        expected,
        tolerance,
        f"a kernel with tiles of {kernels.TILE} in shared memory and {kernels.EACH} x {kernels.EACH} elements per "
        f"thread, no vendor library; {dtype}, sums in {'i32' if integers else 'f32'}",
    )


def _stencil(columns: Columns, _: DeviceInfo) -> Plan:
    nx, ny, nz, dtype = int(columns["nx"]), int(columns["ny"]), int(columns["nz"]), str(columns["dtype"])
    a = _random(np.random.default_rng(0), nx * ny * nz, dtype)
    grid = (-(-nx // 64), -(-ny // 4), nz)

    def expected() -> Sequence[np.ndarray]:
        return [stencil_reference(a.reshape(nz, ny, nx).astype(np.float64)).reshape(-1)]

    return Plan(
        {"a": a, "out": np.zeros_like(a)},
        lambda held: [Step(kernels.stencil, grid, (64, 4, 1), (held["a"], held["out"], nx, ny, nz))],
        ("out",),
        expected,
        _TOLERANCE[dtype],
        f"a kernel of one thread per cell, {dtype}",
    )


def stencil_reference(a: np.ndarray) -> np.ndarray:
    """Return one sweep over ``a``, shape (planes, rows, cells), as `kernels.stencil` computes it."""
    wide = np.pad(a, 1, mode="edge")
    sides = wide[1:-1, 1:-1, :-2] + wide[1:-1, 1:-1, 2:] + wide[1:-1, :-2, 1:-1] + wide[1:-1, 2:, 1:-1]
    if a.shape[0] > 1:
        sides = sides + wide[:-2, 1:-1, 1:-1] + wide[2:, 1:-1, 1:-1]
    result: np.ndarray = 0.5 * a + 0.0625 * sides
    return result


def fft_data(columns: Columns) -> tuple[dict[str, np.ndarray], Callable[[], Sequence[np.ndarray]], float]:
    """Return an FFT's ``x``, ``y`` (interleaved complex), a function of the expected ``y``, and the tolerance."""
    n, batch, dtype = int(columns["n"]), int(columns["batch"]), str(columns["dtype"])
    x = _random(np.random.default_rng(0), 2 * n * batch, dtype)

    def expected() -> Sequence[np.ndarray]:
        parts = x.astype(np.float64).reshape(batch, n, 2)
        exact = np.fft.fft(parts[..., 0] + 1j * parts[..., 1], axis=-1)
        return [np.stack([exact.real, exact.imag], axis=-1).reshape(-1)]

    return {"x": x, "y": np.zeros_like(x)}, expected, _TOLERANCE[dtype]


def _fft(columns: Columns, _: DeviceInfo) -> Plan:
    n, batch = int(columns["n"]), int(columns["batch"])
    rng = np.random.default_rng(0)
    real, imaginary = (_random(rng, n * batch, "float32") for _ in range(2))
    angle = 2.0 * np.pi * np.arange(max(n // 2, 1)) / n
    empty = np.zeros(n * batch, np.float32)
    passes = n.bit_length() - 1
    count = n * batch // 2
    arrays = {
        "real": real, "imaginary": imaginary, "odd_real": empty, "odd_imaginary": empty, "even_real": empty,
        "even_imaginary": empty,
        "cosine": np.cos(angle).astype(np.float32), "sine": np.sin(angle).astype(np.float32),
    }  # fmt: skip
    odd, even = ("odd_real", "odd_imaginary"), ("even_real", "even_imaginary")

    def steps(held: Mapping[str, Buffer]) -> Sequence[Step]:
        launches = []
        for number in range(passes):
            source, target = (even, odd) if number % 2 == 0 else (odd, even)
            source = source if number else ("real", "imaginary")
            names = (*source, *target, "cosine", "sine")
            numbers = (n, 1 << number, count)
            launches.append(
                Step(kernels.fft_pass, *_one_thread_each(count), (*(held[name] for name in names), *numbers))
            )
        return launches

    def expected() -> Sequence[np.ndarray]:
        exact = np.fft.fft((real + 1j * imaginary.astype(np.complex128)).reshape(batch, n), axis=-1).reshape(-1)
        return [exact.real, exact.imag]

    return Plan(
        arrays,
        steps,
        odd if passes % 2 else even,
        expected,
        _TOLERANCE["float32"],
        f"{passes} launches of a radix-2 pass through device memory, no vendor library",
    )


PLANS: Mapping[str, Callable[[Columns, DeviceInfo], Plan]] = {
    "vector_add": _vector_add,
    "elementwise": _elementwise,
    "gemm": _gemm,
    "stencil": _stencil,
    "fft": _fft,
}
DTYPES: Mapping[str, Sequence[str]] = {
    "vector_add": ("float32", "float16", "bfloat16", "int8"),
    "elementwise": ("float32", "float16", "bfloat16"),
    "gemm": ("float32", "float16", "bfloat16", "int8"),
    "stencil": ("float32", "float16", "bfloat16"),
    "fft": ("float32",),
}
"""Data types that there are kernels for."""


def operand_bytes(op: str, columns: Columns) -> float:
    """Return the size (bytes) of one set of operands of an operation that has a plan."""
    n, each = numbers_of(columns), BYTES_PER_ELEMENT[str(columns.get("dtype", "float32"))]
    match op:
        case "vector_add":
            return each * 3.0 * n["n"]
        case "elementwise":
            return each * (3.0 if columns["op"] in _BINARY else 2.0) * n["rows"] * n["width"]
        case "gemm":
            return n["batch"] * (each * (n["m"] * n["k"] + n["k"] * n["n"]) + 4.0 * n["m"] * n["n"])
        case "stencil":
            return each * 2.0 * n["nx"] * n["ny"] * n["nz"]
        case _:
            return 4.0 * (6.0 * n["n"] * n["batch"] + n["n"])
