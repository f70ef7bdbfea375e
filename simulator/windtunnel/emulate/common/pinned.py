"""Page-locked arrays of the host."""

from __future__ import annotations

from typing import Any

import numpy as np

_PINNED: dict[int, int] = {}
"""Page-locked memory of the host: bytes by address."""


def pin(array: np.ndarray) -> None:
    """Record that an array's memory is page-locked."""
    _PINNED[array.__array_interface__["data"][0]] = array.nbytes


def unpin(array: np.ndarray) -> None:
    """Record that an array's memory is no longer page-locked."""
    unpin_address(array.__array_interface__["data"][0])


def unpin_address(address: int) -> None:
    """Record that the memory at an address is no longer page-locked."""
    _PINNED.pop(address, None)


def is_pinned(array: Any) -> bool:
    """Return whether an array's memory is page-locked."""
    if not _PINNED or not isinstance(array, np.ndarray):
        return False
    address = array.__array_interface__["data"][0]
    return address in _PINNED or any(at <= address < at + size for at, size in _PINNED.items())
