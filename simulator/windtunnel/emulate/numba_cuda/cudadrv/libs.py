"""``numba.cuda.cudadrv.libs``: there are no libraries of the toolkit."""

from __future__ import annotations


def test() -> bool:
    """Return False: there are no libraries of the toolkit."""
    return False
