"""A sum of launch, bytes and operations as the base of a residual: when it is found, chosen, written, and far away."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from windtunnel.app import calibrate as calibrate_command
from windtunnel.core.device import Device
from windtunnel.core.errors import InputError
from windtunnel.core.ops import OPERATIONS, Copy, FloatArray, Gemm, Operation, Rows
from windtunnel.report.calibration import lines
from windtunnel_models.catalogue import Catalogue, device_model
from windtunnel_models.learned.calibrate import clearly_better
from windtunnel_models.learned.linear_model import LINEAR_OPERATIONS, LinearCostModel, fit_linear_model, terms
from windtunnel_models.learned.process import Scales

CONTEXT = {"dispatch": "device", "clock": "burst", "cache": "cold"}
PLAIN = Scales(0.0, 0.0, 0.01, 0.0)
TRUE = LinearCostModel.of({"launch_s": 5e-6, "bytes_per_s": 400e9, "flops_per_s": 10e12})


def products(*sides: float, choices: dict[str, str] | None = None) -> Rows:
    """All products with sizes of ``sides``."""
    m, n, k = np.array(list(itertools.product(sides, sides, sides)), dtype=np.float64).T
    return Rows(Gemm, {"dtype": "float32", **CONTEXT, **(choices or {})}, {"m": m, "n": n, "k": k, "batch": m * 0 + 1})


def copies(sizes: FloatArray) -> Rows:
    """Copies of so many bytes."""
    return Rows(Copy, {"direction": "h2d", "memory": "pinned", **CONTEXT}, {"bytes": sizes})


SEEN = products(32.0, 128.0, 512.0, 2048.0)


def slips(count: int, sd: float, seed: int = 0) -> FloatArray:
    """Factors of normal logarithms."""
    return np.exp(np.random.default_rng(seed).normal(0.0, sd, count))


def fitted(rows: Rows, seconds: FloatArray) -> LinearCostModel:
    """The law of ``rows``, with what they leave open when their noise is a percent."""
    noise = np.ones(len(seconds))
    return fit_linear_model(rows, seconds, noise).with_covariance(rows, noise, PLAIN)


def one(op: type[Operation], values: dict[str, float | str]) -> Rows:
    """A single row."""
    words = {name: value for name, value in values.items() if isinstance(value, str)}
    return Rows(op, words, {name: np.array([value]) for name, value in values.items() if not isinstance(value, str)})


@pytest.mark.parametrize("name", sorted(LINEAR_OPERATIONS))
def test_each_count_of_an_operation_that_may_have_a_law_adds_to_its_bytes_or_operations(name: str) -> None:
    op = OPERATIONS.find(name)
    values = op.complete({c.name: 8.0 if c.kind != "choice" else c.choices[0] for c in op.columns})
    for column in (c.name for c in op.columns if c.kind != "choice"):
        if column != "threads":  # they share what a kernel does, and add nothing
            assert (terms(one(op, {**values, column: 64.0})) > terms(one(op, values))).any(), column


@pytest.mark.parametrize("launch", [2e-6, 20e-6])
@pytest.mark.parametrize("bandwidth", [50e9, 3e12])
@pytest.mark.parametrize("rate", [1e11, 1e15])
def test_a_law_is_found_within_a_percent_whatever_its_numbers(launch: float, bandwidth: float, rate: float) -> None:
    true = LinearCostModel.of({"launch_s": launch, "bytes_per_s": bandwidth, "flops_per_s": rate})
    found = fitted(SEEN, true.seconds(SEEN) * slips(64, 0.01))
    between = products(64.0, 256.0, 1024.0)
    assert found.seconds(between) == pytest.approx(true.seconds(between), rel=0.01)


def test_rows_that_are_a_thousand_times_too_long_bend_no_law() -> None:
    seconds = TRUE.seconds(SEEN) * slips(64, 0.01)
    seconds[[5, 40]] *= 1000.0
    assert fitted(SEEN, seconds).seconds(SEEN) == pytest.approx(TRUE.seconds(SEEN), rel=0.01)


def test_no_number_of_a_law_is_below_zero_and_one_that_takes_no_time_is_not_written() -> None:
    sizes = copies(np.logspace(4, 9, 40))
    law = fit_linear_model(sizes, sizes.numbers["bytes"] / 1e10 * slips(40, 0.05), np.ones(40))
    assert min(law.each_s) >= 0.0
    assert set(law.numbers) <= {"launch_s", "bytes_per_s"}
    assert LinearCostModel.of({"bytes_per_s": 1e10}).numbers == {"bytes_per_s": 1e10}


def test_what_rows_leave_open_holds_the_truth_as_often_as_it_says_also_far_away() -> None:
    far = products(4096.0, 8192.0, 16384.0)
    inside = []
    for seed in range(200):
        law = fitted(SEEN, TRUE.seconds(SEEN) * slips(64, 0.01, seed))
        inside.append(np.abs(np.log(law.seconds(far) / TRUE.seconds(far))) <= 1.645 * law.deviation(far))
    assert 0.80 < np.mean(inside) < 0.97


def test_a_term_that_no_row_shows_makes_what_depends_on_it_unsure() -> None:
    never_computing = LinearCostModel.of({"launch_s": 5e-6, "bytes_per_s": 50e9, "flops_per_s": 1e15})
    law = fitted(SEEN, never_computing.seconds(SEEN) * slips(64, 0.01))
    near, far = law.deviation(SEEN).max(), law.deviation(products(32768.0))[0]
    assert far > 5.0 * near


def test_rows_of_launches_alone_and_rows_that_do_not_tell_bytes_from_operations_bear_no_law() -> None:
    small = products(8.0, 16.0, 24.0, 32.0)
    assert not fitted(small, TRUE.seconds(small) * slips(64, 0.01)).is_identified(small)
    m = np.logspace(0, 4, 40).round()
    strip = replace(SEEN, numbers={"m": m, "n": m * 0 + 512, "k": m * 0 + 512, "batch": m * 0 + 1})
    assert not fitted(strip, TRUE.seconds(strip) * slips(40, 0.01)).is_identified(strip)
    assert fitted(SEEN, TRUE.seconds(SEEN) * slips(64, 0.01)).is_identified(SEEN)


KNOWN = Catalogue()


def table(path: Path, rows: Rows, seconds: FloatArray) -> Path:
    """Products and their times as a file."""
    said = [
        f"{m:.0f},{n:.0f},{k:.0f},{rows.choices['dtype']},{t!r}"
        for m, n, k, t in zip(*(rows.numbers[c] for c in "mnk"), seconds.tolist(), strict=True)
    ]
    path.write_text("m,n,k,dtype,latency_s\n" + "\n".join(said) + "\n")
    return path


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The overlay of an L4 that takes as long as a law says, which its formula does not have."""
    folder = tmp_path_factory.mktemp("law")
    measured = table(folder / "rows.csv", SEEN, TRUE.seconds(SEEN) * slips(64, 0.01))
    calibrate_command.calibrate("gemm", measured, "l4", out=folder / "l4.yaml", catalogue=KNOWN)
    return folder / "l4.yaml"


@pytest.fixture(scope="module")
def lawful(overlay: Path) -> Device:
    """The device that the overlay makes."""
    return device_model("l4", KNOWN, str(overlay))


def test_an_overlay_states_its_law_with_units_and_the_device_says_that_it_stands_on_it(
    overlay: Path, lawful: Device
) -> None:
    text = overlay.read_text()
    assert re.search(
        r"linear_model:\n +float32/burst/cold: \{launch_s: [\d.e-]+ s, bytes_per_s: [\d.e+]+ B/s, flops_per_s: ", text
    )
    assert "bytes / " in lawful.accuracy_of("gemm").text
    assert "float32/burst/cold: " in lawful.sources(SEEN)["learned.gemm"].source


def test_times_far_beyond_the_rows_follow_the_law_and_their_interval_is_no_narrower_than_what_was_held_back(
    lawful: Device,
) -> None:
    far = products(4096.0, 8192.0, 16384.0)
    cost = lawful.cost(far)
    assert cost.duration_s == pytest.approx(TRUE.seconds(far), rel=0.02)
    assert (cost.duration_low_s <= TRUE.seconds(far)).all()
    assert (cost.duration_high_s >= TRUE.seconds(far)).all()
    half = lawful.accuracy_of("gemm").interval_half_width
    assert half is not None
    assert ((cost.duration_high_s / cost.duration_s) > 1.0 + 0.95 * half).all()


def test_time_grows_with_every_size_on_a_law(lawful: Device) -> None:
    sides = np.array([100.0, 1000.0, 10000.0, 100000.0])
    for column in "mnk":
        numbers = {name: np.full(4, 300.0) for name in "mnk"} | {"batch": np.ones(4), column: sides}
        assert (np.diff(lawful.cost(replace(SEEN, numbers=numbers)).duration_s) > 0.0).all()


def test_a_changed_datasheet_acts_through_the_formula_and_the_rest_stays(overlay: Path, lawful: Device) -> None:
    name = "memory_bandwidth_bytes_per_s"
    value = lawful.values[name]
    quick = replace(lawful, values={**lawful.values, name: replace(value, value=2.0 * value.value)})
    bare, quick_bare = replace(lawful, residuals={}), replace(quick, residuals={})
    expected = lawful.cost(SEEN).duration_s * quick_bare.cost(SEEN).duration_s / bare.cost(SEEN).duration_s
    assert quick.cost(SEEN).duration_s == pytest.approx(expected, rel=1e-9)
    assert (expected < lawful.cost(SEEN).duration_s).any()


def test_a_clock_that_was_not_measured_differs_from_one_that_was_as_the_formula_says(lawful: Device) -> None:
    long = replace(SEEN, choices={**SEEN.choices, "clock": "sustained"})
    bare = replace(lawful, residuals={})
    ratio = bare.cost(long).duration_s / bare.cost(SEEN).duration_s
    # How far the power cap slows a loop depends on the loop's time a little.
    assert lawful.cost(long).duration_s == pytest.approx(lawful.cost(SEEN).duration_s * ratio, rel=0.03)
    assert ratio.max() > 1.05


def test_rows_shaped_as_the_kinds_formula_says_keep_it(tmp_path: Path) -> None:
    model = device_model("l4", KNOWN, "none")
    sizes = products(48.0, 300.0, 1100.0, 2500.0)
    seconds = 1.6 * model.cost(sizes, intervals=False).duration_s * slips(64, 0.02)
    found = calibrate_command.calibrate("gemm", table(tmp_path / "t.csv", sizes, seconds), "l4", catalogue=KNOWN)
    assert found.linear_models == []
    assert found.cross_validation_error < 0.05


def test_a_law_that_is_nearer_by_no_more_than_chance_is_not_chosen() -> None:
    rng = np.random.default_rng(0)
    formula = np.abs(rng.normal(0.0, 0.05, 60))
    equal, little = formula.copy(), formula - rng.normal(0.0002, 0.01, 60)
    assert not clearly_better(equal, formula)
    assert not clearly_better(little, formula)
    assert not clearly_better(1.5 * formula, formula)
    assert clearly_better(0.7 * formula, formula)


def test_calibrate_tells_the_law_and_what_the_formula_would_have_left(tmp_path: Path) -> None:
    measured = table(tmp_path / "t.csv", SEEN, TRUE.seconds(SEEN) * slips(64, 0.01))
    found = calibrate_command.calibrate("gemm", measured, "l4", catalogue=KNOWN)
    (law,) = found.linear_models
    assert law.combination == "float32/burst/cold"
    assert law.numbers["bytes_per_s"] == pytest.approx(400e9, rel=0.02)
    assert law.numbers["flops_per_s"] == pytest.approx(10e12, rel=0.02)
    assert law.numbers["launch_s"] == pytest.approx(5e-6, rel=0.02)
    assert law.cross_validation_error < law.formula_cross_validation_error
    assert any("a launch of" in line and "replaces the formula" in line for line in lines(found))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (r"launch_s: [^,}]+", "launch: 5 us", "did you mean 'launch_s'"),
        (r"launch_s: [^,}]+", "launch_s: -5 us", "expected zero or more"),
        (r"bytes_per_s: [^,}]+", "bytes_per_s: 4 GB", "bytes_per_s"),
        (r"\{launch_s: .*?\}", "{}", "at least one number"),
        (r"\{launch_s: .*?\}", "7", "not a mapping"),
        (r"linear_model:\n( +)float32/burst/cold", r"linear_model:\n\1float64/burst/cold", "float64/burst/cold"),
    ],
)
def test_a_slip_in_a_law_is_named(overlay: Path, tmp_path: Path, old: str, new: str, said: str) -> None:
    text = overlay.read_text()
    slipped = re.sub(old, new, text, count=1, flags=re.DOTALL)
    assert slipped != text
    path = tmp_path / "l4.yaml"
    path.write_text(slipped)
    with pytest.raises(InputError) as caught:
        device_model("l4", KNOWN, str(path)).cost(SEEN)
    assert said in str(caught.value)
    assert "l4.yaml" in str(caught.value)
