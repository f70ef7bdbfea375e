"""``cupy.testing``: assertions, arrays for tests, and tests that compare NumPy and CuPy."""

from __future__ import annotations

from typing import Any

import pytest

from windtunnel.emulate.cupy.refusals import missing
from windtunnel.emulate.cupy.testing.arrays import (
    assert_allclose,
    assert_array_almost_equal,
    assert_array_almost_equal_nulp,
    assert_array_equal,
    assert_array_less,
    assert_array_list_equal,
    assert_array_max_ulp,
    shaped_arange,
    shaped_linspace,
    shaped_random,
    shaped_reverse_arange,
)
from windtunnel.emulate.cupy.testing.loops import (
    for_all_dtypes,
    for_all_dtypes_combination,
    for_CF_orders,
    for_complex_dtypes,
    for_dtypes,
    for_dtypes_combination,
    for_float_dtypes,
    for_int_dtypes,
    for_int_dtypes_combination,
    for_orders,
    for_signed_dtypes,
    for_signed_dtypes_combination,
    for_unsigned_dtypes,
    for_unsigned_dtypes_combination,
    numpy_cupy_allclose,
    numpy_cupy_array_almost_equal,
    numpy_cupy_array_equal,
    numpy_cupy_array_list_equal,
    numpy_cupy_equal,
)
from windtunnel.emulate.cupy.testing.parameters import (
    fix_random,
    gpu,
    multi_gpu,
    parameterize,
    product,
    product_dict,
    with_requires,
)


def __getattr__(name: str) -> Any:
    if name == "slow":
        return pytest.mark.slow
    if name == "assert_warns":
        return pytest.warns
    return missing("cupy.testing", name)


__all__ = [
    "assert_allclose",
    "assert_array_almost_equal",
    "assert_array_almost_equal_nulp",
    "assert_array_equal",
    "assert_array_less",
    "assert_array_list_equal",
    "assert_array_max_ulp",
    "fix_random",
    "for_CF_orders",
    "for_all_dtypes",
    "for_all_dtypes_combination",
    "for_complex_dtypes",
    "for_dtypes",
    "for_dtypes_combination",
    "for_float_dtypes",
    "for_int_dtypes",
    "for_int_dtypes_combination",
    "for_orders",
    "for_signed_dtypes",
    "for_signed_dtypes_combination",
    "for_unsigned_dtypes",
    "for_unsigned_dtypes_combination",
    "gpu",
    "multi_gpu",
    "numpy_cupy_allclose",
    "numpy_cupy_array_almost_equal",
    "numpy_cupy_array_equal",
    "numpy_cupy_array_list_equal",
    "numpy_cupy_equal",
    "parameterize",
    "product",
    "product_dict",
    "shaped_arange",
    "shaped_linspace",
    "shaped_random",
    "shaped_reverse_arange",
    "with_requires",
]
