"""The errors of Windtunnel, by the name that a user imports: ``from windtunnel.errors import DeviceLost``."""

from __future__ import annotations

from windtunnel.core.errors import (
    ApiCode,
    CopyError,
    Deadlock,
    DeviceError,
    DeviceHang,
    DeviceLost,
    DeviceNotPresentError,
    DeviceOutOfMemory,
    EccError,
    InputError,
    InvalidArgument,
    InvariantError,
    LaunchError,
    LinkDown,
    QueueFull,
    UnsupportedOperationError,
    Where,
    WindtunnelError,
)

__all__ = [
    "ApiCode",
    "CopyError",
    "Deadlock",
    "DeviceError",
    "DeviceHang",
    "DeviceLost",
    "DeviceNotPresentError",
    "DeviceOutOfMemory",
    "EccError",
    "InputError",
    "InvalidArgument",
    "InvariantError",
    "LaunchError",
    "LinkDown",
    "QueueFull",
    "UnsupportedOperationError",
    "Where",
    "WindtunnelError",
]
