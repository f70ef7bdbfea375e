"""Functions of a kernel's values, in their own types, and what the threads of a warp exchange."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from windtunnel.emulator.lockstep.forms import Form, plain
from windtunnel.emulator.lockstep.lanes import Lanes, Value

_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def minimum(one: Value, other: Value) -> Any:
    """The smaller; of a number and NaN the number, as C's fmin."""
    return np.fmin(plain(one), plain(other))


def maximum(one: Value, other: Value) -> Any:
    """The larger; of a number and NaN the number, as C's fmax."""
    return np.fmax(plain(one), plain(other))


def power(one: Value, other: Value) -> Any:
    """A power."""
    return np.power(plain(one), plain(other))


def negative(value: Value) -> Any:
    """The opposite sign; of an unsigned number, modulo."""
    return np.negative(plain(value))


def absolute(value: Value) -> Any:
    """Without its sign."""
    return np.absolute(plain(value))


def opposite(value: Value) -> Any:
    """Not."""
    return ~value if isinstance(value, Form) else np.logical_not(value)


def _unary(ufunc: Any) -> Any:
    def function(value: Value) -> Any:
        return ufunc(plain(value))

    return function


sqrt, exp, exp2, log, log2, log10 = map(_unary, (np.sqrt, np.exp, np.exp2, np.log, np.log2, np.log10))
sin, cos, tan, asin, acos, atan = map(_unary, (np.sin, np.cos, np.tan, np.arcsin, np.arccos, np.arctan))
sinh, cosh, tanh, floor, ceil, trunc = map(_unary, (np.sinh, np.cosh, np.tanh, np.floor, np.ceil, np.trunc))
fabs, isnan, isinf, erf, erfc = map(_unary, (np.absolute, np.isnan, np.isinf, special.erf, special.erfc))
expm1, log1p, cbrt = map(_unary, (np.expm1, np.log1p, np.cbrt))


def rsqrt(value: Value) -> Any:
    """One over the square root."""
    value = plain(value)
    return value.dtype.type(1) / np.sqrt(value)


def pow(one: Value, other: Value) -> Any:  # noqa: A001  the name it has in kernels
    """A power of floats."""
    return np.power(plain(one), plain(other))


def atan2(one: Value, other: Value) -> Any:
    """The angle of a point."""
    return np.arctan2(plain(one), plain(other))


def hypot(one: Value, other: Value) -> Any:
    """The length of a vector."""
    return np.hypot(plain(one), plain(other))


def fmod(one: Value, other: Value) -> Any:
    """The remainder with the sign of the first."""
    return np.fmod(plain(one), plain(other))


def copysign(one: Value, other: Value) -> Any:
    """The first with the sign of the second."""
    return np.copysign(plain(one), plain(other))


def fma(a: Value, b: Value, c: Value) -> Any:
    """A product and a sum, rounded once: worked out in the next wider type.

    In float32 exactly so but where that sum lies half-way between two of its numbers; in float64 rounded twice.
    """
    a, b, c = (plain(v) for v in (a, b, c))
    wide = np.float32 if a.dtype.itemsize == 2 else np.float64
    return (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(a.dtype)


def tf32(value: Value) -> Any:
    """A float32 rounded to 10 bits of mantissa, half to even: in integers, as `transpile` writes it."""
    return _tf32(value, even=True)


def tf32_away(value: Value) -> Any:
    """A float32 rounded to 10 bits of mantissa, half away from zero: PTX's ``cvt.rna.tf32.f32``."""
    return _tf32(value, even=False)


def _tf32(value: Value, *, even: bool) -> Any:
    bits = np.asarray(plain(value), np.float32).view(np.uint32)
    # The sign is a bit of its own, so that adding to the rest rounds away from zero on both sides of it.
    half = np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1)) if even else np.uint32(0x1000)
    kept = np.where(np.isfinite(bits.view(np.float32)), (bits + half) & np.uint32(0xFFFFE000), bits)
    return kept.astype(np.uint32).view(np.float32)[()]


_LEAST = np.finfo(np.float32).smallest_normal


def flush(value: Value) -> Any:
    """A float32 whose subnormal values are zero, with their sign."""
    value = plain(value)
    small = np.abs(value) < _LEAST
    if not small.any():
        return value  # as nearly always
    found: Any = np.where(small, np.copysign(np.float32(0), value), value)
    return found[()]


def popc(value: Value) -> Any:
    """Bits that are set."""
    value = np.asarray(plain(value))
    return np.bitwise_count(value.view(_BITS[value.dtype.itemsize])).astype(np.int32)[()]


def clz(value: Value) -> Any:
    """Zero bits before the first that is set."""
    value = np.asarray(plain(value))
    bits, width = value.view(_BITS[value.dtype.itemsize]), 8 * value.dtype.itemsize
    found = np.full(bits.shape, width, np.int32)
    # A float64 holds 32 bits exactly, so a wider number is taken in halves.
    for shift in range(0, width, 32):
        half = (bits >> bits.dtype.type(shift)) & bits.dtype.type(min(2**32 - 1, 2**width - 1))
        top = np.frexp(half.astype(np.float64))[1] + shift
        found = np.where(half != 0, width - top, found).astype(np.int32)
    return found[()]


def ffs(value: Value) -> Any:
    """The place of the first bit that is set, from 1; 0 where none is."""
    value = np.asarray(plain(value))
    bits = value.view(_BITS[value.dtype.itemsize])
    lowest = bits & (~bits + bits.dtype.type(1))
    return np.where(bits == 0, 0, 8 * value.dtype.itemsize - clz(lowest)).astype(np.int32)[()]


def brev(value: Value) -> Any:
    """Bits in the opposite order."""
    value = np.asarray(plain(value))
    width = value.dtype.itemsize
    as_bytes = np.ascontiguousarray(value).reshape(-1, 1).view(np.uint8)
    flipped = np.packbits(np.unpackbits(as_bytes[:, ::-1], axis=1)[:, ::-1], axis=1)
    if width > 1:
        flipped = flipped[:, ::-1]
    return np.ascontiguousarray(flipped).view(value.dtype).reshape(value.shape)[()]


# Warps.


def lane(lanes: Lanes) -> Any:
    """A thread's number in its warp."""
    return (lanes.linear % lanes.chunk.warp).astype(np.int32)


def warp_size(lanes: Lanes) -> Any:
    """Threads of a warp."""
    return np.int32(lanes.chunk.warp)


def _warps(lanes: Lanes, mask: Value) -> np.ndarray:
    """The warp of each active thread, counted within the chunk; those that state other masks are other warps."""
    chunk = lanes.chunk
    per_block = -(-chunk.threads // chunk.warp)
    warps = np.asarray(lanes.places * per_block + lanes.linear // chunk.warp)
    masks = np.asarray(plain(mask))
    if not masks.ndim:
        return warps
    _, found = np.unique(np.stack([warps, masks.astype(np.int64)]), axis=1, return_inverse=True)
    return np.asarray(found).reshape(-1)


def _from(lanes: Lanes, mask: Value, value: Value, source: np.ndarray) -> Any:
    """What the thread at lane ``source`` of each one's warp has; one's own where there is none such."""
    chunk = lanes.chunk
    own = np.broadcast_to(np.asarray(plain(value)), lanes.size)
    every = np.zeros(chunk.size, own.dtype)
    there = np.zeros(chunk.size, bool)
    numbers = lanes.numbers
    every[numbers], there[numbers] = own, True
    mine = lanes.linear
    wanted = mine - mine % chunk.warp + source
    inside = (source >= 0) & (source < chunk.warp) & (wanted < chunk.threads)
    place = np.where(inside, numbers - mine + wanted, numbers)
    found = every[place]
    together = there[place]
    masks = np.asarray(plain(mask))
    if masks.ndim:
        stated = np.zeros(chunk.size, masks.dtype)
        stated[numbers] = masks
        together &= stated[place] == masks
    return np.where(inside & together, found, own)


def shuffle_index(lanes: Lanes, mask: Value, value: Value, source: Value) -> Any:
    """What the thread at a lane has."""
    return _from(lanes, mask, value, np.broadcast_to(np.asarray(plain(source)), lanes.size) % lanes.chunk.warp)


def shuffle_up(lanes: Lanes, mask: Value, value: Value, distance: Value) -> Any:
    """What the thread so many lanes below has."""
    return _from(lanes, mask, value, lane(lanes) - np.asarray(plain(distance)))


def shuffle_down(lanes: Lanes, mask: Value, value: Value, distance: Value) -> Any:
    """What the thread so many lanes above has."""
    return _from(lanes, mask, value, lane(lanes) + np.asarray(plain(distance)))


def shuffle_xor(lanes: Lanes, mask: Value, value: Value, pattern: Value) -> Any:
    """What the thread has whose lane differs in these bits."""
    return _from(lanes, mask, value, lane(lanes) ^ np.asarray(plain(pattern)))


def vote_any(lanes: Lanes, mask: Value, predicate: Value) -> Any:
    """Whether it holds for any active thread of the warp."""
    warps = _warps(lanes, mask)
    return np.bincount(warps, _holding(lanes, predicate))[warps] > 0


def vote_all(lanes: Lanes, mask: Value, predicate: Value) -> Any:
    """Whether it holds for all active threads of the warp."""
    warps = _warps(lanes, mask)
    return np.bincount(warps, _holding(lanes, predicate))[warps] == np.bincount(warps)[warps]


def vote_ballot(lanes: Lanes, mask: Value, predicate: Value) -> Any:
    """A bit for each thread of the warp for which it holds: of the first 32."""
    warps = _warps(lanes, mask)
    lane_of = lane(lanes)
    weight = np.where(lane_of < 32, np.exp2(lane_of), 0.0)
    return np.bincount(warps, _holding(lanes, predicate) * weight)[warps].astype(np.uint32)


def _holding(lanes: Lanes, predicate: Value) -> np.ndarray:
    return np.broadcast_to(np.asarray(plain(predicate)), lanes.size).astype(np.float64)
