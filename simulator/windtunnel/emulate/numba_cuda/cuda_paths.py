"""``numba.cuda.cuda_paths``: there is no toolkit."""

from __future__ import annotations


def get_conda_ctk() -> None:
    """Return None: there is no toolkit."""


def get_cuda_paths() -> dict[str, object]:
    """Return nothing."""
    return {}
