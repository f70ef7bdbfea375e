"""The host's own processors: NumPy, its BLAS, SciPy's transforms, and loops on Numba's threads. The API is ``native``.

As a device for programs its memory is the host's and every call is done when it returns, so streams and events are
kept, and nothing overlaps. Kernels of whole arrays run as the Python they are; kernels of threads are emitted as C++,
which the system's compiler compiles, and one thread of the processor runs all of a kernel's.
"""

from __future__ import annotations

import ctypes
import math
import platform
import shutil
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.backends._context import RealContext, RealFunction, RealStream
from windtunnel.backends._hostwork import device_error, memory_bytes, only_one, processor_name, processors
from windtunnel.backends._known import Found, RealBackend
from windtunnel.backends._plans import BYTES, PLANS, Plan
from windtunnel.backends._trials import beyond_caches, share_of
from windtunnel.core.errors import (
    DeviceError,
    DeviceOutOfMemory,
    InvalidArgument,
    LaunchError,
    UnsupportedOperationError,
)
from windtunnel.core.ops import OPERATIONS
from windtunnel.runtime.codes import code_of
from windtunnel.runtime.interface import DeviceInfo, Dims, MemoryKind
from windtunnel.runtime.limits import limits_of
from windtunnel.runtime.trial import Timer, Trial
from windtunnel.transpile import Buffer as ArrayArgument
from windtunnel.transpile import Emitted

_MOST_SETS = 256
_SHARE = 0.4
"""Of the memory that is free, that a trial takes at most."""


def available_bytes() -> float:
    """Memory that programs may still have, as Linux says; else half of what is installed."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024.0
    except OSError:
        pass
    return 0.5 * memory_bytes()


def _versions() -> dict[str, str]:
    import numba
    import scipy

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    compiler = shutil.which("g++")
    return {
        "numpy": np.__version__,
        "blas": f"{blas.get('name')} {blas.get('version')}",
        "scipy": scipy.__version__,
        "numba": numba.__version__,
        "c++": compiler or "none",
    }


def _find() -> Sequence[Found]:
    memory = memory_bytes()
    return [Found("cpu", 0, processor_name(), "cpu", True, f"NumPy {np.__version__}", "native", _vendor(), memory)]


def _vendor() -> str:
    name = processor_name().lower()
    return next((one for one in ("AMD", "Intel", "Apple", "Ampere") if one.lower() in name), platform.machine())


def _info(index: int) -> DeviceInfo:
    only_one("cpu", index)
    found = _find()[0]
    return DeviceInfo(
        name=found.label,
        kind="cpu",
        api="native",
        memory_bytes=memory_bytes(),
        limits=limits_of("native"),
        features=frozenset({"threads", "unified"}),
        virtual=False,
        software=True,
        compute_units=processors(),
        driver=found.driver,
    )


class HostDriver:
    """The host as a device: see ``_context.Driver``. A mark is the time at which it was made."""

    timed = False
    target = "fpga"
    """C++ that runs a kernel's threads one after another, from barrier to barrier: for synthesis, and for this."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.built = 0

    def allocate(self, size: int, kind: MemoryKind) -> Any:
        """See ``Driver``. Pages that nobody has touched take no memory yet: what is not free is refused here."""
        if size > available_bytes():
            raise MemoryError(f"{available_bytes():,.0f} bytes of the host's memory are free")
        return np.zeros(size, np.uint8)

    def free(self, memory: Any) -> None:
        """See ``Driver``: whoever holds it still sees it."""

    def write(self, memory: Any, data: np.ndarray, queue: None, after: Sequence[int], *, hold: bool) -> int:
        """See ``Driver``."""
        memory[: data.size] = data
        return time.perf_counter_ns()

    def read(self, data: np.ndarray, memory: Any, queue: None, after: Sequence[int], *, hold: bool) -> int:
        """See ``Driver``."""
        data[...] = memory[: data.size]
        return time.perf_counter_ns()

    def copy(self, to: Any, memory: Any, size: int, queue: None, after: Sequence[int]) -> int:
        """See ``Driver``."""
        to[:size] = memory[:size]
        return time.perf_counter_ns()

    def build(self, emitted: Emitted) -> Any:
        """See ``Driver``. DeviceError where there is no compiler, and where it finds fault with the kernel."""
        compiler = shutil.which("g++")
        if compiler is None:
            raise LookupError("kernels of threads need a C++ compiler (g++) to run on processors: install one")
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="windtunnel-"))
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.built += 1
        source = self.folder / f"kernel{self.built}.cpp"
        source.write_text(emitted.source, encoding="utf-8")
        library = source.with_suffix(".so")
        options = ["-std=c++17", "-O2", "-march=native", "-w", "-shared", "-fPIC", *emitted.options]
        command = [compiler, *options, str(source), "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603
        if done.returncode:
            raise LookupError(f"the compiler refused the kernel: {done.stderr.strip()[:2000]}")
        return getattr(ctypes.CDLL(str(library)), emitted.signature.name)

    def launch(
        self,
        kernel: Any,
        emitted: Emitted,
        grid: Dims,
        block: Dims,
        values: Sequence[Any],
        queue: None,
        after: Sequence[int],
    ) -> int:
        """See ``Driver``."""
        given = []
        for one, value in zip(emitted.signature.arguments, values, strict=True):
            if isinstance(one, ArrayArgument):
                given.append(ctypes.c_void_p(value.ctypes.data))
            else:
                given.append(np.ctypeslib.as_ctypes_type(value.dtype)(value.item()))
        kernel(*given)
        return time.perf_counter_ns()

    def queue(self, *, non_blocking: bool) -> None:
        """See ``Driver``: every call is done when it returns."""

    def mark(self, queue: None, after: Sequence[int]) -> int:
        """See ``Driver``."""
        return time.perf_counter_ns()

    def reached(self, mark: int) -> bool:
        """See ``Driver``."""
        return True

    def wait(self, mark: int) -> None:
        """See ``Driver``."""

    def finish(self, queue: None) -> None:
        """See ``Driver``."""

    def elapsed_s(self, mark: int, since: int) -> float:
        """See ``Driver``."""
        return (mark - since) * 1e-9

    def busy_s(self, mark: int) -> float | None:
        """Marks do not know when their work began."""
        return None

    def host_view(self, memory: Any, size: int) -> np.ndarray:
        """See ``Driver``: all memory is the host's."""
        found: np.ndarray = memory[:size]
        return found

    def problem(self, error: Exception) -> tuple[type[DeviceError] | None, str] | None:
        """See ``Driver``."""
        if isinstance(error, MemoryError):
            return DeviceOutOfMemory, str(error)
        return (LaunchError, str(error)) if isinstance(error, (LookupError, subprocess.TimeoutExpired)) else None

    def close(self) -> None:
        """See ``Driver``: all that it holds goes with it."""

    def energy_j(self) -> float | None:
        """The counters that processors have are not readable without privileges."""
        return None


class HostContext(RealContext[Any, Any]):
    """The host's processors, opened."""

    def launch(
        self,
        function: RealFunction,
        grid: Dims,
        block: Dims,
        arguments: Sequence[Any],
        stream: RealStream[Any, Any] | None,
        shared: int,
    ) -> None:
        """See ``Context``. A kernel of whole arrays is called on them."""
        if function.texts is not None:
            super().launch(function, grid, block, arguments, stream, shared)
            return
        self.stream_of(stream)
        function.kernel(*(self.array(argument) for argument in arguments))

    def array(self, argument: Any) -> Any:
        """A buffer as NumPy has it; numbers as they are."""
        if not hasattr(argument, "memory"):
            return argument
        data: np.ndarray = argument.memory.handle
        return data[: argument.nbytes].view(argument.dtype).reshape(argument.shape)


def context(index: int) -> HostContext:
    """The host's processors, opened for a program."""
    info = _info(index)
    return HostContext(HostDriver(), info)


# Operations.


class HostTrial:
    """An operation on arrays of the host's; see ``runtime.trial.Trial``. A call is done when it returns."""

    timer: Timer = "host"

    def __init__(
        self, call: Callable[[Mapping[str, np.ndarray]], Any], plan: Plan, sets: int, note: str, info: DeviceInfo
    ) -> None:
        self.call, self.plan, self.note, self.info = call, plan, note, info
        self.sets = [{name: array.copy() for name, array in plan.arrays.items()} for _ in range(sets)]
        self._turn = 0

    def run(self, count: int = 1) -> float:
        """See ``Trial``."""
        if not self.sets:
            raise device_error(InvalidArgument, "the trial was closed", operation="run", device=self.info.name)
        total = 0.0
        for _ in range(count):
            held = self.sets[self._turn % len(self.sets)]
            self._turn += 1
            began = time.perf_counter()
            self.call(held)
            total += time.perf_counter() - began
        return total / count

    def check(self) -> float:
        """See ``Trial``."""
        held = self.sets[0]
        given = self.call(held)
        found = given if isinstance(given, tuple) else tuple(held[name] for name in self.plan.result)
        pairs = zip(found, self.plan.expected(), strict=True)
        return max(share_of(one.reshape(-1), other, self.plan.tolerance) for one, other in pairs)

    def close(self) -> None:
        """See ``Trial``."""
        self.sets = []


_DTYPES = {"vector_add": ("float32", "int8")}
_ARRAYS = ("vector_add", "elementwise", "stencil", "gemm", "fft")


class HostOperations:
    """The host's processors as a device that does operations."""

    def __init__(self, index: int) -> None:
        self.info, self.versions = _info(index), _versions()
        self._closed = False

    def refusal(self, op: str, columns: Mapping[str, Any]) -> str | None:
        """See ``Operations``."""
        OPERATIONS.find(op)
        if op not in (*_ARRAYS, "copy", "launch"):
            listed = ", ".join(sorted((*_ARRAYS, "copy", "launch")))
            return f"'{op}' is not done with NumPy and Numba here; these are: {listed}"
        if columns["clock"] == "sustained":
            return "a sustained clock is what a long run shows at a power cap: it is not asked for a run at a time"
        if columns["dispatch"] != "device":
            return "a call on a processor has no dispatch beside itself: ask for dispatch=device"
        if op == "launch" and columns["mode"] != "stream":
            return "processors have no graphs here, and no kernel that stays"
        dtype = str(columns.get("dtype", "float32"))
        known = _DTYPES.get(op, ("float32",))
        if op in _ARRAYS and dtype not in known:
            return f"processors do '{op}' in {' and '.join(known)} here, and not in {dtype}"
        return None

    def trial(self, op: str, columns: Mapping[str, Any]) -> Trial:
        """See ``Operations``."""
        refused = self.refusal(op, columns)
        if refused is not None:
            raise UnsupportedOperationError(refused)
        if self._closed:
            code = code_of("native", InvalidArgument)
            raise InvalidArgument(
                "the device was closed", operation=f"make '{op}' ready", device=self.info.name, code=code
            )
        if op == "launch":
            return _EmptyTrial(int(columns["count"]), self.info)
        room = _SHARE * available_bytes()
        least = 2.0 * float(columns["bytes"]) if op == "copy" else BYTES[op](columns)
        if least > room:
            problem = f"operands of {least:,.0f} bytes; a trial takes at most {room:,.0f} here"
            raise device_error(DeviceOutOfMemory, problem, operation=f"make '{op}' ready", device=self.info.name)
        plan, call, note = _copying(columns) if op == "copy" else self._planned(op, columns)
        size = sum(array.nbytes for array in plan.arrays.values())
        count = 1
        if columns["cache"] == "cold":
            count = int(max(min(-(-beyond_caches(self.info) // size), _MOST_SETS, room // size), 1))
        note = f"{note}; {count} set{'' if count == 1 else 's'} of operands, {count * size / 2**20:.3g} MiB"
        return HostTrial(call, plan, count, note, self.info)

    def _planned(self, op: str, columns: Mapping[str, Any]) -> tuple[Plan, Callable[..., Any], str]:
        plan = PLANS[op](columns, self.info)
        if op == "gemm":
            return plan, _product(columns), f"NumPy's matmul, {self.versions['blas']}"
        if op == "fft":
            return plan, _transform(columns), f"scipy.fft {self.versions['scipy']}, {self.info.compute_units} workers"
        from windtunnel.backends import _threads, _vectors

        workers = self.info.compute_units
        functions: Mapping[str, Callable[..., None]] = {
            "pow": _vectors.power, "powu": _vectors.powu, "gelu": _vectors.gelu, "tanh": _vectors.tanh,
            "softmax": _vectors.softmax, "ln": _vectors.layer_norm,
        }  # fmt: skip
        made = functions.get(str(columns.get("op")))
        if made is not None:
            names = ("a", "b", "out") if "b" in plan.arrays else ("a", "out")
            sides = (int(columns["width"]),) if columns["op"] in ("softmax", "ln") else ()
            note = f"NumPy's functions, {self.versions['numpy']}, {workers} threads"
            return plan, lambda held: made(*(held[name] for name in names), *sides, workers), note
        calls: Mapping[str, Any] = {
            "add": _threads.add, "mul": _threads.mul, "div": _threads.div, "addu": _threads.addu,
            "mulu": _threads.mulu, "divu": _threads.divu, "relu": _threads.relu,
        }  # fmt: skip
        note = f"a loop of Numba's {self.versions['numba']}, {self.info.compute_units} threads"
        if op == "vector_add":
            return plan, lambda held: _threads.add(held["a"], held["b"], held["c"]), note
        if op == "stencil":
            cells = tuple(int(columns[name]) for name in ("nx", "ny", "nz"))
            return plan, lambda held: _threads.stencil(held["a"], held["out"], *cells), note
        loop = calls[str(columns["op"])]
        if "b" in plan.arrays:
            return plan, lambda held: loop(held["a"], held["b"], held["out"]), note
        return plan, lambda held: loop(held["a"], held["out"]), note

    def energy_j(self) -> float | None:
        """See ``Operations``: no counter is readable without privileges."""
        return None

    def close(self) -> None:
        """See ``Operations``."""
        self._closed = True


def _product(columns: Mapping[str, Any]) -> Callable[[Mapping[str, np.ndarray]], Any]:
    m, n, k, batch = (int(columns[name]) for name in ("m", "n", "k", "batch"))

    def call(held: Mapping[str, np.ndarray]) -> None:
        np.matmul(held["a"].reshape(batch, m, k), held["b"].reshape(batch, k, n), out=held["c"].reshape(batch, m, n))

    return call


def _transform(columns: Mapping[str, Any]) -> Callable[[Mapping[str, np.ndarray]], Any]:
    import scipy.fft

    n, batch, workers = int(columns["n"]), int(columns["batch"]), processors()
    # SciPy takes complex numbers; they are made once, for a plan keeps their parts apart.
    made: dict[int, np.ndarray] = {}

    def call(held: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        points = made.get(id(held))
        if points is None:
            points = made[id(held)] = (held["real"] + 1j * held["imaginary"]).astype(np.complex64).reshape(batch, n)
        found = scipy.fft.fft(points, axis=-1, workers=workers)
        return found.real, found.imag

    return call


def _copying(columns: Mapping[str, Any]) -> tuple[Plan, Callable[..., Any], str]:
    """Host and device are one: a copy in any direction is one of the host's."""
    values = np.random.default_rng(0).integers(0, 256, int(columns["bytes"]), np.uint8)
    plan = Plan(
        {"a": values, "out": np.zeros_like(values)},
        lambda _: (),
        ("out",),
        lambda: [values],
        1e-9,
        "",
    )
    return plan, lambda held: np.copyto(held["out"], held["a"]), "numpy.copyto, one thread"


class _EmptyTrial:
    """``count`` calls that do nothing, one after another."""

    timer: Timer = "host"
    note = "a call of an empty compiled function"

    def __init__(self, many: int, info: DeviceInfo) -> None:
        self.many, self.info, self._ran, self._closed = many, info, 0, False
        self._call = ctypes.pythonapi.Py_GetVersion

    def run(self, count: int = 1) -> float:
        """See ``Trial``."""
        if self._closed:
            raise device_error(InvalidArgument, "the trial was closed", operation="run", device=self.info.name)
        call, many = self._call, self.many
        began = time.perf_counter()
        for _ in range(count):
            for _ in range(many):
                call()
        self._ran += 1
        return (time.perf_counter() - began) / count

    def check(self) -> float:
        """An empty call has no numbers."""
        return 0.0 if self._ran else math.inf

    def close(self) -> None:
        """See ``Trial``."""
        self._closed = True


BACKEND = RealBackend(
    name="cpu",
    reaches="the host's processors",
    install="nothing; kernels of threads need a C++ compiler (g++)",
    find=_find,
    operations=HostOperations,
    context=context,
)
