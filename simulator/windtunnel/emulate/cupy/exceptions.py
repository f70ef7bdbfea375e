"""``cupy.exceptions``: NumPy's."""

from __future__ import annotations

from numpy.exceptions import AxisError, ComplexWarning, DTypePromotionError, TooHardError, VisibleDeprecationWarning

__all__ = ["AxisError", "ComplexWarning", "DTypePromotionError", "TooHardError", "VisibleDeprecationWarning"]
