"""`mathematics.fma` for many numbers, compiled by Numba.

Importing Numba takes a third of a second, so this module is imported only when there is much to compute.
"""

from __future__ import annotations

from typing import Any

from numba import vectorize
from numba.extending import intrinsic


@intrinsic  # type: ignore[untyped-decorator]
def _fused(context: Any, a: Any, b: Any, c: Any) -> Any:
    """Return LLVM's ``fma``, which rounds once."""
    del context

    def generated(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return a(a, b, c), generated


@vectorize(  # type: ignore[untyped-decorator]
    ["float32(float32, float32, float32)", "float64(float64, float64, float64)"], cache=True
)
def fma(a: Any, b: Any, c: Any) -> Any:
    """Return ``a * b + c``, rounded once."""
    return _fused(a, b, c)
