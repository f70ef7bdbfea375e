"""What the host's own processors do: NumPy's BLAS and functions, SciPy's transforms, and loops on Numba's threads."""

from __future__ import annotations

import ctypes
import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from windtunnel.backends.common.backend import Found
from windtunnel.backends.common.host_work import Columns, HostDevice, HostTrial, Job, Refused, cold_operands, host_info
from windtunnel.backends.common.plans import BYTES, PLANS, Plan
from windtunnel.backends.common.trials import MOST_SETS, share_of
from windtunnel.core.errors import UnsupportedOperationError

Call = Callable[[Mapping[str, np.ndarray]], Any]
"""The work on one set of operands. Results are in it, or what the call gives (a tuple)."""

_DTYPES = {"vector_add": ("float32", "int8")}


class _ArrayTrial(HostTrial):
    """An operation on arrays of the host's. A call is done when it returns."""

    def __init__(self, op: str, device: HostDevice, columns: Columns) -> None:
        size = 2.0 * float(columns["bytes"]) if op == "copy" else BYTES[op](columns)
        count = cold_operands(size, 1, str(columns["cache"]), most=MOST_SETS)
        sets = f"{count} set{'' if count == 1 else 's'} of operands"
        device.require_memory(count * size, sets)
        self._plan = _copied(columns) if op == "copy" else PLANS[op](columns, device.info)
        self._call, how = _WORK[op](device, columns, self._plan)
        super().__init__(device, f"{how}; {sets}, {count * size / 2**20:.3g} MiB")
        self._sets = [{name: array.copy() for name, array in self._plan.arrays.items()} for _ in range(count)]
        self._turn = 0

    def _run(self, count: int) -> float:
        total = 0.0
        for _ in range(count):
            held = self._sets[self._turn % len(self._sets)]
            self._turn += 1
            began = time.perf_counter()
            self._call(held)
            total += time.perf_counter() - began
        return total / count

    def _check(self) -> float:
        held = self._sets[0]
        given = self._call(held)
        found = given if isinstance(given, tuple) else tuple(held[name] for name in self._plan.result)
        pairs = zip(found, self._plan.expected(), strict=True)
        return max(share_of(one.reshape(-1), other, self._plan.tolerance) for one, other in pairs)

    def _close(self) -> None:
        self._sets = []


def _narrow(op: str, columns: Columns) -> Refused:
    known = _DTYPES.get(op, ("float32",))
    if columns["dtype"] in known:
        return None
    return UnsupportedOperationError(
        f"processors do '{op}' in {' and '.join(known)} here, and not in {columns['dtype']}"
    )


def _looped(op: str, device: HostDevice, columns: Columns, plan: Plan) -> tuple[Call, str]:
    """Vector addition, stencil and elementwise operations, on all threads."""
    from windtunnel.backends.cpu import threads as _threads
    from windtunnel.backends.cpu import vectors as _vectors

    workers = device.info.compute_units
    functions: Mapping[str, Callable[..., None]] = {
        "pow": _vectors.power, "powu": _vectors.powu, "gelu": _vectors.gelu, "tanh": _vectors.tanh,
        "softmax": _vectors.softmax, "ln": _vectors.layer_norm,
    }  # fmt: skip
    made = functions.get(str(columns.get("op")))
    if made is not None:
        names = ("a", "b", "out") if "b" in plan.arrays else ("a", "out")
        sides = (int(columns["width"]),) if columns["op"] in ("softmax", "ln") else ()
        note = f"NumPy's functions, {device.versions['numpy']}, {workers} threads"
        return lambda held: made(*(held[name] for name in names), *sides, workers), note
    calls: Mapping[str, Any] = {
        "add": _threads.add, "mul": _threads.mul, "div": _threads.div, "addu": _threads.addu,
        "mulu": _threads.mulu, "divu": _threads.divu, "relu": _threads.relu,
    }  # fmt: skip
    note = f"a loop of Numba's {device.versions['numba']}, {workers} threads"
    if op == "vector_add":
        return lambda held: _threads.add(held["a"], held["b"], held["c"]), note
    if op == "stencil":
        cells = tuple(int(columns[name]) for name in ("nx", "ny", "nz"))
        return lambda held: _threads.stencil(held["a"], held["out"], *cells), note
    loop = calls[str(columns["op"])]
    if "b" in plan.arrays:
        return lambda held: loop(held["a"], held["b"], held["out"]), note
    return lambda held: loop(held["a"], held["out"]), note


def _product(device: HostDevice, columns: Columns, _: Plan) -> tuple[Call, str]:
    m, n, k, batch = (int(columns[name]) for name in ("m", "n", "k", "batch"))

    def call(held: Mapping[str, np.ndarray]) -> None:
        np.matmul(held["a"].reshape(batch, m, k), held["b"].reshape(batch, k, n), out=held["c"].reshape(batch, m, n))

    return call, f"NumPy's matmul, {device.versions['blas']}"


def _transform(device: HostDevice, columns: Columns, _: Plan) -> tuple[Call, str]:
    import scipy.fft

    n, batch, workers = int(columns["n"]), int(columns["batch"]), device.info.compute_units
    # SciPy takes complex numbers; they are made once, for a plan keeps their parts apart.
    made: dict[int, np.ndarray] = {}

    def call(held: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        points = made.get(id(held))
        if points is None:
            points = made[id(held)] = (held["real"] + 1j * held["imaginary"]).astype(np.complex64).reshape(batch, n)
        found = scipy.fft.fft(points, axis=-1, workers=workers)
        return found.real, found.imag

    return call, f"scipy.fft {device.versions['scipy']}, {workers} workers"


def _copied(columns: Columns) -> Plan:
    """Host and device are one: a copy in any direction is one of the host's."""
    values = np.random.default_rng(0).integers(0, 256, int(columns["bytes"]), np.uint8)
    return Plan({"a": values, "out": np.zeros_like(values)}, lambda _: (), ("out",), lambda: [values], 1e-9, "")


def _copy(*_: Any) -> tuple[Call, str]:
    return lambda held: np.copyto(held["out"], held["a"]), "numpy.copyto, one thread"


_LOOPS = ("vector_add", "elementwise", "stencil")
_WORK: Mapping[str, Callable[[HostDevice, Columns, Plan], tuple[Call, str]]] = {
    **{op: partial(_looped, op) for op in _LOOPS}, "gemm": _product, "fft": _transform, "copy": _copy
}  # fmt: skip


class _EmptyTrial(HostTrial):
    """``count`` calls that do nothing, one after another."""

    def __init__(self, device: HostDevice, columns: Columns) -> None:
        super().__init__(device, "a call of an empty compiled function")
        self._many = int(columns["count"])

    def _run(self, count: int) -> float:
        call, many = ctypes.pythonapi.Py_GetVersion, self._many
        began = time.perf_counter()
        for _ in range(count):
            for _ in range(many):
                call()
        return (time.perf_counter() - began) / count

    def _check(self) -> float:
        return 0.0  # an empty call has no numbers

    def _close(self) -> None:
        """It holds nothing."""


def _stays(columns: Columns) -> Refused:
    if columns["mode"] == "stream":
        return None
    return UnsupportedOperationError("processors have no graphs here, and no kernel that stays", expected="mode=stream")


JOBS = {
    **{op: Job(partial(_ArrayTrial, op), partial(_narrow, op)) for op in (*_LOOPS, "gemm", "fft")},
    "copy": Job(partial(_ArrayTrial, "copy")),
    "launch": Job(_EmptyTrial, _stays),
}


def operations(found: Found) -> HostDevice:
    """The host's processors, as a device that does operations."""
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
    return HostDevice(host_info(found, frozenset({"threads", "unified"})), versions, JOBS)
