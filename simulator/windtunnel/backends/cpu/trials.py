"""Operations on the host's processor: NumPy's BLAS and functions, SciPy's FFT, and loops on Numba's threads."""

from __future__ import annotations

import ctypes
import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from windtunnel.backends.common.backend import DetectedDevice
from windtunnel.backends.common.host_work import (
    HostDevice,
    HostTrial,
    Refusal,
    TrialFactory,
    cold_operands,
    host_info,
)
from windtunnel.backends.common.plans import PLANS, Plan, operand_bytes
from windtunnel.backends.common.trials import MAX_SETS, error_share
from windtunnel.core.columns import Columns
from windtunnel.core.errors import UnsupportedOperationError

Call = Callable[[Mapping[str, np.ndarray]], Any]
"""Executes the operation on one set of operands. Results are in the set, or returned as a tuple."""

_DTYPES = {"vector_add": ("float32", "int8")}


class _ArrayTrial(HostTrial):
    """An operation on NumPy arrays. A call has completed when it returns."""

    def __init__(self, op: str, device: HostDevice, columns: Columns) -> None:
        size = 2.0 * float(columns["bytes"]) if op == "copy" else operand_bytes(op, columns)
        count = cold_operands(size, 1, str(columns["cache"]), limit=MAX_SETS)
        sets = f"{count} set{'' if count == 1 else 's'} of operands"
        device.require_memory(count * size, sets)
        self._plan = _copy_plan(columns) if op == "copy" else PLANS[op](columns, device.info)
        self._call, method = _CALLS[op](device, columns, self._plan)
        super().__init__(device, f"{method}; {sets}, {count * size / 2**20:.3g} MiB")
        self._sets = [{name: array.copy() for name, array in self._plan.arrays.items()} for _ in range(count)]
        self._turn = 0

    def _run(self, count: int) -> float:
        total = 0.0
        for _ in range(count):
            operands = self._sets[self._turn % len(self._sets)]
            self._turn += 1
            began = time.perf_counter()
            self._call(operands)
            total += time.perf_counter() - began
        return total / count

    def _check(self) -> float:
        operands = self._sets[0]
        returned = self._call(operands)
        results = returned if isinstance(returned, tuple) else tuple(operands[name] for name in self._plan.result)
        pairs = zip(results, self._plan.expected(), strict=True)
        return max(error_share(result.reshape(-1), expected, self._plan.tolerance) for result, expected in pairs)

    def _close(self) -> None:
        self._sets = []


def _dtype_refusal(op: str, columns: Columns) -> Refusal:
    supported = _DTYPES.get(op, ("float32",))
    if columns["dtype"] in supported:
        return None
    return UnsupportedOperationError(
        f"processors support '{op}' in {' and '.join(supported)}, not in {columns['dtype']}"
    )


def _loop(op: str, device: HostDevice, columns: Columns, plan: Plan) -> tuple[Call, str]:
    """Vector addition, stencil and elementwise operations on all threads."""
    from windtunnel.backends.cpu import threads, vectors

    workers = device.info.compute_units
    functions: Mapping[str, Callable[..., None]] = {
        "pow": vectors.power, "powu": vectors.powu, "gelu": vectors.gelu, "tanh": vectors.tanh,
        "softmax": vectors.softmax, "ln": vectors.layer_norm,
    }  # fmt: skip
    function = functions.get(str(columns.get("op")))
    if function is not None:
        names = ("a", "b", "out") if "b" in plan.arrays else ("a", "out")
        sides = (int(columns["width"]),) if columns["op"] in ("softmax", "ln") else ()
        note = f"NumPy's functions, {device.versions['numpy']}, {workers} threads"
        return lambda operands: function(*(operands[name] for name in names), *sides, workers), note
    loops: Mapping[str, Callable[..., None]] = {
        "add": threads.add, "mul": threads.mul, "div": threads.div, "addu": threads.addu,
        "mulu": threads.mulu, "divu": threads.divu, "relu": threads.relu,
    }  # fmt: skip
    note = f"a loop compiled by Numba {device.versions['numba']}, {workers} threads"
    if op == "vector_add":
        return lambda operands: threads.add(operands["a"], operands["b"], operands["c"]), note
    if op == "stencil":
        cells = tuple(int(columns[name]) for name in ("nx", "ny", "nz"))
        return lambda operands: threads.stencil(operands["a"], operands["out"], *cells), note
    loop = loops[str(columns["op"])]
    if "b" in plan.arrays:
        return lambda operands: loop(operands["a"], operands["b"], operands["out"]), note
    return lambda operands: loop(operands["a"], operands["out"]), note


def _gemm(device: HostDevice, columns: Columns, _: Plan) -> tuple[Call, str]:
    m, n, k, batch = (int(columns[name]) for name in ("m", "n", "k", "batch"))

    def call(operands: Mapping[str, np.ndarray]) -> None:
        a, b = operands["a"].reshape(batch, m, k), operands["b"].reshape(batch, k, n)
        np.matmul(a, b, out=operands["c"].reshape(batch, m, n))

    return call, f"NumPy's matmul, {device.versions['blas']}"


def _fft(device: HostDevice, columns: Columns, _: Plan) -> tuple[Call, str]:
    import scipy.fft

    n, batch, workers = int(columns["n"]), int(columns["batch"]), device.info.compute_units
    # SciPy takes complex numbers, and a plan has real and imaginary parts: they are combined once for each set.
    combined: dict[int, np.ndarray] = {}

    def call(operands: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        points = combined.get(id(operands))
        if points is None:
            parts = operands["real"] + 1j * operands["imaginary"]
            points = combined[id(operands)] = parts.astype(np.complex64).reshape(batch, n)
        spectrum = scipy.fft.fft(points, axis=-1, workers=workers)
        return spectrum.real, spectrum.imag

    return call, f"scipy.fft {device.versions['scipy']}, {workers} workers"


def _copy_plan(columns: Columns) -> Plan:
    """Host and device share one memory, so a copy in any direction is a copy in the host's memory."""
    values = np.random.default_rng(0).integers(0, 256, int(columns["bytes"]), np.uint8)
    return Plan({"a": values, "out": np.zeros_like(values)}, lambda _: (), ("out",), lambda: [values], 1e-9, "")


def _copy(*_: Any) -> tuple[Call, str]:
    return lambda operands: np.copyto(operands["out"], operands["a"]), "numpy.copyto, one thread"


_LOOPS = ("vector_add", "elementwise", "stencil")
_CALLS: Mapping[str, Callable[[HostDevice, Columns, Plan], tuple[Call, str]]] = {
    **{op: partial(_loop, op) for op in _LOOPS}, "gemm": _gemm, "fft": _fft, "copy": _copy
}  # fmt: skip


class _EmptyTrial(HostTrial):
    """``count`` calls of an empty function, one after another."""

    def __init__(self, device: HostDevice, columns: Columns) -> None:
        super().__init__(device, "a call of an empty compiled function")
        self._calls = int(columns["count"])

    def _run(self, count: int) -> float:
        call, calls = ctypes.pythonapi.Py_GetVersion, self._calls
        began = time.perf_counter()
        for _ in range(count):
            for _ in range(calls):
                call()
        return (time.perf_counter() - began) / count

    def _check(self) -> float:
        return 0.0  # an empty call has no result

    def _close(self) -> None:
        """There is nothing to release."""


def _launch_refusal(columns: Columns) -> Refusal:
    if columns["mode"] == "stream":
        return None
    return UnsupportedOperationError("processors have no graphs and no persistent kernels", expected="mode=stream")


TRIALS = {
    **{op: TrialFactory(partial(_ArrayTrial, op), partial(_dtype_refusal, op)) for op in (*_LOOPS, "gemm", "fft")},
    "copy": TrialFactory(partial(_ArrayTrial, "copy")),
    "launch": TrialFactory(_EmptyTrial, _launch_refusal),
}


def operations(detected: DetectedDevice) -> HostDevice:
    """Open the host's processors for single operations."""
    import numba
    import scipy

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    versions = {
        "numpy": np.__version__,
        "blas": f"{blas.get('name')} {blas.get('version')}",
        "scipy": scipy.__version__,
        "numba": numba.__version__,
        "c++": shutil.which("g++") or "none",
    }
    return HostDevice(host_info(detected, frozenset({"threads", "unified"})), versions, TRIALS)
