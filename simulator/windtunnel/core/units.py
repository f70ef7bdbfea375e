"""Converts quantities as text ("57600 /s", "2.5 USD/h", "100 Gbit/s") to SI floats and back.

Inside Windtunnel every quantity is a float in SI units (seconds, bytes, joules, watts) with the unit in its name.
Text with units exists only in input and output, which use this module. A dimension is written as a canonical unit:
``s``, ``B``, ``B/s``, ``FLOP/s``, ``W``, ``J``, ``/s``, ``USD/h``, ``1`` ...

GB (10^9 bytes) is not GiB (2^30 bytes), and a bit is an eighth of a byte. A number without a unit is an error where a
unit is required. Integer operations (vendors' TOP/s) have the dimension of FLOP.

docs/decisions/0003-units.md explains why no units library is used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from windtunnel.core.errors import InputError, nearest

Exponents = tuple[int, int, int, int, int, int]
"""Powers of (time, data, energy, work, money, mass)."""

_NONE: Exponents = (0, 0, 0, 0, 0, 0)
_TIME: Exponents = (1, 0, 0, 0, 0, 0)
_DATA: Exponents = (0, 1, 0, 0, 0, 0)
_ENERGY: Exponents = (0, 0, 1, 0, 0, 0)
_WORK: Exponents = (0, 0, 0, 1, 0, 0)
_MONEY: Exponents = (0, 0, 0, 0, 1, 0)
_MASS: Exponents = (0, 0, 0, 0, 0, 1)
_POWER: Exponents = (-1, 0, 1, 0, 0, 0)
_RATE: Exponents = (-1, 0, 0, 0, 0, 0)

_DECIMAL = {
    "f": 1e-15,
    "p": 1e-12,
    "n": 1e-9,
    "u": 1e-6,
    "µ": 1e-6,
    "μ": 1e-6,
    "m": 1e-3,
    "": 1.0,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}


def _atoms() -> dict[str, tuple[float, Exponents]]:
    plain: dict[str, tuple[float, Exponents]] = {
        "1": (1.0, _NONE),
        "%": (0.01, _NONE),
        "min": (60.0, _TIME),
        "h": (3600.0, _TIME),
        "d": (86400.0, _TIME),
        "USD": (1.0, _MONEY),
        "t": (1e6, _MASS),
    }
    plain["req"] = plain["reqs"] = (1.0, _NONE)
    plain["rps"] = plain["qps"] = (1.0, _RATE)  # requests and queries per second
    for word in ("job", "request", "packet", "token", "op", "message", "command", "cell", "signature"):
        plain[word] = plain[word + "s"] = (1.0, _NONE)
    scaled: dict[str, tuple[float, Exponents]] = {
        "s": (1.0, _TIME),
        "B": (1.0, _DATA),
        "bit": (0.125, _DATA),
        "J": (1.0, _ENERGY),
        "W": (1.0, _POWER),
        "Wh": (3600.0, _ENERGY),
        "Hz": (1.0, _RATE),
        "FLOP": (1.0, _WORK),
        "OP": (1.0, _WORK),
        "g": (1.0, _MASS),
        "pps": (1.0, _RATE),
        "IOPS": (1.0, _RATE),
    }
    for unit, (factor, exponents) in scaled.items():
        for prefix, scale in _DECIMAL.items():
            plain.setdefault(prefix + unit, (scale * factor, exponents))
        if exponents == _DATA:
            for prefix, scale in _BINARY.items():
                plain[prefix + unit] = (scale * factor, exponents)
    return plain


_ATOMS = _atoms()
_NUMBER = re.compile(r"[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True)
class Unit:
    """A parsed unit: multiply by ``factor`` to reach SI; ``exponents`` is its dimension."""

    text: str
    factor: float
    exponents: Exponents


@lru_cache(maxsize=512)
def parse_unit(text: str) -> Unit:
    """Return the unit written as ``text``: factors separated by ``*``, then at most one ``/`` with further factors.

    Raises:
        InputError: A unit is unknown; the error names the nearest one.
    """
    compact = text.strip().replace(" ", "")
    if not compact:
        return Unit("1", 1.0, _NONE)
    top, slash, bottom = compact.partition("/")
    factor, exponents = 1.0, list(_NONE)
    if slash and not bottom:
        raise InputError(f"unit '{text}' ends in '/'", expected="a unit after the '/', such as /s")
    for side, sign in ((top, 1), (bottom, -1)):
        for name in filter(None, side.split("*")):
            try:
                scale, powers = _ATOMS[name]
            except KeyError:
                raise InputError(
                    f"unknown unit '{name}'",
                    expected="a unit such as s, ms, B, GB, GiB, Gbit/s, W, J, /s, USD/h",
                    nearest=nearest(name, _ATOMS),
                ) from None
            factor *= scale**sign
            exponents = [total + sign * power for total, power in zip(exponents, powers, strict=True)]
    e = exponents
    return Unit(compact, factor, (e[0], e[1], e[2], e[3], e[4], e[5]))


def parse_quantity(text: str, unit: str) -> float:
    """Return ``text`` ("1 ms", "100 Gbit/s") as a float in SI units.

    ``unit`` is any unit of the expected dimension. It does not affect the scale of the result, which is always SI:
    seconds, bytes, joules, watts, FLOP, US dollars, grams and their quotients. For example, "3.6 USD/h" with the unit
    "USD/h" is 0.001 (US dollars per second).

    Raises:
        InputError: The text is not a number with a unit, has no unit where one is required, or has another dimension.
    """
    expected_unit = parse_unit(unit)
    stripped = text.strip()
    match = _NUMBER.match(stripped)
    example = (
        f"a number and a unit, such as '10 {expected_unit.text}'" if expected_unit.exponents != _NONE else "a number"
    )
    if match is None:
        raise InputError(f"'{text}' is not a quantity", expected=example)
    rest = stripped[match.end() :].strip()
    try:
        parsed_unit = parse_unit(rest)
    except InputError as error:
        raise InputError(f"'{text}': {error.problem}", expected=example, nearest=error.nearest) from None
    if parsed_unit.exponents != expected_unit.exponents:
        problem = "has no unit" if not rest else f"is measured in '{rest}'"
        raise InputError(f"'{text}' {problem}", expected=example)
    value = float(match.group().replace("_", "")) * parsed_unit.factor
    if not math.isfinite(value):
        raise InputError(f"'{text}' is too large", expected="a finite quantity")
    return value


def is_dimensionless(unit: str) -> bool:
    """Return whether ``unit`` is dimensionless, so that a number needs no unit."""
    return parse_unit(unit).exponents == _NONE


def to_unit(value: float, unit: str) -> float:
    """Return an SI ``value`` in ``unit``."""
    return value / parse_unit(unit).factor


_STEPS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_SMALL = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p"))


def format_quantity(value: float, unit: str, digits: int = 3) -> str:
    """Return an SI ``value`` as text for display, with an SI prefix before ``unit`` and ``digits`` significant digits.

    Times above two minutes are shown in minutes or hours; "USD/h" and "%" are scaled from SI.
    """
    if value is None or math.isnan(value):
        return "–"
    if unit == "%":
        return f"{value * 100:.{digits}g} %"
    if unit in ("USD", "1", ""):
        return f"{value:,.2f} USD" if unit == "USD" else f"{value:,.{digits}g}"
    if unit == "USD/h":
        return f"{value * 3600:,.{max(2, digits - 2)}f} USD/h"
    size = abs(value)
    if unit == "s" and size >= 120:
        return f"{_significant(value / 3600, digits)} h" if size >= 7200 else f"{_significant(value / 60, digits)} min"
    if size == 0 or not math.isfinite(value):
        return f"{value:g} {unit}"
    steps = _SMALL if size < 1 and unit not in ("B", "/s") else _STEPS
    for scale, prefix in steps:
        if size >= scale * 0.9995 and (unit != "s" or scale <= 1):
            return f"{_significant(value / scale, digits)} {prefix}{unit}"
    return f"{value:.{digits}g} {unit}"


_MOST_DIGITS = 9


def told_apart(value: float, limit: float | None, text: Callable[[float, int], str], digits: int = 3) -> str:
    """Return ``value`` as ``text`` formats it, with as many digits as show that it is not the limit.

    A value beside its limit must not look equal to it unless it is, because what is claimed of it would look wrong.
    """
    if limit is None or value == limit or not math.isfinite(value):
        return text(value, digits)
    enough = (more for more in range(digits, _MOST_DIGITS) if text(value, more) != text(limit, more))
    return text(value, next(enough, digits))


def format_share(value: float, digits: int = 3) -> str:
    """Return a fraction as a percentage for display, such as "92.4%", with at most ``digits`` significant digits.

    From 100% on, and between 0 and 0.01%, three digits are no more than an integer or a bound; more are exact.
    """
    percent = value * 100
    if digits > 3:
        return f"{percent:.{digits}g}%"
    size = abs(percent)
    if size == 0 or size >= 99.95:
        return f"{percent:.0f}%"
    if size < 0.01:
        return "<0.01%" if percent > 0 else ">-0.01%"
    return f"{percent:.1f}%" if size >= 1 else f"{percent:.2g}%"


def _significant(value: float, digits: int) -> str:
    if abs(value) < 0.9995:
        return f"{value:.{digits}g}"
    # Round first, because rounding may add a digit before the decimal point: 9.996 becomes 10.0.
    rounded = float(f"{value:.{digits - 1}e}")
    return f"{rounded:.{max(0, digits - len(str(int(abs(rounded)))))}f}"
