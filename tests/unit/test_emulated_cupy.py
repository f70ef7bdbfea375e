"""The emulated interface of CuPy: arrays as NumPy's, kernels in C, streams, memory, findings, and what is refused by name."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windtunnel.emulate.cupy as cp
from windtunnel import errors
from windtunnel.core.errors import InvalidArgument, UnsupportedOperationError
from windtunnel.emulate import session
from windtunnel.emulate.cupy import cupyx, names, testing
from windtunnel.emulate.cupy.cupyx import profiler


@pytest.fixture(autouse=True)
def device() -> Iterator[Any]:
    """A device of its own for each test."""
    before = session.begin(session.Session("h100-sxm-80gb"))
    try:
        yield session.current.accelerator()
    finally:
        session.begin(before)


def line_of(text: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line and "line_of(" not in line)


# Arrays.


def test_functions_return_what_numpy_returns() -> None:
    host = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    array, ints = cp.asarray(host), np.arange(24).reshape(4, 6) % 7
    device_ints = cp.array(ints)
    for mine, plain in [
        (array + 1, host + 1), (2 - array, 2 - host), (array**2, host**2), (-array, -host), (abs(array), abs(host)),
        (array @ array.T, host @ host.T), (array > 0, host > 0), (array // 2, host // 2), (array % 3, host % 3),
        (device_ints << 1, ints << 1), (device_ints & 3, ints & 3), (~device_ints, ~ints), (1 / array, 1 / host),
        (cp.exp(array), np.exp(host)), (cp.sum(array, axis=1), host.sum(axis=1)), (array.mean(), host.mean()),
        (array.argmax(axis=0), host.argmax(axis=0)), (cp.where(array > 0, array, 0), np.where(host > 0, host, 0)),
        (cp.concatenate([array, array], axis=1), np.concatenate([host, host], axis=1)), (cp.sort(array), np.sort(host)),
        (cp.cumsum(array), np.cumsum(host)), (cp.clip(array, -1, 1), np.clip(host, -1, 1)),
        (cp.einsum("ij,kj->ik", array, array), np.einsum("ij,kj->ik", host, host)),
        (cp.unique(device_ints), np.unique(ints)), (cp.linalg.norm(array), np.linalg.norm(host)),
        (cp.fft.fft(array), np.fft.fft(host)), (cp.stack([array, array]), np.stack([host, host])),
        (cp.tensordot(array, array.T, 1), np.tensordot(host, host.T, 1)), (array.std(axis=0), host.std(axis=0)),
        (cp.linspace(0, 1, 5), np.linspace(0, 1, 5)), (cp.arange(2, 9, 3), np.arange(2, 9, 3)),
        (cp.full((2, 2), 7), np.full((2, 2), 7)), (cp.eye(3), np.eye(3)), (cp.ones_like(array), np.ones_like(host)),
        (np.sin(array), np.sin(host)), (np.sum(array), np.sum(host)), (array.astype(cp.int8), host.astype(np.int8)),
        (cp.add.reduce(array), np.add.reduce(host)), (cp.maximum.accumulate(array), np.maximum.accumulate(host)),
        (cp.linalg.solve(array @ array.T, cp.ones(4)), np.linalg.solve(host @ host.T, np.ones(4))),
    ]:  # fmt: skip
        assert isinstance(mine, cp.ndarray)
        assert (mine.dtype, mine.shape) == (np.asarray(plain).dtype, np.shape(plain))
        np.testing.assert_allclose(mine.get(), plain, rtol=2e-4, atol=1e-5)


def test_every_listed_name_is_there() -> None:
    for name in (*names.UFUNCS, *names.PLAIN, *names.TYPES, *names.WITHOUT_ARRAYS):
        if hasattr(np, name):
            assert hasattr(cp, name)
    for name in names.DISTRIBUTIONS:
        assert getattr(cp.random, name) is not None


def test_slices_are_views_of_the_same_memory_and_assignments_reach_it() -> None:
    host = np.arange(60.0).reshape(3, 4, 5)
    array = cp.array(host)
    for key in (
        1,
        (slice(None), 2),
        (Ellipsis, slice(None, None, 2)),
        (slice(None, None, -1), 1),
        (None, 0),
        (2, 3, 4),
    ):
        part = array[key]
        assert (
            part.base is array
            and part.strides == host[(*key, ...) if isinstance(key, tuple) and ... not in key else key].strides
        )
        np.testing.assert_array_equal(part.get(), host[key])
    array[1, ::2] = -1
    array.reshape(-1)[0] = 9
    array.T[4, 3, 2] += 1
    host[1, ::2], host[0, 0, 0], host[2, 3, 4] = -1, 9, 60
    np.testing.assert_array_equal(array.get(), host)
    assert array.ravel().base is array and array.transpose(2, 0, 1).shape == (5, 3, 4)
    assert array.view(cp.int64).base is array and array[:, :, 1:].flags.c_contiguous is False


def test_arrays_of_indices_wrap_around_and_masks_select() -> None:
    host = np.arange(10)
    array = cp.array(host)
    assert array[cp.array([0, 12, -1])].tolist() == [0, 2, 9]
    assert array[array % 3 == 0].tolist() == [0, 3, 6, 9]
    array[[1, 1, 2]] = cp.array([5, 5, 6])
    array[array > 8] = 0
    assert array.tolist() == [0, 5, 6, 3, 4, 5, 6, 7, 8, 0]
    cupyx.scatter_add(array, cp.array([0, 0, 3]), 1)
    assert array[:4].tolist() == [2, 5, 6, 4] and cp.take(array, 1).item() == 5
    for refused in (lambda: cp.take(array, 1, mode="clip"), lambda: cp.put(array, 1, 2, mode="clip")):
        with pytest.raises(UnsupportedOperationError, match="mode='clip'"):
            refused()
    choices = [cp.array([1, 2]), cp.array([3, 4])]
    assert cp.choose(cp.array([1, 0]), choices).tolist() == [3, 2]
    assert cp.choose(cp.array([3, 0]), choices, mode="wrap").tolist() == [3, 2]
    with pytest.raises(ValueError, match="choice"):
        cp.choose(cp.array([3, 0]), choices)


def test_nothing_of_the_host_is_converted_in_silence() -> None:
    array = cp.ones(3)
    for attempt in (
        lambda: array + np.ones(3), lambda: np.ones(3) + array, lambda: np.asarray(array), lambda: cp.sum(np.ones(3)),
        lambda: cp.exp([1.0]), lambda: cp.concatenate([np.ones(2)]), lambda: array.__setitem__(slice(None), np.ones(3)),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError)):
            attempt()
    with pytest.raises(TypeError, match=re.escape("Please use `.get()` to construct a NumPy array explicitly")):
        np.array(array)
    with pytest.raises(ValueError, match="Unsupported dtype object"):
        cp.array([None])


def test_an_operation_is_one_launch_with_a_cost_and_a_view_is_none(device: Any) -> None:
    array = cp.zeros((1000, 1000), cp.float32)
    device.synchronize()
    launches, begin = device.counters.launches, device.clock_s
    _ = array.T[::2].reshape(500, 2, 500)
    assert device.counters.launches == launches and device.clock_s == begin
    other = array + array
    device.synchronize()
    moved = 3 * array.nbytes / 3.35e12  # the memory of an H100, NVIDIA's data sheet
    assert device.counters.launches == launches + 1 and 0.5 * moved < device.clock_s - begin < 20 * moved
    before = device.clock_s
    _ = other @ other
    device.synchronize()
    assert device.clock_s - before > 2e9 / 1e15


def test_a_fused_function_reads_and_writes_once(device: Any) -> None:
    @cp.fuse()
    def fused(x: Any, y: Any) -> Any:
        return cp.exp(x) * 2 + y

    x = cp.ones(100)
    before = device.counters.launches
    result = fused(x, x)
    assert device.counters.launches == before + 1
    np.testing.assert_allclose(result.get(), np.exp(1) * 2 + 1)


def test_arrays_are_pickled_and_share_the_array_interface() -> None:
    array = cp.arange(6).reshape(2, 3)

    class Foreign:
        __cuda_array_interface__ = array[:, 1:].__cuda_array_interface__

    np.testing.assert_array_equal(pickle.loads(pickle.dumps(array)).get(), array.get())
    shared = cp.asarray(Foreign())
    shared[...] = 7
    assert array.tolist() == [[0, 7, 7], [3, 7, 7]]


# Kernels.

SCALE = cp.RawKernel(
    r"""
extern "C" __global__ void scale(float* a, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] *= by;
}
""",
    "scale",
)


def test_a_raw_kernel_takes_arrays_pointers_and_numbers_of_its_sizes() -> None:
    array = cp.arange(40, dtype=cp.float32)
    SCALE((2,), (32,), (array, cp.float32(2), 40))
    SCALE((1,), (8,), (array[8:], np.float32(10), cp.int32(8)))
    SCALE((1,), (8,), (array.data + 64, cp.float32(100), 8))
    SCALE((1,), (8,), (array.data.ptr + 96, cp.float32(0), 8))
    expected = np.arange(40, dtype=np.float32) * 2
    expected[8:16] *= 10
    expected[16:24] *= 100
    expected[24:32] = 0
    np.testing.assert_array_equal(array.get(), expected)
    for wrong, said in [
        ((array, 2.0, 40), "2.0 (float64); expected cupy.float32(...)"),
        ((array, 2, 40), "the integer 2 (int64); expected cupy.float32(...)"),
        ((array, cp.float32(2), 40.0), "expected cupy.int32(...)"),
        ((array, cp.float32(2)), "2 arguments for a kernel of 3: a, by, n"),
        ((12345, cp.float32(2), 40), "the address 0x3039, which is not memory in use"),
        ((array, array, 40), "the argument 'by' is ndarray; expected a number"),
    ]:
        with pytest.raises(InvalidArgument, match=re.escape(said)) as refused:
            SCALE((2,), (32,), wrong)
        assert refused.value.code.number == 1  # cudaErrorInvalidValue
    with pytest.raises(TypeError, match="pass a cupy.ndarray instead"):
        SCALE((2,), (32,), (np.zeros(40, np.float32), cp.float32(2), 40))


def test_findings_name_the_lines_of_the_text_in_the_program() -> None:
    with pytest.raises(errors.OutOfBounds) as found:
        SCALE((2,), (32,), (cp.zeros(40, cp.float32), cp.float32(2), 41))
    assert (found.value.file, found.value.lines) == (__file__, (line_of("if (i < n) a[i] *= by;"),))
    assert session.current.findings == [found.value]
    with pytest.raises(errors.UninitializedRead):
        SCALE((2,), (32,), (cp.empty(40, cp.float32), cp.float32(2), 40))
    with pytest.raises(cp.cuda.compiler.CompileException, match=re.escape(f"{__file__}:{line_of('BROKEN = ')}:")):
        cp.RawKernel(BROKEN, "broken")((1,), (1,), (0,))


BROKEN = 'extern "C" __global__ void broken(nothing a) {}'
MODULE = r"""
#include <cupy/complex.cuh>
__constant__ float weights[4] = {1, 2, 3, 4};
template <typename T> __global__ void square(T* a) { a[threadIdx.x] *= a[threadIdx.x]; }
extern "C" __global__ void weighted(float* a) { a[threadIdx.x] = weights[threadIdx.x % 4] * FACTOR; }
extern "C" __global__ void dynamic(float* a) {
  extern __shared__ float held[];
  held[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  a[threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}
__global__ void mangled(float* a) { a[0] = 1; }
"""


def test_a_module_has_templates_variables_options_and_attributes() -> None:
    module = cp.RawModule(code=MODULE, options=("-DFACTOR=2.0f", "-std=c++17"),
                          name_expressions=["square<int>", "square< complex<double> >"])  # fmt: skip
    for name, dtype in (("square<int>", cp.int32), ("square< complex<double> >", cp.complex128)):
        array = testing.shaped_arange((8,), dtype=dtype)
        expected = array.get() ** 2
        module.get_function(name)((1,), (8,), (array,))
        np.testing.assert_allclose(array.get(), expected)
    out = cp.zeros(8, cp.float32)
    module.get_function("weighted")((1,), (8,), (out,))
    assert out.tolist() == [2, 4, 6, 8] * 2
    cp.ndarray((4,), cp.float32, module.get_global("weights"))[...] = 5
    module.get_function("weighted")((1,), (8,), (out,))
    assert out.tolist() == [10] * 8
    for name in ("mangled", "square<float>", "absent"):
        with pytest.raises(cp.cuda.driver.CUDADriverError, match="named symbol not found"):
            module.get_function(name)
    kernel = module.get_function("dynamic")
    array = cp.arange(256, dtype=cp.float32)
    kernel((1,), (256,), (array,), shared_mem=1024)
    assert array[0].item() == 255
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="max_dynamic_shared_size_bytes"):
        kernel((1,), (256,), (array,), shared_mem=60000)
    kernel.max_dynamic_shared_size_bytes = 60000
    kernel((1,), (256,), (array,), shared_mem=60000)
    assert kernel.attributes["max_dynamic_shared_size_bytes"] == 60000 and kernel.num_regs > 0
    session.begin(session.Session("l4"))  # another device has variables of its own
    module.get_function("weighted")((1,), (8,), (out := cp.zeros(8, cp.float32),))
    assert out.tolist() == [2, 4, 6, 8] * 2


def test_an_elementwise_kernel_broadcasts_views_numbers_and_raw_arrays() -> None:
    kernel = cp.ElementwiseKernel("T x, T y, raw T w", "T z", "z = x * y + w[i % w.size()]", "combined")
    host = np.arange(24.0, dtype=np.float32).reshape(4, 6)
    array, weights = cp.array(host), cp.array([1, 2, 3], cp.float32)
    for x, y, plain in [
        (array, array, host * host), (array[::2, ::-1], 2, host[::2, ::-1] * 2), (array.T, array.T, host.T * host.T),
        (array[:, :1], array[:1], host[:, :1] * host[:1]), (array[1:, 1:], np.float32(3), host[1:, 1:] * 3),
    ]:  # fmt: skip
        added = np.resize([1, 2, 3], plain.size).reshape(plain.shape)
        result = kernel(x, y, weights)
        np.testing.assert_allclose(result.get(), plain + added)
        assert result.dtype == np.float32
    into = cp.zeros((4, 12), cp.float32)
    assert kernel(array, array, weights[::-1], into[:, ::2]).base is into
    np.testing.assert_allclose(into[:, ::2].get(), host * host + np.resize([3, 2, 1], 24).reshape(4, 6))
    two = cp.ElementwiseKernel("int32 a", "float32 b, bool c", "b = a / 2.0f; c = a > 1", "two")
    b, c = two(cp.arange(3, dtype=cp.int32))
    assert b.tolist() == [0, 0.5, 1] and c.tolist() == [False, False, True]
    counted = cp.ElementwiseKernel("raw T x", "raw T y", "if (i % 2) continue; y[i] = x[i];", "counted")
    assert counted(cp.arange(4), cp.zeros(4, int), size=4).tolist() == [0, 0, 2, 0]
    with pytest.raises(TypeError, match="Type is mismatched"):
        kernel(array, array.astype(float), weights)
    with pytest.raises(ValueError, match="Loop size is undecided"):
        counted(cp.arange(4), cp.zeros(4, int))


def test_a_reduction_kernel_reduces_any_axes() -> None:
    host = np.random.default_rng(2).random((5, 70, 3)).astype(np.float32)
    array = cp.array(host)
    norm = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")
    most = cp.ReductionKernel("T x, int32 s", "T y", "x * s", "max(a, b)", "y = a", "-1e30", "most")
    for axis in (None, 0, 1, 2, (0, 2), (1, 2), -1):
        for keepdims in (False, True):
            mine = norm(array, axis=axis, keepdims=keepdims)
            plain = np.sqrt((host * host).sum(axis=axis, keepdims=keepdims))
            assert mine.shape == plain.shape
            np.testing.assert_allclose(mine.get(), plain, rtol=1e-5)
        np.testing.assert_allclose(most(array[:, ::2], -1, axis=axis).get(), (-host[:, ::2]).max(axis=axis))
    out = cp.empty(5, cp.float32)
    assert norm(array.reshape(5, 210), axis=1, out=out) is out
    with pytest.raises(ValueError, match="Out shape is mismatched"):
        norm(array, out=out)


# Streams, events and memory.


def test_streams_are_current_in_blocks_and_events_measure_the_device() -> None:
    first, second = cp.cuda.Stream(), cp.cuda.Stream(non_blocking=True)
    with first:
        with second:
            assert cp.cuda.get_current_stream() == second
        assert cp.cuda.get_current_stream() == first
        start = first.record()
        cp.zeros(10**7)
        end = first.record()
    assert cp.cuda.get_current_stream() == cp.cuda.Stream.null and end.done is False
    end.synchronize()
    assert 8e7 / 3.35e12 * 1e3 < cp.cuda.get_elapsed_time(start, end) < 1 and end.done and first.done
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError):
        cp.cuda.get_elapsed_time(cp.cuda.Event(), end)


def test_work_of_two_streams_that_nothing_orders_is_found() -> None:
    for ordered in (True, False):
        array = cp.zeros(1000)
        ready = cp.cuda.Stream.null.record()
        with cp.cuda.Stream(non_blocking=True) as stream:
            if ordered:
                stream.wait_event(ready)
                array[:500] += 1
                continue
            with pytest.raises(errors.MissingSync, match="nothing orders the two") as found:
                array[500:] += 1  # unordered
        assert found.value.lines == (line_of("ready = cp.cuda.Stream.null.record()") - 1, line_of("+= 1  # unordered"))
    halves = cp.zeros(1000)
    cp.cuda.Device().synchronize()
    for number in range(2):
        with cp.cuda.Stream(non_blocking=True):
            halves[number * 500 : (number + 1) * 500] += 1
    cp.cuda.Device().synchronize()
    assert float(halves.sum()) == 1000


def test_a_pinned_copy_is_read_after_a_wait_only() -> None:
    array, target = cp.ones(1000), cupyx.zeros_pinned(1000)
    with cp.cuda.Stream(non_blocking=True) as stream:
        stream.wait_event(cp.cuda.Stream.null.record())
        array.get(out=target, blocking=False)
    assert target.sum() == 0  # the copy has not ended
    stream.synchronize()
    assert target.sum() == 1000
    memory = cp.cuda.alloc_pinned_memory(80)
    np.frombuffer(memory, np.float64, 10)[...] = 3
    array[:10].set(np.frombuffer(memory, np.float64, 10))
    assert float(array[:11].sum()) == 31


def test_pools_count_blocks_reuse_them_and_have_limits() -> None:
    pool = cp.cuda.MemoryPool()
    with cp.cuda.using_allocator(pool.malloc):
        array = cp.zeros(1000)
        assert (pool.used_bytes(), pool.free_bytes(), array.data.mem.size) == (8192, 0, 8000)
        del array
        assert (pool.used_bytes(), pool.total_bytes(), pool.n_free_blocks()) == (0, 8192, 1)
        cp.zeros(10)
        pool.free_all_blocks()
        assert pool.total_bytes() == 0
        pool.set_limit(size=10_000)
        with pytest.raises(cp.cuda.memory.OutOfMemoryError, match="limit set to: 10,000 bytes"):
            cp.zeros(2000)
        pool.set_limit(size=0)
        with pytest.raises(cp.cuda.memory.OutOfMemoryError, match="Out of memory allocating"):
            cp.empty(10**12)
    free, total = cp.cuda.runtime.memGetInfo()
    address = cp.cuda.runtime.malloc(1024)
    assert cp.cuda.runtime.memGetInfo() == (free - 1024, total)
    cp.cuda.runtime.memset(address, 1, 1024)
    view = cp.ndarray((256,), cp.int32, cp.cuda.MemoryPointer(cp.cuda.UnownedMemory(address, 1024, None)))
    assert view[255].item() == 0x01010101
    cp.cuda.runtime.free(address)
    with pytest.raises(errors.UseAfterFree):
        view.get()
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="cudaErrorInvalidValue"):
        cp.cuda.runtime.free(address)


def test_faults_are_errors_of_cupy_and_of_windtunnel(device: Any) -> None:
    triple = cp.ElementwiseKernel("float32 x", "float32 y", "y = 3 * x", "triple")
    array = cp.ones(3, cp.float32)
    runtime, driver = cp.cuda.runtime.CUDARuntimeError, cp.cuda.driver.CUDADriverError
    for fault, theirs, ours, text in (
        ("launch_failure", driver, errors.LaunchError, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources"),
        ("copy_failure", runtime, errors.CopyError, "cudaErrorUnknown: unknown error: copy out"),
        ("out_of_memory", MemoryError, errors.DeviceOutOfMemory, "Out of memory allocating 12 bytes"),
        ("device_lost", runtime, errors.DeviceLost, "cudaErrorDevicesUnavailable"),
        ({"kind": "ecc", "on": "launch"}, driver, errors.EccError, "CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC"),
        ("hang", runtime, errors.DeviceHang, "cudaErrorLaunchTimeout: the launch timed out"),
    ):
        cp.get_default_memory_pool().free_all_blocks()
        with device.faults(fault), pytest.raises(theirs, match=text) as raised:
            triple(array).get()
        assert isinstance(raised.value, ours)
        if theirs is not MemoryError:
            assert raised.value.status == raised.value.device_code.number
        device.injector.clear()


def test_elements_that_nothing_has_written_are_found_when_they_are_computed_with() -> None:
    array = cp.empty(10)
    array[:4] = 1
    assert float(array[:4].sum()) == 4 and array[cp.array([0, 3])].tolist() == [1, 1]
    copied = array.copy()  # a copy computes nothing
    assert (copied[:4] + 1).tolist() == [2, 2, 2, 2]
    for attempt in (lambda: array.sum(), lambda: copied * 2, lambda: array[3:5] + 1, lambda: array[cp.array([3, 4])]):
        with pytest.raises(errors.UninitializedRead):
            attempt()
    np.testing.assert_array_equal(array.get(), [1] * 4 + [np.nan] * 6)  # a part was written
    mask = cp.arange(4) % 2 == 0
    for write in (
        lambda a: cp.add(cp.ones(4), 1, out=a, where=mask),
        lambda a: cp.copyto(a, 2, where=mask),
        lambda a: cp.putmask(a, mask, 2),
        lambda a: cp.place(a, mask, cp.array([2.0])),
        lambda a: cp.fill_diagonal(a.reshape(2, 2), 2),
    ):
        write(masked := cp.empty(4))  # reads none of the others
        assert masked[0] == 2 and np.isnan(masked.get()).sum() == 2
    for never in (cp.empty(64), array[5:], cp.empty((4, 4))[::2, 1], copied[6]):
        with pytest.raises(errors.UninitializedRead, match="copies .* bytes, which nothing has written"):
            never.get()


def test_a_captured_graph_is_replayed() -> None:
    array, stream = cp.ones(10), cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        array += 1
        doubled = array * 2
        graph = stream.end_capture()
    for expected in (4, 6):
        graph.launch(stream)
        stream.synchronize()
        assert doubled[0].item() == expected


def test_the_profiler_gives_times_of_the_virtual_clock() -> None:
    array = cp.zeros(10**6)
    times = profiler.benchmark(lambda: array + 1, n_repeat=3, n_warmup=1)
    assert times.gpu_times.shape == (1, 3) and np.ptp(times.gpu_times) < 1e-9 < times.gpu_times.min()
    assert "GPU-0" in str(times)


def test_random_numbers_are_those_of_the_seed() -> None:
    cp.random.seed(3)
    first = cp.random.normal(5, 2, (1000,), cp.float32)
    cp.random.seed(3)
    assert (first == cp.random.normal(5, 2, (1000,), cp.float32)).all() and first.dtype == np.float32
    assert abs(float(first.mean()) - 5) < 0.3
    assert cp.random.randint(0, 3, 100).max().item() == 2 and cp.random.default_rng(1).random(3).shape == (3,)


# Refusals.


@pytest.mark.parametrize(
    ("attempt", "named"),
    [
        (lambda: cp.no_such_function, "cupy.no_such_function"),
        (lambda: cp.cuda.no_such_name, "cupy.cuda.no_such_name"),
        (lambda: cp.cuda.runtime.cudaNothing, "cupy.cuda.runtime.cudaNothing"),
        (lambda: cp.linalg.nothing, "cupy.linalg.nothing"),
        (lambda: cp.random.nothing, "cupy.random.nothing"),
        (lambda: cp.ones(1).nothing, "cupy.ndarray.nothing"),
        (lambda: cp.vectorize, "cupy.vectorize"),
        (lambda: cupyx.jit, "cupyx.jit"),
        (lambda: cupyx.scipy, "cupyx.scipy"),
        (lambda: cp.cuda.Device().cublas_handle, "cupy.cuda.Device.cublas_handle"),
        (lambda: cp.ones(1).__dlpack__(), "cupy.ndarray.__dlpack__"),
        (lambda: cp.cuda.texture.TextureObject(), "cupy.cuda.texture.TextureObject"),
        (lambda: cp.RawKernel("", "k", ("-dc",))((1,), (1,), ()), "'-dc'"),
        (lambda: cp.RawModule(path=__file__).get_function("k"), "RawModule(path="),
        (lambda: cp.ElementwiseKernel("T(i) x", "T y", "y = 0"), "T(i) x"),
    ],
)
def test_what_is_not_there_is_an_error_that_names_it(attempt: Any, named: str) -> None:
    with pytest.raises((AttributeError, UnsupportedOperationError), match=re.escape(named)):
        attempt()
