"""What tests of ring kernels share: the devices, and a ring that squares."""

from __future__ import annotations

from typing import Any

import numpy as np

import windtunnel
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.ring import RingKernel
from windtunnel_models.catalogue import Catalogue

KNOWN = Catalogue()
PERSISTENT = ["l4", "rtx-6000-ada", "mi300x"]
RELAUNCHED = ["apple-m2-ultra", "rtx-4090@wgpu", "l4@vulkan", "rtx-4090@opencl"]


def opened(name: str = "l4") -> Accelerator:
    return windtunnel.device(name, catalogue=KNOWN)


def square(message: Any) -> int:
    return int(message) ** 2


def ring_of(device: Accelerator, handler: Any = square, capacity: int = 8, grid: int = 1) -> RingKernel:
    return device.ring(handler, grid, 32, message=np.uint32, reply=np.uint64, capacity=capacity)


def overhead(device: Accelerator, name: str) -> float:
    return KNOWN.device(device.name).api.values[name].value
