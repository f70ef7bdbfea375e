"""What `transpile` prints: the whole text of each kernel for each target, and its errors."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from types import ModuleType

import pytest

from windtunnel.codegen import TARGETS, Buffer, GridSize, Side, Value, transpile, with_sizes
from windtunnel.codegen.load import load
from windtunnel.core.errors import InputError
from windtunnel.language.source import KernelError
from windtunnel.language.types import BF16, BOOL, F32, I32, U8, U32

Command = Callable[..., CompletedProcess[str]]
FOLDER = Path(__file__).with_name("transpile")
KERNELS = FOLDER / "kernels.py"
SHOWN = (
    "saxpy", "strided", "matmul", "reduction", "histogram", "stencil", "warp_sum", "collatz", "hashing", "halves",
    "floors", "awkward", "smoothed", "laplacian", "laplacian_untiled", "diffused",
)  # fmt: skip
BLOCKS = {"matmul": (8, 8, 1), "stencil": (8, 8, 1), "laplacian_untiled": (8, 8, 1)}
"""Where it is not the stencil's tile, or 256."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SHOWN)
def test_the_text_is_the_one_that_was_looked_at(name: str, target: str) -> None:
    if (name, target) == ("warp_sum", "fpga"):
        pytest.raises(KernelError, transpile, load(f"{KERNELS}:{name}"), target)
        return
    block = BLOCKS.get(name)
    made = transpile(load(f"{KERNELS}:{name}"), target, block).source
    golden = FOLDER / f"{name}.{target}"
    if os.environ.get("WINDTUNNEL_REGENERATE"):
        golden.write_text(made)
        pytest.fail("written again; run without WINDTUNNEL_REGENERATE")
    assert made == golden.read_text()
    assert made == transpile(load(f"{KERNELS}:{name}"), target, block).source


def written(folder: Path, text: str) -> ModuleType:
    path = folder / "own.py"
    names = "atomic, bf16, boolean, f32, f64, grid, i32, i64, shared, syncthreads, syncwarp, threadfence, u32"
    path.write_text(f"import math\nfrom windtunnel import {names}\n{text}")
    spec = importlib.util.spec_from_file_location("own_kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_arguments_are_arrays_then_sides_then_scalars(tmp_path: Path) -> None:
    own = written(
        tmp_path,
        "def k(a: i32, x: f32[:, :], flag: bool, y: f32[:], z: f32[:], s: bf16):\n"
        "    i = grid(1)\n    if i < len(z) and flag:\n        y[i] = x[0, i] * z[i] + a + f32(s)\n",
    )
    cuda = transpile(own.k, "cuda").signature
    assert cuda.arguments == (
        Buffer("x", F32, 2, False, 0), Buffer("y", F32, 1, True, 1), Buffer("z", F32, 1, False, 2),
        Side("x_shape0", "x", 0, I32, 3), Side("x_shape1", "x", 1, I32, 4), Side("z_shape0", "z", 0, I32, 5),
        Value("a", I32, I32, 6), Value("flag", BOOL, U8, 7), Value("s", BF16, F32, 8),
    )  # fmt: skip
    assert cuda.uniform is None
    hip, fpga = (transpile(own.k, target).signature for target in ("hip", "fpga"))
    assert hip == cuda
    assert fpga.arguments[:9] == cuda.arguments
    assert fpga.arguments[9:] == tuple(GridSize(f"grid_size_{x}", n, I32, 9 + n) for n, x in enumerate("xyz"))


def test_wgsl_puts_numbers_into_one_uniform() -> None:
    made = transpile(load(f"{KERNELS}:saxpy"), "wgsl").signature
    assert (made.uniform, [one.name for one in made.numbers]) == (2, ["n", "a"])
    assert [one.passed for one in made.numbers if isinstance(one, Value)] == [I32, F32]
    flag = transpile(load(f"{KERNELS}:warp_sum"), "wgsl").signature
    assert flag.uniform is None


def test_a_bool_is_four_bytes_in_wgsl(tmp_path: Path) -> None:
    own = written(tmp_path, "def k(x: u32[:], flag: bool):\n    if flag:\n        x[0] = 1\n")
    (_, flag) = transpile(own.k, "wgsl").signature.arguments
    assert isinstance(flag, Value)
    assert flag.passed == U32


def test_a_parameter_without_annotation_is_an_error_at_its_line(tmp_path: Path) -> None:
    own = written(tmp_path, "def k(x: f32[:],\n      n):\n    x[grid(1)] = n\n")
    with pytest.raises(KernelError, match=r"own\.py:4: n: parameter 'n' has no type.*n: i32 for a number"):
        transpile(own.k, "cuda")


def test_atomics_in_one_expression_come_in_pythons_order(tmp_path: Path) -> None:
    own = written(tmp_path, "def k(x: i32[:]):\n    x[1] = atomic.add(x, 0, 5) * 10 + x[0]\n")
    lines = [line.strip() for line in transpile(own.k, "cuda").source.splitlines()]
    assert lines[-4:-2] == ["int x_was1 = atomicAdd(&x[0], 5);", "int x_was2 = x[0];"]


LAUNCHED = "def k(x: i32[:]):\n    s = shared.array(0, i32)\n    s[0] = 1\n"
"""A shared array whose size the launch gives."""


def test_a_shared_array_of_the_launchs_size_is_cudas_external_one(tmp_path: Path) -> None:
    own = written(tmp_path, LAUNCHED)
    for target in ("cuda", "hip"):
        assert "    extern __shared__ int s[];" in transpile(own.k, target).source.splitlines()


def test_infinities_need_no_header_of_cudas(tmp_path: Path) -> None:
    own = written(
        tmp_path, "def k(x: f32[:], y: f64[:]):\n    x[0] = -math.inf\n    x[1] = math.nan\n    y[0] = math.inf\n"
    )
    cuda = transpile(own.k, "cuda").source
    assert "x[0] = -__uint_as_float(0x7f800000u);" in cuda
    assert "x[1] = __uint_as_float(0x7fc00000u);" in cuda
    assert "y[0] = (double)__uint_as_float(0x7f800000u);" in cuda


@pytest.mark.parametrize("target", TARGETS)
def test_a_loop_over_nothing_that_is_named_gives_names_that_every_language_takes(tmp_path: Path, target: str) -> None:
    own = written(tmp_path, "def k(x: i32[:]):\n    for _ in range(x[0]):\n        x[1] = x[1] + 1\n")
    assert "__stop" not in transpile(own.k, target).source


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        ("def k(x: f64[:]):\n    x[0] = 1\n", "metal", r":3: the Metal shading language has no f64; expected f32"),
        ("def k(x: f64[:]):\n    x[0] = 1\n", "wgsl", r":3: WGSL has no f64"),
        ("def k(x: boolean[:]):\n    x[0] = True\n", "wgsl", r":3: a WGSL buffer holds no bool; expected u32"),
        ("def k(x: f32[:]):\n    x[0] = math.erf(x[1])\n", "wgsl", r":4: WGSL has no erf"),
        ("def k(x: f32[:]):\n    x[0] = math.erf(x[1])\n", "metal", r":4: Metal has no erf"),
        ("def k(x: i64[:]):\n    atomic.add(x, 0, 1)\n", "metal", r":4: Metal has no atomic operations on i64"),
        ("def k(x: i32[:]):\n    threadfence()\n", "wgsl", r":4: WGSL has no fence"),
        ("def k(x: f32[:]):\n    x[0] = math.hypot(x[1], x[2])\n", "metal", r":4: Metal has no hypot"),
        ("def k(x: i32[:]):\n    syncwarp()\n    syncthreads()\n", "fpga", r":4: C\+\+ for high-level synthesis has no warps"),
        (LAUNCHED, "opencl", r":4: OpenCL C has no shared array whose size the launch sets; expected a size: s = "),
        (f"{LAUNCHED}    t = shared.array(0, f32)\n    t[0] = 1.0\n", "cuda", r":6:9: 't' is a second shared array whose size"),
        (f"{LAUNCHED}    x[1] = len(s)\n", "cuda", r":6: CUDA C\+\+ does not provide the size of 's'"),
        ("def k(x: i32[:]):\n    x[0] = x.shape[3]\n", "cuda", r":4: axis 3 of 'x', which has 1"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_said_at_its_line(tmp_path: Path, text: str, target: str, message: str) -> None:
    own = written(tmp_path, text)
    with pytest.raises(InputError, match=message):
        transpile(own.k, target)


def test_the_command_prints_the_source_alone(tmp_path: Path, windtunnel_command: Command) -> None:
    file = tmp_path / "loud.py"
    file.write_text("from windtunnel import f32, grid\nprint('loud')\n\ndef k(x: f32[:]):\n    x[grid(1)] = 1.0\n")
    done = windtunnel_command("transpile", f"{file}:k", "--to", "cuda")
    assert done.stderr == "loud\n"
    assert done.stdout.startswith("// Written by Windtunnel from the kernel 'k': CUDA C++.")
    words = ("transpile", f"{file}:k", "--to", "wgsl", "--block", "8,8", "--format", "json")
    made = json.loads(windtunnel_command(*words).stdout)
    assert "@workgroup_size(8, 8, 1)" in made["source"]
    assert made["signature"]["arguments"][0] == {
        "name": "x", "position": 0, "is": "array", "element": "f32", "dimensions": 1, "written": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("{}:saxpi", "--to", "cuda"), "no function 'saxpi'; expected one of saxpy"),
        (("{}:saxpy", "--to", "cud"), f"unknown target 'cud'; expected one of {', '.join(TARGETS)}; did you mean 'cuda'?"),
        (("{}x:saxpy", "--to", "cuda"), "there is no such Python file; did you mean 'kernels.py'?"),
        (("{}", "--to", "cuda"), "expected FILE.py:KERNEL"),
        (("{}:saxpy", "--to", "wgsl", "--block", "0"), "a block of (0, 1, 1); expected three whole numbers from 1"),
        (("{}:saxpy", "--to", "wgsl", "--block", "64,64"), "a block of 4096 threads; expected at most 1024"),
        (("{}:saxpy", "--to", "wgsl", "--block", "a"), "--block: a block of 'a'"),
    ],
)  # fmt: skip
def test_wrong_words_end_with_2_and_say_what_is_right(
    words: tuple[str, ...], message: str, windtunnel_command: Command
) -> None:
    done = windtunnel_command("transpile", *(word.format(KERNELS) for word in words), expect=2)
    assert done.stdout == ""
    assert message in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\nimport nothing_of_this_name\n", "bad.py:2: the file cannot be executed: ModuleNotFoundError"),
        ("def k(:\n", "bad.py:1: the file cannot be executed: SyntaxError"),
        ("raise SystemExit(3)\n", "bad.py:1: the file cannot be executed: SystemExit: 3"),
        ("k = 1\n", "no function 'k'; expected a function, defined with def"),
    ],
)
def test_a_file_that_fails_is_the_users_error(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bad.py"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        load(f"{file}:k")
    assert message in str(caught.value)


def test_a_stencil_is_written_for_its_tile(windtunnel_command: Command) -> None:
    tiled = load(f"{KERNELS}:diffused")
    assert "@workgroup_size(8, 4, 2)" in transpile(tiled, "wgsl").source
    assert transpile(tiled, "wgsl").source == transpile(tiled, "wgsl", (8, 4, 2)).source
    with pytest.raises(InputError, match=r"block \(64, 1, 1\) differs from the stencil's tile \(8, 4, 2\)"):
        transpile(tiled, "cuda", (64, 1, 1))
    assert "@workgroup_size(256, 1, 1)" in transpile(load(f"{KERNELS}:smoothed"), "wgsl").source
    assert "@workgroup_size(8, 8, 1)" in windtunnel_command("transpile", f"{KERNELS}:laplacian", "--to", "wgsl").stdout
    names = [one.name for one in transpile(tiled, "opencl").signature.arguments if not isinstance(one, Side)]
    assert names == ["heat", "rate", "out", "dt"]


def test_sizes_of_a_block() -> None:
    assert [with_sizes(text) for text in ("64", "8,8", "4,4,4")] == [(64, 1, 1), (8, 8, 1), (4, 4, 4)]
