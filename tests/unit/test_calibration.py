"""Calibration: a known law is found again, slips are named, and what is reported comes from rows left out."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import windtunnel
from windtunnel.app import calibrate as calibrate_command
from windtunnel.app import validate as validate_command
from windtunnel.app.calibrate import beyond_datasheet
from windtunnel.app.predict import predict_table
from windtunnel.cli.main import cli
from windtunnel.core.csvfile import Table, read_table
from windtunnel.core.device import Device, Kind, Parameters, RawCost
from windtunnel.core.errors import InputError
from windtunnel.core.ops import OPERATIONS, FloatArray, Rows, VectorAdd, one_row
from windtunnel.core.optable import OpTable
from windtunnel.core.provenance import Provenance, SourcedValue, assumed
from windtunnel.core.spec import ApiProfile, DeviceSpec, Parameter
from windtunnel.report.calibration import lines as calibration_lines
from windtunnel_models.catalogue import Catalogue, device_model, shipped_catalogue
from windtunnel_models.learned.calibrate import FEWEST_ROWS, Calibration, calibrate
from windtunnel_models.learned.process import Process, Scales, best_scales, merge


def _cost(p: Parameters, rows: Rows) -> RawCost:
    moved = 12.0 * rows.numbers["n"]
    return RawCost(p("floor_s") + moved / p("rate_bytes_per_s"), np.asarray(100.0), np.asarray("memory"))


_GUESS = assumed(1.0, 0.1, 10.0, "a guess")
FAKE = Kind(
    name="fake",
    doc="a floor and a rate",
    parameters=(Parameter("floor_s", "s", "floor"), Parameter("rate_bytes_per_s", "B/s", "rate")),
    costs={"vector_add": _cost},
    errors={},
    fits={"vector_add": {"floor_s": 1.0, "rate_bytes_per_s": 1.0}},
)


def fake(floor_s: float = 5e-6, rate: float = 1e11) -> Device:
    """A device of the fake kind, before any measurement of it."""
    values = {
        "floor_s": replace(_GUESS, value=floor_s, low=floor_s / 10, high=floor_s * 10),
        "rate_bytes_per_s": replace(_GUESS, value=rate, low=rate / 10, high=rate * 10),
        "idle_power_w": _GUESS,
        "max_power_w": replace(_GUESS, value=100.0, high=200.0),
    }
    spec = DeviceSpec("fake", "fake", "nobody", "Fake", ("native",), values)
    return Device(spec, FAKE, ApiProfile("native", "", ("fake",), frozenset(), {}), values)


def measured(
    path: Path, sizes: FloatArray, seconds: FloatArray, fit_to: Device | None = None, extra: str = ""
) -> Calibration:
    """The calibration of the fake device from a table written to ``path``."""
    lines = [f"{int(n)},{t!r}" for n, t in zip(sizes.tolist(), seconds.tolist(), strict=True)]
    path.write_text("n,latency_s\n" + "\n".join(lines) + "\n" + extra)
    table = OpTable(VectorAdd, read_table(path, "table"))
    return calibrate(fit_to or fake(), table, table.measured("latency_s"))


SIZES = np.round(np.logspace(3, 8, 40))
LAW = 9e-6 + 12.0 * SIZES / 2.5e11


def test_a_device_of_known_law_is_found_again_within_a_percent(tmp_path: Path) -> None:
    found = measured(tmp_path / "t.csv", SIZES, LAW)
    assert found.values["floor_s"].value == pytest.approx(9e-6, rel=0.01)
    assert found.values["rate_bytes_per_s"].value == pytest.approx(2.5e11, rel=0.01)
    assert found.cross_validation_error < 0.01 < found.error_before
    assert not found.outliers
    assert not found.duplicates


def test_a_few_rows_move_the_numbers_less_than_many(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)

    def floor_of(count: int) -> float:
        sizes = np.round(np.logspace(7, 8, count))  # far above the floor: these rows say next to nothing of it
        seconds = (30e-6 + 12.0 * sizes / 1e11) * np.exp(rng.normal(0.0, 0.02, count))
        return abs(math.log(measured(tmp_path / "t.csv", sizes, seconds).values["floor_s"].value / 5e-6))

    assert floor_of(12) < floor_of(400)


def test_an_outlier_is_named_with_what_the_others_say_and_bends_nothing(tmp_path: Path) -> None:
    seconds = LAW.copy()
    seconds[17] *= 1000.0  # milliseconds where the others are seconds
    found = measured(tmp_path / "t.csv", SIZES, seconds)
    assert [outlier.line for outlier in found.outliers] == [19]
    assert found.outliers[0].expected_s == pytest.approx(LAW[17], rel=0.1)
    assert found.values["rate_bytes_per_s"].value == pytest.approx(2.5e11, rel=0.03)


def test_repeated_points_are_named_and_their_median_counts(tmp_path: Path) -> None:
    sizes = np.concatenate([SIZES, SIZES[:1], SIZES[:1]])
    seconds = np.concatenate([LAW, LAW[:1], LAW[:1] * 3.0])
    found = measured(tmp_path / "t.csv", sizes, seconds)
    assert found.duplicates == [(2, 42, 43)]
    assert found.distinct == 40
    assert found.rows == 42
    assert found.cross_validation_error < 0.01


def test_too_few_distinct_rows_are_refused_however_often_they_are_repeated(tmp_path: Path) -> None:
    sizes = np.tile(SIZES[: FEWEST_ROWS - 1], 3)
    with pytest.raises(InputError, match=f"{FEWEST_ROWS - 1} distinct measurements are too few"):
        measured(tmp_path / "t.csv", sizes, np.tile(LAW[: FEWEST_ROWS - 1], 3))
    assert measured(tmp_path / "t.csv", SIZES[:FEWEST_ROWS], LAW[:FEWEST_ROWS]).distinct == FEWEST_ROWS


def test_the_interval_holds_nine_tenths_of_rows_that_no_fit_saw(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    sizes = np.round(np.exp(rng.uniform(np.log(1e3), np.log(1e9), 200)))
    seconds = (9e-6 + 12.0 * sizes / 2.5e11) * np.exp(rng.normal(0.0, 0.08, 200))
    found = measured(tmp_path / "t.csv", sizes[:100], seconds[:100])
    assert 0.85 <= found.interval_coverage <= 0.97
    assert 0.10 < found.interval_half_width < 0.20  # 1.645 x 0.08 = 0.13
    assert 0.04 < found.cross_validation_error < 0.09  # mean |error| of such noise is 0.064: no fit can do better


def test_leaving_a_point_out_in_closed_form_is_leaving_it_out() -> None:
    rng = np.random.default_rng(3)
    z, residual = rng.normal(size=(12, 2)), rng.normal(0.0, 0.1, 12)
    none, noise = np.zeros(12), np.ones(12)
    scales = Scales(0.12, 0.06, 0.03, 0.0)
    error, deviation = Process(z, residual, none, noise, scales).leave_one_out()
    for i in range(12):
        kept = np.arange(12) != i
        rest = Process(z[kept], residual[kept], none[kept], noise[kept], scales)
        mean, spread = rest(z[[i]], none[[i]])
        assert error[i] == pytest.approx(residual[i] - mean[0], abs=1e-9)
        assert deviation[i] * 1.6449 == pytest.approx(spread[0], rel=1e-6)


def test_relatives_count_as_far_as_they_explain() -> None:
    rng = np.random.default_rng(5)
    z = rng.uniform(-3.0, 3.0, (80, 3))
    relatives = 0.3 * np.sin(40.0 * z[:, 0])  # too rough for the process itself to learn
    noise = np.ones(80)
    said = best_scales(z, relatives + rng.normal(0.0, 0.02, 80), relatives, noise)
    unsaid = best_scales(z, 0.1 * np.tanh(z[:, 1]) + rng.normal(0.0, 0.02, 80), relatives, noise)
    assert said.mix == 1.0
    assert unsaid.mix == 0.0


def test_merged_rows_are_near_each_other_and_few_enough() -> None:
    z = np.random.default_rng(2).normal(size=(5000, 3))
    group = merge(z, 300)
    assert group.max() < 300
    widths = [np.ptp(z[group == g], axis=0).max() for g in range(group.max() + 1)]
    assert np.median(widths) < 1.5


def command(*arguments: object) -> tuple[int, str]:
    """Exit code and everything printed of a `windtunnel` command."""
    from windtunnel.cli.main import main

    runner = CliRunner()
    with runner.isolation() as (out, err, _):
        try:
            main([str(argument) for argument in arguments])
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, out.getvalue().decode() + err.getvalue().decode()


@pytest.fixture(scope="module")
def measurements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty products as an L4 twice as slow as its model would take."""
    tmp_path = tmp_path_factory.mktemp("measurements")
    shapes = tmp_path / "shapes.csv"
    lines = [
        f"{m},{n},{k},float16" for m in (16, 200, 1000, 4096, 9000) for n, k in ((512, 512), (4096, 1024), (2048, 8192))
    ]
    lines += [f"{m},3000,3000,float16" for m in range(100, 1600, 100)]
    shapes.write_text("m,n,k,dtype\n" + "\n".join(lines) + "\n")

    out = tmp_path / "predicted.csv"
    predict_table("gemm", device_model("l4", windtunnel.catalogue(), "none"), shapes, out)
    header, *rows = out.read_text().splitlines()
    at = header.split(",").index("duration_s")
    table = tmp_path / "measured.csv"
    table.write_text(
        "m,n,k,dtype,latency_s\n"
        + "".join(f"{','.join(r.split(',')[:4])},{2.0 * float(r.split(',')[at])!r}\n" for r in rows)
    )
    return table


@pytest.fixture
def products(measurements: Path, tmp_path: Path) -> Path:
    """The measurements, in a file that a test may change."""
    return Path(shutil.copy(measurements, tmp_path))


@pytest.fixture(scope="module")
def calibrated(measurements: Path) -> tuple[Path, dict[str, Any]]:
    """The overlay of the measurements, and what `calibrate` reports of it."""
    overlay = measurements.with_name("l4.yaml")
    code, said = command("calibrate", "gemm", measurements, "--device", "l4", "--out", overlay, "--format", "json")
    assert code == 0, said
    return overlay, json.loads(said)


@pytest.fixture
def overlay(calibrated: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """The overlay, in a file that a test may change."""
    return Path(shutil.copy(calibrated[0], tmp_path))


def test_the_overlay_that_calibrate_writes_moves_predict(products: Path, tmp_path: Path) -> None:
    overlay = tmp_path / "l4.yaml"
    code, said = command("calibrate", "gemm", products, "--device", "l4", "--out", overlay)
    assert code == 0, said
    assert "30 measurements" in said
    question = ("gemm", "--device", "l4", "m=700", "n=3000", "k=3000", "dtype=float16", "--format", "json")
    before = json.loads(command("predict", *question, "--calibration", "none")[1])
    after = json.loads(command("predict", *question, "--calibration", overlay)[1])
    assert after["duration_s"] == pytest.approx(2.0 * before["duration_s"], rel=0.05)
    width = math.log(after["duration_high_s"] / after["duration_low_s"])
    assert width < 0.5 * math.log(before["duration_high_s"] / before["duration_low_s"])


def test_calibrate_reports_as_json_and_refuses_outliers_when_strict(products: Path, tmp_path: Path) -> None:
    lines = products.read_text().splitlines()
    cells = lines[7].split(",")
    lines[7] = ",".join([*cells[:4], repr(float(cells[4]) * 1000.0)])
    products.write_text("\n".join(lines) + "\n")
    overlay = tmp_path / "l4.yaml"
    code, said = command("calibrate", "gemm", products, "--device", "l4", "--out", overlay, "--format", "json")
    assert code == 0, said
    assert [outlier["line"] for outlier in json.loads(said)["outliers"]] == [8]
    overlay.unlink()
    code, said = command("calibrate", "gemm", products, "--device", "l4", "--out", overlay, "--strict")
    assert code == 2
    assert "measured.csv:8" in said
    assert not overlay.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("m,n,k,dtype\n8,8,8,float16\n", "no column 'latency_s'"),
        ("m,n,k,dtype,latency\n8,8,8,float16,1e-5\n", "(it has a column 'latency')"),
        ("m,n,k,dtype,latency_s\n8,8,8,float16,12 us\n", "this is '12 us'"),
        ("m,n,k,dtype,latency_s\n8,8,8,float16,-1\n", "from 1e-12 to 1e+09"),
        ("m,n,k,dtype,latency_s\n8,8,8,float61,1e-5\n", "did you mean 'float16'"),
        ("m,n,k,dtype,latency_s\n8,8,8,float16,1e-5\n", "1 distinct measurements are too few"),
    ],
)
def test_a_table_that_cannot_be_fitted_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    table = tmp_path / "t.csv"
    table.write_text(text)
    code, printed = command("calibrate", "gemm", table, "--device", "l4", "--out", tmp_path / "o.yaml")
    assert code == 2
    assert said in printed
    assert "t.csv" in printed


def test_calibrate_is_listed() -> None:
    assert "calibrate" in CliRunner().invoke(cli, ["--help"]).output


def test_times_taken_by_the_host_are_parted_into_the_hosts_and_the_devices(tmp_path: Path) -> None:

    catalogue = windtunnel.catalogue()
    model = device_model("tpu-v5e", catalogue, "none")
    moved = {
        path: SourcedValue(model.values[path].value * factor, Provenance.MEASURED, "a test")
        for path, factor in (("round_trip_s.jax", 1.6), ("issue_rate.bfloat16", 0.85))
    }
    truth = replace(model, values={**model.values, **moved})
    shapes = [(m, n, n) for m in (128, 512, 2048, 8192) for n in (512, 1024, 2048, 4096, 8192)]
    numbers = {name: np.array([float(shape[i]) for shape in shapes]) for i, name in enumerate("mnk")}
    rows = Rows(
        OPERATIONS["gemm"],
        {"dtype": "bfloat16", "dispatch": "eager", "clock": "burst", "cache": "warm"},
        {**numbers, "batch": np.ones(len(shapes))},
    )
    took = truth.cost(rows, intervals=False).duration_s
    lines = [f"{m},{n},{k},bfloat16,eager,warm,{t!r}" for (m, n, k), t in zip(shapes, took.tolist(), strict=True)]
    path = tmp_path / "t.csv"
    path.write_text("m,n,k,dtype,dispatch,cache,latency_s\n" + "\n".join(lines) + "\n")
    table = OpTable(OPERATIONS["gemm"], read_table(path, "table"))
    found = calibrate(model, table, table.measured("latency_s"))
    assert found.values["round_trip_s.jax"].value == pytest.approx(moved["round_trip_s.jax"].value, rel=0.03)
    assert found.values["issue_rate.bfloat16"].value == pytest.approx(moved["issue_rate.bfloat16"].value, rel=0.03)
    assert found.launch_bound > 0


def test_a_named_outlier_sets_no_interval_however_few_rows_there_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    seconds = LAW[:12] * np.exp(rng.normal(0.0, 0.04, 12))
    clean = measured(tmp_path / "t.csv", SIZES[:12], seconds)
    seconds[5] *= 1000.0
    found = measured(tmp_path / "t.csv", SIZES[:12], seconds)
    assert [outlier.line for outlier in found.outliers] == [7]
    assert found.interval_half_width < 3.0 * clean.interval_half_width
    assert found.cross_validation_error < 0.2


def test_repeats_that_contradict_each_other_are_outliers(tmp_path: Path) -> None:
    sizes, seconds = np.concatenate([SIZES, SIZES[:1], SIZES[:1]]), np.concatenate([LAW, LAW[:1], LAW[:1] * 5.0])
    assert [outlier.line for outlier in measured(tmp_path / "t.csv", sizes, seconds).outliers] == [43]
    torn = measured(tmp_path / "t.csv", np.repeat(SIZES, 2), np.repeat(LAW, 2) * np.tile([1.0, 5.0], 40))
    assert len(torn.outliers) == 80


def test_a_table_in_milliseconds_is_warned_of(tmp_path: Path) -> None:
    device = fake(9e-6, 2.5e11)
    assert not measured(tmp_path / "t.csv", SIZES, LAW, device).warnings
    (warning,) = measured(tmp_path / "t.csv", SIZES, LAW * 1e3, device).warnings
    assert "milliseconds" in warning


def test_predict_gives_no_wider_interval_than_was_reported(
    products: Path, calibrated: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    overlay, reported = calibrated
    out = tmp_path / "predicted.csv"
    code, printed = command(
        "predict", "gemm", "--device", "l4", "--calibration", overlay, "--table", products, "--out", out
    )
    assert code == 0, printed
    lines = [line.split(",") for line in out.read_text().splitlines()]
    at = {name: lines[0].index(name) for name in ("duration_s", "duration_low_s", "duration_high_s")}
    value, low, high = (np.array([float(line[at[name]]) for line in lines[1:]]) for name in at)
    # These rows were fitted, so their interval is the narrower one; nothing that was fitted with them is added again.
    assert 0.01 < np.median((high - low) / 2.0 / value) < 1.1 * reported["interval_half_width"]


def test_a_calibration_overwrites_neither_its_measurements_nor_an_overlay_its_predictions(
    products: Path, overlay: Path
) -> None:
    before = products.read_text()
    assert command("calibrate", "gemm", products, "--device", "l4", "--out", products)[0] == 2
    assert products.read_text() == before
    written = overlay.read_text()
    code, _ = command(
        "predict", "gemm", "--device", "l4", "--calibration", overlay, "--table", products, "--out", overlay
    )
    assert code == 2
    assert overlay.read_text() == written


def test_a_stated_time_cannot_be_calibrated(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("distribution,mean,latency_s\ndeterministic,1,1\n")
    code, said = command("calibrate", "service", tmp_path / "t.csv", "--device", "server", "--out", tmp_path / "o.yaml")
    assert code == 2
    assert "takes the time that the scenario states" in said


def test_a_cut_overlay_is_refused_and_not_a_bug(overlay: Path) -> None:
    question = ("gemm", "--device", "l4", "m=700", "n=3000", "k=3000", "dtype=float16", "--calibration", overlay)
    text = overlay.read_text()
    for slip in (
        text.replace(",float16,1,", ",float16\n", 1),
        text.replace("wide: ", "wide: 1e9", 1),
        text.replace("noise: ", "noise: -", 1),
    ):
        assert slip != text
        overlay.write_text(slip)
        code, said = command("predict", *question)
        assert code == 2, said
        assert "l4.yaml" in said


def test_an_overlay_measured_through_one_api_does_not_answer_for_another(products: Path, tmp_path: Path) -> None:
    overlay = tmp_path / "l4.yaml"
    assert command("calibrate", "gemm", products, "--device", "l4@vulkan", "--out", overlay)[0] == 0
    question = ("m=700", "n=3000", "k=3000", "dtype=float16", "--calibration", overlay)
    assert command("predict", "gemm", "--device", "l4@vulkan", *question)[0] == 0
    code, said = command("predict", "gemm", "--device", "l4", *question)
    assert code == 2
    assert "through vulkan, not through cuda" in said


def test_a_calibration_says_which_calibration_it_replaces(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    table = root / "scenarios" / "measurements" / "arc-pro-b60-gemm.csv"
    code, said = command("calibrate", "gemm", table, "--device", "arc-pro-b60", "--out", tmp_path / "o.yaml")
    assert code == 0, said
    assert "it replaces the whole shipped calibration of this SKU (gemm)" in said


def test_power_is_fitted_where_it_was_measured_and_may_be_missing(tmp_path: Path) -> None:
    from windtunnel.app import calibrate as calibrate_command

    catalogue = windtunnel.catalogue()
    device = device_model("l40s", catalogue, "none")
    shapes = [(m, n, 8192) for m in (2048, 4096, 8192) for n in (2048, 4096, 6144, 8192, 12288)]
    numbers = {name: np.array([float(shape[i]) for shape in shapes]) for i, name in enumerate("mnk")}
    context = {"dtype": "bfloat16", "dispatch": "device", "clock": "sustained", "cache": "cold"}
    rows = Rows(OPERATIONS["gemm"], context, {**numbers, "batch": np.ones(len(shapes))})
    less = {
        p: SourcedValue(v.value * 0.7, Provenance.MEASURED, "a test")
        for p, v in device.values.items()
        if p.startswith("power_share")
    }
    cost = replace(device, values={**device.values, **less}).cost(rows, intervals=False)
    watts = [f"{w:.2f}" for w in cost.power_w.tolist()]
    watts[3] = ""
    path = tmp_path / "t.csv"
    path.write_text(
        "m,n,k,dtype,clock,latency_s,power_w\n"
        + "".join(
            f"{m},{n},{k},bfloat16,sustained,{t!r},{w}\n"
            for (m, n, k), t, w in zip(shapes, cost.duration_s.tolist(), watts, strict=True)
        )
    )
    report = calibrate_command.calibrate("gemm", path, "l40s", out=tmp_path / "o.yaml", catalogue=catalogue)
    assert report.power.cross_validation_error < 0.5 * report.power.error_before
    known = device_model("l40s", catalogue, str(tmp_path / "o.yaml")).power_error
    assert known.provenance == Provenance.MEASURED
    assert 1.0 < known.value < 1.2 < device.power_error.value  # from cross-validation; before, it is assumed
    path.write_text(path.read_text().replace("power_w", "note"))
    assert calibrate_command.calibrate("gemm", path, "l40s", catalogue=catalogue).power is None


def test_a_calibration_is_compared_with_the_shipped_model(root: Path) -> None:
    measurements = root / "scenarios" / "measurements" / "a100-attention.csv"
    report = calibrate_command.calibrate("attention", measurements, "a100-sxm-80gb")
    (validated,), _ = validate_command.validate(measurements, op="attention")
    assert report.shipped_error == pytest.approx(validated.mape, rel=1e-9)
    assert report.shipped_error < report.cross_validation_error < report.error_before
    text = "\n".join(calibration_lines(report))
    assert "15% without measurements of this SKU, 1.51% with the shipped model, 5.78% with this calibration" in text
    assert "warning: the shipped model predicts these rows better than this calibration" in text
    shipped = ", ".join(report.instead_of)
    assert {"attention", "gemm", "all_reduce"} <= set(report.instead_of)
    assert f"warning: it replaces the whole shipped calibration of this SKU ({shipped})" in text


@pytest.mark.usefixtures("overlay")
def test_a_fleet_may_be_simulated_with_an_overlay_or_without_any(tmp_path: Path) -> None:
    from windtunnel.scenario.read import read_scenario

    scenario = tmp_path / "s.yaml"

    def latency(calibration: str) -> float:
        scenario.write_text(
            "schema: 1\nname: s\nfleet:\n  - {device: l4" + calibration + "}\nworkload:\n  - name: w\n"
            "    arrivals: {process: poisson, rate: 10 /s}\n"
            "    ops:\n      - gemm: {m: 700, n: 3000, k: 3000, dtype: float16}\nstop: {jobs: 50}\n"
        )
        return float(windtunnel.run(scenario).result.latency_s.p50.value)

    assert latency(", calibration: l4.yaml") == pytest.approx(2.0 * latency(", calibration: none"), rel=0.1)
    assert latency("") == latency(", calibration: none")  # an L4 has no calibration of its own for products
    scenario.write_text(
        scenario.read_text()
        .replace("l4}", "l4, calibration: l5.yaml}")
        .replace("calibration: none", "calibration: l5.yaml")
    )
    with pytest.raises(InputError, match=r"there is no such calibration overlay; did you mean .l4\.yaml"):
        windtunnel.run(read_scenario(scenario))


@pytest.mark.parametrize("spread", [0.0, 0.6])
def test_a_fit_that_rows_left_out_do_not_bear_out_says_so(spread: float, tmp_path: Path) -> None:
    """Rows that differ from the model each by a factor of its own teach nothing of others; a factor of all does."""
    rng = np.random.default_rng(4)
    model, sizes = Catalogue().device("l4"), 10 ** np.linspace(5, 8, 12)
    lines = ["n,latency_s"]
    for n in sizes.round().astype(int).tolist():
        seconds = float(model.cost(one_row(OPERATIONS.find("vector_add"), {"n": n})).duration_s[0])
        lines.append(f"{n},{1.3 * seconds * math.exp(spread * rng.standard_normal()):.6g}")
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    report = calibrate_command.calibrate("vector_add", tmp_path / "rows.csv", "l4", out=tmp_path / "made.yaml")
    assert report.improves_on_prior is (spread == 0.0)
    if spread:
        assert report.constant_factor_only
    assert any("no improvement over the uncalibrated model" in line for line in calibration_lines(report)) is (
        spread > 0.0
    )


@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_what_varies_with_size_is_kept_where_rows_left_out_are_nearer_with_it(slope: float, tmp_path: Path) -> None:
    """A dozen rows that a factor of all explains, each 20% off by itself, have that factor alone; with a slope, more."""
    rng = np.random.default_rng(7)
    model, sizes = Catalogue().device("l4"), (10 ** np.linspace(5, 8.5, 14)).round()
    lines = ["n,latency_s"]
    for n in sizes.astype(int).tolist():
        seconds = float(model.cost(one_row(OPERATIONS.find("vector_add"), {"n": n})).duration_s[0])
        factor = 1.5 * (n / 1e7) ** slope * math.exp((0.03 if slope else 0.2) * rng.standard_normal())
        lines.append(f"{n},{factor * seconds:.6g}")
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    report = calibrate_command.calibrate("vector_add", tmp_path / "rows.csv", "l4", out=tmp_path / "made.yaml")
    assert report.improves_on_prior
    assert report.constant_factor_only is (slope == 0.0)
    overlay = " ".join((tmp_path / "made.yaml").read_text().split())
    assert ("one factor for all sizes" in overlay) is (slope == 0.0)
    assert any("a single factor is used for all sizes" in line for line in calibration_lines(report)) is (slope == 0.0)
    # What is written is what was judged: a residual that knows no sizes.
    assert ("wide: 0.0, narrow: 0.0" in overlay) is (slope == 0.0)


@pytest.mark.parametrize("wrong", ["first", "second"])
@pytest.mark.parametrize("factor", [100.0, 1 / 100, 1.6])
def test_of_two_measurements_of_one_point_the_other_rows_tell_which_is_wrong(
    tmp_path: Path, wrong: str, factor: float
) -> None:
    """Line 20 and line 42 measure one point; their own median is between them, and says nothing."""
    sizes, seconds = np.append(SIZES, SIZES[18]), np.append(LAW, LAW[18])
    seconds[18 if wrong == "first" else 40] *= factor
    found = measured(tmp_path / "t.csv", sizes, seconds)
    assert found.duplicates == [(20, 42)]
    (outlier,) = found.outliers
    assert outlier.line == (20 if wrong == "first" else 42)
    assert outlier.measured_s == pytest.approx(LAW[18] * factor)
    assert outlier.expected_s == pytest.approx(LAW[18], rel=0.05)
    assert found.values["rate_bytes_per_s"].value == pytest.approx(2.5e11, rel=0.02)
    assert found.cross_validation_error < 0.02


def test_an_outlier_is_named_once_with_its_own_time_however_often_its_point_was_measured(tmp_path: Path) -> None:
    sizes, seconds = np.append(SIZES, SIZES[[18, 18]]), np.append(LAW, LAW[[18, 18]])
    seconds[[18, 40, 41]] *= np.array([100.0, 101.0, 300.0])
    found = measured(tmp_path / "t.csv", sizes, seconds)
    assert [outlier.line for outlier in found.outliers] == [20, 42, 43]
    assert [outlier.measured_s for outlier in found.outliers] == pytest.approx(seconds[[18, 40, 41]].tolist())
    assert all(outlier.expected_s == pytest.approx(LAW[18], rel=0.1) for outlier in found.outliers)


def test_rows_that_the_datasheet_forbids_are_named_and_not_fitted_unless_trusted(tmp_path: Path) -> None:
    """An L4 multiplies 121 TFLOP/s at most; 60 PFLOP/s is a clock that was read before the kernel had ended."""
    sizes = np.unique(np.logspace(2.7, 3.9, 14).astype(int)).tolist()
    honest = [(m, 10e-6 + 2.0 * m * 4096**2 / 80e12) for m in sizes]
    forbidden = [(4096, 2.29e-6), (8192, 4e-6)]

    def calibrated(rows: list[tuple[int, float]], *options: str) -> tuple[int, str]:
        lines = [f"{m},4096,4096,float16,{t!r}" for m, t in rows]
        (tmp_path / "t.csv").write_text("m,n,k,dtype,latency_s\n" + "\n".join(lines) + "\n")
        out = tmp_path / "l4.yaml"
        return command("calibrate", "gemm", tmp_path / "t.csv", "--device", "l4", "--out", out, *options)

    def product() -> float:
        shape = {"m": 4096, "n": 4096, "k": 4096, "dtype": "float16"}
        return float(windtunnel.predict("gemm", "l4", shape, calibration=str(tmp_path / "l4.yaml")).duration_s)

    assert calibrated(honest)[0] == 0
    alone = product()
    code, said = calibrated(honest + forbidden, "--format", "json")
    fitted = json.loads(said)
    assert code == 0 and fitted["rows"] == 14 and not fitted["trusted"]
    assert [(row["line"], row["measured_s"]) for row in fitted["beyond_datasheet"]] == [(16, 2.29e-6), (17, 4e-6)]
    assert fitted["beyond_datasheet"][0]["least_s"] == pytest.approx(2.0 * 4096**3 / 121e12)
    assert product() == alone > 1e-3
    code, said = calibrated(honest + forbidden)
    assert "line 16 is faster than the datasheet allows (measured 2.29 µs; 137 GFLOP of arithmetic at 121" in said
    code, said = calibrated(honest + forbidden, "--strict")
    assert code == 2 and "t.csv:16: latency_s: 2 rows are faster than the datasheet allows" in said
    code, said = calibrated(honest + forbidden, "--trust-measurements", "--format", "json")
    assert code == 0 and json.loads(said)["rows"] == 16 and json.loads(said)["trusted"]
    # A fifth above the peak is what clocks and rounding may explain.
    code, said = calibrated([(m, t / 0.65 * 0.55) for m, t in honest], "--format", "json")
    assert code == 0 and not json.loads(said)["beyond_datasheet"]
    code, said = calibrated(honest[:9] + forbidden)
    assert code == 2 and "9 distinct measurements are too few for a fit; 2 further rows are faster" in said
    assert "or --trust-measurements" in said


def test_operands_that_a_cache_may_hold_are_not_bounded_by_the_bandwidth_of_memory() -> None:
    device = device_model("l4", windtunnel.catalogue())

    def least_s(elements: int) -> float:
        text = [[str(elements), "float32", repr(12e-12 * elements)]]
        table = OpTable(VectorAdd, Table("t.csv", ("n", "dtype", "latency_s"), text, [2]))
        return max([row.least_s for row in beyond_datasheet(device, table)], default=0.0)

    # At 1 TB/s: 12 MB are in its 48 MB of cache, 1.2 GB are not, and memory has 300 GB/s.
    assert least_s(1_000_000) == 0.0
    assert least_s(100_000_000) == pytest.approx(1.2e9 / 300e9)


def test_no_transferred_share_of_what_is_attained_has_a_range_above_one() -> None:
    """A device that is held above its own limit would be slower at both ends of the range."""
    for sku in ("h100-sxm-80gb", "mi300x", "l40s", "b300-sxm-288gb"):
        device = shipped_catalogue().device(sku)
        for path, value in device.values.items():
            if path == "power_cap_share" or path.startswith("stream_efficiency."):
                assert value.value <= (value.high or value.value) <= 1.0, (sku, path)
