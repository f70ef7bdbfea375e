"""Kernels as source for real devices: each text is compiled by a real compiler, and run where something runs it.

Nothing here is skipped where a compiler is missing: `make setup` installs them all.
"""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.differential import transpile_tools as tools
from tests.differential import transpiled_kernels as with_kernels

from windtunnel.codegen import TARGETS, Emitted, transpile
from windtunnel.codegen.load import load
from windtunnel.language.source import KernelError

CASES = with_kernels.CASES
EVERY = [*CASES, "functions", "warp_sum", "lanes", "grid_barrier"]
LACKS = {
    "fpga": {"warp_sum": "has no warps", "lanes": "has no warps", "grid_barrier": "has no barrier of the grid"},
    "metal": {"wide": "has no f64", "wide_atomics": "has no f64", "grid_barrier": "has no barrier of the grid"},
    "opencl": {"grid_barrier": "has no barrier of the grid"},
    "wgsl": {
        "wide": "has no i64", "wide_atomics": "has no i64", "narrow": "has no i8", "bfloats": "has no bf16",
        "lanes": "has no barrier of a warp", "grid_barrier": "has no barrier of the grid",
    },
    "glsl": {"grid_barrier": "has no barrier of the grid"},
}  # fmt: skip
"""What each target cannot do; all others can do all."""

# Drivers' own warnings (PoCL's build log, a missing runtime directory) are not ours.
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def emitted(name: str, target: str, block: tuple[int, int, int] | None = None) -> Emitted:
    if block is None:
        block = CASES[name]().block if name in CASES else (64, 1, 1)
    return transpile(getattr(with_kernels.kernels(), name), target, block)


def pairs(target: str) -> list[str]:
    return [name for name in EVERY if name not in LACKS.get(target, {})]


@pytest.mark.parametrize("target", LACKS)
def test_what_a_target_lacks_is_an_error_at_the_line_that_needs_it(target: str) -> None:
    def check(name: str) -> None:
        with pytest.raises(KernelError, match=LACKS[target][name]) as caught:
            emitted(name, target)
        assert re.match(r".*kernels\.py:\d+", str(caught.value))

    with_kernels.for_each(LACKS[target], check)


# Compilers.


@pytest.mark.parametrize("target", ["cuda", "hip", "metal", "opencl"])
def test_a_real_compiler_takes_every_kernel(target: str) -> None:
    def check(name: str) -> None:
        found = tools.complaints(target, emitted(name, target))
        assert not found, found

    with_kernels.for_each(pairs(target), check)


def test_the_front_end_sees_what_is_wrong() -> None:
    hip = emitted("saxpy", "hip").source.replace("x[i] +", "z[i] +")
    assert any("undeclared identifier 'z'" in one for one in tools.clang(hip, "kernel.hip", *tools.HIP))
    metal = tools.metal_as_cpp(emitted("atomics", "metal").source)
    wrong = metal.replace("wt_atomic_max_threadgroup_f32(&there", "wt_atomic_max_device_f32(&there")
    assert wrong != metal
    assert any("no matching function" in one for one in tools.clang(wrong, "kernel.cpp", *tools.METAL))
    opencl = emitted("warp_sum", "opencl").source.replace("sub_group_any(", "sub_group_none(")
    assert any("sub_group_none" in one for one in tools.clang(opencl, "kernel.cl", *tools.OPENCL))


# Numbers.


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Bit for bit: the sign of zero counts."""
    assert set(found) >= set(expected)
    for name, wanted in expected.items():
        got = found[name]
        assert got.dtype == wanted.dtype
        bits = f"u{got.itemsize}"
        wrong = np.flatnonzero(got.view(bits) != wanted.view(bits))
        assert len(wrong) == 0, (
            f"{name}[{wrong[0]}] is {got.flat[wrong[0]]}, not {wanted.flat[wrong[0]]}; {len(wrong)} differ"
        )


@pytest.mark.parametrize("name", [n for n in pairs("opencl") if n in CASES])
def test_pocl_gives_numpys_numbers(name: str) -> None:
    case = CASES[name]()
    same(tools.run_opencl(emitted(name, "opencl"), case), case.expected)


@pytest.mark.parametrize("name", [n for n in pairs("wgsl") if n in CASES])
def test_wgsl_on_lavapipe_gives_numpys_numbers(name: str) -> None:
    case = CASES[name]()
    same(tools.run_wgsl(emitted(name, "wgsl"), case), case.expected)


@pytest.mark.parametrize("name", [n for n in pairs("glsl") if n in CASES])
def test_glsl_on_lavapipe_gives_numpys_numbers(name: str) -> None:
    case = CASES[name]()
    found = tools.run_glsl(emitted(name, "glsl"), case)
    if name == "wide":
        # Vulkan lets an fma be a product and a sum, each rounded.
        np.testing.assert_allclose(found["out"], case.expected["out"], rtol=1e-12)
    same(found, {array: value for array, value in case.expected.items() if (name, array) != ("wide", "out")})


@pytest.mark.parametrize("name", [n for n in pairs("fpga") if n in CASES])
def test_the_form_for_synthesis_gives_numpys_numbers(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    case = CASES[name]()
    same(tools.run_fpga(emitted(name, "fpga"), case, tmp_path), case.expected)
    # It is compiled to report what C leaves undefined, such as a signed overflow.
    assert [
        line for line in capfd.readouterr().err.splitlines() if "runtime error" in line and "zero" not in line
    ] == []


class Whole:
    """An integer of 32 bits as NumPy has it, for working out what an expression of a kernel is."""

    def __init__(self, value: int, signed: bool) -> None:
        self.signed = signed
        self.value = (value + 2**31) % 2**32 - 2**31 if signed else value % 2**32

    def _with(self, other: Any, work: Any) -> Whole:
        return Whole(work(self.value, self._of(other)), self.signed)

    def _of(self, other: Any) -> int:
        return other.value if isinstance(other, Whole) else Whole(other, self.signed).value

    def __add__(self, other: Any) -> Whole:
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Whole:
        return self._with(other, lambda a, b: a - b)

    def __mul__(self, other: Any) -> Whole:
        return self._with(other, lambda a, b: a * b)

    def __floordiv__(self, other: Any) -> Whole:
        return self._with(other, lambda a, b: a // b)

    def __mod__(self, other: Any) -> Whole:
        return self._with(other, lambda a, b: a % b)

    def __and__(self, other: Any) -> Whole:
        return self._with(other, lambda a, b: a & b)

    def __or__(self, other: Any) -> Whole:
        return self._with(other, lambda a, b: a | b)

    def __xor__(self, other: Any) -> Whole:
        return self._with(other, lambda a, b: a ^ b)

    def __lshift__(self, other: Any) -> Whole:
        return self._with(other, lambda a, b: a << b if 0 <= b < 32 else 0)

    def __rshift__(self, other: Any) -> Whole:
        return self._with(other, lambda a, b: a >> (b if 0 <= b < 32 else 32))

    def __neg__(self) -> Whole:
        return Whole(-self.value, self.signed)

    def __invert__(self) -> Whole:
        return Whole(~self.value, self.signed)

    def __abs__(self) -> Whole:
        return Whole(abs(self.value), self.signed)

    def __lt__(self, other: Any) -> bool:
        return self.value < self._of(other)

    def __gt__(self, other: Any) -> bool:
        return self.value > self._of(other)

    def __eq__(self, other: object) -> bool:
        return self.value == self._of(other)

    __hash__ = None  # type: ignore[assignment]


def grown(random: Random, depth: int) -> str:
    """A random expression of x, y, i and j: j is a loop's counter, i a thread's index."""
    if depth == 0 or random.random() < 0.1:
        return random.choice(
            ["x", "y", "x", "y", "i", "j", str(random.randrange(1, 90)), str(random.randrange(2**30, 2**31))]
        )
    one, other = grown(random, depth - 1), grown(random, depth - 1)
    match random.randrange(9):
        case 0:
            return f"-({one})" if random.random() < 0.5 else f"~({one})"
        case 1:
            return f"(({one}) if ({other}) {random.choice('<>')} ({one}) else ({grown(random, depth - 1)}))"
        case 2:
            return f"{random.choice(['min', 'max'])}({one}, {other})"
        case 3:
            return f"({one}) {random.choice(['<<', '>>'])} (({other}) & {random.choice([31, 63])})"
        case 4:
            return f"({one}) {random.choice(['//', '%'])} (({other}) | 1)"
        case 5:
            return f"abs({one}) {random.choice('+-*')} ({other})"
    return f"({one}) {random.choice('+-*&|^')} ({other})"


@pytest.mark.parametrize("kind", ["i32", "u32"])
def test_random_expressions_of_integers_are_the_same_everywhere(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    random = Random(2026)
    many, threads = 60, 32
    texts = [grown(random, 4) for _ in range(many)]
    # A variable makes a literal an i32 or u32, as the rest of the expression is.
    lines = "".join(f"            out[{n}, i] = {text}\n" for n, text in enumerate(texts))
    file = tmp_path / "random_kernel.py"
    file.write_text(
        f"from windtunnel import {kind}, threadIdx\n\ndef mixed(xs: {kind}[:], ys: {kind}[:], out: {kind}[:, :]):\n"
        f"    if threadIdx.x < len(xs):\n        i = {kind}(threadIdx.x)\n        x = xs[i]\n        y = ys[i]\n"
        f"        for j in range({kind}(2), {kind}(3)):\n{lines}"
    )
    kernel = load(f"{file}:mixed")
    numbers = np.random.default_rng(3)
    low, high = (-(2**31), 2**31) if kind == "i32" else (0, 2**32)
    dtype = np.int32 if kind == "i32" else np.uint32
    xs, ys = (numbers.integers(low, high, threads).astype(dtype) for _ in range(2))
    xs[:6], ys[:6] = (
        np.array([0, 1, 2**31 - 1, low, 5, 7]).astype(dtype),
        np.array([low, 0, 1, 2**31 - 1, 3, 31]).astype(dtype),
    )
    made = np.zeros((many, threads), dtype)
    signed = kind == "i32"
    for i in range(threads):
        names = {
            "x": Whole(int(xs[i]), signed),
            "y": Whole(int(ys[i]), signed),
            "i": Whole(i, signed),
            "j": Whole(2, signed),
        }
        for n, text in enumerate(texts):
            whole = re.sub(r"\b\d+\b", lambda found: f"Whole({found[0]}, {signed})", text)
            made[n, i] = eval(whole, {"Whole": Whole}, names).value
    case = with_kernels.Case(
        (1, 1, 1), (threads, 1, 1), {"xs": xs, "ys": ys, "out": np.zeros_like(made)}, {"out": made}
    )
    for target in ("fpga", "opencl", "wgsl", "glsl"):
        text = transpile(kernel, target, (threads, 1, 1))
        if target == "fpga":
            same(tools.run_fpga(text, case, tmp_path), case.expected)
            assert "runtime error" not in capfd.readouterr().err
        else:
            same(getattr(tools, f"run_{target}")(text, case), case.expected)


def test_functions_come_near(tmp_path: Path) -> None:
    case = with_kernels.functions()
    found = {
        "opencl": tools.run_opencl(emitted("functions", "opencl"), case),
        "wgsl": tools.run_wgsl(emitted("functions", "wgsl"), case),
        "glsl": tools.run_glsl(emitted("functions", "glsl"), case),
        "fpga": tools.run_fpga(emitted("functions", "fpga"), case, tmp_path),
    }
    for target, made in found.items():
        near = (
            1e-3 if target in ("wgsl", "glsl") else 2e-6
        )  # WGSL and Vulkan allow an asin 1e-3 off, an exp 3 + 2 |x| units in the last place
        np.testing.assert_allclose(made["out"], case.expected["out"], rtol=near, atol=near, err_msg=target)


def test_what_warps_exchange_is_right_for_the_size_they_have() -> None:
    from_sizes = tools.run_wgsl(
        transpile(with_kernels.kernels().warp_width, "wgsl", (64, 1, 1)),
        with_kernels.Case((1, 1, 1), (64, 1, 1), {"out": np.zeros(1, np.int32)}, {}),
    )
    case = with_kernels.warp_sum(int(from_sizes["out"][0]))
    same(tools.run_wgsl(emitted("warp_sum", "wgsl"), case), case.expected)
    same(tools.run_glsl(emitted("warp_sum", "glsl"), case), case.expected)


def test_every_target_is_here() -> None:
    assert set(TARGETS) >= {"cuda", "hip", "opencl", "metal", "wgsl", "glsl", "fpga"}
