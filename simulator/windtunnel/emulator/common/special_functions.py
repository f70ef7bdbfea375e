"""Functions of a kernel's values that NumPy does not have as one: powers, parts of floats, complex functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.emulator.common import special
from windtunnel.emulator.common.fused import fma
from windtunnel.emulator.common.lanes import Value, convert
from windtunnel.emulator.common.symbolic import materialise


def _elementwise(ufunc: Any) -> Any:
    def function(*values: Value) -> Any:
        return ufunc(*map(materialise, values))

    return function


acosh, asinh, atanh, rint = map(_elementwise, (np.arccosh, np.arcsinh, np.arctanh, np.rint))
gamma, isfinite, signbit, sign = map(_elementwise, (special.gamma, np.isfinite, np.signbit, np.sign))
nextafter, gcd = map(_elementwise, (np.nextafter, np.gcd))
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


def degrees(value: Value) -> Any:
    """Return an angle in degrees, by one product in its own type."""
    value = materialise(value)
    return value * value.dtype.type(180 / np.pi)


def radians(value: Value) -> Any:
    """Return an angle in radians, by one product in its own type."""
    value = materialise(value)
    return value * value.dtype.type(np.pi / 180)


_LARGEST_EXPONENT = np.uint64(0x10000)


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

    Of integers, a negative exponent gives 0, the base if it is 1 or -1, and the highest bit alone if the base is 0.
    Numba leaves exponents beyond 65536 to ``pow`` of float64.
    """
    number, power = np.broadcast_arrays(np.asarray(materialise(base)), np.asarray(materialise(exponent)))
    kind = number.dtype
    is_negative = power < 0
    size = np.where(is_negative, np.negative(power), power).astype(np.uint64)
    is_large = size > _LARGEST_EXPONENT
    left = np.where(is_large, np.uint64(0), size)
    result = np.ones(number.shape, kind)
    factor = number.copy()
    while left.any():
        result = np.where(left & np.uint64(1), result * factor, result)
        factor = factor * factor
        left = left >> np.uint64(1)
    if kind.kind == "f":
        result = np.where(is_negative, kind.type(1) / result, result)
    if is_large.any():
        of_floats = np.power(number.astype(np.float64), power.astype(np.float64))
        result = np.where(is_large, convert(of_floats, kind), result)
    if kind.kind != "f":
        signed = number.astype(np.int64)
        inverse = np.where(signed == 0, np.int64(-(2**63)), 0).astype(kind)
        result = np.where(is_negative & (signed != 1) & (signed != -1), inverse, result)
    return result.astype(kind)[()]


def powi(base: Value, exponent: Value) -> Any:
    """Return a power of floats with an i32 exponent, by libdevice's repeated multiplications, which may overflow."""
    number, power = np.broadcast_arrays(np.asarray(materialise(base)), np.asarray(materialise(exponent)))
    left = np.abs(power.astype(np.int64))
    result, factor = np.ones(number.shape, number.dtype), number.copy()
    while left.any():
        result = np.where(left & 1, result * factor, result)
        factor = factor * factor
        left = left >> 1
    return np.where(power < 0, number.dtype.type(1) / result, result).astype(number.dtype)[()]


def round_to(value: Value, digits: Value) -> Any:
    """Return a number rounded to decimal digits, as Numba computes it: by way of an i64."""
    x, n = np.asarray(materialise(value)), np.asarray(materialise(digits))
    with np.errstate(all="ignore"):
        scale = integer_power(np.float64(10), np.where(n > 22, n - 22, np.abs(n)))
        more = np.where(n > 22, 1e22, 1.0)
        scaled = np.where(n >= 0, x * scale * more, x / scale)
        rounded = convert(np.rint(scaled), np.dtype(np.int64)).astype(np.float64)
        halves = 2.0 * convert(np.rint(scaled / 2.0), np.dtype(np.int64)).astype(np.float64)
        rounded = np.where(np.abs(scaled - rounded) == 0.5, halves, rounded)
        whole = np.where(n >= 0, rounded / more / scale, rounded * scale)
        made = np.where(np.isfinite(x) & ((n < 0) | np.isfinite(scaled)), whole, x)
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
        below = np.where(by_real, fma(bi, ratio, br), fma(br, ratio, bi))
        real = np.where(by_real, fma(ai, ratio, ar), fma(ar, ratio, ai)) / below
        imaginary = np.where(by_real, fma(-ar, ratio, ai), fma(ai, ratio, -ar)) / below
    return _joined(real.astype(ar.dtype), imaginary.astype(ar.dtype))


def _power(a_re: Value, a_im: Value, b_re: Value, b_im: Value) -> np.ndarray:
    """Return a power of complex numbers by size and angle, as CPython and Numba compute it.

    As there, the power of a base and an exponent without real parts is 0, unless the exponent is 0.
    """
    given = [np.asarray(materialise(v)) for v in (a_re, a_im, b_re, b_im)]
    ar, ai, br, bi = np.broadcast_arrays(*given)
    with np.errstate(all="ignore"):
        base, angle = np.hypot(ar, ai), np.arctan2(ai, ar)
        size = np.where(bi != 0, np.power(base, br) / np.exp(angle * bi), np.power(base, br))
        phase = np.where(bi != 0, fma(bi, np.log(base), angle * br), angle * br)
        cosine, sine = np.cos(phase), np.sin(phase)
        cosine = cosine + sine * 0
        real, imaginary = fma(size, cosine, -(sine * 0)), fma(cosine * 0, np.ones_like(size), size * sine)
    is_one = (br == 0) & (bi == 0)
    is_zero = (ar == 0) & (br == 0)
    real, imaginary = np.where(is_one, 1, np.where(is_zero, 0, real)), np.where(is_one | is_zero, 0, imaginary)
    return _joined(real.astype(ar.dtype), imaginary.astype(ar.dtype))


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


def _cosh(value: np.ndarray) -> np.ndarray:
    x, y = value.real, value.imag
    cosine, sine = np.cos(y), np.sin(y)
    real = np.where(np.isnan(y) | (y == 0), np.abs(x), np.copysign(x, cosine))
    imaginary = np.where(np.isnan(y) | (y == 0), y, np.copysign(x, sine)) * np.where(x < 0, -1, 1).astype(x.dtype)
    far = np.isinf(x)
    return _joined(np.where(far, real, cosine * np.cosh(x)), np.where(far, imaginary, sine * np.sinh(x)))


def _sinh(value: np.ndarray) -> np.ndarray:
    x, y = value.real, value.imag
    cosine, sine = np.cos(y), np.sin(y)
    real = np.where(np.isnan(y), x, np.where(cosine != 0, cosine * x, cosine))
    imaginary = np.where(np.isnan(y), y, np.where(sine != 0, sine * np.abs(x), sine))
    far = np.isinf(x)
    return _joined(np.where(far, real, cosine * np.sinh(x)), np.where(far, imaginary, sine * np.cosh(x)))


def _one_more_than_square(x: np.ndarray) -> np.ndarray:
    """Return the square plus 1: of float64 rounded once, and of float32 the rounded square plus 1 in float64."""
    return np.asarray(fma(x, x, np.ones_like(x))) if x.dtype == np.float64 else 1.0 + (x * x).astype(np.float64)


def _tanh(value: np.ndarray) -> np.ndarray:
    """Return the hyperbolic tangent. Of complex64, Numba computes the quotients in float64."""
    x, y = value.real, value.imag
    tx, ty, cx = np.tanh(x), np.tan(y), 1.0 / np.cosh(x).astype(np.float64)
    below = _one_more_than_square(tx * ty)
    real, imaginary = tx * _one_more_than_square(ty) / below, ty.astype(np.float64) / below * cx * cx
    at_end = np.where(np.isinf(y), 0.0, np.copysign(0.0, np.sin(2 * y)))
    far = np.isinf(x)
    return _joined(np.where(far, np.copysign(1.0, x), real), np.where(far, at_end, imaginary))


def _cos(value: np.ndarray) -> np.ndarray:
    return _cosh(_joined(-value.imag, value.real))


def _sin(value: np.ndarray) -> np.ndarray:
    found = _sinh(_joined(-value.imag, value.real))
    return _joined(found.imag, -found.real)


def _tan(value: np.ndarray) -> np.ndarray:
    found = _tanh(_joined(-value.imag, value.real)).astype(value.dtype)
    return _joined(found.imag, -found.real)


def _log(value: np.ndarray) -> np.ndarray:
    return _joined(np.log(np.hypot(value.real, value.imag)), np.arctan2(value.imag, value.real))


def _log10(value: np.ndarray) -> np.ndarray:
    """Return the logarithm to the base 10. Of complex64, Numba divides in float64."""
    found = _log(value).astype(np.complex128)
    return _joined(found.real / np.log(10.0), found.imag / np.log(10.0))


def _asinh(value: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.arcsinh(value)
    return _joined(
        found.real,
        np.where(np.isnan(value.real) & np.isfinite(value.imag), np.nan, found.imag).astype(value.real.dtype),
    )


def _atanh(value: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.arctanh(value)
    quarter = np.copysign(np.pi / 2, value.imag)
    return _joined(found.real, np.where(np.isnan(value.real), quarter, found.imag).astype(value.real.dtype))


def _atan(value: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.arctan(value)
    imaginary = np.where(np.isnan(value.real) & np.isfinite(value.imag), np.nan, found.imag)
    return _joined(found.real, imaginary.astype(value.real.dtype))


COMPLEX = {
    "exp": _exp, "log": _log, "log10": _log10, "log2": np.log2, "sqrt": np.sqrt, "sin": _sin,
    "cos": _cos, "tan": _tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": _atan, "sinh": _sinh, "cosh": _cosh, "tanh": _tanh,
    "asinh": _asinh, "acosh": np.arccosh, "atanh": _atanh,
}  # fmt: skip
"""Functions of complex numbers, emitted as ``m.exp_re`` and ``m.exp_im``."""
FUNCTIONS = {
    **{name: value for name, value in list(globals().items()) if callable(value) and not name.startswith("_")},
    **{f"{name}_{part}": _complex(ufunc, part) for name, ufunc in COMPLEX.items() for part in ("re", "im")},
}
"""All functions by the names that the emitted code uses."""
for _name in ("Any", "Value", "convert", "fma", "materialise"):
    FUNCTIONS.pop(_name, None)
