"""The errors of Windtunnel, by the name that a user imports: ``from windtunnel.errors import DeviceLost``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from windtunnel.core.errors import (
    ApiCode,
    AssertionFailed,
    BarrierDivergence,
    ChecksSkippedWarning,
    CopyError,
    DataRace,
    Deadlock,
    DeviceError,
    DeviceHang,
    DeviceLost,
    DeviceNotPresentError,
    DeviceOutOfMemory,
    DivisionByZero,
    EccError,
    Finding,
    InputError,
    InvalidArgument,
    InvariantError,
    LaunchError,
    Leak,
    LinkDown,
    Location,
    MisalignedAccess,
    MissingSync,
    OutOfBounds,
    QueueFull,
    TranslatorError,
    UninitializedRead,
    UnsupportedOperationError,
    UseAfterFree,
    WindtunnelError,
)

__all__ = [
    "ApiCode",
    "AssertionFailed",
    "BarrierDivergence",
    "ChecksSkippedWarning",
    "CopyError",
    "DataRace",
    "Deadlock",
    "DeviceError",
    "DeviceHang",
    "DeviceLost",
    "DeviceNotPresentError",
    "DeviceOutOfMemory",
    "DivisionByZero",
    "EccError",
    "Finding",
    "InputError",
    "InvalidArgument",
    "InvariantError",
    "LaunchError",
    "Leak",
    "LinkDown",
    "Location",
    "MisalignedAccess",
    "MissingSync",
    "OutOfBounds",
    "QueueFull",
    "TranslatorError",
    "UninitializedRead",
    "UnsupportedOperationError",
    "UseAfterFree",
    "WindtunnelError",
]

_ELSEWHERE = {
    "BudgetExceeded": "budget",
    "UnhandledWorkerFailures": "worker",
    "FaultNotFired": "faults",
    "HandlerError": "worker",
    "PoolExhausted": "pool",
    "ReloadError": "reload",
    "UndeliveredMessage": "worker",
}
"""Errors of the runtime, which is imported when one is asked for."""


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(import_module(f"windtunnel.runtime.{_ELSEWHERE[name]}"), name)
    raise AttributeError(f"module 'windtunnel.errors' has no attribute {name!r}")
