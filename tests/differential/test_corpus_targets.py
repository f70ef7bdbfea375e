"""The corpus through every target: each kernel is refused for a stated reason or compiled by a real compiler, and run
where something runs it, with the corpus's own numbers and the emulator's.

What runs a kernel does so in a process of its own with a time limit: one that hangs or dies fails its test alone.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import site
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.corpus import registry
from tests.differential import transpile_tools as tools
from tests.differential import transpiled_kernels as with_kernels

import windtunnel
from windtunnel.backends.vulkan.spirv import compiled
from windtunnel.codegen import TARGETS, Emitted, transpile
from windtunnel.language import ir
from windtunnel.language.infer import infer
from windtunnel.language.parameters import parameters_of
from windtunnel.language.parse import parse
from windtunnel.language.source import KernelError
from windtunnel.language.types import Array
from windtunnel_models.catalogue import Catalogue

ROOT = Path(__file__).resolve().parents[2]
KNOWN = Catalogue()
CASES: Mapping[str, registry.Case] = {case.name: case for case in registry.cases()}
RUNS = ("opencl", "wgsl", "glsl", "fpga")
LIMIT_S = 600.0
"""A limit for one kernel, which only a hanging one reaches: the slowest takes some two seconds on an idle machine."""

UNTYPED = dict.fromkeys(("unannotated", "unannotated_f64"), "parameter 'a' has no type")
NO_SIZE = {"dynamic_shared_memory": "has no shared array whose size the launch sets"}
F64 = (
    "daxpy", "dot_f64", "spmv_csr_scalar", "spmv_csr_warp_a_row", "jacobi_step", "power_iteration_step", "heat_3d",
    "page_rank_pull", "mandelbrot", "simpson_strips", "newton_square_roots", "functions_f64", "as_numba_has_it",
    "annotated_locals",
)  # fmt: skip
U8 = (
    "fill", "histogram_global", "histogram_private", "life_step", "sobel", "aes128_ctr", "aes128_ctr_of_sp_800_38a",
    "sha256_short_messages", "crc32_records", "fnv1a", "fnv1a_64", "adler32", "packet_filter", "lz77_longest_matches",
    "find_all", "base64_encode", "utf8_code_points", "upper_case", "edit_distance", "pack_rgb565", "primes",
    "special_values",
)  # fmt: skip
WARPS = (
    "reduce_shuffle", "reduce_butterfly", "warp_votes", "ballot_compaction_one_warp", "warp_scan", "warp_reverse",
    "spmv_csr_warp_a_row", "layer_norm", "decode_attention",
)  # fmt: skip
"""What is exchanged within warps is reckoned for warps of 32 threads."""
WARP_BARRIERS = ("warp_through_shared", "last_warp_with_syncwarp")
FENCES = (
    "reduce_last_block", "sum_under_a_lock", "sum_by_tickets", "hand_over_between_blocks", "grid_barrier",
    "chained_scan", "last_block_by_fence", "flag_within_a_block", "queue_of_eight",
)  # fmt: skip
REFUSED: Mapping[str, Mapping[str, str]] = {
    "cuda": UNTYPED,
    "hip": UNTYPED,
    "opencl": {**UNTYPED, **NO_SIZE},
    "metal": {
        **UNTYPED, **NO_SIZE, **dict.fromkeys((*F64, "casts"), "has no f64"), "gelu_erf": "has no erf",
        "black_scholes": "has no erfc",
    },
    "wgsl": {
        **UNTYPED, **NO_SIZE, **dict.fromkeys(F64, "has no f64"), **dict.fromkeys(U8, "has no u8"),
        **dict.fromkeys(("iota_64_bits", "collatz"), "has no i64"), "philox4x32_10": "has no u64",
        **dict.fromkeys(("matmul_int8", "quantise_int8", "dot_int8", "casts"), "has no i8"),
        "gelu_erf": "has no erf", "black_scholes": "has no erfc",
        **dict.fromkeys(WARP_BARRIERS, "has no barrier of a warp"),
        **dict.fromkeys(FENCES, "has no fence without a barrier"),
    },
    "glsl": {
        **UNTYPED, **NO_SIZE, "gelu_erf": "has no erf", "black_scholes": "has no erfc",
        **dict.fromkeys(("simpson_strips", "functions_f64"), "of f64"),
    },
    "fpga": {**UNTYPED, **NO_SIZE, **dict.fromkeys((*WARPS, *WARP_BARRIERS), "has no warps")},
}  # fmt: skip
"""What each target refuses, and the words of it; all others are written and compiled."""
NAGA = {"layer_norm": "Workgroup size is multi dimensional"}
"""What WGSL allows, and Naga does not have yet: lanes of a warp where a block has two sides."""
WAITING = (
    "sum_under_a_lock", "sum_by_tickets", "hand_over_between_blocks", "grid_barrier", "chained_scan",
    "flag_within_a_block", "queue_of_eight",
)  # fmt: skip
"""Threads wait for each other. PoCL and the form for synthesis may run one to its end before the next: it would hang."""
NOT_RUN: Mapping[str, frozenset[str]] = {
    "opencl": frozenset((*WAITING, *WARPS, *WARP_BARRIERS)),
    "wgsl": frozenset(WARPS) - {"spmv_csr_warp_a_row"},
    "glsl": frozenset((*WAITING, *WARPS, *WARP_BARRIERS)),
    "fpga": frozenset(WAITING),
}
"""Whose numbers are not compared: threads that wait, and warps of another size than 32 (below)."""
MAY_DIFFER: Mapping[str, frozenset[str]] = {
    # WGSL lets a compiler reassociate sums.
    "wgsl": frozenset(("kahan_sums", "module_constants", "matmul_in_registers")),
    # Vulkan lets an fma be a product and a sum, each rounded.
    "glsl": frozenset(("matmul_in_registers",)),
}
"""Kernels whose bits a language leaves to the compiler: only the corpus's tolerance holds."""
REASSOCIATED_KAHAN = registry.Comparison(
    exact=False, rtol=2000 * 2.0**-24, reason="n u, the bound of a plain sum of n positive float32 in any order"
)
"""Reassociation cancels the compensation of Kahan's sum."""
EXACT_CALLS = frozenset((
    "math.sqrt", "math.floor", "math.ceil", "math.trunc", "math.fabs", "math.isnan", "math.isinf", "math.copysign",
    "math.fmod", "fma", "round.tf32",
))  # fmt: skip
"""Functions of floats whose every bit is settled, as are those of integers."""

# Drivers' own warnings (PoCL's build log, a missing runtime directory) are not ours.
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def three(sides: int | tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*((sides,) if isinstance(sides, int) else sides), 1, 1)[:3]
    return x, y, z


@cache
def emitted(name: str, target: str) -> Emitted:
    case = CASES[name]
    return transpile(case.kernel, target, three(case.block))


def written(target: str) -> list[str]:
    return [name for name in CASES if name not in REFUSED[target]]


@pytest.mark.parametrize("target", TARGETS)
def test_every_kernel_is_refused_for_the_stated_reason_at_a_line_or_written(target: str) -> None:
    def check(name: str) -> None:
        reason = REFUSED[target].get(name)
        if reason is None:
            assert f"kernel '{CASES[name].kernel.function.__name__}'" in emitted(name, target).source
            return
        with pytest.raises(KernelError, match=re.escape(reason)) as caught:
            emitted(name, target)
        assert re.match(r".*tests[/\\]corpus[/\\]\w+\.py:\d+", str(caught.value))

    with_kernels.for_each(CASES, check)


def test_what_is_listed_is_of_the_corpus() -> None:
    listed = {name for names in (*REFUSED.values(), *NOT_RUN.values()) for name in names}
    assert (listed | set().union(*MAY_DIFFER.values())) - set(CASES) == set()
    assert not any(set(names) & set(REFUSED[target]) for target, names in NOT_RUN.items())


# Compilers.


@pytest.mark.parametrize("target", ["cuda", "hip", "metal", "opencl"])
def test_a_real_compiler_takes_every_kernel(target: str) -> None:
    def check(name: str) -> None:
        found = tools.complaints(target, emitted(name, target))
        assert not found, found

    with_kernels.for_each(written(target), check)


def test_hipcc_compiles_them_all_to_an_mi210s_machine_code(tmp_path: Path) -> None:
    """AMD's own compiler over ROCm's own headers, all kernels in one text. Where apt has none, Clang's front end is it."""
    hipcc = shutil.which("hipcc")
    if hipcc is None:
        offered = (
            shutil.which("apt-cache") and subprocess.run(["apt-cache", "show", "hipcc"], capture_output=True).stdout
        )
        assert not offered, "hipcc is not here, and apt has it: make setup-test as root installs it"
        pytest.skip("apt has no hipcc on this system; the front end of Clang compiles HIP in the test above")
    headers, bodies = {}, []
    for number, name in enumerate(written("hip")):
        lines = emitted(name, "hip").source.splitlines()
        headers.update(dict.fromkeys(line for line in lines if line.startswith("#include")))
        rest = "\n".join(line for line in lines if not line.startswith("#include")).replace('extern "C" ', "")
        bodies.append(f"namespace case_{number} {{\n{rest}\n}}")
    source, made = tmp_path / "all.hip", tmp_path / "all.o"
    source.write_text("\n".join([*headers, *bodies]))
    options = ["--offload-arch=gfx90a", "--cuda-device-only", "-ffp-contract=off", "-Wall", *tools.ERRORS]
    done = subprocess.run(
        [hipcc, "-x", "hip", *options, "-c", str(source), "-o", str(made)],
        env={**os.environ, "HIP_PLATFORM": "amd"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert b"amdgcn-amd-amdhsa--gfx90a" in made.read_bytes()


def test_a_cpp_compiler_takes_the_form_for_synthesis(tmp_path: Path) -> None:
    def check(name: str) -> None:
        source = tmp_path / f"{name}.cpp"
        source.write_text(emitted(name, "fpga").source)
        tools.compile_cpp(["-fsyntax-only", *tools.ERRORS, "-Wno-unknown-pragmas", str(source)])

    with_kernels.for_each(sorted(NOT_RUN["fpga"]), check)


# Numbers.


class Runner:
    """A process that runs kernels, and is replaced when one hangs or dies."""

    def __init__(self) -> None:
        self.pool = self._started()

    @staticmethod
    def _started() -> ProcessPoolExecutor:
        # The process finds the tests' own modules.
        return ProcessPoolExecutor(1, get_context("spawn"), site.addsitedir, (str(ROOT),))

    def __call__(self, function: Any, *arguments: Any) -> Any:
        try:
            return self.pool.submit(function, *arguments).result(LIMIT_S)
        except BaseException:
            self.close()
            self.pool = self._started()
            raise

    def close(self) -> None:
        # A process that hangs does not end by itself.
        for process in list((self.pool._processes or {}).values()):
            process.kill()
        self.pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def run() -> Iterator[Runner]:
    found = Runner()
    yield found
    found.close()


def case_of(name: str) -> with_kernels.Case:
    """The corpus's launch. What nobody has written holds bytes that no right result is made of."""
    case = CASES[name]
    given = {
        name: np.full(value.size * np.dtype(value.dtype).itemsize, 0xA5, np.uint8)
        .view(value.dtype)
        .reshape(value.shape)
        if isinstance(value, registry.Empty)
        else value
        for name, value in case.arguments().items()
    }
    return with_kernels.Case(three(case.grid), three(case.block), given, {})


@cache
def emulated(name: str) -> Mapping[str, np.ndarray]:
    """What the arrays hold after the emulator's launch."""
    case, arguments = CASES[name], case_of(name).arguments
    device = windtunnel.device("h100-sxm-80gb", catalogue=KNOWN)
    given = {n: device.to_device(v) if isinstance(v, np.ndarray) else v for n, v in arguments.items()}
    device.launch(case.kernel, case.grid, case.block, *given.values(), shared_bytes=case.shared_bytes)
    return {n: device.to_host(given[n]) for n, v in arguments.items() if isinstance(v, np.ndarray)}


def settled(name: str) -> bool:
    """Whether every bit of a kernel's results is promised: no function that only comes near, no sum in any order."""
    plain = getattr(CASES[name].kernel, "function")  # noqa: B009  what the decorator wraps
    given = {one.name: one.annotation for one in parameters_of(plain) if one.annotation is not None}
    program = infer(parse(plain, frozenset(n for n, kind in given.items() if isinstance(kind, Array))), given)
    for one in ir.walk(program.body):
        for e in ir.expressions(one):
            floats = e.type is not None and e.type.kind == "float"
            if isinstance(e, ir.Call) and not (e.op in EXACT_CALLS or e.op.startswith("bits.")):
                return False
            if floats and isinstance(e, ir.Binary) and e.op == "**":
                return False
            if floats and isinstance(e, ir.Atomic) and e.op in ("add", "sub"):
                return False
    return True


def check(
    name: str,
    found: Mapping[str, np.ndarray],
    *,
    bits: bool,
    comparison: registry.Comparison | None = None,
) -> None:
    """As the corpus asks, or ``comparison``; with ``bits``, every bit is the emulator's (of NaN, that it is one)."""
    case, arguments = CASES[name], CASES[name].arguments()
    for array, wanted in case.reference(arguments).items():
        with np.errstate(all="ignore"):
            wrong = (comparison or case.comparison).wrong(found[array], wanted)
        assert wrong is None, f"{array}: {wrong}"
    if not bits:
        return
    for array, value in found.items():
        wanted = emulated(name)[array]
        bits_of = f"u{value.itemsize}"
        numbers = value.dtype.kind in "fV"  # bfloat16 is of kind V
        missing = np.isnan(value) & np.isnan(wanted) if numbers else np.zeros(value.shape, bool)
        off = np.flatnonzero((value.view(bits_of) != wanted.view(bits_of)) & ~missing)
        assert off.size == 0, (
            f"{array}[{off[0]}] is {value.flat[off[0]]}, the emulator's {wanted.flat[off[0]]}; {off.size} differ"
        )


def running(target: str) -> list[str]:
    return [name for name in written(target) if name not in NOT_RUN[target]]


def test_pocl_gives_the_corpuss_numbers_and_the_emulators(run: Runner) -> None:
    with_kernels.for_each(
        running("opencl"),
        lambda name: check(name, run(tools.run_opencl, emitted(name, "opencl"), case_of(name)), bits=settled(name)),
    )


def test_wgsl_on_lavapipe_gives_the_corpuss_numbers_and_the_emulators(run: Runner) -> None:
    def check_one(name: str) -> None:
        if name in NAGA:
            with pytest.raises(Exception, match=NAGA[name]):
                run(tools.run_wgsl, emitted(name, "wgsl"), case_of(name))
            return
        found = run(tools.run_wgsl, emitted(name, "wgsl"), case_of(name))
        if name in NOT_RUN["wgsl"]:
            return  # it is compiled and ends; its numbers are those of warps of 32 threads
        comparison = REASSOCIATED_KAHAN if name == "kahan_sums" else None
        check(name, found, bits=settled(name) and name not in MAY_DIFFER["wgsl"], comparison=comparison)

    with_kernels.for_each(written("wgsl"), check_one)


def test_glsl_on_lavapipe_gives_the_corpuss_numbers_and_the_emulators(run: Runner) -> None:
    def check_one(name: str) -> None:
        found = run(tools.run_glsl, emitted(name, "glsl"), case_of(name))
        check(name, found, bits=settled(name) and name not in MAY_DIFFER["glsl"])

    with_kernels.for_each(running("glsl"), check_one)


@pytest.mark.skipif("cuda" not in os.environ.get("WINDTUNNEL_REQUIRE", "").split(","), reason="requires an NVIDIA GPU")
@pytest.mark.parametrize("part", range(8))
def test_a_gpu_gives_the_corpuss_numbers_and_the_emulators(run: Runner, part: int) -> None:
    """All kernels, also those with warps and with threads that wait for each other. In parts, for `pytest -n 8`."""

    def check_one(name: str) -> None:
        found = run(tools.run_cuda, emitted(name, "cuda"), case_of(name), CASES[name].shared_bytes)
        check(name, found, bits=settled(name) and name not in MAY_DIFFER.get("cuda", ()))

    with_kernels.for_each(written("cuda")[part::8], check_one)


def test_glslang_compiles_what_is_not_run() -> None:
    def check_one(name: str) -> None:
        assert len(compiled(emitted(name, "glsl"))) > 500

    with_kernels.for_each(sorted(NOT_RUN["glsl"]), check_one)


def test_the_form_for_synthesis_gives_the_corpuss_numbers_and_the_emulators(run: Runner, tmp_path: Path) -> None:
    names = running("fpga")
    texts = [emitted(name, "fpga") for name in names]
    try:
        library = tools.build_fpga(texts, tmp_path)
    except AssertionError:
        # Compiled one by one, to name the kernels that the compiler rejects.
        with_kernels.for_each(names, lambda name: tools.build_fpga([emitted(name, "fpga")], tmp_path))
        raise

    def check_one(name: str) -> None:
        number = names.index(name)
        arrays, reported = run(tools.call_fpga_watched, library, number, texts[number], case_of(name), tmp_path)
        check(name, arrays, bits=settled(name))
        assert [line for line in reported.splitlines() if "runtime error" in line] == []

    with_kernels.for_each(names, check_one)


def test_the_host_s_processors_give_the_corpuss_numbers_and_the_emulators(run: Runner) -> None:
    """The same form as above, as the back end of the host compiles it; of eight kernels one, since that takes a while."""
    with_kernels.for_each(
        running("fpga")[::8],
        lambda name: check(name, run(tools.run_cpp, emitted(name, "fpga"), case_of(name)), bits=settled(name)),
    )


def test_why_kernels_of_warps_are_not_run_here(run: Runner) -> None:
    assert not [word for word in run(tools.opencl_extensions) if "subgroup" in word]
    kernel = with_kernels.kernels().warp_width
    size = with_kernels.Case((1, 1, 1), (64, 1, 1), {"out": np.zeros(1, np.int32)}, {})
    assert run(tools.run_wgsl, transpile(kernel, "wgsl", (64, 1, 1)), size)["out"][0] != 32


def test_what_c_leaves_undefined_is_reported(run: Runner, tmp_path: Path) -> None:
    made = emitted("saxpy", "fpga")
    made = replace(made, source=made.source.replace("if (i < n)", "if (i < n && n + 2147483647 != 7)"))
    library = tools.build_fpga([made], tmp_path)
    _, reported = run(tools.call_fpga_watched, library, 0, made, case_of("saxpy"), tmp_path)
    assert "runtime error: signed integer overflow" in reported


def test_a_kernel_that_hangs_fails_alone(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "LIMIT_S", 0.5)
    with pytest.raises(TimeoutError):
        run(time.sleep, 30.0)
    monkeypatch.setitem(globals(), "LIMIT_S", 600.0)
    assert run(ctypes.sizeof, ctypes.c_int) == 4
