"""What was recorded on a real GPU: programs of Numba CUDA and kernels in CUDA C (tests/corpus).

The recordings are complete and well formed, and the programs that use nothing beyond the kernel language compute in the
emulator, to the bit, what they computed on the GPU. Neither Numba CUDA nor a GPU is needed: a module of this file takes
the place of ``numba.cuda``.
"""

from __future__ import annotations

import ast
import base64
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel import errors

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
NUMBA = json.loads((CORPUS / "numba_cuda" / "recorded.json").read_text(encoding="utf-8"))
CUDA_C = json.loads((CORPUS / "cuda_c" / "recorded.json").read_text(encoding="utf-8"))
PROGRAMS = {(one["module"], one["program"]): one for one in NUMBA["programs"]}

SAME = {
    "arithmetic": (
        "narrow_results_wrap_when_stored", "division_of_int64", "division_of_float64", "casts", "stores_convert",
        "bits_of_signed_and_unsigned", "int64_wraps", "a_variable_s_type_is_the_widest",
    ),
    "language": (
        "default_and_keyword_arguments_of_helpers", "enumerations", "fortran_order_and_strides", "arrays_of_bool",
        "compiled_from_types",
    ),
    "threads": (
        "shared_array", "shared_tile_of_two_dimensions", "dynamic_shared_memory", "local_array",
        "atomics_at_computed_indices", "histogram_in_shared_memory", "shuffles", "sum_by_shuffles", "sum_by_a_tree",
        "grid_sync", "stencil", "grid_stride_loop", "lock", "last_block_sums", "early_return", "hash_in_uint64",
    ),
}  # fmt: skip
"""Programs whose arithmetic is the same in C and in Numba, and which use nothing that the language lacks."""


def array_of(recorded: dict[str, Any]) -> np.ndarray:
    kind = recorded["dtype"]
    dtype = np.dtype(kind) if isinstance(kind, str) else np.dtype([(name, *rest) for name, *rest in kind if name])
    data = base64.b64decode(recorded["bytes"])
    if not isinstance(kind, str):  # the padding of records is not compared
        return np.frombuffer(data, np.uint8).reshape(*recorded["shape"], recorded["itemsize"])
    return np.frombuffer(data, dtype).reshape(recorded["shape"])


def test_every_program_of_numba_was_recorded_and_ends_as_its_file_says() -> None:
    written = {
        (path.stem, node.name.removeprefix("program_"))
        for path in (CORPUS / "numba_cuda").glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("program_")
    }
    assert set(PROGRAMS) == written and len(written) == len(NUMBA["programs"]) == 172
    for (module, name), one in PROGRAMS.items():
        assert ("outputs" in one) != ("error" in one), name
        assert module == "errors" or one["outputs"], f"{module}.{name} has no numbers"
        for recorded in one.get("outputs", {}).values():
            found = array_of(recorded)
            for value, shown in zip(found.ravel().tolist(), recorded.get("values", ()), strict=False):
                assert repr(value) == shown


def test_every_kernel_in_c_was_recorded_with_its_launch_and_verdicts() -> None:
    kernels = {path.stem: path.read_text(encoding="utf-8") for path in (CORPUS / "cuda_c" / "kernels").glob("*.cu")}
    cases = {one["case"]: one for one in CUDA_C["cases"]}
    assert set(cases) == set(kernels) and len(cases) == len(CUDA_C["cases"]) == 123
    others = {"clean", "equal-writes", "misaligned", "undefined-shuffle", "scoped-atomic", "AssertionFailed"}
    for name, one in cases.items():
        stated = re.search(r"^// truth: (\S+)$", kernels[name], re.M)
        assert stated is not None and stated[1] == one["truth"]
        assert one["truth"] in others or hasattr(errors, one["truth"]), one["truth"]
        assert one["kernel"] in kernels[name] and len(one["parameters"]) == len(one["arguments"])
        found = {tool for tool, said in one["tools"].items() if said["code"] == 9}
        if one["truth"] != "clean":
            continue
        assert one["run"]["code"] == 0 and not found, f"{name} is clean, and {found} found something"
        for argument, recorded in one["outputs"].items():
            _, count, dtype = one["arguments"][argument].split(":")
            assert len(base64.b64decode(recorded["bytes"])) == int(count) * np.dtype(dtype).itemsize


class Kernel:
    """A kernel as Numba launches it: ``kernel[grid, block, stream, shared](arrays)``, which are copied both ways."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.kernel = windtunnel.kernel(function)

    def __getitem__(self, configuration: tuple[Any, ...]) -> Callable[..., None]:
        grid, block, *more = configuration

        def launch(*arguments: Any) -> None:
            device = windtunnel.device("h200-sxm-141gb")
            held = {
                id(a): (a, device.to_device(np.ascontiguousarray(a))) for a in arguments if isinstance(a, np.ndarray)
            }
            given = [held[id(a)][1] if isinstance(a, np.ndarray) else a for a in arguments]
            device.launch(self.kernel, grid, block, *given, shared_bytes=more[1] if len(more) > 1 else 0)
            for array, buffer in held.values():
                array[...] = device.to_host(buffer)

        return launch


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Load a module of programs with Windtunnel's names in the place of ``numba.cuda``."""

    def jit(*arguments: Any, device: bool = False, **_: Any) -> Any:
        if arguments and isinstance(arguments[0], FunctionType):
            return Kernel(arguments[0])
        return (lambda function: function) if device else Kernel

    class Type:
        """``types.void(types.float64[:])``: signatures are read by nobody here."""

        def __getattr__(self, _: str) -> Type:
            return self

        def __getitem__(self, _: Any) -> Type:
            return self

        def __call__(self, *_: Any) -> Type:
            return self

    cuda = ModuleType("numba.cuda")
    for name in dir(windtunnel):
        if not name.startswith("_"):
            setattr(cuda, name, getattr(windtunnel, name))
    vars(cuda).update(jit=jit, to_device=lambda array: array, synchronize=lambda: None)
    numba: Any = ModuleType("numba")
    kinds = {"float": "f", "int": "i", "uint": "u"}
    for word, short in kinds.items():
        for bits in (8, 16, 32, 64):
            setattr(numba, f"{word}{bits}", getattr(windtunnel, f"{short}{bits}", None))
    numba.cuda, numba.types = cuda, Type()
    monkeypatch.setitem(sys.modules, "numba", numba)
    monkeypatch.setitem(sys.modules, "numba.cuda", cuda)

    def load(name: str) -> ModuleType:
        path = CORPUS / "numba_cuda" / f"{name}.py"
        found = importlib.util.spec_from_file_location(f"numba_cuda_{name}", path)
        assert found is not None and found.loader is not None
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        return module

    yield load


@pytest.mark.parametrize("module", SAME)
def test_the_emulator_computes_what_the_gpu_computed(programs: Callable[[str], ModuleType], module: str) -> None:
    loaded = programs(module)
    for name in SAME[module]:
        for output, found in getattr(loaded, f"program_{name}")().items():
            recorded = array_of(PROGRAMS[module, name]["outputs"][output])
            assert found.dtype == recorded.dtype and found.shape == recorded.shape, (name, output)
            assert found.tobytes() == recorded.tobytes(), (name, output)


def test_numba_contracts_a_product_and_a_sum_which_the_emulator_rounds_separately(
    programs: Callable[[str], ModuleType],
) -> None:
    found = programs("threads").program_matmul_with_tiles()["c"]
    recorded = array_of(PROGRAMS["threads", "matmul_with_tiles"]["outputs"]["c"])
    assert not np.array_equal(found, recorded)
    np.testing.assert_allclose(found, recorded, rtol=30 * 2.0**-24)
    fused = programs("arithmetic").program_fma_and_contraction()
    for name, same in (("fused", True), ("plain", False)):
        recorded = array_of(PROGRAMS["arithmetic", "fma_and_contraction"]["outputs"][name])
        assert np.array_equal(fused[name], recorded) is same
