"""How operations are done by kernels: what is allocated, launched and compared, for one set of operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from windtunnel.backends.common import kernels
from windtunnel.core.ops import BYTES_PER_ELEMENT
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.interface import DeviceInfo, Dims

_DTYPES: Mapping[str, Any] = {
    "float32": np.dtype(np.float32),
    "tf32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int8": np.dtype(np.int8),
}
_DRAWN = 1_000_003
"""A prime, so that no row or column of a matrix is another."""
_NEAR = {"float32": 2e-5, "tf32": 1e-3, "float16": 4e-3, "bfloat16": 3e-2}
"""Relative error that is allowed: some rounding errors of the type, and of sums in f32."""


@dataclass
class Step:
    """One launch of a trial, on one set of operands."""

    kernel: Any
    grid: Dims
    block: Dims
    arguments: Sequence[Any]


@dataclass
class Plan:
    """How an operation is done: what is allocated for one set of operands, launched, and compared."""

    arrays: Mapping[str, np.ndarray]
    """Operands by name, as the host makes them; results too, as zeros."""
    steps: Callable[[Mapping[str, Buffer]], Sequence[Step]]
    result: Sequence[str]
    expected: Callable[[], Sequence[np.ndarray]]
    tolerance: float
    note: str


def _over(elements: int) -> tuple[Dims, Dims]:
    """(grid, block) of one thread an element, in rows of blocks: see ``_kernels.element``."""
    blocks = -(-elements // kernels.THREADS)
    rows = -(-blocks // 65535)
    return (-(-blocks // rows), rows, 1), (kernels.THREADS, 1, 1)


def _drawn(rng: np.random.Generator, size: int, dtype: str) -> np.ndarray:
    """Numbers as activations are: normal, of either sign; small integers for ``int8``.

    The first `_DRAWN` are drawn and come again: drawing takes longer than what is measured with them.
    """
    few = min(size, _DRAWN)
    if dtype == "int8":
        return np.resize(rng.integers(-60, 61, few, dtype=np.int8), size)
    return np.resize(rng.standard_normal(few, dtype=np.float32).astype(_DTYPES[dtype]), size)


def _vector_add(columns: Mapping[str, Any], _: DeviceInfo) -> Plan:
    n, dtype = int(columns["n"]), str(columns["dtype"])
    rng = np.random.default_rng(0)
    a, b = (_drawn(rng, n, dtype) for _ in range(2))
    return Plan(
        {"a": a, "b": b, "c": np.zeros(n, a.dtype)},
        lambda held: [Step(kernels.add, *_over(n), (held["a"], held["b"], held["c"], n))],
        ("c",),
        lambda: [a + b],
        _NEAR.get(dtype, 1e-9),
        f"a kernel of one thread an element, {dtype}",
    )


_OF_TWO: Mapping[str, Any] = {"add": kernels.add, "mul": kernels.mul, "div": kernels.div, "pow": kernels.power}
_OF_ONE: Mapping[str, Any] = {
    "addu": kernels.addu, "mulu": kernels.mulu, "divu": kernels.divu, "powu": kernels.powu, "relu": kernels.relu,
    "gelu": kernels.gelu, "tanh": kernels.tanh,
}  # fmt: skip
_OF_ROWS: Mapping[str, Any] = {"softmax": kernels.softmax, "ln": kernels.layer_norm}
_POSITIVE = ("div", "pow", "powu")


def reference(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """An elementwise operation in float64; ``softmax`` and ``ln`` along the last side."""
    found: np.ndarray = _REFERENCES[op](a, b)
    return found


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
    """Two operands of an elementwise operation; where it needs them, positive and of moderate size."""
    rng = np.random.default_rng(0)
    a, b = (_drawn(rng, rows * width, dtype) for _ in range(2))
    if op in _POSITIVE:
        a, b = (np.abs(x.astype(np.float32)).astype(x.dtype) + x.dtype.type(0.5) for x in (a, b))
    return a.reshape(rows, width), b.reshape(rows, width)


def _elementwise(columns: Mapping[str, Any], _: DeviceInfo) -> Plan:
    rows, width, dtype, op = int(columns["rows"]), int(columns["width"]), str(columns["dtype"]), str(columns["op"])
    a, b = operands(op, rows, width, dtype)
    arrays = {"a": a.reshape(-1), "out": np.zeros(rows * width, a.dtype)}
    if op in _OF_TWO:
        arrays["b"] = b.reshape(-1)

    def steps(held: Mapping[str, Buffer]) -> Sequence[Step]:
        if op in _OF_ROWS:
            return [Step(_OF_ROWS[op], (rows, 1, 1), (kernels.THREADS, 1, 1), (held["a"], held["out"], width))]
        if op in _OF_TWO:
            return [Step(_OF_TWO[op], *_over(rows * width), (held["a"], held["b"], held["out"], rows * width))]
        return [Step(_OF_ONE[op], *_over(rows * width), (held["a"], held["out"], rows * width))]

    def expected() -> Sequence[np.ndarray]:
        return [reference(op, a.astype(np.float64), b.astype(np.float64)).reshape(-1)]

    how = "a block a row" if op in _OF_ROWS else "a kernel of one thread an element"
    return Plan(arrays, steps, ("out",), expected, _NEAR[dtype], f"{how}, {dtype}")


def product(columns: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], Callable[[], Sequence[np.ndarray]], float]:
    """(operands of a product: ``a``, ``b``, ``c`` in rows; what ``c`` becomes, in float64; error that is allowed)."""
    m, n, k, batch = (int(columns[name]) for name in ("m", "n", "k", "batch"))
    dtype = str(columns["dtype"])
    rng = np.random.default_rng(0)
    a, b = _drawn(rng, batch * m * k, dtype), _drawn(rng, batch * k * n, dtype)
    whole = dtype == "int8"
    c = np.zeros(batch * m * n, np.int32 if whole else a.dtype)

    def expected() -> Sequence[np.ndarray]:
        wide = np.float64
        return [np.matmul(a.reshape(batch, m, k).astype(wide), b.reshape(batch, k, n).astype(wide)).reshape(-1)]

    # Sums of products err by the square root of how many there are.
    near = _NEAR.get(dtype, 1e-9) * (1.0 if whole else max(math.sqrt(k) / 16, 1.0))
    return {"a": a, "b": b, "c": c}, expected, near


def _gemm(columns: Mapping[str, Any], info: DeviceInfo) -> Plan:
    m, n, k, batch = (int(columns[name]) for name in ("m", "n", "k", "batch"))
    dtype = str(columns["dtype"])
    arrays, expected, near = product(columns)
    whole = dtype == "int8"
    grid = (-(-n // kernels.TILE), -(-m // kernels.TILE), batch)
    made = kernels.product_int8 if whole else kernels.product_apart if info.kind == "cpu" else kernels.product
    return Plan(
        arrays,
        lambda held: [
            Step(made, grid, (kernels.SIDE, kernels.SIDE, 1), (held["a"], held["b"], held["c"], m, n, k)),
        ],
        ("c",),
        expected,
        near,
        f"a kernel with tiles of {kernels.TILE} in shared memory and {kernels.EACH} x {kernels.EACH} elements a "
        f"thread, no vendor's library; {dtype}, sums in {'i32' if whole else 'f32'}",
    )


def _stencil(columns: Mapping[str, Any], _: DeviceInfo) -> Plan:
    nx, ny, nz, dtype = int(columns["nx"]), int(columns["ny"]), int(columns["nz"]), str(columns["dtype"])
    a = _drawn(np.random.default_rng(0), nx * ny * nz, dtype)
    grid = (-(-nx // 64), -(-ny // 4), nz)

    def expected() -> Sequence[np.ndarray]:
        return [swept(a.reshape(nz, ny, nx).astype(np.float64)).reshape(-1)]

    return Plan(
        {"a": a, "out": np.zeros_like(a)},
        lambda held: [Step(kernels.stencil, grid, (64, 4, 1), (held["a"], held["out"], nx, ny, nz))],
        ("out",),
        expected,
        _NEAR[dtype],
        f"a kernel of one thread a cell, {dtype}",
    )


def swept(a: np.ndarray) -> np.ndarray:
    """One sweep over ``a`` (planes, rows, cells), as ``_kernels.stencil`` does it."""
    wide = np.pad(a, 1, mode="edge")
    sides = wide[1:-1, 1:-1, :-2] + wide[1:-1, 1:-1, 2:] + wide[1:-1, :-2, 1:-1] + wide[1:-1, 2:, 1:-1]
    if a.shape[0] > 1:
        sides = sides + wide[:-2, 1:-1, 1:-1] + wide[2:, 1:-1, 1:-1]
    found: np.ndarray = 0.5 * a + 0.0625 * sides
    return found


def transform(columns: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], Callable[[], Sequence[np.ndarray]], float]:
    """(operands of a transform: ``x``, ``y``, real and imaginary parts by turns; what ``y`` becomes; error allowed)."""
    n, batch, dtype = int(columns["n"]), int(columns["batch"]), str(columns["dtype"])
    x = _drawn(np.random.default_rng(0), 2 * n * batch, dtype)

    def expected() -> Sequence[np.ndarray]:
        parts = x.astype(np.float64).reshape(batch, n, 2)
        exact = np.fft.fft(parts[..., 0] + 1j * parts[..., 1], axis=-1)
        return [np.stack([exact.real, exact.imag], axis=-1).reshape(-1)]

    return {"x": x, "y": np.zeros_like(x)}, expected, _NEAR[dtype]


def _fft(columns: Mapping[str, Any], _: DeviceInfo) -> Plan:
    n, batch = int(columns["n"]), int(columns["batch"])
    rng = np.random.default_rng(0)
    real, imaginary = (_drawn(rng, n * batch, "float32") for _ in range(2))
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
        found = []
        for number in range(passes):
            source, target = (even, odd) if number % 2 == 0 else (odd, even)
            source = source if number else ("real", "imaginary")
            names = (*source, *target, "cosine", "sine")
            numbers = (n, 1 << number, count)
            found.append(Step(kernels.transform, *_over(count), (*(held[name] for name in names), *numbers)))
        return found

    def expected() -> Sequence[np.ndarray]:
        exact = np.fft.fft((real + 1j * imaginary.astype(np.complex128)).reshape(batch, n), axis=-1).reshape(-1)
        return [exact.real, exact.imag]

    return Plan(
        arrays,
        steps,
        odd if passes % 2 else even,
        expected,
        _NEAR["float32"],
        f"{passes} launches of a radix-2 pass through the device's memory, no vendor's library",
    )


PLANS: Mapping[str, Callable[[Mapping[str, Any], DeviceInfo], Plan]] = {
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
"""Types of numbers that there are kernels for."""


def _held(columns: Mapping[str, Any], elements: float) -> float:
    return elements * BYTES_PER_ELEMENT[str(columns.get("dtype", "float32"))]


BYTES: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    "vector_add": lambda c: _held(c, 3.0 * c["n"]),
    "elementwise": lambda c: _held(c, (3.0 if c["op"] in _OF_TWO else 2.0) * c["rows"] * c["width"]),
    "gemm": lambda c: _held(c, c["batch"] * (c["m"] * c["k"] + c["k"] * c["n"])) + 4.0 * c["batch"] * c["m"] * c["n"],
    "stencil": lambda c: _held(c, 2.0 * c["nx"] * c["ny"] * c["nz"]),
    "fft": lambda c: 4.0 * (6.0 * c["n"] * c["batch"] + c["n"]),
}
"""Of one set of operands, before it is made."""
