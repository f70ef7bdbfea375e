"""Helper functions for the numbers of kernels in C: quotients that truncate, limits, and bits of floats.

A text is written with the literals, casts and types of a dialect, so that one form serves them all. What C leaves
undefined has the emulator's numbers: a quotient by zero is 0, a float out of range becomes the nearest integer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

from windtunnel.codegen.text import PRIMARY, Piece
from windtunnel.language.types import F32, F64, SCALARS, U32, U64, Scalar

TESTS = ("isnan", "isinf", "isfinite", "isnormal", "signbit")
"""The functions that test a float."""
BEYOND_PYTHON = frozenset((
    "rint", "round", "asinh", "acosh", "atanh", "exp10", "lgamma", "tgamma", "erfinv", "erfcinv", "normcdf", "sinpi",
    "cospi", "tanpi", "j0", "j1", "y0", "y1", "logb", "rcbrt", "asinpi", "acospi", "atanpi", "nextafter", "remainder",
    "fdim", "ldexp", "atan2pi",
))  # fmt: skip
"""The functions of floats that only kernels in C call. `CTokens.more_functions` are those that a language has."""


class Dialect(Protocol):
    """What is needed of an emitter."""

    def value_type(self, kind: Scalar) -> str:
        """Return the type of a local variable."""

    def literal(self, value: float, kind: Scalar) -> Piece:
        """Return a number."""

    def cast(self, to: Scalar, inner: Piece) -> Piece:
        """Return a cast."""

    def word_of(self, kind: Scalar, text: str) -> str:
        """Return the bits of a float of 32 or 64 bits, as an unsigned number."""


def helper_text(dialect: Dialect, helper: str, name: str, words: str) -> str | None:
    """Return the source of a helper; None if it is none of these. ``words`` stand before the type of the result."""
    op, _, rest = helper.partition("_")
    if op in ("quotient", "remainder", "high"):
        return _TEXTS[op](dialect, name, words, SCALARS[rest])
    if op == "f32":
        return _directed(dialect, name, words, rest)
    if op in ("add", "sub") and rest.startswith("sat_"):
        return _saturating(dialect, name, words, SCALARS[rest.removeprefix("sat_")], "+" if op == "add" else "-")
    if op in ("saturated", "limited"):
        have, _, to = rest.partition("_")
        made = _saturated if op == "saturated" else _limited
        return made(dialect, name, words, SCALARS[have], SCALARS[to])
    if op in ("isfinite", "isnormal", "signbit"):
        return _tested(dialect, name, words, op, SCALARS[rest])
    return None


def _unsigned(kind: Scalar) -> Scalar:
    return SCALARS[f"u{max(kind.bits, 32)}"]


def _head(dialect: Dialect, words: str, result: Scalar, name: str, parameters: Mapping[str, Scalar]) -> str:
    listed = ", ".join(f"{dialect.value_type(kind)} {one}" for one, kind in parameters.items())
    return f"{words}{dialect.value_type(result)} {name}({listed}) {{"


def _quotient(dialect: Dialect, name: str, words: str, kind: Scalar) -> str:
    zero = dialect.literal(0, kind).text
    minus = dialect.literal(-1, kind).text
    u = _unsigned(kind)
    negative = dialect.cast(
        kind, Piece(f"({dialect.literal(0, u).text} - {dialect.cast(u, Piece('a', PRIMARY)).text})", PRIMARY)
    )
    return "\n".join((
        _head(dialect, words, kind, name, {"a": kind, "b": kind}),
        "    // Truncates, as C's; of the smallest number and -1 it wraps, of 0 it is 0.",
        f"    if (b == {zero}) return {zero};",
        f"    if (b == {minus}) return {negative.text};",
        f"    return {dialect.cast(kind, Piece('(a / b)', PRIMARY)).text};",
        "}",
    ))  # fmt: skip


def _remainder(dialect: Dialect, name: str, words: str, kind: Scalar) -> str:
    zero, minus = dialect.literal(0, kind).text, dialect.literal(-1, kind).text
    return "\n".join((
        _head(dialect, words, kind, name, {"a": kind, "b": kind}),
        "    // Has the sign of a, as C's; of 0 it is 0.",
        f"    if (b == {zero} || b == {minus}) return {zero};",
        f"    return {dialect.cast(kind, Piece('(a - a / b * b)', PRIMARY)).text};",
        "}",
    ))  # fmt: skip


def _range(kind: Scalar) -> tuple[int, int]:
    return (-(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1) - 1) if kind.kind == "int" else (0, 2**kind.bits - 1)


def _saturated(dialect: Dialect, name: str, words: str, have: Scalar, to: Scalar) -> str:
    low, high = _range(to)
    kind = F32 if have.bits < 32 else have
    lowest, highest = dialect.literal(low, to).text, dialect.literal(high, to).text
    return "\n".join((
        _head(dialect, words, to, name, {"x": kind}),
        "    // The nearest number of the type; of a NaN it is 0.",
        f"    if (x >= {dialect.literal(float(high + 1), kind).text}) return {highest};",
        f"    if (x <= {dialect.literal(float(low), kind).text}) return {lowest};",
        f"    return x != x ? {dialect.literal(0, to).text} : {dialect.cast(to, Piece('x', PRIMARY)).text};",
        "}",
    ))  # fmt: skip


def _limited(dialect: Dialect, name: str, words: str, have: Scalar, to: Scalar) -> str:
    own, limits = _range(have), _range(to)
    lines = [_head(dialect, words, to, name, {"x": have}), "    // Limited to the range of the type."]
    if limits[1] < own[1]:
        lines.append(
            f"    if (x > {dialect.literal(limits[1], have).text}) return {dialect.literal(limits[1], to).text};"
        )
    if limits[0] > own[0]:
        lines.append(
            f"    if (x < {dialect.literal(limits[0], have).text}) return {dialect.literal(limits[0], to).text};"
        )
    return "\n".join((*lines, f"    return {dialect.cast(to, Piece('x', PRIMARY)).text};", "}"))


def _saturating(dialect: Dialect, name: str, words: str, kind: Scalar, sign: str) -> str:
    low, high = (dialect.literal(value, kind).text for value in _range(kind))
    zero = dialect.literal(0, kind).text
    lines = [_head(dialect, words, kind, name, {"a": kind, "b": kind}), "    // Limited to the range of the type."]
    u = _unsigned(kind)
    a, b = (dialect.cast(u, Piece(one, PRIMARY)).text for one in "ab")
    total = dialect.cast(kind, Piece(f"({a} {sign} {b})", PRIMARY)).text
    lines.append(f"    {dialect.value_type(kind)} total = {total};")
    if kind.kind == "uint":
        lines.append(f"    return {'total < a' if sign == '+' else 'a < b'} ? {high if sign == '+' else zero} : total;")
    else:
        same = "==" if sign == "+" else "!="
        lines += [
            f"    if ((a >= {zero}) {same} (b >= {zero}) && (total >= {zero}) != (a >= {zero}))",
            f"        return a >= {zero} ? {high} : {low};",
            "    return total;",
        ]
    return "\n".join((*lines, "}"))


def _high(dialect: Dialect, name: str, words: str, kind: Scalar) -> str:
    u, half = dialect.value_type(U64), dialect.literal(0xFFFFFFFF, U64).text
    cast = [dialect.cast(U64, Piece(one, PRIMARY)).text for one in "ab"]
    lines = [
        _head(dialect, words, kind, name, {"a": kind, "b": kind}),
        "    // The high 64 bits of the product.",
        f"    {u} x = {cast[0]}, y = {cast[1]};",
        f"    {u} middle = (x >> 32) * (y & {half}) + ((x & {half}) * (y & {half}) >> 32);",
        f"    {u} other = (x & {half}) * (y >> 32) + (middle & {half});",
        f"    {u} top = (x >> 32) * (y >> 32) + (middle >> 32) + (other >> 32);",
    ]
    if kind.kind == "int":
        zero = dialect.literal(0, kind).text
        lines += [f"    if (a < {zero}) top -= y;", f"    if (b < {zero}) top -= x;"]
    return "\n".join((*lines, f"    return {dialect.cast(kind, Piece('top', PRIMARY)).text};", "}"))


def _directed(dialect: Dialect, name: str, words: str, mode: str) -> str:
    f32, f64, zero = dialect.value_type(F32), dialect.value_type(F64), dialect.literal(0.0, F64).text
    target = dialect.literal({"rz": 0.0, "ru": math.inf, "rd": -math.inf}[mode], F32).text
    beyond = {
        "rz": f"(back < {zero} ? -back : back) > (x < {zero} ? -x : x)", "ru": "back < x", "rd": "back > x",
    }[mode]  # fmt: skip
    return "\n".join((
        _head(dialect, words, F32, name, {"x": F64}),
        f"    const {f32} near = {dialect.cast(F32, Piece('x', PRIMARY)).text};",
        f"    const {f64} back = near;",
        f"    return {beyond} ? nextafterf(near, {target}) : near;",
        "}",
    ))  # fmt: skip


def _tested(dialect: Dialect, name: str, words: str, test: str, kind: Scalar) -> str:
    u = U64 if kind.bits == 64 else U32
    mantissa = 52 if kind.bits == 64 else 23
    top, infinite = 1 << (kind.bits - 1), (2 ** (kind.bits - 1 - mantissa) - 1) << mantissa
    bits, magnitude, normal = (dialect.literal(value, u).text for value in (infinite, top - 1, 1 << mantissa))
    word = dialect.word_of(kind, "x")
    condition = {
        "isfinite": f"({word} & {magnitude}) < {bits}",
        "isnormal": f"({word} & {magnitude}) < {bits} && ({word} & {magnitude}) >= {normal}",
        "signbit": f"({word} & {dialect.literal(top, u).text}) != {dialect.literal(0, u).text}",
    }[test]
    return f"{words}bool {name}({dialect.value_type(kind)} x) {{\n    return {condition};\n}}"


_TEXTS = {"quotient": _quotient, "remainder": _remainder, "high": _high}
