"""Mistakes in OpenCL C are found, and the same kernels without them are not flagged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.corpus.planted_opencl import PLANTED

import windtunnel
from windtunnel import errors


def verdict(file: Path, schedule: int | None, *, mistake: bool) -> str | None:
    """Return the class of what is found."""
    module = windtunnel.load(file, defines=["MISTAKE"] if mistake else [])
    with windtunnel.device("l4", schedule=schedule) as accelerator:
        data = accelerator.to_device(np.arange(64, dtype=np.int32))
        try:
            accelerator.launch(module.k, 2, 16, data)
        except errors.Finding as finding:
            return type(finding).__name__
    return None


def test_each_mistake_is_found_and_no_right_kernel_is_flagged(tmp_path: Path) -> None:
    for name, (expected, source) in PLANTED.items():
        file = tmp_path / f"{name}.cl"
        file.write_text(source)
        assert verdict(file, None, mistake=True) == expected, name
        assert verdict(file, None, mistake=False) is None, name


@pytest.mark.parametrize("schedule", [0, 1, 2])
def test_no_order_of_threads_flags_a_right_kernel_or_hides_a_mistake(tmp_path: Path, schedule: int) -> None:
    for name, (_, source) in PLANTED.items():
        file = tmp_path / f"{name}.cl"
        file.write_text(source)
        assert verdict(file, schedule, mistake=False) is None, name
        assert verdict(file, schedule, mistake=True) is not None, name
