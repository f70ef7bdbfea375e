"""``numba.cuda.np.ufunc``: ``vectorize`` and ``guvectorize``, which are Numba's with the device as the target."""

from __future__ import annotations

from typing import Any

from numba.np.ufunc import decorators as _decorators


def vectorize(ftylist_or_function: Any = (), target: str = "cuda", **kws: Any) -> Any:
    """Make a function of numbers one of arrays."""
    return _decorators.vectorize(ftylist_or_function, target=target, **kws)


def guvectorize(*args: Any, target: str = "cuda", **kws: Any) -> Any:
    """Make a function of arrays one of arrays with more dimensions."""
    return _decorators.guvectorize(*args, target=target, **kws)
