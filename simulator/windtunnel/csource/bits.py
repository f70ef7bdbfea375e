"""Bit-fields: some bits of a number."""

from __future__ import annotations

from windtunnel.csource import build
from windtunnel.csource.ctype import Number
from windtunnel.language import ir, types


def bits_of(line: int, number: ir.Expr, bits: tuple[int, int], kind: Number) -> ir.Expr:
    """Return a bit-field of a number, with its sign if it has one."""
    first, count = bits
    wide = types.SCALARS[f"u{kind.size * 8}"]
    up = build.binary(line, "<<", number, build.literal(line, wide.bits - first - count, wide))
    shifted = build.converted(up, types.SCALARS[f"i{wide.bits}"]) if kind.scalar.kind == "int" else up
    assert shifted.type is not None  # noqa: S101  all expressions here have types
    made = build.binary(line, ">>", shifted, build.literal(line, wide.bits - count, shifted.type))
    return build.converted(made, kind.scalar)


def with_bits(line: int, number: ir.Expr, bits: tuple[int, int], value: ir.Expr) -> ir.Expr:
    """Return a number with another value of a bit-field."""
    first, count = bits
    wide = number.type
    assert wide is not None  # noqa: S101  all expressions here have types
    mask = (1 << count) - 1
    others = build.literal(line, ~(mask << first) & ((1 << wide.bits) - 1), wide)
    kept = build.binary(line, "&", number, others)
    new = build.binary(line, "&", build.converted(value, wide), build.literal(line, mask, wide))
    new = build.binary(line, "<<", new, build.literal(line, first, wide))
    return build.binary(line, "|", kept, new)
