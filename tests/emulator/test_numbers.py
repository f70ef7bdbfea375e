"""Number formats of an API: rounding to TF32, flushed subnormal numbers, and missing types."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import windtunnel
from windtunnel import bf16, f16, f32, f64, fma, grid, i32, i64, local, shared, tf32, u8
from windtunnel.codegen import transpile
from windtunnel.core.errors import InputError, LaunchError
from windtunnel.core.spec import KERNEL_TYPES, Numbers
from windtunnel.language.types import SCALARS
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.specs import api_names, api_profile

KNOWN = Catalogue()


@windtunnel.kernel
def to_tf32(x: f32[:], out: f32[:]):
    i = grid(1)
    if i < len(x):
        out[i] = tf32(x[i])


@windtunnel.kernel
def brain(x: bf16[:], y: bf16[:], n: i32):
    i = grid(1)
    if i < n:
        y[i] = x[i] * x[i] + y[i]


@windtunnel.kernel
def arithmetic(x: f32[:], out: f32[:, :]):
    i = grid(1)
    if i < len(x):
        out[0, i] = x[i]
        out[1, i] = x[i] * f32(1e30)
        out[2, i] = x[i] + x[i]
        out[3, i] = 1.0 if x[i] != 0.0 else 0.0
        out[4, i] = min(-x[i], 1.0)
        out[5, i] = fma(x[i], 1.0, 0.0)
        out[6, i] = x[i] - f32(1.2e-38)


@windtunnel.kernel
def halves(x: f16[:], out: f16[:]):
    i = grid(1)
    if i < len(x):
        out[i] = x[i] * x[i]


@windtunnel.kernel
def doubled(x: f64[:]):
    x[grid(1)] *= 2.0


@windtunnel.kernel
def fused(a: f64[:], b: f64[:], c: f64[:], out: f64[:]):
    i = grid(1)
    out[i] = fma(a[i], b[i], c[i])


@windtunnel.kernel
def double_within(x: f32[:]):
    i = grid(1)
    wide = f64(x[i])
    x[i] = f32(wide * wide)


@windtunnel.kernel
def long_in_shared(x: i32[:]):
    tile = shared.array(8, i64)
    tile[grid(1)] = x[grid(1)]


@windtunnel.kernel
def bytes_of_its_own(x: i32[:]):
    held = local.array(2, u8)
    held[0] = x[0]
    x[0] = held[0]


@windtunnel.kernel
def untyped(x, n):
    if grid(1) < n:
        x[grid(1)] = 1


def launched(
    device: str, kernel: Any, *arrays: np.ndarray, grid: int = 1, block: int = 32, numbers: Any = (), **given: Any
) -> Any:
    opened = windtunnel.device(device, catalogue=KNOWN, **given)
    buffers = [opened.to_device(array) for array in arrays]
    opened.launch(kernel, grid, block, *buffers, *numbers)
    return [opened.to_host(buffer) for buffer in buffers]


PATTERNS = {
    # bits: (half to even, half away from zero). The last 13 bits go; 0x1000 is half of the last that stays.
    0x3F800000: (0x3F800000, 0x3F800000),
    0x3F800FFF: (0x3F800000, 0x3F800000),
    0x3F801000: (0x3F800000, 0x3F802000),
    0x3F801001: (0x3F802000, 0x3F802000),
    0x3F803000: (0x3F804000, 0x3F804000),
    0xBF801000: (0xBF800000, 0xBF802000),
    0xBF805000: (0xBF804000, 0xBF806000),
    0x7F7FF000: (0x7F800000, 0x7F800000),
    0x7F7FEFFF: (0x7F7FE000, 0x7F7FE000),
    0x00001000: (0x00000000, 0x00002000),
    0x80000FFF: (0x80000000, 0x80000000),
    0x7F800000: (0x7F800000, 0x7F800000),
    0xFF800000: (0xFF800000, 0xFF800000),
    0x7FC00001: (0x7FC00001, 0x7FC00001),
}


@pytest.mark.parametrize(
    ("device", "away"),
    [
        ("h100-sxm-80gb", True), ("t4", True), ("h100-sxm-80gb@opencl", False), ("mi300x", False), ("apple-m1", False),
        ("l4@wgpu", False), ("l4@vulkan", False),
    ],
)  # fmt: skip
def test_tf32_rounds_half_away_from_zero_through_cuda_and_to_even_elsewhere(device: str, away: bool) -> None:
    given = np.array(list(PATTERNS), np.uint32).view(np.float32)
    out = launched(device, to_tf32, given, np.zeros_like(given))[1].view(np.uint32)
    assert [hex(n) for n in out] == [hex(pair[away]) for pair in PATTERNS.values()]


def test_the_source_for_each_target_rounds_as_the_emulated_api() -> None:
    even, away = "(b + 0xfffu + ((b >> 13) & 1u)) & 0xffffe000u", "(b + 0x1000u) & 0xffffe000u"
    for target in ("cuda", "hip", "opencl", "metal"):
        assert (away if api_profile(target).numbers.tf32 == "nearest-away" else even) in transpile(
            to_tf32, target
        ).source
    assert api_profile("cuda").numbers.tf32 == "nearest-away"


@pytest.mark.parametrize("device", ["t4", "v100-sxm-16gb", "p4", "h100-sxm-80gb", "mi100", "l4@opencl"])
def test_bf16_without_units_for_it_is_worked_in_f32_and_rounded_as_with_them(device: str) -> None:
    b = ml_dtypes.bfloat16
    x = np.random.default_rng(4).standard_normal(64).astype(b)
    y = np.linspace(-2, 2, 64).astype(b)
    found = launched(device, brain, x, y, grid=2, numbers=(64,))[1]
    assert found.tobytes() == (x * x + y).tobytes()


SMALL = np.array([1e-39, -1e-40, 1.3e-38, -0.0, 1.0], np.float32)


def test_subnormals_of_f32_are_zero_to_arithmetic_where_the_api_may_flush_them() -> None:
    out = launched("apple-m1", arithmetic, SMALL, np.zeros((7, 5), np.float32))[1]
    zero, kept = np.float32(0), SMALL[2]
    with np.errstate(over="ignore"):
        wanted = [
            SMALL,  # a copy is no arithmetic
            [zero, -zero, kept * np.float32(1e30), -zero, np.float32(1e30)],
            [zero, -zero, kept + kept, -zero, 2],
            [0, 0, 1, 0, 1],
            -SMALL,
            [zero, zero, kept, zero, 1],
            [np.float32(-1.2e-38), np.float32(-1.2e-38), zero, np.float32(-1.2e-38), 1],
        ]
    np.testing.assert_array_equal(out.view(np.uint32), np.array(wanted, np.float32).view(np.uint32))


def test_threads_that_are_executed_one_by_one_have_the_same_numbers() -> None:
    given = np.array(list(PATTERNS), np.uint32).view(np.float32)
    for device, kernel, x, out in (
        ("l4", to_tf32, given, np.zeros_like(given)),
        ("mi210", to_tf32, given, np.zeros_like(given)),
        ("apple-m1", arithmetic, SMALL, np.zeros((7, 5), np.float32)),
    ):
        beside = launched(device, kernel, x, out)[1]
        after = launched(device, kernel, x, out, schedule=3)[1]
        assert after.tobytes() == beside.tobytes()


@pytest.mark.parametrize("device", ["l4", "mi210", "l4@wgpu", "arc-a770"])
def test_subnormals_are_kept_elsewhere(device: str) -> None:
    out = launched(device, arithmetic, SMALL, np.zeros((7, 5), np.float32))[1]
    np.testing.assert_array_equal(out[2].view(np.uint32), (SMALL + SMALL).view(np.uint32))
    assert (out[6] == SMALL - np.float32(1.2e-38)).all()
    assert out[3].tolist() == [1, 1, 1, 0, 1]


def test_fma_of_f64_is_rounded_once() -> None:
    """Against exact arithmetic: sums that cancel, ends of the range, numbers that are none, and what an H200 gave."""
    rng = np.random.default_rng(3)
    a = np.ldexp(rng.uniform(-1, 1, 3000), rng.integers(-60, 60, 3000))
    b = np.ldexp(rng.uniform(-1, 1, 3000), rng.integers(-60, 60, 3000))
    c = -a * b * (1 + np.ldexp(rng.integers(0, 2, 3000).astype(float), -rng.integers(1, 54, 3000)))
    a[:5], b[:5], c[:5] = (
        [1 + 2.0**-30, np.inf, np.nan, 1e308, -0.0],
        [1 - 2.0**-30, 1.0, 1.0, 10.0, 0.0],
        [-1.0, 1.0, 1.0, 1.0, -0.0],
    )
    device = windtunnel.device("h100-sxm-80gb", catalogue=KNOWN)
    out = device.empty(a.shape, np.float64)
    device.launch(fused, 3, 1000, *(device.to_device(one) for one in (a, b, c)), out)
    found = device.to_host(out)
    assert found[0] == -(2.0**-60)
    assert found[1] == np.inf and np.isnan(found[2]) and found[3] == np.inf
    assert found[4] == 0.0 and np.signbit(found[4])
    exact = [Fraction(x) * Fraction(y) + Fraction(z) for x, y, z in zip(a[5:], b[5:], c[5:], strict=True)]
    assert found[5:].tolist() == [one.numerator / one.denominator for one in exact]
    assert (found[5:] != a[5:] * b[5:] + c[5:]).any()


def test_subnormals_of_f16_are_kept_where_those_of_f32_are_flushed() -> None:
    x = np.array([2e-3, 1e-3], np.float16)
    assert (launched("apple-m1", halves, x, np.zeros_like(x))[1] == x * x).all()


@pytest.mark.parametrize(
    ("device", "kernel", "array", "kind", "text"),
    [
        ("l4@wgpu", doubled, np.ones(32), "f64", "def doubled(x: f64[:]):"),
        ("apple-m1", doubled, np.ones(32), "f64", "def doubled(x: f64[:]):"),
        ("l4@wgpu", double_within, np.ones(32, np.float32), "f64", "wide = f64(x[i])"),
        ("apple-m1", double_within, np.ones(32, np.float32), "f64", "wide = f64(x[i])"),
        ("l4@wgpu", long_in_shared, np.ones(32, np.int32), "i64", "tile = shared.array(8, i64)"),
        ("l4@wgpu", bytes_of_its_own, np.ones(32, np.int32), "u8", "held = local.array(2, u8)"),
    ],
)
def test_a_type_that_the_api_lacks_is_a_launch_error_at_the_kernels_line(
    device: str, kernel: Any, array: np.ndarray, kind: str, text: str
) -> None:
    opened = windtunnel.device(device, catalogue=KNOWN)
    held = opened.to_device(array)
    before = opened.clock_s
    with pytest.raises(LaunchError) as caught:
        opened.launch(kernel, 1, 32, held)
    error = caught.value
    lines = Path(__file__).read_text().splitlines()
    assert error.file == __file__
    assert [lines[line - 1].strip() for line in error.lines] == [text]
    assert f"on {device}: the kernel needs {kind}, which the API '{error.api}' does not have" in str(error)
    assert f"{Path(__file__).name}:{error.lines[0]}: {text}" in str(error)
    assert opened.clock_s == before
    assert (opened.to_host(held) == array).all()


def test_what_is_inferred_is_refused_too_and_what_is_there_runs() -> None:
    with pytest.raises(LaunchError, match="needs i64"):
        launched("l4@wgpu", untyped, np.zeros(32, np.int64), numbers=(32,))
    assert launched("l4@wgpu", untyped, np.zeros(32, np.int32), numbers=(32,))[0].all()
    assert launched("l4", doubled, np.ones(32))[0].sum() == 64
    assert launched("l4@vulkan", doubled, np.ones(32))[0].sum() == 64


@pytest.mark.parametrize("target", ["wgsl", "metal"])
def test_the_emulator_refuses_the_types_that_the_emitter_refuses(target: str) -> None:
    from windtunnel.codegen.metal import METAL
    from windtunnel.codegen.wgsl import WGSL

    tokens, api = {"wgsl": (WGSL, "wgpu"), "metal": (METAL, "metal")}[target]
    assert set(tokens.missing) == api_profile(api).numbers.lacks


def test_profiles_name_the_types_of_the_kernel_language() -> None:
    assert tuple(SCALARS) == KERNEL_TYPES


def test_what_a_profile_states_has_its_source_and_what_it_does_not_is_numpys() -> None:
    assert api_profile("xrt").numbers == Numbers()
    for name in api_names():
        stated = api_profile(name).numbers.stated
        assert all(one.source and (one.source != "assumed" or one.reason) for one in stated.values())
    assert set(api_profile("metal").numbers.stated) == {"lacks", "subnormals"}


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ("tf32: {value: nearest-up, source: sheet}", "'nearest-up' is not a valid value of 'tf32'"),
        ("lacks: {value: [f46], source: sheet}", "'f46' is not a valid value of 'lacks'.*did you mean 'f64'"),
        ("subnormals: {value: kept}", "'subnormals' needs its source"),
        ("subnormals: {value: kept, provenance: assumed}", "'subnormals' needs its source"),
        ("halves: {value: kept, source: sheet}", "unknown key 'halves'"),
    ],
)
def test_a_slip_in_a_profile_is_said_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: str, message: str
) -> None:
    from windtunnel_models import specs

    (tmp_path / "apis").mkdir()
    file = tmp_path / "apis" / "own.yaml"
    head = 'schema: 1\napi: own\ndoc: ""\nkinds: [gpu]\nfeatures: []\n'
    file.write_text(
        f"{head}sources: {{sheet: {{text: a sheet, provenance: datasheet}}}}\nvalues: {{}}\nnumbers:\n  {numbers}\n"
    )
    monkeypatch.setattr(specs, "HERE", tmp_path)
    with pytest.raises(InputError, match=f"own.yaml:9.*{message}"):
        api_profile("own")
