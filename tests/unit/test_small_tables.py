"""Cross-validation errors of the TPU and FPGA models, computed by the script of benchmarks/accuracy."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from windtunnel_models.catalogue import Catalogue

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = REPOSITORY / "tests" / "data" / "small_tables"


def _harness() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "small_tables", REPOSITORY / "benchmarks" / "accuracy" / "small_tables.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


small_tables = _harness()


def _error(seconds: np.ndarray, estimated: np.ndarray) -> float:
    return float(np.abs(estimated / seconds - 1.0).mean())


def test_gemm_on_a_tpu_is_within_5_percent_when_its_whole_shape_was_left_out() -> None:
    study = small_tables.tpu(DATA)
    estimated, low, high = small_tables.cross_validate(study, study.groups["weight shape (n,k)"])
    assert _error(study.seconds, estimated) < 0.05
    assert 0.85 <= np.mean((study.seconds >= low) & (study.seconds <= high)) <= 0.97
    assert np.median((high - low) / 2.0 / estimated) < 0.1
    assert _error(study.seconds, estimated) < 0.6 * _error(study.seconds, small_tables.constants(study))


def test_kernels_on_fpgas_are_within_7_percent_when_left_out_of_the_fit() -> None:
    seconds, estimated, covered = [], [], []
    for study in (small_tables.fpga_gemm(DATA), small_tables.fpga_gemv(DATA)):
        estimate, low, high = small_tables.cross_validate(study, study.groups["row"])
        seconds.append(study.seconds)
        estimated.append(estimate)
        covered.append((study.seconds >= low) & (study.seconds <= high))
    assert _error(np.concatenate(seconds), np.concatenate(estimated)) < 0.07
    assert _error(seconds[0], estimated[0]) < 0.05
    assert 0.85 <= np.mean(np.concatenate(covered)) <= 0.97


def test_launches_in_flight_are_within_3_percent_in_most_cases_when_left_out_of_the_fit() -> None:
    study = small_tables.fpga_launch(DATA)
    estimated, low, high = small_tables.cross_validate(study, study.groups["row"])
    assert np.median(np.abs(estimated / study.seconds - 1.0)) < 0.03
    assert _error(study.seconds, estimated) < 0.6 * _error(study.seconds, small_tables.constants(study))
    assert 0.85 <= np.mean((study.seconds >= low) & (study.seconds <= high)) <= 0.97


def test_an_uncalibrated_device_has_an_interval_that_contains_most_measurements() -> None:
    for study, most in ((small_tables.tpu(DATA), 0.07), (small_tables.fpga_gemm(DATA), 0.15)):
        plain = Catalogue().device(study.sku, calibrated=False)
        estimated, low, high = small_tables.costs(study, plain, np.arange(len(study)), intervals=True)
        assert _error(study.seconds, estimated) < most
        assert np.mean((study.seconds >= low) & (study.seconds <= high)) >= 0.85
        assert np.median((high - low) / 2.0 / estimated) < 0.6


@pytest.mark.parametrize("make", ["tpu", "fpga_gemm", "fpga_gemv", "fpga_launch"])
def test_the_shipped_overlays_are_what_the_script_fits(make: str) -> None:
    study = getattr(small_tables, make)(DATA)
    shipped = Catalogue().device(study.sku)
    for path, value in small_tables.fit(study, np.arange(len(study))).items():
        assert shipped.number(*path.split(".")) == pytest.approx(value, rel=0.01), path
