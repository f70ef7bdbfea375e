"""What a calibration found, as lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windtunnel.report.words import quantity

_SHOWN = 10


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """``report`` as `windtunnel calibrate` prints it."""
    yield f"{report['op']} on {report['device']}: {report['rows']} measurements, {report['distinct']} of them distinct"
    if report["launch_bound"]:
        yield f"  {report['launch_bound']} are nearly all launch: they tell of the host, and of the device nothing"
    yield from (f"  warning: {warning}" for warning in report["warnings"])
    for group in report["duplicates"][:_SHOWN]:
        yield f"  lines {', '.join(map(str, group))} are the same point: their median counts, as that many measurements"
    yield from _more(report["duplicates"], "repeated points")
    for outlier in report["outliers"][:_SHOWN]:
        yield (
            f"  line {outlier['line']} is an outlier: measured {quantity(outlier['measured_s'], 's')}, the others say "
            f"{quantity(outlier['expected_s'], 's')}; weighed down"
        )
    yield from _more(report["outliers"], "outliers")
    yield f"  error before {_percent(report['error_before'])}; on rows left out {_percent(report['error_left_out'])}"
    if not report["better"]:
        yield (
            "  warning: rows left out are answered no better than without these measurements: they are too few, or too "
            "unlike one another, and the overlay may make other sizes worse"
        )
    if report["level_alone"]:
        yield "  one factor for all sizes: what varies with them was no nearer to rows left out"
    inside, half = _percent(report["inside"]), _percent(report["half_width"])
    yield f"  90% interval on rows left out: {inside} inside, half-width {half} in the median"
    for law in report["laws"]:
        yield (
            f"  {law['choices']}: {_law(law)}, in place of the formula: {_percent(law['error_left_out'])} off on rows "
            f"left out, where that is {_percent(law['error_left_out_of_formula'])} off"
        )
    if report["power"] is not None:
        power = report["power"]
        before, after = _percent(power["error_before"]), _percent(power["error_left_out"])
        yield f"  power: error before {before}; on rows left out {after}"
    if report["instead_of"]:
        shipped = ", ".join(report["instead_of"])
        yield f"  it stands in place of the shipped calibration ({shipped}); other devices answer for what it lacks"
    if report["numbers"]:
        yield "  learned (one standard deviation as a factor):"
    for entry in report["numbers"]:
        before, after = f"{entry['before']:.4g}", f"{entry['after']:.4g}"
        yield f"    {entry['parameter']:<40} {before:>10} -> {after:<10} x/÷ {entry['sd_factor']:.2f}"


def _law(law: Mapping[str, Any]) -> str:
    """The terms of a law that take time."""
    said = (
        ("launch_s", "a launch of {}", "s"),
        ("bytes_per_s", "bytes at {}", "B/s"),
        ("flops_per_s", "operations at {}", "FLOP/s"),
    )
    return " + ".join(text.format(quantity(law[name], unit)) for name, text, unit in said if name in law)


def _more(items: list[Any], what: str) -> Iterator[str]:
    if len(items) > _SHOWN:
        yield f"  and {len(items) - _SHOWN} more {what} (--format json lists all)"


def _percent(share: float) -> str:
    return f"{100.0 * share:.3g}%"
