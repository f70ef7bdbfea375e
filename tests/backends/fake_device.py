"""What is enqueued on the devices of the stand-in for CuPy, and the errors of its work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

NAMES = {
    1: ("cudaErrorInvalidValue", "invalid argument"),
    2: ("cudaErrorMemoryAllocation", "out of memory"),
    35: ("cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"),
    46: ("cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"),
    100: ("cudaErrorNoDevice", "no CUDA-capable device is detected"),
    101: ("cudaErrorInvalidDevice", "invalid device ordinal"),
    214: ("cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"),
    400: ("cudaErrorInvalidResourceHandle", "invalid resource handle"),
    600: ("cudaErrorNotReady", "device not ready"),
    700: ("cudaErrorIllegalAddress", "an illegal memory access was encountered"),
    702: ("cudaErrorLaunchTimeout", "the launch timed out and was terminated"),
    719: ("cudaErrorLaunchFailure", "unspecified launch failure"),
    900: ("cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"),
    904: ("cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"),
}


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int) -> None:
        self.status = status
        name, text = NAMES[status]
        super().__init__(f"{name}: {text}")


class CUDADriverError(RuntimeError):
    def __init__(self, status: int) -> None:
        self.status = status
        name = {1: "CUDA_ERROR_INVALID_VALUE", 200: "CUDA_ERROR_INVALID_IMAGE", 500: "CUDA_ERROR_NOT_FOUND"}[status]
        super().__init__(f"{name}: {name.removeprefix('CUDA_ERROR_').replace('_', ' ').lower()}")


class NVRTCError(RuntimeError):
    pass


class OutOfMemoryError(MemoryError):
    pass


class CompileException(Exception):
    def __init__(self, msg: str, source: str, name: str, options: tuple[str, ...], backend: str = "nvrtc") -> None:
        self._msg, self.source, self.name, self.options, self.backend = msg, source, name, options, backend
        super().__init__()

    def __str__(self) -> str:
        return self._msg


# What is enqueued.


@dataclass(eq=False)
class Op:
    """A piece of work. ``uses``: addresses; ``at``: when it was done."""

    run: Callable[[], None]
    after: list[Op]
    uses: tuple[int, ...] = ()
    at: int | None = None


@dataclass(eq=False)
class Capture:
    """A graph while it is captured: nodes, and the streams that take part."""

    nodes: list[Op] = field(default_factory=list)
    streams: list[Any] = field(default_factory=list)


@dataclass(eq=False)
class Device:
    """One device. ``lasts``: by stream, what it was given last; 0 is the default stream."""

    number: int
    lasts: dict[int, Op] = field(default_factory=dict)
    blocking: set[int] = field(default_factory=set)
    pending: list[Op] = field(default_factory=list)
    broken: int | None = None
    break_with: int | None = None
    """What the next kernel fails with, when it runs."""


def ancestors(ops: Iterable[Op]) -> set[Op]:
    found: set[Op] = set()
    left = list(ops)
    while left:
        op = left.pop()
        if op not in found:
            found.add(op)
            left += op.after
    return found
