"""The result of a calibration as lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windtunnel.core.results.calibration import CalibrationResult, FittedFormula
from windtunnel.report.numbers import quantity

_SHOWN = 10


def lines(report: CalibrationResult) -> Iterator[str]:
    """Yield the lines that `windtunnel calibrate` prints for ``report``."""
    yield f"{report.op} on {report.device}: {report.rows} measurements, {report.distinct} of them distinct"
    if report.launch_bound:
        yield f"  {report.launch_bound} rows are launch-bound and carry no information about the device"
    for row in report.beyond_datasheet[:_SHOWN]:
        consequence = "it is fitted (--trust-measurements)" if report.trusted else "it is not fitted"
        yield (
            f"  line {row.line} is faster than the datasheet allows (measured {quantity(row.measured_s, 's')}; "
            f"{row.why}); {consequence}"
        )
    yield from _not_shown(report.beyond_datasheet, "rows that are faster than the datasheet allows")
    if report.beyond_datasheet and not report.trusted:
        yield "  --trust-measurements fits them too"
    yield from (f"  warning: {warning}" for warning in report.warnings)
    for group in report.duplicates[:_SHOWN]:
        yield f"  lines {', '.join(map(str, group))} are the same point; their median counts as that many measurements"
    yield from _not_shown(report.duplicates, "repeated points")
    for outlier in report.outliers[:_SHOWN]:
        yield (
            f"  line {outlier.line} is an outlier (measured {quantity(outlier.measured_s, 's')}, predicted "
            f"{quantity(outlier.expected_s, 's')}); its weight is reduced"
        )
    yield from _not_shown(report.outliers, "outliers")
    without, after = _percent(report.error_before), _percent(report.cross_validation_error)
    shipped_error = _percent(report.shipped_error)
    excluded = f", outliers excluded ({len(report.outliers)})" if report.outliers else ""
    yield (
        f"  mean error{excluded}: {without} without measurements of this SKU, {shipped_error} with the shipped model, "
        f"{after} with this calibration (cross-validated)"
    )
    if report.instead_of and report.shipped_error <= report.cross_validation_error:
        yield "  warning: the shipped model predicts these rows better than this calibration"
    if not report.improves_on_prior:
        yield (
            "  warning: cross-validation shows no improvement over the uncalibrated model: the rows are too few or too "
            "different, and the overlay may make other sizes worse"
        )
    if report.constant_factor_only:
        yield (
            "  a single factor is used for all sizes; a size-dependent fit did not reduce the cross-validation error"
        )
    coverage, half = _percent(report.interval_coverage), _percent(report.interval_half_width)
    yield f"  90% prediction interval, cross-validated: coverage {coverage}, median half-width {half}"
    for model in report.linear_models:
        error, formula = _percent(model.cross_validation_error), _percent(model.formula_cross_validation_error)
        yield (
            f"  {model.combination}: {_terms(model)}; replaces the formula (cross-validation error {error} instead "
            f"of {formula})"
        )
    if report.power is not None:
        before, after = _percent(report.power.error_before), _percent(report.power.cross_validation_error)
        yield f"  power: mean error {before} before, {after} with this calibration (cross-validated)"
    if report.instead_of:
        shipped = ", ".join(report.instead_of)
        yield (
            f"  warning: it replaces the whole shipped calibration of this SKU ({shipped}); operations and number "
            "formats without rows in the table are then predicted from other devices and formats"
        )
    if report.numbers:
        yield "  fitted (one standard deviation as a factor):"
    for entry in report.numbers:
        before, after = f"{entry.before:.4g}", f"{entry.after:.4g}"
        yield f"    {entry.parameter:<40} {before:>10} -> {after:<10} x/÷ {entry.sd_factor:.2f}"


def _terms(model: FittedFormula) -> str:
    """Return the terms of a linear model that take time."""
    terms = (
        ("launch_s", "a launch of {}", "s"),
        ("bytes_per_s", "bytes at {}", "B/s"),
        ("flops_per_s", "operations at {}", "FLOP/s"),
    )
    return " + ".join(
        text.format(quantity(model.numbers[name], unit)) for name, text, unit in terms if name in model.numbers
    )


def _not_shown(items: Sequence[object], what: str) -> Iterator[str]:
    if len(items) > _SHOWN:
        yield f"  and {len(items) - _SHOWN} more {what} (--format json lists all)"


def _percent(share: float) -> str:
    return f"{100.0 * share:.3g}%"
