"""Functions of a kernel's values that NumPy does not have as one: powers, parts of floats, complex functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from windtunnel.emulator.common.lanes import Value
from windtunnel.emulator.common.symbolic import materialise


def _elementwise(ufunc: Any) -> Any:
    def function(*values: Value) -> Any:
        return ufunc(*map(materialise, values))

    return function


acosh, asinh, atanh, rint = map(_elementwise, (np.arccosh, np.arcsinh, np.arctanh, np.rint))
gamma, isfinite, signbit, sign = map(_elementwise, (special.gamma, np.isfinite, np.signbit, np.sign))
degrees, radians, nextafter, gcd = map(_elementwise, (np.degrees, np.radians, np.nextafter, np.gcd))
logaddexp, logaddexp2 = map(_elementwise, (np.logaddexp, np.logaddexp2))


def lgamma(value: Value) -> Any:
    """Return the logarithm of the absolute value of the gamma function."""
    value = materialise(value)
    found = special.gammaln(value)
    return np.where(np.isinf(value), np.inf, found).astype(np.asarray(value).dtype)[()]


def round_half_away(value: Value) -> Any:
    """Return the nearest whole number; of two that are as near, the one further from 0."""
    x = materialise(value)
    return np.copysign(np.floor(np.abs(x) + np.asarray(x).dtype.type(0.5)), x)


def rcbrt(value: Value) -> Any:
    """Return the reciprocal of the cube root."""
    x = materialise(value)
    return np.asarray(x).dtype.type(1) / np.cbrt(x)


def rhypot(x: Value, y: Value) -> Any:
    """Return the reciprocal of the length of a vector of two."""
    a = np.asarray(materialise(x))
    return a.dtype.type(1) / np.hypot(a, materialise(y))


def sinpi(value: Value) -> Any:
    """Return the sine of a number times pi."""
    x = np.asarray(materialise(value))
    return special.sinpi(x.astype(np.float64)).astype(x.dtype)[()]


def cospi(value: Value) -> Any:
    """Return the cosine of a number times pi."""
    x = np.asarray(materialise(value))
    return special.cospi(x.astype(np.float64)).astype(x.dtype)[()]


def fdim(x: Value, y: Value) -> Any:
    """Return the positive difference."""
    a, b = np.asarray(materialise(x)), np.asarray(materialise(y))
    return np.where(a > b, a - b, a.dtype.type(0)).astype(a.dtype)[()]


def logb(value: Value) -> Any:
    """Return the exponent of a number."""
    x = np.asarray(materialise(value))
    return (np.frexp(x)[1] - 1).astype(x.dtype)[()]


normcdf, erfinv, erfcx = map(_elementwise, (special.ndtr, special.erfinv, special.erfcx))


def jn(order: Value, value: Value) -> Any:
    """Return the Bessel function of the first kind of a whole order; what is no number for a negative order."""
    n, x = np.asarray(materialise(order)), np.asarray(materialise(value))
    found = np.where(np.isinf(x), 0.0, special.jv(n, x.astype(np.float64)))
    return np.where(n < 0, np.nan, found).astype(x.dtype)[()]


def yn(order: Value, value: Value) -> Any:
    """Return the Bessel function of the second kind of a whole order; what is no number for a negative order."""
    n, x = np.asarray(materialise(order)), np.asarray(materialise(value))
    found = np.where(np.isposinf(x), 0.0, special.yn(n, x.astype(np.float64)))
    with np.errstate(over="ignore"):
        return np.where(n < 0, np.nan, found).astype(x.dtype)[()]


def rcp(value: Value) -> Any:
    """Return the reciprocal."""
    value = materialise(value)
    return value.dtype.type(1) / value


def exp10(value: Value) -> Any:
    """Return 10 to a power."""
    value = materialise(value)
    return np.power(value.dtype.type(10), value)


def remainder(x: Value, y: Value) -> Any:
    """Return IEEE 754's remainder: of the nearest multiple, the even one if two are as near."""
    a, b = np.asarray(materialise(x)), np.asarray(materialise(y))
    rest = np.fmod(a, b)
    size, half = np.abs(b), np.abs(rest) * 2
    quotient_is_odd = np.fmod(np.abs(a), size * a.dtype.type(2)) >= size
    away = (half > size) | ((half == size) & quotient_is_odd)
    made = np.where(away, rest - np.copysign(size, rest), rest)
    made = np.where(np.isinf(b) & np.isfinite(a), a, np.where(made == 0, np.copysign(made, a), made))
    return made.astype(a.dtype)[()]


remquo_0 = remainder


def remquo_1(x: Value, y: Value) -> Any:
    """Return the lowest 3 bits of the quotient of IEEE 754's remainder, with its sign; 0 if there is no quotient."""
    a, b = np.asarray(materialise(x)), np.asarray(materialise(y))
    with np.errstate(all="ignore"):
        # fmod is exact, and a rest of at most 8 divisors leaves a quotient that is exact too.
        eighth = np.abs(b) * b.dtype.type(8)
        rest = np.where(np.isinf(eighth), np.abs(a), np.fmod(np.abs(a), eighth))
        bits = np.rint((rest - np.abs(remainder(rest, b)) * np.sign(remainder(rest, b))) / np.abs(b))
        signed = np.copysign(np.fmod(bits, 8), np.copysign(1, a) * np.copysign(1, b))
    usable = np.isfinite(a) & np.isfinite(b) & (b != 0)
    return np.where(usable, signed, 0).astype(np.int32)[()]


def byte_perm(x: Value, y: Value, selector: Value) -> Any:
    """Return four of the eight bytes of two integers, which the low 3 bits of each digit of ``selector`` select."""
    low, high, chosen = (np.asarray(materialise(one)).astype(np.uint32).astype(np.uint64) for one in (x, y, selector))
    both = low | high << np.uint64(32)
    made = np.zeros(np.broadcast_shapes(both.shape, chosen.shape), np.uint64)
    for byte in range(4):
        place = chosen >> np.uint64(4 * byte) & np.uint64(7)
        made |= (both >> place * np.uint64(8) & np.uint64(255)) << np.uint64(8 * byte)
    return made.astype(np.uint32).view(np.int32)[()]


def integer_power(base: Value, exponent: Value) -> Any:
    """Return a power with an integer exponent, by Numba's repeated multiplications.

    Of integers, a negative exponent gives 0, or the base if it is 1 or -1.
    """
    number, power = np.asarray(materialise(base)), np.asarray(materialise(exponent))
    kind = number.dtype
    is_negative = power < 0
    left = np.abs(power)
    result = np.ones(np.broadcast_shapes(number.shape, power.shape), kind)
    factor = np.broadcast_to(number, result.shape).copy()
    for _ in range(17):
        if not left.any():
            break
        result = np.where(left & 1, result * factor, result)
        factor = factor * factor
        left = left >> 1
    if left.any():  # Numba leaves large exponents to pow
        result = np.where(left != 0, np.power(number.astype(np.float64), np.abs(power).astype(np.float64)), result)
    if kind.kind == "f":
        result = np.where(is_negative, kind.type(1) / result, result)
    else:
        result = np.where(is_negative & (np.abs(number.astype(np.int64)) != 1), 0, result)
    return result.astype(kind)[()]


def round_to(value: Value, digits: Value) -> Any:
    """Return a number rounded to decimal digits, as Numba computes it."""
    x, n = np.asarray(materialise(value)), np.asarray(materialise(digits))
    with np.errstate(all="ignore"):
        scale = np.power(10.0, np.abs(n).astype(np.float64))
        scaled = np.where(n >= 0, x * scale, x / scale)
        rounded = np.where(n >= 0, np.rint(scaled) / scale, np.rint(scaled) * scale)
        made = np.where(np.isfinite(x) & np.isfinite(scaled), rounded, x)
    return made.astype(x.dtype)[()]


def ldexp(value: Value, exponent: Value) -> Any:
    """Return a number times a power of 2."""
    x = materialise(value)
    return np.ldexp(x, materialise(exponent)).astype(np.asarray(x).dtype)[()]


def frexp_0(value: Value) -> Any:
    """Return the fraction of a number, from 0.5 to 1."""
    return np.frexp(materialise(value))[0]


def frexp_1(value: Value) -> Any:
    """Return the exponent that belongs to the fraction of a number."""
    x = materialise(value)
    return np.where(np.isfinite(x), np.frexp(x)[1], 0).astype(np.int32)[()]


def modf_0(value: Value) -> Any:
    """Return the fractional part of a number."""
    return np.modf(materialise(value))[0]


def modf_1(value: Value) -> Any:
    """Return the integral part of a number."""
    return np.modf(materialise(value))[1]


def _joined(re: Value, im: Value) -> np.ndarray:
    real, imaginary = np.asarray(materialise(re)), np.asarray(materialise(im))
    made = np.empty(np.broadcast_shapes(real.shape, imaginary.shape), f"c{2 * real.dtype.itemsize}")
    made.real, made.imag = real, imaginary
    return made


def _part(value: np.ndarray, part: str) -> Any:
    return (value.real if part == "re" else value.imag).copy()[()]


def _quotient(a_re: Value, a_im: Value, b_re: Value, b_im: Value) -> np.ndarray:
    """Return the quotient of complex numbers by Smith's algorithm, as Python and Numba compute it."""
    ar, ai, br, bi = (np.asarray(materialise(v)) for v in (a_re, a_im, b_re, b_im))
    with np.errstate(all="ignore"):
        by_real = np.abs(br) >= np.abs(bi)
        ratio = np.where(by_real, bi / br, br / bi)
        below = np.where(by_real, br + bi * ratio, br * ratio + bi)
        real = np.where(by_real, ar + ai * ratio, ar * ratio + ai) / below
        imaginary = np.where(by_real, ai - ar * ratio, ai * ratio - ar) / below
    return _joined(real.astype(ar.dtype), imaginary.astype(ar.dtype))


def _power(a_re: Value, a_im: Value, b_re: Value, b_im: Value) -> np.ndarray:
    a, b = _joined(a_re, a_im), _joined(b_re, b_im)
    # Numba squares where the exponent is 2.
    made: np.ndarray = np.where(b == 2, a * a, np.power(a, b)).astype(a.dtype)
    return made


def divide_re(*parts: Value) -> Any:
    """Return the real part of a quotient of complex numbers."""
    return _part(_quotient(*parts), "re")


def divide_im(*parts: Value) -> Any:
    """Return the imaginary part of a quotient of complex numbers."""
    return _part(_quotient(*parts), "im")


def power_re(*parts: Value) -> Any:
    """Return the real part of a power of complex numbers."""
    return _part(_power(*parts), "re")


def power_im(*parts: Value) -> Any:
    """Return the imaginary part of a power of complex numbers."""
    return _part(_power(*parts), "im")


def _complex(ufunc: Any, part: str) -> Any:
    def function(re: Value, im: Value) -> Any:
        with np.errstate(all="ignore"):
            return _part(ufunc(_joined(re, im)), part)

    return function


def _exp(value: np.ndarray) -> np.ndarray:
    # As in C99, the exponential of a real part of minus infinity is 0 without a sign, whatever the imaginary part is.
    nothing = np.isneginf(value.real) & ~np.isfinite(value.imag)
    made: np.ndarray = np.where(nothing, 0, np.exp(value)).astype(value.dtype)
    return made


COMPLEX = {
    "exp": _exp, "log": np.log, "log10": np.log10, "log2": np.log2, "sqrt": np.sqrt, "sin": np.sin,
    "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
}  # fmt: skip
"""Functions of complex numbers, emitted as ``m.exp_re`` and ``m.exp_im``."""
FUNCTIONS = {
    **{name: value for name, value in list(globals().items()) if callable(value) and not name.startswith("_")},
    **{f"{name}_{part}": _complex(ufunc, part) for name, ufunc in COMPLEX.items() for part in ("re", "im")},
}
"""All functions by the names that the emitted code uses."""
for _name in ("Any", "Value", "materialise"):
    FUNCTIONS.pop(_name, None)
