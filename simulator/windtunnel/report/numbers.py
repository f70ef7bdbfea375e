"""Formats numbers with units, for the terminal and the reports.

Every value is given in SI units and is returned as text with its unit. None (nothing was measured) becomes a dash.
"""

from __future__ import annotations

import math

from windtunnel.core.errors import InputError
from windtunnel.core.results.run import Estimate
from windtunnel.core.units import format_quantity, format_share, parse_unit, to_unit, told_apart

NOTHING = "–"


def is_finite(value: float | None) -> bool:
    """Return whether ``value`` is a number: neither None nor NaN."""
    return value is not None and not math.isnan(value)


def quantity(value: float | None, unit: str, digits: int = 3, limit: float | None = None) -> str:
    """Return an SI ``value`` of dimension ``unit`` with an SI prefix that keeps it short, or a dash for None.

    It has as many digits as tell it from ``limit``.
    """
    if value is None or math.isnan(value):
        return NOTHING
    return told_apart(value, limit, lambda number, more: _quantity(number, unit, more), digits)


def _quantity(value: float, unit: str, digits: int) -> str:
    try:
        parsed = parse_unit(unit)
    except InputError:
        return f"{value:.{digits}g} {unit}"
    if parsed.text == "1":
        return number(value, digits)
    if unit == "%":
        return format_share(value, digits)
    if unit == "/s":
        return f"{number(value, digits)} /s"
    if parsed.factor == 1.0 or unit == "USD/h":
        return format_quantity(value, unit, digits)
    # The unit is a multiple of the SI unit (MHz, GB/s): the author's own unit reads best.
    return f"{number(to_unit(value, unit), digits)} {unit}"


def exact_quantity(value: float | None, unit: str) -> str:
    """Like ``quantity``, for a value that a user stated: "15 s" instead of "15.0 s"."""
    if unit == "%" and value is not None and not math.isnan(value):
        return f"{value * 100:.4g}%"
    figure, _, rest = quantity(value, unit, 4).partition(" ")
    if "." in figure and "e" not in figure and "USD" not in unit:
        figure = figure.rstrip("0").rstrip(".")
    return f"{figure} {rest}".strip()


def number(value: float | None, digits: int = 3) -> str:
    """Return a number without a unit: grouped thousands, at least ``digits`` significant digits, rarely an exponent."""
    if value is None or math.isnan(value):
        return NOTHING
    size = abs(value)
    if not math.isfinite(value) or size >= 1e12 or 0 < size < 1e-3:
        return f"{value:.{digits}g}"
    if float(value).is_integer():
        return f"{value:,.0f}"
    whole = len(str(int(size))) if size >= 1 else 0
    if whole == 0:
        return f"{value:.{digits}g}"
    return f"{value:,.{max(0, digits - whole)}f}"


def quantity_in_unit(value: float | None, unit: str) -> str:
    """Return a value that is given in ``unit`` instead of SI, as the provenance table holds them."""
    try:
        return NOTHING if value is None else exact_quantity(value * parse_unit(unit).factor, unit)
    except InputError:
        return f"{number(value, 4)} {unit}"


def rate(value: float | None, what: str = "") -> str:
    """Return a rate per second, as in "1,234 jobs/s"."""
    return NOTHING if not is_finite(value) else f"{number(value)} {what}/s"


def share(value: float | None) -> str:
    """Return a fraction of one as a percentage."""
    if value is None or math.isnan(value):
        return NOTHING
    return format_share(value)


def percent(value: float | None, *, signed: bool = False) -> str:
    """Return a fraction of one as a percentage, with its sign if ``signed``."""
    if value is None:
        return NOTHING
    sign = ("+" if value > 0.0 else "-" if value < 0.0 else "") if signed else ""
    return sign + share(abs(value))


def usd(value: float | None) -> str:
    """Return US dollars; amounts below one dollar keep three significant digits."""
    if value is None or math.isnan(value):
        return NOTHING
    return f"{value:,.2f} USD" if abs(value) >= 1 or value == 0 else f"{value:.3g} USD"


def watt_hours(joules: float | None) -> str:
    """Return an energy, given in J, in watt-hours."""
    return NOTHING if joules is None or math.isnan(joules) else format_quantity(joules / 3600, "Wh")


def value_range(low: float | None, high: float | None, unit: str, limit: float | None = None) -> str:
    """Return a range in SI ("13.9 to 14.6 ms"), with the unit once if both ends share it; empty if an end is None.

    The ends have as many digits as tell them from ``limit``.
    """
    if low is None or high is None:
        return ""
    return _joined(quantity(low, unit, limit=limit), quantity(high, unit, limit=limit))


def exact_range(low: float | None, high: float | None, unit: str) -> str:
    """Return a range whose ends are given in ``unit`` instead of SI ("3.2 to 6 µs"); empty if an end is None."""
    return "" if low is None or high is None else _joined(quantity_in_unit(low, unit), quantity_in_unit(high, unit))


def _joined(first: str, last: str) -> str:
    if first == last:
        return last
    if first.endswith("%") and last.endswith("%"):
        return f"{first[:-1]} to {last}"
    first_number, _, first_unit = first.partition(" ")
    last_unit = last.partition(" ")[2]
    return f"{first_number} to {last}" if first_unit == last_unit else f"{first} to {last}"


def interval(estimate: Estimate, unit: str = "s") -> str:
    """Return the 95% confidence interval of an estimate; empty if it has none."""
    return value_range(estimate.low, estimate.high, unit)


def share_interval(estimate: Estimate) -> str:
    """Return the 95% confidence interval of an estimate of a share; empty if it has none."""
    low, high = estimate.low, estimate.high
    return "" if low is None or high is None else f"{share(low)} to {share(high)}"


def plural(n: int, singular: str, many: str | None = None) -> str:
    """Return a count with its noun, as in "1 job" and "2,000 jobs"."""
    return f"{n:,} {singular if n == 1 else many or singular + 's'}"


def printable(text: str) -> str:
    """Return ``text`` without line breaks and terminal control codes, because names come from users' files."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
