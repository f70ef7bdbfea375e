"""Products and transforms by the vendor's libraries, which CuPy reaches: cuBLAS and cuFFT, hipBLAS and hipFFT.

Operands are the context's own buffers; what a transform needs beside them is, too, and what cuBLAS takes for itself is
not seen. cuBLAS has its matrices by columns. Rows that lie one after another are such a matrix, transposed: of
C = A B it is asked for C' = B' A', and all three are as they lie.

The math mode is set on a handle of our own, so that CuPy's is as it was; whether fp32 may be rounded to TF32 is said
with each product (`Way`). CuPy calls no cuBLAS while a stream is captured (its tests say so), and captures transforms.
So a transform's part of the device's time is that of a replayed graph, as a kernel's is; products are enqueued behind a
kernel that holds the stream until the last of them is there, so that none waits for Python.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from windtunnel.backends.common.host_work import NO_SUSTAINED
from windtunnel.backends.common.plans import product, transform
from windtunnel.backends.common.trials import KernelOperations, free_all, share_of
from windtunnel.backends.cuda.driver import CupyContext
from windtunnel.core.errors import (
    ApiCode,
    DeviceError,
    DeviceOutOfMemory,
    InvalidArgument,
    LaunchError,
    UnsupportedOperationError,
)
from windtunnel.core.ops import BYTES_PER_ELEMENT
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.trial import Timer

OPERATIONS = ("gemm", "fft")
_LIBRARY = {"gemm": ("cublas", "cuBLAS", "hipBLAS"), "fft": ("cufft", "cuFFT", "hipFFT")}
"""By operation: CuPy's module, and the library it is on NVIDIA's devices, and on AMD's."""
_CUDA_R_32I = 10
"""cudaDataType_t (library_types.h), of which CuPy has no name for this one."""
_MOST = 2**31 - 1
"""Of a size: CuPy gives the libraries 32-bit integers."""
_NO_LT = "float8 and float4 are cuBLASLt's, which CuPy does not reach"
_NOT_HERE: Mapping[str, str] = {"fp8": _NO_LT, "fp8_block": _NO_LT, "nvfp4": _NO_LT}
_NOT_BY_HIP = "CuPy's calls of hipBLAS know float32 and float16, and not {dtype}"
_KINDS: Mapping[str, type[DeviceError | UnsupportedOperationError]] = {
    "ALLOC_FAILED": DeviceOutOfMemory, "NOT_SUPPORTED": UnsupportedOperationError,
    "ARCH_MISMATCH": UnsupportedOperationError, "INVALID_SIZE": UnsupportedOperationError,
    "NOT_IMPLEMENTED": UnsupportedOperationError,
}  # fmt: skip
"""By the end of a status' name, which CUBLAS_STATUS_, HIPBLAS_STATUS_ and CUFFT_ have in common."""

HOLD = "windtunnel_hold"
SOURCE = """
// Nothing, for so many cycles of the multiprocessor's clock.
extern "C" __global__ void windtunnel_hold(long long cycles) {
    long long began = clock64();
    while (clock64() - began < cycles) {}
}
"""
_CYCLES_HZ = 2e9
"""About what such clocks run at. Where it is wrong a hold is longer or shorter than meant, which is found out."""
_AT_ONCE = 256
"""Calls behind one hold: fewer than a stream's queue takes (1,024) even where a call is several kernels."""
_FIRST_HOLD_S, _LONGEST_HOLD_S = 1e-3, 0.5
_HOLDS = 12
"""Times that calls are enqueued anew, behind a longer hold, where the one before was too short."""


@dataclass(frozen=True)
class Way:
    """How a type of numbers is multiplied: cudaDataType_t of operands and result, cublasComputeType_t, and in words."""

    operand: int
    result: int
    compute: int
    scale: Any
    """NumPy's type of alpha and beta, which goes with the compute type."""
    words: str


@dataclass
class Work:
    """An operation by a library. ``call`` enqueues it to CuPy's current stream, on a set of operands."""

    what: str
    arrays: Mapping[str, np.ndarray]
    call: Callable[[Mapping[str, Buffer]], None]
    result: str
    expected: Callable[[], Sequence[np.ndarray]]
    tolerance: float
    note: str
    captured: bool
    """Whether a stream that is captured takes it."""
    close: Callable[[], None] = lambda: None


class Libraries:
    """The libraries of one device, as far as they load. ``versions``: of those that do, by name."""

    def __init__(self, context: CupyContext) -> None:
        self.context, self.driver = context, context.driver
        self.hip = self.driver.target == "hip"
        self.versions: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        """By operation, in words, why its library is not used."""
        self.blas: Any = None
        self.fft: Any = None
        self._handle: int | None = None
        properties = self.driver.runtime.getDeviceProperties(self.driver.index)
        self.capability = (int(properties["major"]), int(properties["minor"]))
        self.kinds: tuple[type[Exception], ...] = ()
        """What the libraries raise."""
        self._hold: Any = None
        self._open: weakref.WeakSet[LibraryTrial] = weakref.WeakSet()
        self.driver.make_current()
        for op in OPERATIONS:
            self._load(op)

    def _load(self, op: str) -> None:
        module, *names = _LIBRARY[op]
        name = names[self.hip]
        try:
            library = getattr(self.driver.cupy.cuda, module)
        except (ImportError, AttributeError) as error:
            said = (str(error).splitlines() or [""])[0]
            package = "it comes with ROCm" if self.hip else f'pip install nvidia-{module}-cu12, or "windtunnel[cuda]"'
            self.missing[op] = f"{name}, which does '{op}' here, does not load ({said}): {package}"
            return
        self.kinds += (library.CUBLASError if op == "gemm" else library.CuFFTError,)
        try:
            number = self._blas_version(library) if op == "gemm" else library.getVersion()
        except (*self.kinds, self.driver.runtime.CUDARuntimeError) as error:
            self.missing[op] = f"{name}, which does '{op}' here, does not start: {error}"
            return
        self.versions[name] = str(number) if self.hip else _version(number, 10000 if op == "gemm" else 1000)
        if op == "gemm":
            self.blas = library
        else:
            self.fft = library

    def _blas_version(self, blas: Any) -> int:
        self._handle = blas.create()
        if not self.hip:  # hipBLAS has no math modes
            blas.setMathMode(self._handle, blas.CUBLAS_DEFAULT_MATH)
        return int(blas.getVersion(self._handle))

    def close(self) -> None:
        """Give back what the libraries hold, trials too: their plans come before the device. Again does nothing."""
        for trial in list(self._open):
            trial.close()
        handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(RuntimeError):  # of a device that failed for good nothing can be given back
                self.driver.make_current()
                self.driver.cupy.cuda.cublas.destroy(handle)

    @contextmanager
    def driving(self, operation: str) -> Iterator[None]:
        """What a library raises within is raised as a device error, or as a refusal where it is one."""
        try:
            with self.context.driving(operation):
                yield
        except self.kinds as error:
            name = str(error)
            number = getattr(error, "status", getattr(error, "result", None))
            ends = (kind for end, kind in _KINDS.items() if name.endswith(end))
            kind: Any = next(ends, LaunchError)
            if kind is UnsupportedOperationError:
                raise UnsupportedOperationError(f"{operation} on {self.context.info.name}: {name}") from error
            code = ApiCode(self.context.info.api, name, number)
            raise kind(name, operation=operation, device=self.context.info.name, code=code) from error

    # What is done, and what is not.

    def refusal(self, op: str, columns: Mapping[str, Any]) -> str | None:
        """See ``Operations``, for those of `OPERATIONS`."""
        if columns["clock"] == "sustained":
            return NO_SUSTAINED
        if columns["dispatch"] == "graph" and self.hip:
            return f"the API '{self.context.info.api}' has no graphs"
        if columns["dispatch"] == "graph" and op == "gemm":
            return "CuPy calls no cuBLAS while a stream is captured, so that no graph has one"
        if op in self.missing:
            return self.missing[op]
        beyond = [name for name, value in columns.items() if isinstance(value, float) and value > _MOST]
        if beyond:
            return f"{_LIBRARY[op][1 + self.hip]} through CuPy takes sizes up to {_MOST:,}: {', '.join(beyond)} is more"
        return self._no_product(columns) if op == "gemm" else self._no_transform(columns)

    def _no_product(self, columns: Mapping[str, Any]) -> str | None:
        dtype = str(columns["dtype"])
        if dtype in _NOT_HERE:
            return _NOT_HERE[dtype]
        if self.hip:
            return None if dtype in ("float32", "float16") else _NOT_BY_HIP.format(dtype=dtype)
        # On what has no such units, and where the environment forbids them, cuBLAS takes fp32 and says nothing.
        override = os.environ.get("NVIDIA_TF32_OVERRIDE", "")
        if dtype == "tf32" and self.capability < (8, 0):
            return f"TF32 is from compute capability 8.0 on; {self.context.info.name} has {_dotted(self.capability)}"
        if dtype == "tf32" and override == "0":
            return "NVIDIA_TF32_OVERRIDE=0 forbids TF32: cuBLAS would take fp32 in its place"
        if dtype == "float32" and override not in ("", "0"):
            return f"NVIDIA_TF32_OVERRIDE={override} lets cuBLAS round fp32 to TF32"
        if dtype == "float32" and os.environ.get("CUBLAS_EMULATE_SINGLE_PRECISION", "0") != "0":
            return "CUBLAS_EMULATE_SINGLE_PRECISION has cuBLAS put fp32 together from bfloat16"
        odd = [name for name in ("n", "k") if int(columns[name]) % 4]
        if dtype == "int8" and odd:
            return f"cuBLAS takes rows of int8 of whole words, 4 elements each: {', '.join(odd)} is no multiple of 4"
        return None

    def _no_transform(self, columns: Mapping[str, Any]) -> str | None:
        n, batch, half = int(columns["n"]), int(columns["batch"]), columns["dtype"] == "float16"
        if half and self.hip:
            return "hipFFT has no transforms in float16"
        if half and self.capability < (5, 3):
            has = _dotted(self.capability)
            return f"transforms in float16 are from compute capability 5.3 on; {self.context.info.name} has {has}"
        if half and n & (n - 1):
            return f"{n:,} points are no power of two, which transforms in float16 take"
        if n * batch > _MOST and not half:
            return f"{n * batch:,} points in all are more than the {_MOST:,} that cuFFT's plans through CuPy take"
        return None

    def trial(self, operations: KernelOperations, op: str, columns: Mapping[str, Any]) -> LibraryTrial:
        """An operation made ready, and done once: what the library refuses is refused here."""
        accelerator = operations.accelerator
        room = operations.room(op, _bytes(op, columns))
        work = self._product(columns) if op == "gemm" else self._transform(accelerator, columns)
        try:
            sets, said = operations.operands(work.arrays, columns, room)
        except BaseException:
            work.close()
            raise
        trial = LibraryTrial(self, accelerator, work, sets, str(columns["dispatch"]), f"{work.note}; {said}")
        self._open.add(trial)
        try:
            trial.enqueue(1)
            accelerator.synchronize()
        except BaseException:
            trial.close()
            raise
        return trial

    # Products.

    def _ways(self) -> Mapping[str, Way]:
        runtime, blas = self.driver.runtime, self.blas
        wide, half = runtime.CUDA_R_32F, runtime.CUDA_R_16F
        f4, i4 = np.dtype(np.float32), np.dtype(np.int32)
        if self.hip:  # CuPy passes on to hipBLAS what has cuBLAS 10's types for compute types
            return {
                "float32": Way(wide, wide, wide, f4, "float32, sums in float32"),
                "float16": Way(half, half, wide, f4, "float16, sums in float32"),
            }
        short, tiny = runtime.CUDA_R_16BF, runtime.CUDA_R_8I
        in_f32, in_tf32, in_i32 = blas.CUBLAS_COMPUTE_32F, blas.CUBLAS_COMPUTE_32F_FAST_TF32, blas.CUBLAS_COMPUTE_32I
        return {
            "float32": Way(wide, wide, in_f32, f4, "float32 without TF32"),
            "tf32": Way(wide, wide, in_tf32, f4, "float32 rounded to TF32, sums in float32"),
            "float16": Way(half, half, in_f32, f4, "float16, sums in float32"),
            "bfloat16": Way(short, short, in_f32, f4, "bfloat16, sums in float32"),
            "int8": Way(tiny, _CUDA_R_32I, in_i32, i4, "int8, sums and result in int32"),
        }

    def _product(self, columns: Mapping[str, Any]) -> Work:
        m, n, k, batch = (int(columns[name]) for name in ("m", "n", "k", "batch"))
        way, blas, handle = self._ways()[str(columns["dtype"])], self.blas, self._handle
        arrays, expected, near = product(columns)
        one, zero = np.ones(1, way.scale), np.zeros(1, way.scale)  # the host's: its pointer mode is the usual one
        plain, usual = blas.CUBLAS_OP_N, blas.CUBLAS_GEMM_DEFAULT

        def call(held: Mapping[str, Buffer]) -> None:
            a, b, c = (_address(held[name]) for name in "abc")
            alpha, beta = int(one.ctypes.data), int(zero.ctypes.data)
            if batch == 1:
                blas.gemmEx(
                    handle, plain, plain, n, m, k, alpha, b, way.operand, n, a, way.operand, k, beta,
                    c, way.result, n, way.compute, usual,
                )  # fmt: skip
            else:
                blas.gemmStridedBatchedEx(
                    handle, plain, plain, n, m, k, alpha, b, way.operand, n, k * n, a, way.operand, k, m * k, beta,
                    c, way.result, n, m * n, batch, way.compute, usual,
                )  # fmt: skip

        how = "gemmEx" if batch == 1 else "gemmStridedBatchedEx"
        note = f"{self._named('gemm')}, {how}: {way.words}"
        return Work("multiply", arrays, call, "c", expected, near, note, captured=False)

    # Transforms.

    def _transform(self, accelerator: Accelerator, columns: Mapping[str, Any]) -> Work:
        n, batch, half = int(columns["n"]), int(columns["batch"]), columns["dtype"] == "float16"
        cupy, fft, index = self.driver.cupy, self.fft, self.driver.index
        arrays, expected, near = transform(columns)
        areas: list[Buffer] = []

        def allocated(size: int) -> Any:
            """What CuPy takes for its own pool's: a plan's working memory, in a buffer like any other."""
            areas.append(accelerator.empty(max(int(size), 1), np.uint8))
            return _pointer(cupy, areas[-1], index)

        # CuPy holds an array of its own for memory of ours, by address.
        views: dict[int, Any] = {}

        def view(buffer: Buffer) -> Any:
            address = _address(buffer)
            if address not in views:
                kind, count = (np.float16, 2 * n * batch) if half else (np.complex64, n * batch)
                views[address] = cupy.ndarray((count,), kind, memptr=_pointer(cupy, buffer, index))
            return views[address]

        plans: list[Any] = []

        def close() -> None:
            plans.clear()  # destroys it: it is used no more, and then its memory is not
            views.clear()
            for area in areas:
                if not area.freed:
                    area.free()

        try:
            with self.driving("plan a transform"), cupy.cuda.using_allocator(allocated):
                self.driver.make_current()
                plans.append(
                    fft.XtPlanNd(
                        (n,), (n,), 1, n, "E", (n,), 1, n, "E", batch, "E", order="C", last_axis=-1, last_size=None
                    )
                    if half
                    else fft.Plan1d(n, fft.CUFFT_C2C, batch)
                )
        except BaseException:
            close()
            raise

        def call(held: Mapping[str, Buffer]) -> None:
            plans[0].fft(view(held["x"]), view(held["y"]), fft.CUFFT_FORWARD)

        kind = "complex float16" if half else "complex float32"
        note = f"{self._named('fft')}: {kind}, not in place, {sum(a.nbytes for a in areas):,} bytes of working memory"
        return Work("transform", arrays, call, "y", expected, near, note, not self.hip, close)

    def _named(self, op: str) -> str:
        name = _LIBRARY[op][1 + self.hip]
        return f"{name} {self.versions[name]}"

    # Holding a stream.

    def hold(self, seconds: float) -> None:
        """The default stream does nothing for about so long."""
        with self.driving("hold a stream"):
            self.driver.make_current()
            if self._hold is None:
                self._hold = self.driver.load(SOURCE, HOLD, ("-std=c++17",))
            cycles = (np.int64(seconds * _CYCLES_HZ),)
            self.driver.start(self._hold, (1, 1, 1), (1, 1, 1), cycles, self.context.default.native, 0)


@dataclass(eq=False)
class LibraryTrial:
    """An operation by a library; see ``runtime.trial.Trial``."""

    libraries: Libraries
    accelerator: Accelerator
    work: Work
    sets: Sequence[Mapping[str, Buffer]]
    dispatch: str
    note: str
    timer: Timer = "device"
    hold_s: float = _FIRST_HOLD_S
    _turn: int = 0
    _closed: bool = False
    _graphs: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.dispatch == "eager":
            self.timer = "host"

    def run(self, count: int = 1) -> float:
        """See ``Trial``."""
        if self._closed or self.accelerator.closed:
            raise self.accelerator.make_error(InvalidArgument, "run", "the trial was closed")
        if self.dispatch == "eager":
            self.accelerator.synchronize()
            began = time.perf_counter()
            self.enqueue(count)
            self.accelerator.synchronize()
            return (time.perf_counter() - began) / count
        if self.work.captured:
            return self._replay(count) / count
        parts = [min(_AT_ONCE, count - begin) for begin in range(0, count, _AT_ONCE)]
        return sum(self._behind_a_hold(part) for part in parts) / count

    def enqueue(self, count: int) -> None:
        """Give it to the context's default stream so often; nobody waits for it."""
        context, driver = self.libraries.context, self.libraries.driver
        queue = context.default
        with self.libraries.driving(self.work.what):
            driver.make_current()
            driver.follow(queue.native, context.after(queue))
            with queue.native:
                for _ in range(count):
                    self.work.call(self._next())

    def _behind_a_hold(self, count: int) -> float:
        """The device's time for so many, all enqueued before the first began."""
        driver = self.libraries.driver
        for _ in range(_HOLDS):
            self.accelerator.synchronize()
            first, last = self.libraries.context.event(), self.libraries.context.event()
            self.libraries.hold(self.hold_s)
            first.record()
            began = time.perf_counter()
            self.enqueue(count)
            last.record()
            with self.libraries.driving(self.work.what):
                late = driver.reached(first.mark)
            took_s = time.perf_counter() - began
            last.synchronize()
            if not late:
                return last.elapsed_s(first)
            self.hold_s = min(max(2 * self.hold_s, 1.5 * took_s), _LONGEST_HOLD_S)
        problem = f"{count} calls were not enqueued while the device was held for {self.hold_s:g} s"
        raise self.accelerator.make_error(LaunchError, self.work.what, problem)

    def _replay(self, count: int) -> float:
        """The device's time for a graph of so many."""
        driver, context = self.libraries.driver, self.libraries.context
        first, last = context.event(), context.event()
        if count not in self._graphs:
            self.accelerator.synchronize()
            with self.libraries.driving("capture a graph"):
                driver.make_current()
                self._graphs[count] = self._captured(count)
                self._graphs[count].launch(stream=context.default.native)  # it is made ready when first launched
        self.accelerator.synchronize()
        first.record()
        with self.libraries.driving("replay a graph"):
            driver.make_current()
            self._graphs[count].launch(stream=context.default.native)
        last.record()
        last.synchronize()
        return last.elapsed_s(first)

    def _captured(self, count: int) -> Any:
        origin = self.libraries.driver.queue(non_blocking=True)
        with origin:
            origin.begin_capture()
            try:
                for _ in range(count):
                    self.work.call(self._next())
            except BaseException:
                with suppress(RuntimeError):  # what went wrong is the news
                    origin.end_capture()
                raise
            return origin.end_capture()

    def _next(self) -> Mapping[str, Buffer]:
        held = self.sets[self._turn % len(self.sets)]
        self._turn += 1
        return held

    def check(self) -> float:
        """See ``Trial``: on the first set of operands, once more into a result that was emptied."""
        held = self.sets[0]
        held[self.work.result].copy_from(self.work.arrays[self.work.result])
        self._turn = 0
        self.enqueue(1)
        found = self.accelerator.to_host(held[self.work.result])
        return share_of(found, self.work.expected()[0], self.work.tolerance)

    def close(self) -> None:
        """See ``Trial``."""
        if not self._closed:
            self._closed = True
            self._graphs.clear()
            if not self.accelerator.closed and not self.libraries.context.broken:
                with suppress(DeviceError):
                    self.accelerator.synchronize()  # a plan that is destroyed has to have ended
            self.work.close()
            free_all(self.sets)


def _address(buffer: Buffer) -> int:
    memory: Any = buffer.memory
    return int(memory.handle.address)


def _pointer(cupy: Any, buffer: Buffer, index: int) -> Any:
    """A buffer's memory as CuPy's own arrays and plans take it; they hold it, and do not give it back."""
    memory: Any = cupy.cuda.UnownedMemory(_address(buffer), buffer.nbytes, buffer, index)
    return cupy.cuda.MemoryPointer(memory, 0)


def _bytes(op: str, columns: Mapping[str, Any]) -> float:
    """Of one set of operands, before it is made; of a transform with as much working memory as its result takes."""
    size = BYTES_PER_ELEMENT[str(columns["dtype"])]
    if op == "fft":
        return float(6.0 * size * columns["n"] * columns["batch"])
    m, n, k = (columns[name] for name in ("m", "n", "k"))
    out = 4.0 if columns["dtype"] == "int8" else size
    return float(columns["batch"] * (size * (m * k + k * n) + out * m * n))


def _version(number: int, major: int) -> str:
    """``12.9.1`` of 120901 (cublas_api.h, ``major`` 10000) and ``11.4.1`` of 11401 (cufft.h, 1000)."""
    rest = number % major
    return f"{number // major}.{rest // 100}.{rest % 100}"


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
