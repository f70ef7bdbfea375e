"""The stand-in for CuPy is CuPy's likeness: its names, its parameters, its errors; and it bites where CuPy would not."""

from __future__ import annotations

import inspect
import re
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.backends import fake_compilers
from tests.backends.fake_cupy import FakeCupy
from tests.backends.fake_device import NAMES, CompileException, CUDARuntimeError

SIGNATURES = [line.split() for line in Path(__file__).with_name("cupy_signatures.txt").read_text().splitlines()]
"""Of CuPy 14.2.0: a function, and the names of its parameters."""
MODULES = ("cublas", "cufft")


def loads() -> bool:
    """Whether CuPy is here, and cuBLAS and cuFFT with it, which are no part of it."""
    try:
        import cupy

        return all(getattr(cupy.cuda, name) is not None for name in MODULES)
    except ImportError:
        return False


with_libraries = pytest.mark.skipif(not loads(), reason="compared with CuPy's cuBLAS and cuFFT where those load")
OF_LIBRARIES = [one for one in SIGNATURES if one[0].startswith(MODULES)]
installed = pytest.mark.skipif(find_spec("cupy") is None, reason="compared with CuPy itself where that is installed")
KERNEL = 'extern "C" __global__ void twice(float *a) { a[threadIdx.x] *= 2; }'


def at(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def real(path: str) -> Any:
    import cupy

    if path.startswith("Graph."):
        from cupy.cuda.graph import Graph

        return getattr(Graph, path.removeprefix("Graph."))
    return at(cupy.cuda, path)


def parameters(function: Any) -> list[str]:
    """Names of parameters, by the signature, or by the first line of what Cython leaves of it in the docstring."""
    try:
        names = list(inspect.signature(function).parameters)
    except ValueError:
        names = []
    if not names or "args" in names:
        inside = re.search(r"\((.*)\)", function.__doc__.splitlines()[0] if function.__doc__ else "()")
        names = [part.split("=")[0].split()[-1] for part in inside[1].split(",") if part.strip()] if inside else []
    return [name for name in names if name not in ("self", "*")]


@pytest.mark.parametrize(("path", "names"), [(path, names) for path, *names in SIGNATURES])
def test_a_function_takes_what_cupy_s_does(path: str, names: list[str]) -> None:
    function = inspect.unwrap(at(FakeCupy().cuda, path))
    assert [name for name in inspect.signature(function).parameters if name != "self"] == names


@installed
def test_what_is_kept_of_cupy_s_parameters_is_so() -> None:
    own = [one for one in SIGNATURES if one not in OF_LIBRARIES]
    assert [[path, *parameters(real(path))] for path, *_ in own] == own


@with_libraries
def test_what_is_kept_of_its_libraries_parameters_is_so() -> None:
    assert [[path, *parameters(real(path))] for path, *_ in OF_LIBRARIES] == OF_LIBRARIES


@with_libraries
@pytest.mark.parametrize("name", MODULES)
def test_a_library_s_names_constants_and_errors_are_cupy_s(name: str) -> None:
    mine, theirs = getattr(FakeCupy().cuda, name), real(name)
    for one, value in vars(mine).items():
        found = getattr(theirs, one)
        if isinstance(value, int):
            assert found == value, one
        elif one.endswith("Error"):
            status = 15 if name == "cublas" else 2
            assert str(found(status)) == str(value(status)) and vars(found(status)) == vars(value(status))


def names_of(module: Any, path: str = "") -> list[str]:
    found = []
    for name, value in vars(module).items():
        found += names_of(value, f"{path}{name}.") if isinstance(value, SimpleNamespace) else [path + name]
    return found


def test_all_functions_are_compared() -> None:
    compared = {path for path, *_ in SIGNATURES} | {path.split(".")[0] for path, *_ in SIGNATURES}
    fake = FakeCupy().cuda
    for name in MODULES:
        rest = {f"{name}.{one}" for one, value in vars(getattr(fake, name)).items() if callable(value)} - compared
        assert all(one.endswith("Error") for one in rest), rest
    functions = [name for name in names_of(FakeCupy().cuda) if callable(at(FakeCupy().cuda, name))]
    rest = {name for name in functions if name not in compared and not name.endswith(("Error", "Exception"))}
    assert rest == {"Function"}, "compared by calling it"


@installed
def test_all_its_names_and_constants_are_cupy_s() -> None:
    cuda = FakeCupy().cuda
    for name in names_of(cuda):
        if name == "Graph":
            continue
        found, mine = real(name), at(cuda, name)
        if isinstance(mine, int):
            assert found == mine, name


@installed
def test_its_errors_say_what_cupy_s_do() -> None:
    for status in NAMES:
        theirs, mine = real("runtime.CUDARuntimeError")(status), CUDARuntimeError(status)
        assert str(theirs) == str(mine) and theirs.status == mine.status
        assert isinstance(theirs, RuntimeError)


@installed
def test_cupy_s_kernels_take_the_arguments_that_the_driver_gives() -> None:
    cls = real("Function")
    function = cls.__new__(cls)
    arguments = (np.uint64(8), np.int32(1), np.uint8(1), np.float32(1), np.float64(1), np.int64(1))
    # Without a driver it gets as far as that; with one, the kernel that is none is refused.
    with pytest.raises(RuntimeError):
        function((1, 1, 1), (1, 1, 1), arguments, shared_mem=0, stream=real("Stream.null"))
    with pytest.raises(RuntimeError):
        function(
            (1, 1, 1), (1, 1, 1), arguments, shared_mem=0, stream=real("Stream.null"), enable_cooperative_groups=True
        )
    with pytest.raises(TypeError):
        function((1, 1, 1), (1, 1, 1), arguments, no_such_argument=0)


@installed
def test_cupy_s_raw_modules_flush_subnormals_which_is_why_they_are_not_used() -> None:
    source = inspect.getsource(inspect.getmodule(real("compiler.compile_using_nvrtc")))  # type: ignore[arg-type]
    assert "options += ('-ftz=true',)" in source
    plain, flushed = (fake_compilers.nvrtc(KERNEL, (*o, "-arch=compute_90"))[0] for o in ((), ("-ftz=true",)))
    assert b".ftz." not in plain and b".ftz." in flushed


# It bites.


def filled(fake: FakeCupy, value: float) -> tuple[int, np.ndarray]:
    address = fake.cuda.runtime.malloc(32)
    here = np.full(8, value, np.float32)
    fake.cuda.runtime.memcpyAsync(address, here.ctypes.data, 32, 1, 0)
    fake.cuda.Stream.null.synchronize()
    return address, here


def kernel(fake: FakeCupy) -> Any:
    code, _ = fake.cuda.compiler.compile_using_nvrtc(KERNEL, cache_in_memory=True)
    module = fake.cuda.Module()
    module.load(code)
    return module.get_function("twice")


def read(fake: FakeCupy, address: int, stream: Any) -> list[float]:
    out = np.zeros(8, np.float32)
    fake.cuda.runtime.memcpyAsync(out.ctypes.data, address, 32, 2, stream.ptr)
    stream.synchronize()
    return list(out)


def test_nothing_is_done_before_it_is_waited_for_and_streams_know_nothing_of_each_other() -> None:
    fake = FakeCupy()
    address, _ = filled(fake, 1)
    twice, one, two = kernel(fake), *(fake.cuda.Stream(non_blocking=True) for _ in range(2))
    twice((1, 1, 1), (8, 1, 1), (np.uint64(address),), stream=one)
    assert read(fake, address, two) == [1] * 8
    assert read(fake, address, one) == [2] * 8


@pytest.mark.parametrize("first", ["default", "blocking"])
def test_the_default_stream_and_blocking_ones_wait_for_each_other(first: str) -> None:
    fake = FakeCupy()
    address, _ = filled(fake, 1)
    both = [fake.cuda.Stream.null, fake.cuda.Stream()]
    one, two = both if first == "default" else reversed(both)
    kernel(fake)((1, 1, 1), (8, 1, 1), (np.uint64(address),), stream=one)
    assert read(fake, address, two) == [2] * 8


def test_an_event_orders_streams() -> None:
    fake = FakeCupy()
    address, _ = filled(fake, 1)
    one, two = (fake.cuda.Stream(non_blocking=True) for _ in range(2))
    kernel(fake)((1, 1, 1), (8, 1, 1), (np.uint64(address),), stream=one)
    event = fake.cuda.Event()
    event.record(one)
    assert fake.cuda.runtime.eventQuery(event.ptr) == 600
    two.wait_event(event)
    assert read(fake, address, two) == [2] * 8
    assert fake.cuda.runtime.eventQuery(event.ptr) == 0


def test_what_no_device_would_take_is_refused() -> None:
    fake = FakeCupy()
    address, here = filled(fake, 1)
    twice, stream = kernel(fake), fake.cuda.Stream()
    for program in (
        lambda: fake.cuda.runtime.memcpyAsync(address, here.ctypes.data, 33, 1, 0),
        lambda: fake.cuda.runtime.memcpyAsync(here.ctypes.data, address, 32, 1, 0),
        lambda: fake.cuda.runtime.free(address + 8),
        lambda: fake.cuda.runtime.memcpyAsync(address, here.ctypes.data, 32, 1, 12345),
    ):
        with pytest.raises(CUDARuntimeError):
            program()
    for program in (
        lambda: twice((1, 1, 1), (8, 1, 1), (address,), stream=stream),
        lambda: twice((1, 1, 1), (8, 1, 1), (np.int32(1),), stream=stream),
        lambda: twice((1, 1, 1), (8, 1, 1), (np.uint64(address), np.int32(1)), stream=stream),
        lambda: twice((1, 1, 1), (8, 1, 1), (np.uint64(address),)),
        lambda: fake.cuda.runtime.malloc(np.int64(8)),
    ):
        with pytest.raises(AssertionError):
            program()
    with pytest.raises(AttributeError):
        fake.cuda.runtime.deviceReset()
    twice((1, 1, 1), (8, 1, 1), (np.uint64(address),), stream=stream)
    with pytest.raises(AssertionError, match="that work still uses"):
        fake.cuda.runtime.free(address)


def test_a_capture_that_does_not_join_is_refused() -> None:
    fake = FakeCupy()
    address, _ = filled(fake, 1)
    twice, one, two = kernel(fake), *(fake.cuda.Stream(non_blocking=True) for _ in range(2))
    one.begin_capture()
    event = fake.cuda.Event(disable_timing=True)
    event.record(one)
    two.wait_event(event)
    twice((1, 1, 1), (8, 1, 1), (np.uint64(address),), stream=two)
    with pytest.raises(CUDARuntimeError, match="unjoined"):
        one.end_capture()


def test_source_that_is_wrong_does_not_compile() -> None:
    with pytest.raises(CompileException, match='identifier "nothing" is undefined'):
        FakeCupy().cuda.compiler.compile_using_nvrtc(KERNEL.replace("2", "nothing"), cache_in_memory=True)
    with pytest.raises(CompileException, match="undeclared identifier 'nothing'"):
        FakeCupy(hip=True).cuda.compiler.compile_using_nvrtc(KERNEL.replace("2", "nothing"), cache_in_memory=True)
