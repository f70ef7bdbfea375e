"""Functions of a kernel's values in their own types, and the exchanges between threads of a warp."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from windtunnel.emulator.common import approximations, directed_rounding, special, special_functions
from windtunnel.emulator.common.fused import fma
from windtunnel.emulator.common.lanes import Lanes, Value
from windtunnel.emulator.common.launch import LockstepStalledError
from windtunnel.emulator.common.symbolic import AffineValue, Ramp, SymbolicValue, materialise

_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def _elementwise(ufunc: Any) -> Any:
    def function(*values: Value) -> Any:
        return ufunc(*map(materialise, values))

    return function


sqrt, exp, exp2, log, log2, log10 = map(_elementwise, (np.sqrt, np.exp, np.exp2, np.log, np.log2, np.log10))
sin, cos, tan, asin, acos, atan = map(_elementwise, (np.sin, np.cos, np.tan, np.arcsin, np.arccos, np.arctan))
sinh, cosh, tanh, floor, ceil, trunc = map(_elementwise, (np.sinh, np.cosh, np.tanh, np.floor, np.ceil, np.trunc))
fabs, isnan, isinf, erf = map(_elementwise, (np.absolute, np.isnan, np.isinf, special.erf))


def _erfc(x: Any) -> Any:
    """Return 1 - erf(x). SciPy returns 0 where the result is a subnormal number, from about 26.6 on."""
    result = np.asarray(special.erfc(x))
    small = (result == 0) & (np.asarray(x) < 28)
    if result.dtype == np.float64 and small.any():
        result = result.copy()
        result[small] = [math.erfc(value) for value in np.asarray(x)[small]]
    return result[()]


erfc = _elementwise(_erfc)
expm1, log1p, cbrt = map(_elementwise, (np.expm1, np.log1p, np.cbrt))
# Unsigned numbers are negated modulo their range. Of a number and NaN, fmin and fmax return the number, as in C.
negative, absolute, minimum, maximum = map(_elementwise, (np.negative, np.absolute, np.fmin, np.fmax))


def power(base: Value, exponent: Value) -> Any:
    """Return a power. NumPy computes a single exponent of 0.5 as a root, which has other results at -inf and -0."""
    a, b = materialise(base), materialise(exponent)
    found = np.power(a, b)
    return np.where((b == 0.5) & (np.isneginf(a) | (a == 0)), np.abs(a), found)[()] if a.dtype.kind == "f" else found


pow = power  # noqa: A001  the name it has in kernels
atan2, hypot, fmod, copysign = map(_elementwise, (np.arctan2, np.hypot, np.fmod, np.copysign))

globals().update(special_functions.FUNCTIONS)
globals().update(directed_rounding.FUNCTIONS)
globals().update(approximations.FUNCTIONS)


rint, asinh, acosh, atanh, nextafter = map(_elementwise, (np.rint, np.arcsinh, np.arccosh, np.arctanh, np.nextafter))
isfinite, signbit, ldexp = map(_elementwise, (np.isfinite, np.signbit, np.ldexp))
tgamma, erfinv, erfcinv, normcdf = map(_elementwise, (special.gamma, special.erfinv, special.erfcinv, special.ndtr))


def logical_not(value: Value) -> Any:
    """Return the negation of a condition."""
    return ~value if isinstance(value, SymbolicValue) else np.logical_not(value)


def rsqrt(value: Value) -> Any:
    """Return the reciprocal of the square root."""
    value = materialise(value)
    return value.dtype.type(1) / np.sqrt(value)


def _divmod(x: Value, y: Value, *, unsigned: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return quotient and rest of floats as Numba computes them on a GPU.

    The rest is ``x - trunc(x / y) * y``, rounded once, because NVPTX has no exact remainder for LLVM's ``frem``: NaN if
    the divisor is infinite, and below zero if the quotient was rounded up. LLVM takes it to have the sign of a dividend
    that is known (``unsigned``: it was converted from an unsigned type, and the divisor is a constant), and then leaves
    out the test of its sign.
    """
    a, b = np.broadcast_arrays(np.asarray(materialise(x)), np.asarray(materialise(y)))
    kind = a.dtype.type
    rest = np.asarray(fma(-np.trunc(a / b), b, a))
    quotient = (a - rest) / b
    other_sign = (rest != 0) & ((b < 0) != ((rest < 0) & (not unsigned)))
    quotient = np.where(other_sign, quotient - kind(1), quotient)
    rest = np.where(rest == 0, np.copysign(kind(0), b), np.where(other_sign, rest + b, rest))
    floor = np.floor(quotient)
    floor = np.where(quotient - floor > 0.5, floor + kind(1), floor)
    whole = np.where(quotient == 0, np.copysign(kind(0), a / b), floor)
    whole = np.where(b == 0, a / b, whole)  # without an error, Numba divides
    return whole.astype(a.dtype), rest.astype(a.dtype)


def float_floor_divide(x: Value, y: Value) -> Any:
    """Return ``x // y`` of floats."""
    return _divmod(x, y)[0][()]


def float_modulo(x: Value, y: Value) -> Any:
    """Return ``x % y`` of floats."""
    return _divmod(x, y)[1][()]


def unsigned_floor_divide(x: Value, y: Value) -> Any:
    """Return ``x // y`` of floats, the first of which was converted from an unsigned type."""
    return _divmod(x, y, unsigned=True)[0][()]


def unsigned_modulo(x: Value, y: Value) -> Any:
    """Return ``x % y`` of floats, the first of which was converted from an unsigned type."""
    return _divmod(x, y, unsigned=True)[1][()]


def tf32(value: Value) -> Any:
    """Round a float32 to 10 bits of mantissa, ties to even, by the integer arithmetic that `codegen` emits."""
    return _tf32(value, even=True)


def tf32_away(value: Value) -> Any:
    """Round a float32 to 10 bits of mantissa, ties away from zero, as PTX's ``cvt.rna.tf32.f32``."""
    return _tf32(value, even=False)


def _tf32(value: Value, *, even: bool) -> Any:
    bits = np.asarray(materialise(value), np.float32).view(np.uint32)
    # The sign is a separate bit, so adding to the others rounds away from zero on both sides of it.
    half = np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1)) if even else np.uint32(0x1000)
    rounded = np.where(np.isfinite(bits.view(np.float32)), (bits + half) & np.uint32(0xFFFFE000), bits)
    return rounded.astype(np.uint32).view(np.float32)[()]


_SMALLEST_NORMAL = np.finfo(np.float32).smallest_normal


def flush(value: Value) -> Any:
    """Replace subnormal float32 values by zero of the same sign."""
    value = materialise(value)
    is_subnormal = np.abs(value) < _SMALLEST_NORMAL
    if not is_subnormal.any():
        return value  # the usual case
    flushed: Any = np.where(is_subnormal, np.copysign(np.float32(0), value), value)
    return flushed[()]


def popc(value: Value) -> Any:
    """Return the number of set bits."""
    value = np.asarray(materialise(value))
    return np.bitwise_count(value.view(_BITS[value.dtype.itemsize])).astype(np.int32)[()]


def clz(value: Value) -> Any:
    """Return the number of leading zero bits."""
    value = np.asarray(materialise(value))
    bits, width = value.view(_BITS[value.dtype.itemsize]), 8 * value.dtype.itemsize
    zeros = np.full(bits.shape, width, np.int32)
    # A float64 holds 32 bits exactly, so wider numbers are split into halves.
    for shift in range(0, width, 32):
        half = (bits >> bits.dtype.type(shift)) & bits.dtype.type(min(2**32 - 1, 2**width - 1))
        top = np.frexp(half.astype(np.float64))[1] + shift
        zeros = np.where(half != 0, width - top, zeros).astype(np.int32)
    return zeros[()]


def ffs(value: Value) -> Any:
    """Return the position of the lowest set bit, counted from 1; 0 if no bit is set."""
    value = np.asarray(materialise(value))
    bits = value.view(_BITS[value.dtype.itemsize])
    lowest = bits & (~bits + bits.dtype.type(1))
    return np.where(bits == 0, 0, 8 * value.dtype.itemsize - clz(lowest)).astype(np.int32)[()]


def brev(value: Value) -> Any:
    """Return the bits in reverse order."""
    value = np.asarray(materialise(value))
    width = value.dtype.itemsize
    as_bytes = np.ascontiguousarray(value).reshape(-1, 1).view(np.uint8)
    flipped = np.packbits(np.unpackbits(as_bytes[:, ::-1], axis=1)[:, ::-1], axis=1)
    if width > 1:
        flipped = flipped[:, ::-1]
    return np.ascontiguousarray(flipped).view(value.dtype).reshape(value.shape)[()]


# Numbers as C has them.


def round(value: Value) -> Any:  # noqa: A001  the name it has in C
    """Return the nearest whole number; halves are rounded away from zero."""
    value = materialise(value)
    return np.copysign(np.floor(np.abs(value) + value.dtype.type(0.5)), value)


def remainder(a: Value, b: Value) -> Any:
    """Return the remainder of the division of integers that truncates, as in C, 0 for a division by zero.

    That of floats is IEEE 754's.
    """
    a, b = materialise(a), materialise(b)
    if a.dtype.kind == "f":
        return special_functions.remainder(a, b)
    return np.asarray(np.fmod(a, b))[()]


def quotient(a: Value, b: Value) -> Any:
    """Return the quotient of integers, truncated towards zero, as in C; 0 for a division by zero."""
    a, b = materialise(a), materialise(b)
    down = a // b
    # The quotient rounded down is one too low where the signs differ and a remainder is left.
    adds = (down * b != a) & ((a < 0) != (b < 0)) & (b != 0)
    return np.asarray(down + adds.astype(down.dtype))[()]


def _saturated(name: str) -> Any:
    kind = np.dtype(name)
    low, high = np.iinfo(kind).min, np.iinfo(kind).max

    def function(value: Value) -> Any:
        wide = np.trunc(np.asarray(materialise(value)).astype(np.float64))
        inside = np.where(np.isnan(wide), 0, wide)
        # The largest integer of 64 bits is no float64, so limits are compared before the conversion.
        converted = np.where(inside >= float(high), 0, np.where(inside <= float(low), 0, inside)).astype(kind)
        converted = np.where(inside >= float(high), kind.type(high), converted)
        return np.where(inside <= float(low), kind.type(low), converted)[()]

    return function


saturated_i8, saturated_i16, saturated_i32, saturated_i64 = map(_saturated, ("i1", "i2", "i4", "i8"))
saturated_u8, saturated_u16, saturated_u32, saturated_u64 = map(_saturated, ("u1", "u2", "u4", "u8"))


def _limited(name: str) -> Any:
    kind = np.dtype(name)
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)

    def function(value: Value) -> Any:
        array = np.asarray(materialise(value))
        own = np.iinfo(array.dtype)
        limited = np.clip(array, max(low, int(own.min)), min(high, int(own.max)))
        return limited.astype(kind)[()]

    return function


limited_i8, limited_i16, limited_i32, limited_i64 = map(_limited, ("i1", "i2", "i4", "i8"))
limited_u8, limited_u16, limited_u32, limited_u64 = map(_limited, ("u1", "u2", "u4", "u8"))


def add_sat(a: Value, b: Value) -> Any:
    """Return the sum of integers, limited to the range of their type."""
    a, b = materialise(a), materialise(b)
    info, total = np.iinfo(a.dtype), a + b
    if a.dtype.kind == "u":
        return np.where(total < a, a.dtype.type(info.max), total)[()]
    wraps = ((a >= 0) == (b >= 0)) & ((total >= 0) != (a >= 0))
    return np.where(wraps, np.where(a >= 0, a.dtype.type(info.max), a.dtype.type(info.min)), total)[()]


def sub_sat(a: Value, b: Value) -> Any:
    """Return the difference of integers, limited to the range of their type."""
    a, b = materialise(a), materialise(b)
    info, total = np.iinfo(a.dtype), a - b
    if a.dtype.kind == "u":
        return np.where(a < b, a.dtype.type(0), total)[()]
    wraps = ((a >= 0) != (b >= 0)) & ((total >= 0) != (a >= 0))
    return np.where(wraps, np.where(a >= 0, a.dtype.type(info.max), a.dtype.type(info.min)), total)[()]


def high(a: Value, b: Value) -> Any:
    """Return the high 64 bits of the product of two integers of 64 bits."""
    a, b = np.asarray(materialise(a)), np.asarray(materialise(b))
    x, y = a.astype(np.uint64), b.astype(np.uint64)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    x_low, x_high, y_low, y_high = x & low, x >> half, y & low, y >> half
    middle = x_high * y_low + (x_low * y_low >> half)
    other = x_low * y_high + (middle & low)
    top = x_high * y_high + (middle >> half) + (other >> half)
    if a.dtype.kind == "i":
        top = top - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return top.astype(a.dtype)[()]


def _bits(kind: Any) -> Any:
    def function(value: Value) -> Any:
        return np.ascontiguousarray(materialise(value)).view(kind).reshape(np.shape(value))[()]

    return function


as_i8, as_i16, as_i32, as_i64 = map(_bits, (np.int8, np.int16, np.int32, np.int64))
as_u8, as_u16, as_u32, as_u64 = map(_bits, (np.uint8, np.uint16, np.uint32, np.uint64))
as_f16, as_bf16, as_f32, as_f64 = map(_bits, (np.float16, ml_dtypes.bfloat16, np.float32, np.float64))


def exp10(value: Value) -> Any:
    """Return 10 to the power of a number."""
    value = materialise(value)
    return np.power(value.dtype.type(10), value)


def rcbrt(value: Value) -> Any:
    """Return the reciprocal of the cube root."""
    value = materialise(value)
    return value.dtype.type(1) / np.cbrt(value)


def logb(value: Value) -> Any:
    """Return the exponent of a number; of zero minus infinity, and the size of what is not finite."""
    value = np.asarray(materialise(value))
    found = np.where(np.isfinite(value), (np.frexp(value)[1] - 1).astype(value.dtype), np.abs(value))
    return np.where(value == 0, value.dtype.type(-np.inf), found)[()]


def fdim(a: Value, b: Value) -> Any:
    """Return the positive difference: 0 if the first number is not the larger one, be they infinite."""
    a, b = materialise(a), materialise(b)
    return np.where(a <= b, a.dtype.type(0), a - b)[()]


def _bessel(function: Any, *, even: bool, of_negative: bool) -> Any:
    def with_limits(value: Value) -> Any:
        value = np.asarray(materialise(value))
        limit = np.copysign(value.dtype.type(0), 1 if even else value)
        return np.where(np.isinf(value) & (of_negative | (value > 0)), limit, function(value))[()]

    return with_limits


j0, j1 = (_bessel(function, even=function is special.j0, of_negative=True) for function in (special.j0, special.j1))
y0, y1 = (_bessel(function, even=True, of_negative=False) for function in (special.y0, special.y1))


def isnormal(value: Value) -> Any:
    """Return whether a number is finite, and neither zero nor subnormal."""
    value = materialise(value)
    return np.isfinite(value) & (np.abs(value) >= np.finfo(value.dtype).smallest_normal)


def _turns(value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sine and cosine of a number times pi: exactly 0 where they are."""
    part = np.fmod(value.astype(np.float64), 2.0)
    size = np.abs(part)
    folded = np.where(size > 1, 2 - size, size)  # from 0 to 1, with the cosine of the number
    half = np.where(folded > 0.5, 1 - folded, folded)
    sine = np.sin(half * np.pi) * np.where(size > 1, -1.0, 1.0)
    sine = np.where(half == 0, np.copysign(0.0, part), np.copysign(1.0, part) * sine)
    return sine, np.sin((0.5 - folded) * np.pi)


def sinpi(value: Value) -> Any:
    """Return the sine of a number times pi."""
    value = np.asarray(materialise(value))
    return _turns(value)[0].astype(value.dtype)[()]


def cospi(value: Value) -> Any:
    """Return the cosine of a number times pi."""
    value = np.asarray(materialise(value))
    return _turns(value)[1].astype(value.dtype)[()]


def tanpi(value: Value) -> Any:
    """Return the tangent of a number times pi."""
    value = np.asarray(materialise(value))
    sine, cosine = _turns(value)
    return (sine / cosine).astype(value.dtype)[()]


def _by_pi(function: Any) -> Any:
    def scaled(*values: Value) -> Any:
        given = [np.asarray(materialise(value)) for value in values]
        return (function(*(value.astype(np.float64) for value in given)) / np.pi).astype(given[0].dtype)[()]

    return scaled


asinpi, acospi, atanpi, atan2pi = map(_by_pi, (np.arcsin, np.arccos, np.arctan, np.arctan2))


# Offsets of pointers.


def linear(const: Any, *terms: Value) -> Any:
    """Return ``const`` plus the sum of numbers times steps, without overflow; symbolic if all are."""
    pairs = [(terms[i], int(terms[i + 1])) for i in range(0, len(terms), 2)]
    if len(pairs) == 1 and isinstance(pairs[0][0], Ramp):
        ramp, step = pairs[0]
        return Ramp(ramp.start * step + int(const), ramp.size, ramp.step * step)
    whole, rest, lanes = None, [], None
    total = int(const)
    for value, step in pairs:
        if isinstance(value, AffineValue) and (lanes is None or value.lanes is lanes):
            lanes, scaled = value.lanes, value.times(step)
            whole = scaled if whole is None else whole.plus(scaled)
        elif not isinstance(value, (np.ndarray, SymbolicValue)):
            total += int(value) * step
        else:
            rest.append((value, step))
    if whole is not None and not rest:
        return whole.shifted(total)
    result: Any = np.int64(total)
    if whole is not None:
        result = result + whole.wide()
    for value, step in rest:
        wide = value.wide() if isinstance(value, AffineValue) else np.asarray(value).astype(np.int64)
        result = result + wide * np.int64(step)
    return result


def exact(value: Value) -> Any:
    """Return an offset as i64, not symbolic."""
    if isinstance(value, AffineValue):
        return value.wide()
    return np.asarray(value).astype(np.int64)[()]


def divided(value: Value, by: Value) -> Any:
    """Return an offset in larger units, rounded down."""
    return exact(value) // np.int64(by)


# Warps. All arrays below have one element for each active thread.


def lane(lanes: Lanes) -> Any:
    """Return the threads' lane numbers within their warps."""
    return (lanes.linear % lanes.chunk.warp).astype(np.int32)


def warp_size(lanes: Lanes) -> Any:
    """Return the number of threads of a warp."""
    return np.int32(lanes.chunk.warp)


def active(lanes: Lanes) -> Any:
    """Return a bit for each active lane of the thread's warp."""
    return vote_ballot(lanes, np.uint32(0), np.True_)


def _warps(lanes: Lanes, mask: Value) -> np.ndarray:
    """Return the number of each thread's group within the chunk: threads of one warp that state the same mask."""
    chunk = lanes.chunk
    per_block = -(-chunk.threads // chunk.warp)
    warps = np.asarray(lanes.blocks * per_block + lanes.linear // chunk.warp)
    masks = np.asarray(materialise(mask))
    if not masks.ndim:
        return warps
    _, groups = np.unique(np.stack([warps, masks.astype(np.int64)]), axis=1, return_inverse=True)
    return np.asarray(groups).reshape(-1)


def _from_lane(lanes: Lanes, mask: Value, value: Value, source: np.ndarray) -> Any:
    """Return the value of the thread at lane ``source`` of the same warp; a thread's own value if there is none."""
    chunk = lanes.chunk
    own = np.broadcast_to(np.asarray(materialise(value)), lanes.size)
    values = np.zeros(chunk.size, own.dtype)
    is_active = np.zeros(chunk.size, bool)
    numbers = lanes.numbers
    values[numbers], is_active[numbers] = own, True
    linear = lanes.linear
    target = linear - linear % chunk.warp + source
    in_warp = (source >= 0) & (source < chunk.warp) & (target < chunk.threads)
    place = np.where(in_warp, numbers - linear + target, numbers)
    takes_part = is_active[place] & in_warp
    masks = np.asarray(materialise(mask))
    if masks.ndim:
        stated = np.zeros(chunk.size, masks.dtype)
        stated[numbers] = masks
        takes_part &= stated[place] == masks
    if chunk.launch.checked and not chunk.launch.ignores_partial_warps:
        bits = masks.astype(np.uint64) >> np.clip(source, 0, 31).astype(np.uint64) & 1
        takes_part &= (bits == 1) | (source >= 32)
        if not takes_part[(source >= 0) & (source < chunk.warp)].all():
            raise LockstepStalledError  # thread by thread, it is seen whether the value is used
    return np.where(takes_part, values[place], own)


def shuffle_index(lanes: Lanes, mask: Value, value: Value, source: Value) -> Any:
    """Return the value of the thread at lane ``source``."""
    index = np.broadcast_to(np.asarray(materialise(source)), lanes.size)
    return _from_lane(lanes, mask, value, index % lanes.chunk.warp)


def _below_warp(lanes: Lanes, number: Value) -> np.ndarray:
    """Return the bits of a number that the instruction uses: those of a lane (PTX ISA, ``shfl.sync``)."""
    return np.asarray(materialise(number)) & (lanes.chunk.warp - 1)


def shuffle_up(lanes: Lanes, mask: Value, value: Value, distance: Value) -> Any:
    """Return the value of the thread ``distance`` lanes below."""
    return _from_lane(lanes, mask, value, lane(lanes) - _below_warp(lanes, distance))


def shuffle_down(lanes: Lanes, mask: Value, value: Value, distance: Value) -> Any:
    """Return the value of the thread ``distance`` lanes above."""
    return _from_lane(lanes, mask, value, lane(lanes) + _below_warp(lanes, distance))


def shuffle_xor(lanes: Lanes, mask: Value, value: Value, pattern: Value) -> Any:
    """Return the value of the thread whose lane number is this one's, exclusive or ``pattern``."""
    return _from_lane(lanes, mask, value, lane(lanes) ^ _below_warp(lanes, pattern))


def vote_any(lanes: Lanes, mask: Value, predicate: Value) -> Any:
    """Return whether the predicate is true for any active thread of the warp."""
    warps = _warps(lanes, mask)
    return np.bincount(warps, _as_weights(lanes, predicate))[warps] > 0


def vote_all(lanes: Lanes, mask: Value, predicate: Value) -> Any:
    """Return whether the predicate is true for all active threads of the warp."""
    warps = _warps(lanes, mask)
    return np.bincount(warps, _as_weights(lanes, predicate))[warps] == np.bincount(warps)[warps]


def vote_ballot(lanes: Lanes, mask: Value, predicate: Value) -> Any:
    """Return a bit for each of the warp's first 32 threads, set if the predicate is true for it."""
    warps = _warps(lanes, mask)
    lane_of = lane(lanes)
    weight = np.where(lane_of < 32, np.exp2(lane_of), 0.0)
    return np.bincount(warps, _as_weights(lanes, predicate) * weight)[warps].astype(np.uint32)


def _as_weights(lanes: Lanes, predicate: Value) -> np.ndarray:
    return np.broadcast_to(np.asarray(materialise(predicate)), lanes.size).astype(np.float64)
