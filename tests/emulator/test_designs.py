"""Emulated FPGA cards hold the designs of kernels: a change of kernel costs a load, in time and in energy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.differential.comparison import CATALOGUE

import windtunnel
from windtunnel.core.errors import LaunchError
from windtunnel.emulator.device.context import EmulatedContext
from windtunnel.runtime.accelerator import Accelerator

LOAD_S = 6.96
"""What loading a bitstream takes: Xilinx/Vitis_Libraries blas L2_benchmark_gemm.rst (kinds/fpga.yaml)."""


@windtunnel.kernel(work=lambda a: {"op": "vector_add", "n": a.size, "dtype": str(a.dtype)})
def add(a: np.ndarray) -> None:
    a += a


@windtunnel.kernel(work=lambda a: {"op": "fft", "n": a.size, "dtype": str(a.dtype)})
def transform(a: np.ndarray) -> None:
    a *= 1


def took(device: Accelerator, kernel: Any, array: Any) -> float:
    before = device.clock_s
    device.launch(kernel, 1, 32, array)
    device.synchronize()
    return device.clock_s - before


def test_a_launch_loads_the_design_that_the_card_does_not_hold() -> None:
    device = windtunnel.device("alveo-u50")
    array = device.to_device(np.zeros(1024, np.float32))
    launched_s = float(windtunnel.predict("vector_add", "alveo-u50", {"n": 1024, "dispatch": "eager"}).duration_s)
    half = device.to_device(np.zeros(1024, np.float16))
    times = [took(device, kernel, a) for kernel, a in ((add, array), (add, array), (transform, array), (add, array))]
    assert times[1] == pytest.approx(launched_s, rel=0.01)
    for loading in (times[0], times[2], times[3]):
        assert loading == pytest.approx(LOAD_S + launched_s, abs=30e-6)
    assert took(device, add, half) > LOAD_S  # another number format is another design
    gpu = windtunnel.device("l4")
    assert took(gpu, add, gpu.to_device(np.zeros(1024, np.float32))) < 1e-3


def test_a_load_is_in_the_trace_and_draws_power() -> None:
    device = windtunnel.device("alveo-u50")
    array = device.to_device(np.zeros(1024, np.float32))
    spans, before_j, before_s = device.start_trace(), device.energy_j, device.clock_s
    took(device, add, array)
    (load,) = [span for span in spans if span.name == "load design add"]
    assert (load.end - load.start) / 1e12 == pytest.approx(LOAD_S)
    idle_w, max_w = 20.0, 75.0  # alveo-u50.yaml; the share of the base is 0.3
    above_j = device.energy_j - before_j - idle_w * (device.clock_s - before_s)
    assert above_j == pytest.approx(0.3 * (max_w - idle_w) * LOAD_S, rel=1e-3)


def test_a_card_with_two_regions_holds_two_designs() -> None:
    device = Accelerator(EmulatedContext(CATALOGUE.device("quick-fpga-two")))
    array = device.to_device(np.zeros(1024, np.float32))
    half = device.to_device(np.zeros(1024, np.float16))
    uses = [(add, array), (transform, array), (add, array), (add, half), (add, array), (transform, array)]
    assert [took(device, kernel, a) > 1e-3 for kernel, a in uses] == [True, True, False, True, False, True]


def test_a_persistent_kernel_keeps_its_region() -> None:
    device = windtunnel.device("alveo-u50")
    array = device.to_device(np.zeros(1024, np.float32))
    with device.ring(lambda m: m, 1, 1, message=np.uint32, reply=np.uint32) as ring:
        with pytest.raises(LaunchError, match="would replace that of ring kernel"):
            device.launch(add, 1, 32, array)
        ring.terminate()
    assert took(device, add, array) > LOAD_S
