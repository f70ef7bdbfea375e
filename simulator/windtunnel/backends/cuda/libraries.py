"""GEMM and FFT by the vendor's libraries through CuPy: cuBLAS and cuFFT, hipBLAS and hipFFT.

Operands are the context's own buffers, and so is a transform's working memory; what cuBLAS allocates for itself is not
visible. cuBLAS stores matrices by columns. A matrix stored by rows is the transpose of one stored by columns, so
C = A B is computed as C' = B' A' without moving any data. For int8, B is stored by columns.

The math mode is set on a separate cuBLAS handle, so that CuPy's own handle does not change. Each call states whether
fp32 may be rounded to TF32 (`LibraryCall`). CuPy does not call cuBLAS while a stream is captured, but it captures
transforms. The device time of a transform is therefore that of a replayed graph, as for kernels. Matrix products and
graphs are enqueued behind a kernel that blocks the stream (`hold`), so that none waits for Python.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from windtunnel.backends.common.host_work import NO_SUSTAINED
from windtunnel.backends.common.plans import fft_data, gemm_data
from windtunnel.backends.common.trials import KernelOperations, error_share, free_all, parts_of
from windtunnel.backends.cuda.context import CupyContext
from windtunnel.backends.cuda.hold import Hold
from windtunnel.core.columns import Columns, numbers_of
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
"""By operation: CuPy's module, and the name of the library on NVIDIA's and on AMD's devices."""
_CUDA_R_32I = 10
"""cudaDataType_t (library_types.h). CuPy has no name for this value."""
_MAX_SIZE = 2**31 - 1
"""CuPy passes sizes to the libraries as 32-bit integers."""
_NO_LT = "float8 and float4 require cuBLASLt, which CuPy does not call"
_UNSUPPORTED: Mapping[str, str] = {"fp8": _NO_LT, "fp8_block": _NO_LT, "nvfp4": _NO_LT}
_UNSUPPORTED_BY_HIP = "CuPy's calls of hipBLAS support float32 and float16, not {dtype}"
_KINDS: Mapping[str, type[DeviceError | UnsupportedOperationError]] = {
    "ALLOC_FAILED": DeviceOutOfMemory, "NOT_SUPPORTED": UnsupportedOperationError,
    "ARCH_MISMATCH": UnsupportedOperationError, "INVALID_SIZE": UnsupportedOperationError,
    "NOT_IMPLEMENTED": UnsupportedOperationError,
}  # fmt: skip
"""By the end of a status name, after CUBLAS_STATUS_, HIPBLAS_STATUS_ or CUFFT_."""

_MAX_BEHIND_HOLD = 256
"""Calls behind one hold: fewer than a stream's queue takes (1,024), even if a call launches several kernels."""
_FIRST_HOLD_S = 1e-3


@dataclass(frozen=True)
class LibraryCall:
    """Types of a GEMM: cudaDataType_t of operands and result, cublasComputeType_t, and a description."""

    operand: int
    result: int
    compute: int
    scale: Any
    """NumPy type of alpha and beta, which depends on the compute type."""
    description: str
    b_by_columns: bool = False
    """Whether ``b`` is stored by columns, as int8 requires: cuBLAS 13.1 on an H200 multiplies int8 matrices stored by
    rows for some sizes only (128 x 128 x 128, not 100 x 100 x 100), and 12 times slower (4096 x 4096 x 4096)."""


@dataclass
class Work:
    """An operation of a library. ``call`` enqueues it in CuPy's current stream, on a set of operands."""

    what: str
    arrays: Mapping[str, np.ndarray]
    call: Callable[[Mapping[str, Buffer]], None]
    result: str
    expected: Callable[[], Sequence[np.ndarray]]
    tolerance: float
    note: str
    captured: bool
    """Whether it can be captured in a graph."""
    close: Callable[[], None] = lambda: None


class Libraries:
    """The libraries of one device. ``versions`` has those that load, by name."""

    def __init__(self, context: CupyContext) -> None:
        self.context, self.driver = context, context.driver
        self.hip = self.driver.target == "hip"
        self.versions: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        """By operation, why its library cannot be used."""
        self.blas: Any = None
        self.fft: Any = None
        self._handle: int | None = None
        properties = self.driver.runtime.getDeviceProperties(self.driver.index)
        self.capability = (int(properties["major"]), int(properties["minor"]))
        self.kinds: tuple[type[Exception], ...] = ()
        """Exceptions of the libraries."""
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
            reason = (str(error).splitlines() or [""])[0]
            package = "it comes with ROCm" if self.hip else f'pip install nvidia-{module}-cu12, or "windtunnel[cuda]"'
            self.missing[op] = f"'{op}' requires {name}, which does not load ({reason}): {package}"
            return
        self.kinds += (library.CUBLASError if op == "gemm" else library.CuFFTError,)
        try:
            number = self._blas_version(library) if op == "gemm" else library.getVersion()
        except (*self.kinds, self.driver.runtime.CUDARuntimeError) as error:
            self.missing[op] = f"'{op}' requires {name}, which does not start: {error}"
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
        """Close all trials and the libraries. Plans must be destroyed before the device. Closing again does nothing."""
        for trial in list(self._open):
            trial.close()
        handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(RuntimeError):  # a device after a sticky error cannot free anything
                self.driver.make_current()
                self.driver.cupy.cuda.cublas.destroy(handle)

    @contextmanager
    def driving(self, operation: str) -> Iterator[None]:
        """Raise a library's exceptions as device errors, or as UnsupportedOperationError."""
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

    # Refusals.

    def refusal(self, op: str, columns: Columns) -> str | None:
        """Return why an operation of `OPERATIONS` is not supported with these columns, or None."""
        if columns["clock"] == "sustained":
            return NO_SUSTAINED
        if columns["dispatch"] == "graph" and self.hip:
            return f"the API '{self.context.info.api}' does not support graphs"
        if columns["dispatch"] == "graph" and op == "gemm":
            return "CuPy does not call cuBLAS while a stream is captured, so a GEMM cannot be part of a graph"
        if op in self.missing:
            return self.missing[op]
        too_large = [name for name, value in columns.items() if isinstance(value, float) and value > _MAX_SIZE]
        if too_large:
            library = _LIBRARY[op][1 + self.hip]
            return f"{library} through CuPy supports sizes up to {_MAX_SIZE:,}; too large: {', '.join(too_large)}"
        return self._gemm_refusal(columns) if op == "gemm" else self._fft_refusal(columns)

    def _gemm_refusal(self, columns: Columns) -> str | None:
        dtype = str(columns["dtype"])
        if dtype in _UNSUPPORTED:
            return _UNSUPPORTED[dtype]
        if self.hip:
            return None if dtype in ("float32", "float16") else _UNSUPPORTED_BY_HIP.format(dtype=dtype)
        # Without TF32 units, or if the environment forbids them, cuBLAS computes in fp32 and reports nothing.
        override = os.environ.get("NVIDIA_TF32_OVERRIDE", "")
        if dtype == "tf32" and self.capability < (8, 0):
            return f"TF32 requires compute capability 8.0; {self.context.info.name} has {_dotted(self.capability)}"
        if dtype == "tf32" and override == "0":
            return "NVIDIA_TF32_OVERRIDE=0 forbids TF32: cuBLAS would compute in fp32 instead"
        if dtype == "float32" and override not in ("", "0"):
            return f"NVIDIA_TF32_OVERRIDE={override} permits cuBLAS to round fp32 to TF32"
        if dtype == "float32" and os.environ.get("CUBLAS_EMULATE_SINGLE_PRECISION", "0") != "0":
            return "CUBLAS_EMULATE_SINGLE_PRECISION makes cuBLAS emulate fp32 with bfloat16"
        odd = [name for name in ("n", "k") if int(columns[name]) % 4]
        if dtype == "int8" and odd:
            return f"cuBLAS requires int8 rows of a multiple of 4 elements; not so for {', '.join(odd)}"
        return None

    def _fft_refusal(self, columns: Columns) -> str | None:
        n, batch, half = int(columns["n"]), int(columns["batch"]), columns["dtype"] == "float16"
        if half and self.hip:
            return "hipFFT does not support float16"
        if half and self.capability < (5, 3):
            capability = _dotted(self.capability)
            return f"FFT in float16 requires compute capability 5.3; {self.context.info.name} has {capability}"
        if half and n & (n - 1):
            return f"FFT in float16 requires a power of two, not {n:,} points"
        if n * batch > _MAX_SIZE and not half:
            return f"cuFFT's plans through CuPy support {_MAX_SIZE:,} points in total, not {n * batch:,}"
        return None

    def trial(self, operations: KernelOperations, op: str, columns: Columns) -> LibraryTrial:
        """Prepare an operation and execute it once, so that what the library rejects is reported here."""
        accelerator = operations.accelerator
        available = operations.available_bytes(op, _bytes(op, columns))
        work = self._gemm(columns) if op == "gemm" else self._fft(accelerator, columns)
        try:
            sets, note = operations.operands(work.arrays, columns, available)
        except BaseException:
            work.close()
            raise
        trial = LibraryTrial(self, accelerator, work, sets, str(columns["dispatch"]), f"{work.note}; {note}")
        self._open.add(trial)
        try:
            trial.enqueue(1)
            accelerator.synchronize()
        except BaseException:
            trial.close()
            raise
        return trial

    # GEMM.

    def _calls(self) -> Mapping[str, LibraryCall]:
        runtime, blas = self.driver.runtime, self.blas
        single, half = runtime.CUDA_R_32F, runtime.CUDA_R_16F
        f4, i4 = np.dtype(np.float32), np.dtype(np.int32)
        if self.hip:  # CuPy passes cuBLAS 10's types to hipBLAS as compute types
            return {
                "float32": LibraryCall(single, single, single, f4, "float32, sums in float32"),
                "float16": LibraryCall(half, half, single, f4, "float16, sums in float32"),
            }
        short, tiny = runtime.CUDA_R_16BF, runtime.CUDA_R_8I
        in_f32, in_tf32, in_i32 = blas.CUBLAS_COMPUTE_32F, blas.CUBLAS_COMPUTE_32F_FAST_TF32, blas.CUBLAS_COMPUTE_32I
        return {
            "float32": LibraryCall(single, single, in_f32, f4, "float32 without TF32"),
            "tf32": LibraryCall(single, single, in_tf32, f4, "float32 rounded to TF32, sums in float32"),
            "float16": LibraryCall(half, half, in_f32, f4, "float16, sums in float32"),
            "bfloat16": LibraryCall(short, short, in_f32, f4, "bfloat16, sums in float32"),
            "int8": LibraryCall(
                tiny, _CUDA_R_32I, in_i32, i4, "int8, sums and result in int32, b by columns", b_by_columns=True
            ),
        }

    def _gemm(self, columns: Columns) -> Work:
        m, n, k, batch = (int(columns[name]) for name in ("m", "n", "k", "batch"))
        types, blas, handle = self._calls()[str(columns["dtype"])], self.blas, self._handle
        arrays, expected, tolerance = gemm_data(columns)
        unit, zero = np.ones(1, types.scale), np.zeros(1, types.scale)  # in host memory: the default pointer mode
        plain, default = blas.CUBLAS_OP_N, blas.CUBLAS_GEMM_DEFAULT
        turned, ldb = plain, n
        if types.b_by_columns:
            turned, ldb = blas.CUBLAS_OP_T, k
            arrays["b"] = np.ascontiguousarray(arrays["b"].reshape(batch, k, n).transpose(0, 2, 1)).reshape(-1)

        def call(operands: Mapping[str, Buffer]) -> None:
            a, b, c = (_address(operands[name]) for name in "abc")
            alpha, beta = int(unit.ctypes.data), int(zero.ctypes.data)
            if batch == 1:
                blas.gemmEx(
                    handle, turned, plain, n, m, k, alpha, b, types.operand, ldb, a, types.operand, k, beta,
                    c, types.result, n, types.compute, default,
                )  # fmt: skip
            else:
                blas.gemmStridedBatchedEx(
                    handle, turned, plain, n, m, k, alpha, b, types.operand, ldb, k * n, a, types.operand, k, m * k,
                    beta, c, types.result, n, m * n, batch, types.compute, default,
                )  # fmt: skip

        function = "gemmEx" if batch == 1 else "gemmStridedBatchedEx"
        note = f"{self._label('gemm')}, {function}: {types.description}"
        return Work("multiply", arrays, call, "c", expected, tolerance, note, captured=False)

    # FFT.

    def _fft(self, accelerator: Accelerator, columns: Columns) -> Work:
        n, batch, half = int(columns["n"]), int(columns["batch"]), columns["dtype"] == "float16"
        cupy, fft, index = self.driver.cupy, self.fft, self.driver.index
        arrays, expected, tolerance = fft_data(columns)
        areas: list[Buffer] = []

        def allocate(size: int) -> Any:
            """Allocate a plan's working memory as an ordinary buffer, in place of CuPy's pool."""
            areas.append(accelerator.empty(max(int(size), 1), np.uint8))
            return _pointer(cupy, areas[-1], index)

        # CuPy arrays over Windtunnel's buffers, by address.
        views: dict[int, Any] = {}

        def view(buffer: Buffer) -> Any:
            address = _address(buffer)
            if address not in views:
                kind, count = (np.float16, 2 * n * batch) if half else (np.complex64, n * batch)
                views[address] = cupy.ndarray((count,), kind, memptr=_pointer(cupy, buffer, index))
            return views[address]

        plans: list[Any] = []

        def close() -> None:
            plans.clear()  # destroys the plan, which must be done before its memory is freed
            views.clear()
            for area in areas:
                if not area.freed:
                    area.free()

        try:
            with self.driving("plan a transform"), cupy.cuda.using_allocator(allocate):
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

        def call(operands: Mapping[str, Buffer]) -> None:
            plans[0].fft(view(operands["x"]), view(operands["y"]), fft.CUFFT_FORWARD)

        kind = "complex float16" if half else "complex float32"
        working = sum(area.nbytes for area in areas)
        note = f"{self._label('fft')}: {kind}, out of place, {working:,} bytes of working memory"
        return Work("transform", arrays, call, "y", expected, tolerance, note, not self.hip, close)

    def _label(self, op: str) -> str:
        name = _LIBRARY[op][1 + self.hip]
        return f"{name} {self.versions[name]}"


@dataclass(eq=False)
class LibraryTrial:
    """An operation of a library. Implements `runtime.trial.Trial`."""

    libraries: Libraries
    accelerator: Accelerator
    work: Work
    sets: Sequence[Mapping[str, Buffer]]
    dispatch: str
    note: str
    timer: Timer = "device"
    _turn: int = 0
    _closed: bool = False
    _graphs: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hold = Hold(self.libraries.context, _FIRST_HOLD_S)
        if self.dispatch == "eager":
            self.timer = "host"

    def run(self, count: int = 1) -> float:
        """Run the operation ``count`` times; return the mean seconds of one."""
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
        parts = [min(_MAX_BEHIND_HOLD, count - begin) for begin in range(0, count, _MAX_BEHIND_HOLD)]
        return sum(self.hold.time_s(partial(self.enqueue, part), self.work.what) for part in parts) / count

    def enqueue(self, count: int) -> None:
        """Enqueue the operation ``count`` times in the context's default stream."""
        context, driver = self.libraries.context, self.libraries.driver
        queue = context.default
        with self.libraries.driving(self.work.what):
            driver.make_current()
            driver.follow(queue.native, context.after(queue))
            with queue.native:
                for _ in range(count):
                    self.work.call(self._next())

    def _replay(self, count: int) -> float:
        """Return the device time of ``count`` calls, by graphs of at most `LARGEST_GRAPH`."""
        driver, context = self.libraries.driver, self.libraries.context
        parts = parts_of(count)
        for size in sorted({*parts} - {*self._graphs}):
            self.accelerator.synchronize()
            with self.libraries.driving("capture a graph"):
                driver.make_current()
                self._graphs[size] = self._captured(size)
                self._graphs[size].launch(stream=context.default.native)  # the first launch prepares the graph

        def launch() -> None:
            with self.libraries.driving("replay a graph"):
                driver.make_current()
                for size in parts:
                    self._graphs[size].launch(stream=context.default.native)

        return self.hold.time_s(launch)

    def _captured(self, count: int) -> Any:
        origin = self.libraries.driver.queue(non_blocking=True)
        with origin:
            origin.begin_capture()
            try:
                for _ in range(count):
                    self.work.call(self._next())
            except BaseException:
                with suppress(RuntimeError):  # the first error is the one to report
                    origin.end_capture()
                raise
            return origin.end_capture()

    def _next(self) -> Mapping[str, Buffer]:
        operands = self.sets[self._turn % len(self.sets)]
        self._turn += 1
        return operands

    def check(self) -> float:
        """Execute the first set again into a cleared result; return its error as a share of the tolerance."""
        operands = self.sets[0]
        operands[self.work.result].copy_from(self.work.arrays[self.work.result])
        self._turn = 0
        self.enqueue(1)
        result = self.accelerator.to_host(operands[self.work.result])
        return error_share(result, self.work.expected()[0], self.work.tolerance)

    def close(self) -> None:
        """Release the operands. Closing again does nothing."""
        if not self._closed:
            self._closed = True
            self._graphs.clear()
            if not self.accelerator.closed and not self.libraries.context.broken:
                with suppress(DeviceError):
                    self.accelerator.synchronize()  # a plan must not be destroyed while it executes
            self.work.close()
            free_all(self.sets)


def _address(buffer: Buffer) -> int:
    memory: Any = buffer.memory
    return int(memory.handle.address)


def _pointer(cupy: Any, buffer: Buffer, index: int) -> Any:
    """Return a buffer's memory as a CuPy pointer, which keeps the buffer alive and does not free it."""
    memory: Any = cupy.cuda.UnownedMemory(_address(buffer), buffer.nbytes, buffer, index)
    return cupy.cuda.MemoryPointer(memory, 0)


def _bytes(op: str, columns: Columns) -> float:
    """Return the size (bytes) of one set of operands; for a transform, with working memory of the result's size."""
    n, size = numbers_of(columns), BYTES_PER_ELEMENT[str(columns["dtype"])]
    if op == "fft":
        return 6.0 * size * n["n"] * n["batch"]
    out = 4.0 if columns["dtype"] == "int8" else size
    return n["batch"] * (size * (n["m"] * n["k"] + n["k"] * n["n"]) + out * n["m"] * n["n"])


def _version(number: int, major: int) -> str:
    """Return ``12.9.1`` for 120901 (cublas_api.h, ``major`` 10000) and ``11.4.1`` for 11401 (cufft.h, 1000)."""
    rest = number % major
    return f"{number // major}.{rest // 100}.{rest % 100}"


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
