"""Programs for Numba CUDA that `test_numba_language` runs: what the host does, and what is reported of it."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from numba import carray, cuda, farray, guvectorize, njit, types, vectorize
from numba.core.errors import TypingError
from numba.core.extending import intrinsic, type_callable
from numba.cuda import launchconfig

from windtunnel.core.errors import ApiCode, Finding
from windtunnel.emulate import session
from windtunnel.emulate.common.api_errors import presenters

warnings.simplefilter("ignore")
FINDINGS = session.current.open().findings
NOTHING = np.zeros((0, 3))
ONES = np.ones(8)


def found(call: Callable[[], Any]) -> str:
    """The class and the message of the finding of a call; empty if there is none."""
    try:
        call()
    except Finding as finding:
        FINDINGS.clear()
        return f"{type(finding).__name__}: {finding}"
    return ""


@cuda.jit
def write_first(a):
    a[0] = 1


@cuda.jit
def add_first(a):
    cuda.atomic.add(a, 0, 1)


@cuda.jit
def write_corner(a):
    a[0, 0] = 1


@cuda.jit
def write_place(a):
    a[0].place = 1


@cuda.jit
def write_places(a):
    a[cuda.grid(1)].place = 1


@cuda.jit
def sizes(a, got):
    got[0] = a.size + 10 * NOTHING.size + 100 * NOTHING.shape[1]
    for i in range(a.shape[0]):
        got[0] += a[i]


def program_arrays_without_elements_have_no_index() -> None:
    for kernel, array in (
        (write_first, np.zeros(0)), (write_first, cuda.device_array(0)), (add_first, np.zeros(0, np.int32)),
        (write_first, np.zeros(4)[2:2]), (write_corner, np.zeros((0, 3))), (write_corner, np.zeros((3, 0))),
        (write_place, np.zeros(0, np.dtype([("place", np.int32)]))),
    ):  # fmt: skip
        said = found(lambda kernel=kernel, array=array: kernel[1, 1](array))
        assert said.startswith("OutOfBounds") and "index 0 is out of bounds for 'a" in said, said
    got = np.zeros(1)
    sizes[1, 1](np.zeros(0), got)
    assert got == 300


@cuda.jit
def beyond_slice(a):
    part = a[1:4]
    part[cuda.threadIdx.x] = 1


@cuda.jit
def beyond_begin(a):
    cuda.atomic.add(a[:3], cuda.threadIdx.x, 1)


@cuda.jit
def beyond_row(a):
    rows = a.reshape(2, 4)
    rows[0, cuda.threadIdx.x + 1] = 1


@cuda.jit
def beyond_shared(a):
    held = cuda.shared.array(8, np.float64)
    t = cuda.threadIdx.x
    held[t] = held[t + 4] = a[t]
    cuda.syncthreads()
    half = held[2:5]
    half[t] = t


@cuda.jit
def within(a):
    part = a[1:4]
    t = cuda.threadIdx.x
    if t < part.size and part[t] >= 0:
        part[t] = part[-1] * 0 if t == 1 else 2
    for row in a.reshape(2, 4):
        row[t] += 1


def program_indices_beyond_slices_are_findings_with_strict_alone() -> None:
    kernels = {
        beyond_slice: "part[cuda.threadIdx.x] = 1", beyond_begin: "cuda.atomic.add(a[:3]", beyond_row: "rows[0, ",
        beyond_shared: "half[t] = t", write_first: "a[0] = 1",
    }  # fmt: skip
    for strict in (False, True):
        with session.current.open().context.checking(strict=strict, counted=True, schedule=None):
            for kernel, line in kernels.items():
                a = cuda.to_device(np.zeros(8))
                part = a[2:2] if kernel is write_first else a
                said = found(lambda kernel=kernel, part=part: kernel[1, 1 if kernel is write_first else 4](part))
                begins = "OutOfBounds" if strict else ""
                assert said[:11] == begins and (not strict or f"({line}" in said), (kernel.__name__, strict, said)
            a = cuda.to_device(np.zeros(8))
            assert found(lambda a=a: within[1, 1](a)) == "" and a[1] == 2


@cuda.jit
def first_half(a):
    i = cuda.grid(1)
    if i < a.size // 2:
        a[i] += 1


@cuda.jit
def flagged(a):
    a[0] = 3
    cuda.threadfence_system()
    a[1] = 1


def program_the_host_reads_mapped_memory_before_it_has_waited() -> None:
    for make in (cuda.mapped_array, cuda.managed_array):
        a = make(8)
        a[:] = 0
        reads_are_observed(a)


def reads_are_observed(a: Any) -> None:
    stream, event = cuda.stream(), cuda.event()
    reads: tuple[Callable[[], Any], ...] = (
        lambda: a[0], lambda: a[-5], lambda: a.sum(), lambda: a[1:3] + 1, lambda: a.tolist(), lambda: a.copy(),
        lambda: list(a), lambda: (a == 0).all(), lambda: np.sqrt(a), lambda: float(a[3]),
    )  # fmt: skip
    for number, read in enumerate(reads):
        first_half[1, 8](a)
        said = found(read)
        assert said.startswith("MissingSync: ") and "the host reads the 64 bytes" in said, (number, said)
        assert f"{__file__.rpartition('/')[2]}:" in said and "kernel 'first_half'" in said
        cuda.synchronize()
        assert found(read) == ""
    for harmless in (lambda: a[4], lambda: a[4:].sum(), lambda: a[:2].shape, lambda: a.nbytes, lambda: a.T):
        first_half[1, 8](a)
        assert found(harmless) == ""
    for wait in (
        stream.synchronize, lambda: (event.record(stream), event.synchronize()),
        lambda: (event.record(stream), event.query()), lambda: cuda.to_device(a[4:]).copy_to_host(),
    ):  # fmt: skip
        first_half[1, 8, stream](a)
        wait()
        assert found(lambda: a[0]) == ""
    flagged[1, 1](a)  # the host polls such a flag
    assert found(lambda: a[0] + a[1]) == ""
    cuda.synchronize()


def program_the_host_writes_mapped_memory_before_it_has_waited() -> None:
    writes_are_observed(cuda.mapped_array(8))
    writes_are_observed(cuda.managed_array(8))


def writes_are_observed(a: Any) -> None:
    a[:] = 0
    for write in (lambda: a.__setitem__(1, 9), lambda: a[:3].fill(8), lambda: np.add(ONES, 7, out=a)):
        first_half[1, 8](a)
        said = found(write)
        line = write.__code__.co_firstlineno
        assert "the host writes through the view" in said and f"numba_host.py:{line}: " in said, said
        cuda.synchronize()
        assert found(write) == ""
    first_half[1, 8](a)
    assert found(lambda: a.__setitem__(5, 9)) == ""
    cuda.synchronize()


def program_memory_of_a_context_is_freed_and_divided() -> None:
    context, driver = cuda.current_context(), cuda.cudadrv.driver
    free_bytes = context.get_memory_info().free
    memory = context.memalloc(64)
    memory.memset(1)
    part = memory.own().view(8, 24)
    assert part.size == 16 and part.device_pointer == memory.device_pointer + 8
    array = cuda.cudadrv.devicearray.DeviceNDArray((2,), (8,), np.int64, gpu_data=part)
    array[1] = 5
    assert array.copy_to_host().tolist() == [0x0101010101010101, 5]
    memory.free()
    assert context.get_memory_info().free == free_bytes
    for call, words in (
        (memory.free, "dead pointer"), (lambda: part.view(17), "negative"), (array.copy_to_host, "free"),
        (lambda: context.memhostalloc(8), "memhostalloc"), (lambda: context.mempin(0, 0, 8), "mempin"),
        (lambda: context.memallocmanaged(8), "memallocmanaged"), (lambda: cuda.ManagedMemory(8), "ManagedMemory"),
    ):  # fmt: skip
        try:
            call()
        except Exception as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)
    FINDINGS.clear()
    grid = np.zeros((4, 6), np.int32)[::-2, 1:3]
    first, end = driver.host_memory_extents(grid)
    assert driver.host_memory_size(grid) == end - first == 2 * 24 + 8 and driver.get_version() == (12, 8)
    driver.device_memory_depends(array, grid)


@cuda.jit
def votes(a, mask):
    i = cuda.grid(1)
    a[i] = cuda.ballot_sync(mask, 1)


@cuda.jit
def shuffles(a, mask):
    i = cuda.grid(1)
    a[i] = cuda.shfl_sync(mask, i, 0)


@cuda.jit
def matches(a, mask):
    i = cuda.grid(1)
    a[i] = cuda.match_any_sync(mask, 1)


def program_a_lane_that_its_mask_does_not_name_is_a_finding() -> None:
    for kernel in (votes, shuffles, matches):
        assert "does not name the lane that executes it" in found(lambda k=kernel: k[1, 32](np.zeros(32), 0xFFFF))
        assert found(lambda k=kernel: k[1, 32](np.zeros(32), 0xFFFFFFFF)) == ""
        assert found(lambda k=kernel: k[1, 16](np.zeros(16), 0xFFFF)) == ""


def program_devices_contexts_events_and_launch_bounds_are_numba_s() -> None:
    context = cuda.current_context()
    assert context is cuda.current_context() and context.device is cuda.get_current_device() is cuda.gpus[0]
    for bound in (8, (8, 2)):
        bounded = cuda.jit(launch_bounds=bound)(first_half.py_func)
        bounded[1, 8](np.zeros(8))
        try:
            bounded[1, 9](np.zeros(8))
        except cuda.cudadrv.driver.CudaAPIError as error:
            assert error.code == 1 and "launch_bounds" in str(error) and "cuda error" not in str(error)
        else:
            raise AssertionError("a block larger than its launch_bounds")
        assert set(bounded.get_max_threads_per_block().values()) == {8}
    event = cuda.event(timing=False)
    event.record()
    try:
        event.elapsed_time(event)
    except cuda.cudadrv.driver.CudaAPIError as error:
        assert error.code == 400
    else:
        raise AssertionError("the time of an event without timing")


def program_findings_and_errors_have_the_names_of_the_program() -> None:
    @cuda.jit
    def of_constant(a):
        a[0] = ONES[a.size + 9]

    @guvectorize(["(float64[:], float64[:])"], "(n)->(n)", target="cuda")
    def shifted(x, result):
        for i in range(x.size):
            result[i] = x[i + 1]

    records = np.zeros(2, np.dtype([("place", np.int32), ("other", np.int32)]))
    for call, words in (
        (lambda: of_constant[1, 1](np.zeros(2)), "of_constant on h100-sxm-80gb: index 11 is out of bounds for 'ONES'"),
        (lambda: shifted(np.zeros((1, 3))), "shifted on h100-sxm-80gb: index (0, 3) is out of bounds for 'x'"),
        (lambda: write_places[1, 4](records), "index 2 is out of bounds for 'a.place'"),
    ):
        said = found(call)
        assert words in said, said

    def makes_an_array(a):
        a[0] = np.zeros(4)[0]

    def calls_code_for_processors(a):
        a[0] = np.dot(a, a)

    njit(lambda a: np.dot(a, a) + np.zeros(2)[0])(np.zeros(2))  # Numba now knows the code of both for the processor
    for function, words in ((makes_an_array, "cuda.local.array"), (calls_code_for_processors, "a call of 'np.dot'")):
        try:
            cuda.jit(function)[1, 1](np.zeros(4))
        except TypingError as error:
            assert f"numba_host.py:{function.__code__.co_firstlineno + 1}:" in str(error) and words in str(error), error
        else:
            raise AssertionError(function.__name__)


@cuda.jit(device=True)
def next_of(a, i):
    return a[i + 1]  # the line of the finding


@cuda.jit
def calls_next_of(a, got):
    i = cuda.grid(1)
    got[i] = next_of(a, i)


@cuda.jit
def calls_a_lambda(a, got):
    next_item = lambda i: a[i + 1]  # noqa: E731  the line of the finding
    i = cuda.grid(1)
    got[i] = next_item(i)


def program_an_element_that_a_function_returns_is_read_at_the_function_s_line() -> None:
    for kernel in (calls_next_of, calls_a_lambda):
        said = found(lambda kernel=kernel: kernel[1, 4](np.zeros(4), np.zeros(4)))
        assert "index 4 is out of bounds for 'a'" in said and "the line of the finding" in said, said


def program_parts_and_results_of_mapped_arrays_have_memory_of_their_own() -> None:
    for make in (cuda.mapped_array, cuda.managed_array):
        a = make((2, 4), np.int64)
        a[:] = np.arange(8).reshape(2, 4)
        doubled = a * 2
        first_half[1, 8](doubled[0])
        first_half[1, 8](a[1])
        first_half[1, 8](a[:, ::2][0])
        cuda.synchronize()
        assert a.tolist() == [[1, 1, 2, 3], [5, 6, 6, 7]] and doubled[0].tolist() == [1, 3, 4, 6]
        assert cuda.is_cuda_array(a[1]) and not cuda.is_cuda_array(doubled) and not cuda.is_cuda_array(a.copy())
        stream = cuda.stream()
        assert make(2, stream=stream)[1:].__cuda_array_interface__["stream"] == int(stream)
        a += 1
        assert type(a) is cuda.cudadrv.devicearray.MappedNDArray and a.copy_to_host()[1, 3] == 8


def program_ravel_keeps_the_order_of_memory() -> None:
    for order in "CF":
        array = cuda.to_device(np.asarray(np.arange(6).reshape(2, 3), order=order))
        for asked in (order, "A"):
            assert array.ravel(order=asked).copy_to_host().tolist() == np.arange(6).reshape(2, 3).ravel(order).tolist()
    try:
        array.ravel(order="K")
    except ValueError as error:
        assert str(error) == "order not C|F|A"
    else:
        raise AssertionError("the order K")


@vectorize(["int64(int64, int64)"], target="cuda")
def add(a, b):
    return a + b


def reduced_as_numba_does(values: np.ndarray) -> np.ndarray:
    count = len(values)
    if count % 2:
        out = reduced_as_numba_does(values[:-1])
        out += values[-1:]
        return out
    values[: count // 2] += values[count // 2 :]
    return reduced_as_numba_does(values[: count // 2]) if count > 2 else values[:1]


def program_reduce_overwrites_its_argument_as_numba_does() -> None:
    for count in (2, 3, 7, 12):
        array, wanted = cuda.to_device(np.arange(count)), np.arange(count)
        reduced_as_numba_does(wanted)
        assert add.reduce(array) == count * (count - 1) // 2 == wanted[0]
        assert array.copy_to_host().tolist() == wanted.tolist()


def program_libdevice_is_a_part_of_cuda() -> None:
    @cuda.jit
    def root(a):
        a[0] = cuda.libdevice.sqrtf(a[0])

    a = np.array([9], np.float32)
    root[1, 1](a)
    assert a[0] == 3


def program_arguments_without_a_form_are_refused_as_by_numba() -> None:
    @cuda.jit
    def kernel(a, text):
        a[0] = 1

    for argument in ("text", None, ("text", 1), write_first, np.float32):
        try:
            kernel[1, 1](np.zeros(1), argument)
        except NotImplementedError as error:
            assert len(error.args) == 2 and str(error.args[0])
        else:
            raise AssertionError(argument)


def program_pointers_are_arrays_of_the_memory_from_an_address_on() -> None:
    @cuda.jit(types.void(types.CPointer(types.float32), types.int64, types.float32[:, :]))
    def kernel(pointer, n, got):
        rows, columns = carray(pointer, (n, 3)), farray(pointer, (n, 3), dtype=np.float32)
        for i in range(n):
            for j in range(3):
                got[i, j] = rows[i, j] + 100 * columns[i, j]
        carray(pointer, 4)[3] = pointer[1]

    a, got = cuda.to_device(np.arange(8, dtype=np.float32)), np.zeros((2, 3), np.float32)
    kernel[1, 1](a[1:].device_ctypes_pointer.value, 2, got)
    wanted = np.arange(1, 7)
    assert (got == wanted.reshape(2, 3) + 100 * wanted.reshape(3, 2).T).all()
    assert a.copy_to_host().tolist() == [0, 1, 2, 3, 2, 5, 6, 7]
    said = found(lambda: kernel[1, 1](a.device_ctypes_pointer.value, 3, np.zeros((3, 3), np.float32)))
    assert "index 8 is out of bounds for 'pointer' of 8 elements" in said
    try:
        kernel[1, 1](12345, 2, got)
    except cuda.cudadrv.driver.CudaAPIError as error:
        assert "0x3039" in str(error)
    else:
        raise AssertionError("an address outside of all memory")


def program_errors_of_types_have_words_that_tests_for_numba_look_for() -> None:
    def of_size(a):
        cuda.shared.array(a.size, np.float32)

    def of_sizes(a):
        cuda.local.array((2, a[0]), np.int16)

    def of_objects(a):
        held = cuda.local.array(2, np.dtype("O"))  # noqa: F841

    def too_large(a):
        a[0] = 10**20

    def unaligned(a):
        cuda.local.array(2, np.int8, 3.0)

    none = "No implementation of function Function(<function "
    for function, *words in (
        (of_size, f"{none}shared.array", ">>> array(shape=int64, dtype=class(float32))"),
        (of_sizes, f"{none}local.array", ">>> array(shape=Tuple(Literal[int](2), int32), dtype=class(int16))"),
        (of_objects, "Cannot infer the type of variable 'held'"),
        (too_large, "Int value is too large: 100000000000000000000"),
        (unaligned, "RequireLiteralValue: alignment must be a constant integer"),
    ):
        try:
            cuda.jit("void(int32[:])")(function)
        except TypingError as error:
            assert all(word in str(error) for word in words), error
        else:
            raise AssertionError(function.__name__)

    @cuda.jit
    def uneven(a):
        held = cuda.local.array(2, np.dtype("i1"), alignment=12)
        a[0] = held.size

    try:
        uneven[1, 1](np.zeros(1))
    except ValueError as error:
        assert str(error) == "Alignment must be a power of 2"
    else:
        raise AssertionError("an alignment of 12 bytes")


def program_the_host_sees_a_mapped_array_after_each_wait() -> None:
    held, stream = np.zeros(8), cuda.stream()
    columns, records = np.asfortranarray(np.ones((2, 3))), np.zeros(4, [("x", "f4"), ("n", "i4")])

    @cuda.jit
    def change(a, b, c):
        i = cuda.grid(1)
        a[i] += 1
        if i < b.size:
            b[i % 2, i // 2] = i
        if i < len(c):
            c[i].n += i

    with cuda.mapped(held, columns, records, stream=stream) as sides:
        for before in (0, 5):
            held[:] = before
            change[1, 8, stream](*sides)
            stream.synchronize()
            assert held.tolist() == [before + 1] * 8
    assert columns.tolist() == [[0, 2, 4], [1, 3, 5]] and records["n"].tolist() == [0, 2, 4, 6]
    try:
        add_first[1, 1](sides[0])
    except cuda.cudadrv.driver.CudaAPIError as error:
        assert "the buffer was freed" in str(error) and "contextlib" not in str(error), error
    else:
        raise AssertionError("an array after the end of its mapping")

    def changed() -> None:
        with cuda.mapped(held) as side:
            write_first[1, 1](side)
            held[0] = 3
            cuda.synchronize()

    said = found(changed)
    assert said.startswith("MissingSync: ") and "write_first" in said and "contextlib" not in said, said


def program_what_is_written_for_llvm_is_refused_by_name() -> None:
    class Interval:
        pass

    @intrinsic
    def sum_of(context, a, b):
        return types.int64(a, b), lambda context, builder, signature, given: builder.add(*given)

    type_callable(Interval)(lambda context: lambda: types.int64)

    def makes(a):
        a[0] = Interval()

    def adds(a):
        a[0] = sum_of(1, 2)

    for function, words in ((makes, "'Interval', a type"), (adds, "'sum_of', an intrinsic")):
        try:
            cuda.jit(function)[1, 1](np.zeros(1))
        except TypingError as error:
            assert words in str(error) and "LLVM" in str(error), error
        else:
            raise AssertionError(words)


def program_options_of_kernels_are_checked_as_numba_checks_them() -> None:
    for words, options in (
        ("Got 4 launch bounds: (8, 2, 4, 8)", {"launch_bounds": (8, 2, 4, 8)}),
        ("Carveout must be between -1 and 100", {"shared_memory_carveout": 101}),
        ("Invalid carveout value: most", {"shared_memory_carveout": "most"}),
    ):
        try:
            cuda.jit("void()", **options)(lambda: None)
        except ValueError as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)
    cuda.jit("void()", launch_bounds=(8, 2, 4), shared_memory_carveout="MaxL1")(lambda: None)[1, 8]()

    # A program that has imported cuda.core catches its class, which numba-cuda raises.
    module, place = ModuleType("cuda_utils"), "cuda.core._utils.cuda_utils"
    module.CUDAError = type("CUDAError", (Exception,), {})
    sys.modules[place] = module
    try:
        kind = presenters["numba"]("launch", *[ApiCode("cuda", "CUDA_ERROR_INVALID_VALUE", 1)] * 2).kind
    finally:
        del sys.modules[place]
    assert issubclass(kind, module.CUDAError) and issubclass(kind, cuda.cudadrv.driver.CudaAPIError)


def program_each_thread_compiles_for_its_own_launch() -> None:
    seen: list[object] = []
    with launchconfig.launching("of the main thread"):
        other = threading.Thread(target=lambda: seen.append(launchconfig.current_launch_config()))
        other.start()
        other.join()
        assert launchconfig.current_launch_config() == "of the main thread"
    assert seen == [None]


if __name__ == "__main__":
    for name, program in list(globals().items()):
        if name.startswith("program_"):
            program()
            print(name)
    assert not FINDINGS
