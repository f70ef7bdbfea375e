"""The current device of a thread of the program, and CUDA's description of it."""

from __future__ import annotations

import threading
from typing import Any

from windtunnel.core.device import Parameters
from windtunnel.emulate import session

_state = threading.local()
_CAPABILITIES = {
    "h100": (9, 0), "h200": (9, 0), "gh200": (9, 0), "a100": (8, 0), "a10": (8, 6), "a40": (8, 6), "l4": (8, 9),
    "l40s": (8, 9), "l20": (8, 9), "t4": (7, 5), "v100": (7, 0), "p100": (6, 0), "p4": (6, 1), "rtx-4090": (8, 9),
    "rtx-6000": (8, 9), "rtx-5090": (12, 0), "rtx-pro-6000": (12, 0), "b200": (10, 0), "gb200": (10, 0),
    "b300": (10, 3), "gb300": (10, 3),
}  # fmt: skip
"""CUDA's compute capabilities of the catalogue's devices, from NVIDIA's list."""


def current_index() -> int:
    """Return the number of the current device."""
    stack: list[int] = getattr(_state, "stack", [0])
    return stack[-1] if stack else 0


def current_accelerator() -> Any:
    """Return the current device."""
    return session.current.accelerator(current_index())


def push(index: int) -> None:
    """Make a device the current one, until `pop`."""
    _state.stack = [*getattr(_state, "stack", [0]), index]


def pop() -> None:
    """Return to the device before."""
    stack = getattr(_state, "stack", [0])
    _state.stack = stack[:-1] or [0]


def select(index: int) -> None:
    """Make a device the current one in the place of the present one."""
    _state.stack = [*getattr(_state, "stack", [0])[:-1], index]


def compute_capability() -> tuple[int, int]:
    """Return CUDA's compute capability of the devices of the program; (7, 0) for one that has none."""
    return _capability_of(session.current.device)


def _capability_of(device: str) -> tuple[int, int]:
    name = device.partition("@")[0]
    known = [key for key in _CAPABILITIES if name == key or name.startswith(f"{key}-")]
    return _CAPABILITIES[max(known, key=len)] if known else (7, 0)


def largest_shared_bytes(accelerator: Any = None) -> int:
    """Return the most shared memory (bytes) of a block that a kernel may be allowed; by default on the current device.

    CUDA keeps 1 KiB of a block's from compute capability 8.0 on (CUDA C++ Programming Guide, "Shared Memory").
    """
    accelerator = accelerator or current_accelerator()
    unit = Parameters(accelerator.context.device).get("shared_memory_bytes") or 0.0
    reserved = 1024 if _capability_of(accelerator.info.name) >= (8, 0) else 0
    return max(int(unit) - reserved, int(accelerator.info.limits.shared_bytes))
