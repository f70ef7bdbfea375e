"""cuBLAS and cuFFT for the stand-in for CuPy, by NumPy: with their arguments, their order of elements, their refusals.

cuBLAS has matrices by columns, `ld` elements apart, as here. Products of fp32 are rounded to TF32 where the compute
type or the handle's math mode says so, so that who asks for the wrong one has wrong numbers. What CuPy forbids is
forbidden: calls of cuBLAS while a stream is captured, and of what its calls of hipBLAS do not know.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

MODULES = ("cublas", "cufft")
_BLAS = {
    1: "NOT_INITIALIZED", 3: "ALLOC_FAILED", 7: "INVALID_VALUE", 8: "ARCH_MISMATCH", 11: "MAPPING_ERROR",
    13: "EXECUTION_FAILED", 14: "INTERNAL_ERROR", 15: "NOT_SUPPORTED", 16: "LICENSE_ERROR",
}  # fmt: skip
_HIP = {2: "ALLOC_FAILED", 3: "INVALID_VALUE", 5: "EXECUTION_FAILED", 7: "NOT_SUPPORTED"}
_FFT = {2: "ALLOC_FAILED", 5: "INTERNAL_ERROR", 8: "INVALID_SIZE", 14: "NOT_IMPLEMENTED"}
TYPES: dict[int, Any] = {0: np.float32, 2: np.float16, 3: np.int8, 10: np.int32, 14: ml_dtypes.bfloat16}
"""By cudaDataType_t (library_types.h)."""
SUMS = {
    64: {(2, 2)}, 68: {(0, 0), (2, 2), (2, 0), (14, 14), (14, 0), (3, 0)}, 72: {(3, 10)}, 77: {(0, 0)},
}  # fmt: skip
"""By cublasComputeType_t, the types of operands and results that cublasGemmEx takes (its table in cuBLAS' manual)."""


def whole(value: Any, what: str) -> int:
    assert type(value) is int, f"{what} is {value!r}, a {type(value).__name__}: CuPy takes an int"
    return value


def error(name: str, prefix: str, words: dict[int, str], field: str) -> type[RuntimeError]:
    def __init__(self: Any, status: int) -> None:
        setattr(self, field, status)
        RuntimeError.__init__(self, prefix + words[status])

    return type(name, (RuntimeError,), {"__init__": __init__})


def memory(fake: Any) -> SimpleNamespace:
    """What CuPy's arrays and plans stand on."""

    class UnownedMemory:
        def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1) -> None:
            assert device_id >= 0, "else CuPy asks the driver, which costs a call"
            found = fake.piece(whole(ptr, "ptr"))
            assert found is not None and ptr + whole(size, "size") <= found[0] + found[1].size
            self.ptr, self.size, self._owner = ptr, size, owner

    class MemoryPointer:
        def __init__(self, mem: UnownedMemory, offset: int) -> None:
            self.mem, self.ptr = mem, mem.ptr + whole(offset, "offset")

    class ndarray:  # noqa: N801  as NumPy calls it
        def __init__(self, shape: tuple[int, ...], dtype: Any = float, memptr: Any = None) -> None:
            assert isinstance(memptr, MemoryPointer), "an array of CuPy's own pool"
            self.shape, self.dtype, self.data = shape, np.dtype(dtype), memptr
            assert int(np.prod(shape)) * self.dtype.itemsize <= memptr.mem.size

    held = threading.local()

    @contextmanager
    def using_allocator(allocator: Callable[[int], Any] | None = None) -> Iterator[None]:
        before, held.allocator = getattr(held, "allocator", None), allocator
        try:
            yield
        finally:
            held.allocator = before

    def alloc(size: int) -> Any:
        allocator = getattr(held, "allocator", None)
        assert allocator is not None, "memory of CuPy's own pool"
        found = allocator(size)
        assert isinstance(found, MemoryPointer)
        return found

    return SimpleNamespace(
        UnownedMemory=UnownedMemory, MemoryPointer=MemoryPointer, ndarray=ndarray, using_allocator=using_allocator,
        alloc=alloc,
    )  # fmt: skip


def libraries(fake: Any, there: SimpleNamespace) -> dict[str, Any]:
    """The modules ``cupy.cuda.cublas`` and ``cupy.cuda.cufft``."""
    return {"cublas": _cublas(fake), "cufft": _cufft(fake, there)}


def _entry(fake: Any, kind: Callable[[int], Exception], function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def checked(*args: Any) -> Any:
        assert all(type(one) is int for one in args), f"{function.__name__} takes Python's whole numbers: {args}"
        with fake._lock:
            fake.checked(function.__name__)
            status = fake.library_fails.pop(function.__name__, None)
            if status is not None:
                raise kind(status)
            return function(*args)

    return checked


def _view(fake: Any, address: int, count: int, dtype: Any) -> np.ndarray:
    """Elements in the device's memory; AssertionError where they are not all of one piece."""
    found = fake.piece(whole(address, "address"))
    assert found is not None, "no memory of the device's"
    begin, data, kind, _ = found
    size = count * np.dtype(dtype).itemsize
    assert kind == "device" and address + size <= begin + data.size, "beyond its end"
    view: np.ndarray = data[address - begin : address - begin + size].view(dtype)
    return view


def _columns(flat: np.ndarray, rows: int, columns: int, ld: int) -> np.ndarray:
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (flat.itemsize, ld * flat.itemsize))


def tf32(values: np.ndarray) -> np.ndarray:
    """Rounded to 10 bits of mantissa."""
    return ((values.view(np.uint32) + 0x1000) & 0xFFFFE000).astype(np.uint32).view(np.float32)


def _cublas(fake: Any) -> Any:
    hip = fake._hip
    kind = error("CUBLASError", "HIPBLAS_STATUS_" if hip else "CUBLAS_STATUS_", _HIP if hip else _BLAS, "status")
    invalid, unsupported = (3, 7) if hip else (7, 15)

    def create() -> int:
        handle = fake.number()
        fake.handles[handle] = 0
        return int(handle)

    def destroy(handle: int) -> None:
        del fake.handles[whole(handle, "handle")]

    def getVersion(handle: int) -> int:
        assert handle in fake.handles
        return 50200 if hip else 120901

    def setMathMode(handle: int, mode: int) -> None:
        if hip:
            raise kind(unsupported)
        assert handle in fake.handles
        fake.handles[handle] = whole(mode, "mode")

    def product(
        handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int, A: int, Atype: int, lda: int,
        strideA: int, B: int, Btype: int, ldb: int, strideB: int, beta: int, C: int, Ctype: int, ldc: int,
        strideC: int, batchCount: int, computeType: int, algo: int,
    ) -> None:  # fmt: skip
        stream = fake.current_stream()
        assert handle in fake.handles, "no handle"
        if stream.capture is not None and not hip:
            raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")
        assert algo in (-1, 99)
        sides = [(m, k) if transa == 0 else (k, m), (k, n) if transb == 0 else (n, k), (m, n)]
        if min(m, n, k) < 0 or any(ld < max(1, rows) for ld, (rows, _) in zip((lda, ldb, ldc), sides, strict=True)):
            raise kind(invalid)
        if hip:
            assert {Atype, Btype, Ctype} <= {0, 2, 3}, "CuPy ends the process where hipBLAS' type is not known to it"
            if computeType >= 64:
                raise kind(unsupported)
            assert computeType == 0
        elif (Atype, Ctype) not in SUMS[computeType] or Atype != Btype:
            raise kind(unsupported)
        if Atype == 3 and transa == 0:  # cuBLAS 13.1 on an H200 has it for some sizes only, and never in batches
            raise kind(unsupported)
        if Atype == 3 and (lda % 4 or ldb % 4 or A % 4 or B % 4):
            raise kind(unsupported)
        sums = ctypes.c_int32 if computeType == 72 else ctypes.c_float
        scales = [sums.from_address(at).value for at in (alpha, beta)]
        rounded = computeType == 77 or (computeType == 68 and fake.handles[handle] & 3 == 3)
        given = ((A, Atype, lda, strideA, transa), (B, Btype, ldb, strideB, transb), (C, Ctype, ldc, strideC, 0))
        cooperative = np.int32 if computeType == 72 else np.float32

        def matrix(which: int, number: int) -> np.ndarray:
            address, kind_of, ld, stride, _ = given[which]
            rows, columns = sides[which]
            dtype = np.dtype(TYPES[kind_of])
            flat = _view(fake, address + number * stride * dtype.itemsize, ld * (columns - 1) + rows, dtype)
            return _columns(flat, rows, columns, ld)

        def operand(which: int, number: int) -> np.ndarray:
            found = np.ascontiguousarray(matrix(which, number)).astype(cooperative)
            found = tf32(found) if rounded and given[which][1] == 0 else found
            return found.T if given[which][4] else found

        def run() -> None:
            for number in range(batchCount):
                out = matrix(2, number)
                made = scales[0] * (operand(0, number) @ operand(1, number))
                out[...] = (made + scales[1] * out.astype(cooperative) if scales[1] else made).astype(out.dtype)

        fake.enqueue(stream, run, (A, B, C))

    def gemmEx(
        handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int, A: int, Atype: int, lda: int, B: int,
        Btype: int, ldb: int, beta: int, C: int, Ctype: int, ldc: int, computeType: int, algo: int,
    ) -> None:  # fmt: skip
        product(
            handle, transa, transb, m, n, k, alpha, A, Atype, lda, 0, B, Btype, ldb, 0, beta, C, Ctype, ldc, 0, 1,
            computeType, algo,
        )  # fmt: skip

    def gemmStridedBatchedEx(
        handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int, A: int, Atype: int, lda: int,
        strideA: int, B: int, Btype: int, ldb: int, strideB: int, beta: int, C: int, Ctype: int, ldc: int,
        strideC: int, batchCount: int, computeType: int, algo: int,
    ) -> None:  # fmt: skip
        product(
            handle, transa, transb, m, n, k, alpha, A, Atype, lda, strideA, B, Btype, ldb, strideB, beta, C, Ctype, ldc,
            strideC, batchCount, computeType, algo,
        )  # fmt: skip

    functions = create, destroy, getVersion, setMathMode, gemmEx, gemmStridedBatchedEx
    return SimpleNamespace(
        **{one.__name__: _entry(fake, kind, one) for one in functions},
        CUBLASError=kind, CUBLAS_OP_N=0, CUBLAS_OP_T=1, CUBLAS_DEFAULT_MATH=0, CUBLAS_GEMM_DEFAULT=-1, CUBLAS_COMPUTE_32F=68,
        CUBLAS_COMPUTE_32F_FAST_TF32=77, CUBLAS_COMPUTE_32I=72,
    )  # fmt: skip


def _cufft(fake: Any, there: SimpleNamespace) -> Any:
    kind = error("CuFFTError", "CUFFT_", _FFT, "result")

    def getVersion() -> int:
        return 10020 if fake._hip else 11401

    class Plan:
        """What both have: working memory, which has to be there until the plan is destroyed."""

        def _ready(self, name: str, size: int) -> None:
            with fake._lock:
                fake.checked(name)
                status = fake.library_fails.pop(name, None)
            if status is not None:
                raise kind(status)
            self.work_area = there.alloc(size)
            fake.plans += 1

        def __del__(self) -> None:
            if hasattr(self, "work_area"):
                fake.plans -= 1
                fake.orphans += fake.piece(self.work_area.ptr) is None

        def _transform(self, a: Any, out: Any, direction: int, sides: tuple[int, int], dtype: Any) -> None:
            assert isinstance(a, there.ndarray) and isinstance(out, there.ndarray) and direction == -1
            n, batch = sides

            def run() -> None:
                given = _view(fake, a.data.ptr, 2 * n * batch, dtype).astype(np.float32).view(np.complex64)
                made = np.fft.fft(given.reshape(batch, n), axis=-1).astype(np.complex64).reshape(-1)
                _view(fake, out.data.ptr, 2 * n * batch, dtype)[...] = made.view(np.float32).astype(dtype)

            with fake._lock:
                fake.checked("fft")
                fake.enqueue(fake.current_stream(), run, (a.data.ptr, out.data.ptr, self.work_area.ptr))

    class Plan1d(Plan):
        def __init__(
            self, nx: int, fft_type: int, batch: int, devices: Any = None, *, out: Any = None, prealloc_plan: int = 0
        ) -> None:
            assert fft_type == 0x29 and devices is None and out is None and not prealloc_plan
            self.sides = whole(nx, "nx"), whole(batch, "batch")
            self._ready("Plan1d", 8 * nx * batch if nx > 4 else 0)

        def fft(self, a: Any, out: Any, direction: int) -> None:
            assert a.dtype == out.dtype == np.complex64
            self._transform(a, out, direction, self.sides, np.float32)

    class XtPlanNd(Plan):
        def __init__(
            self, shape: tuple[int, ...], inembed: tuple[int, ...], istride: int, idist: int, idtype: str,
            onembed: tuple[int, ...], ostride: int, odist: int, odtype: str, batch: int, edtype: str, *, order: str,
            last_axis: int, last_size: int | None, prealloc_plan: int = 0,
        ) -> None:  # fmt: skip
            assert (idtype, odtype, edtype, order, last_size) == ("E", "E", "E", "C", None)
            (n,) = shape
            assert (inembed, onembed) == (shape, shape) and (istride, idist, ostride, odist) == (1, n, 1, n)
            if n & (n - 1):
                raise ValueError("size must be power of 2")
            self.sides = whole(n, "shape"), whole(batch, "batch")
            self._ready("XtPlanNd", 4 * n * batch)

        def fft(self, a: Any, out: Any, direction: int) -> None:
            assert a.dtype == out.dtype == np.float16
            self._transform(a, out, direction, self.sides, np.float16)

    return SimpleNamespace(
        getVersion=_entry(fake, kind, getVersion), CuFFTError=kind, Plan1d=Plan1d, XtPlanNd=XtPlanNd, CUFFT_C2C=0x29,
        CUFFT_FORWARD=-1,
    )  # fmt: skip
