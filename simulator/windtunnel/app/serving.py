"""`windtunnel validate serving` and `calibrate serving`: measured serving compared with the models, and fitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from windtunnel.core.csvfile import write_texts
from windtunnel.core.device import Device
from windtunnel.core.errors import InputError, Location
from windtunnel.core.group import Group
from windtunnel.core.results.measured_serving import EngineCalibration, LearnedNumber, ReplayResult, ServingRow
from windtunnel.core.serving_engine import OTHER, ServingEngine, key_of, plain_name
from windtunnel.core.step import EngineTimes
from windtunnel.core.ticks import FloatArray
from windtunnel.core.version import __version__
from windtunnel.library.closed_loop import ClosedLoop, LoopTimes, errors, loop_times
from windtunnel.library.steps import StepPricing
from windtunnel.report.measured_serving import Means
from windtunnel.validation.serving import (
    MeasuredLoop,
    is_log,
    read_loops,
    read_measurements,
    replayed,
    simulated,
)
from windtunnel.validation.serving import means as mean_errors
from windtunnel_models.campaigns import published_cache, published_formats
from windtunnel_models.catalogue import Catalogue, device_model, shipped_catalogue
from windtunnel_models.engines import serving_engine
from windtunnel_models.engines.fit import EngineFit, fit_times
from windtunnel_models.models import find_architecture


def validate_serving(
    measurements: Path,
    *,
    stated: Mapping[str, object] | None = None,
    calibration: Path | None = None,
    catalogue: Catalogue | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[ServingRow] | ReplayResult:
    """Compare measured serving with simulations, without a fit.

    Args:
        measurements: A table of closed and open loops, or a request log; see ``validation.serving``.
        stated: Values of columns that the file lacks.
        calibration: An overlay of the engine or of the device.
        catalogue: The catalogue of models.
        progress: Receives the number of rows done, and of all.

    Returns:
        A result for each row, or one for a log.

    Raises:
        InputError: with file, line and column, for invalid input.
    """
    catalogue = catalogue or shipped_catalogue()
    table = read_measurements(measurements)
    if is_log(table):
        return replayed(table, stated or {}, calibration, catalogue)
    loops = read_loops(table, stated or {}, calibration)
    out = []
    for number, loop in enumerate(loops):
        out.append(simulated(loop, catalogue))
        if progress is not None:
            progress(number + 1, len(loops))
    return out


def calibrate_serving(
    measurements: Path,
    *,
    device: str,
    model: str,
    engine: str,
    out: Path | None = None,
    stated: Mapping[str, object] | None = None,
    catalogue: Catalogue | None = None,
) -> EngineCalibration:
    """Fit the profile of a serving engine to measured closed loops, starting from the shipped one.

    The fit uses times per output token. Where rows have times to the first token, the time outside of the engine's
    steps is the median of what the simulation of each row leaves.

    Args:
        measurements: A table of closed loops; the columns ``sku``, ``model`` and ``engine`` may be missing.
        device: The SKU.
        model: The decoder.
        engine: The serving engine.
        out: The overlay to write, if any.
        stated: Values of columns that the file lacks.
        catalogue: The catalogue of models.

    Raises:
        InputError: with file, line and column, for invalid input, or if no row is a closed loop of this model, SKU and
            engine with a time per output token.
    """
    catalogue = catalogue or shipped_catalogue()
    base, target = serving_engine(engine), device_model(device, catalogue)
    decoder = find_architecture(model)
    loops = _loops(measurements, dict(stated or {}), {"sku": device, "model": model, "engine": engine})
    rows = [_times_of(loop, target) for loop in loops]
    measured_s = np.array([loop.measured["tpot_s"] for loop in loops], dtype=np.float64)
    prior, key = base.times(decoder, target), key_of(decoder, target)

    def fit(places: Sequence[int]) -> EngineFit:
        some, seconds = [rows[p] for p in places], measured_s[list(places)]
        return fit_times(lambda times: errors(some, list(seconds), times), prior, np.ones(len(places)))

    everything = list(range(len(rows)))
    fitted = fit(everything)
    held_out = [
        float(errors([rows[p]], [float(measured_s[p])], fit([q for q in everything if q != p]).times)[0])
        for p in everything
        if len(rows) > 1
    ]
    before, after = (errors(rows, list(measured_s), times) for times in (prior, fitted.times))
    factor = _error_factor(prior, np.array(held_out) if held_out else before)
    numbers = [
        LearnedNumber(name, getattr(prior, name), n.value, n.low, n.high, n.learned)
        for name, n in fitted.numbers.items()
    ]
    result = EngineCalibration(
        rows=len(rows),
        engine=engine,
        model=plain_name(decoder.name),
        sku=target.spec.sku,
        key=key,
        numbers=numbers,
        frontend_s=None,
        shipped_error=_mape(before),
        error=_mape(after),
        held_out_error=_mape(np.array(held_out)) if held_out else None,
        error_factor=factor,
        notes=_notes(base, decoder.name, key, len(rows), target),
    )
    result = replace(result, frontend_s=_frontend_s(result, loops, base, catalogue))
    if out is not None:
        write_texts(out.parent, {out.name: overlay_text(result, base, measurements.name)})
    return result


def means(rows: Sequence[ServingRow]) -> Means:
    """Return mean absolute errors and biases by engine and SKU; see ``validation.serving.means``."""
    return mean_errors(rows)


def _loops(path: Path, stated: dict[str, object], named: Mapping[str, str]) -> list[MeasuredLoop]:
    """Return the closed loops of a table that are of the named model, SKU and engine, with a time per output token."""
    table = read_measurements(path)
    if is_log(table):
        raise InputError(
            "this is a request log", where=Location(str(path)), expected="a table of closed loops with users and tpot_s"
        )
    stated |= {n: value for n, value in named.items() if n not in table.header or not any(table.column(n))}
    found = [
        loop
        for loop in read_loops(table, stated)
        if loop.users is not None
        and not loop.deployment.pools
        and loop.measured["tpot_s"] is not None
        and loop.output > 1
        and loop.deployment.sku == named["sku"]
        and loop.deployment.engine == named["engine"]
        and _plain(loop.deployment.model) == _plain(named["model"])
    ]
    if not found:
        raise InputError(
            f"no row is a closed loop of {named['model']} on {named['sku']} with {named['engine']} that has tpot_s",
            where=Location(str(path)),
            expected="at least one row with users, prompt_tokens, output_tokens and tpot_s",
        )
    return found


def _plain(model: str) -> str:
    return plain_name(find_architecture(model).name)


def _times_of(loop: MeasuredLoop, device: Device) -> LoopTimes:
    d = loop.deployment
    counts = {name: d.group.get(name, 1) for name in ("tensor", "pipeline", "attention_data", "expert")}
    group = Group(**counts, expert_tensor=d.group.get("expert_tensor"))
    weights = published_formats(d.model, d.weights)
    assert loop.users is not None  # noqa: S101  the caller kept closed loops
    kv_dtype = published_cache(weights, d.kv_dtype)
    closed = ClosedLoop(
        d.engine, d.model, d.sku, group, weights, kv_dtype, loop.users, float(loop.prompt), float(loop.output)
    )
    try:
        return loop_times([closed], StepPricing(device))[0]
    except InputError as error:
        raise error.at(loop.where) from None


def _mape(logs: FloatArray) -> float:
    return float(np.abs(np.exp(logs) - 1.0).mean())


def _error_factor(prior: EngineTimes, logs: FloatArray) -> float:
    """Return the factor of the 90% interval: the errors of rows held out, and as of one more row that of the profile.

    One more row with the profile's error keeps a handful of good rows from promising too much.
    """
    deviation = np.log(prior.error_factor) / 1.645 if prior.error_factor > 1 else 0.2
    variance = (float(np.square(logs).sum()) + deviation**2) / (len(logs) + 1)
    return max(float(np.exp(1.645 * np.sqrt(variance))), 1.02)


def _notes(base: ServingEngine, model: str, key: str, rows: int, device: Device) -> list[str]:
    """Return what a user of the overlay has to know."""
    notes = [
        f"the overlay is for {model} on {device.spec.sku}; with other models or SKUs the interval is wider, because a "
        "profile does not move well"
    ]
    if key not in base.fitted:
        notes.append(f"the profile of {base.name} has no measurements for '{key}', so the fit starts from its others")
    if rows < 3:
        notes.append(f"{rows} row{'s' * (rows > 1)} cannot tell the numbers apart; a few users and many users can")
    return notes


def _frontend_s(
    result: EngineCalibration, loops: Sequence[MeasuredLoop], base: ServingEngine, catalogue: Catalogue
) -> float | None:
    """Return the median of the measured times to the first token less the simulated ones, at least 0 (s)."""
    timed = [loop for loop in loops if loop.measured["ttft_s"] is not None]
    if not timed:
        return None
    left = []
    for loop in timed[:_MOST_SIMULATED]:
        row, own_s = simulated(loop, catalogue), loop.measured["ttft_s"]
        if row.ttft_s is not None and own_s is not None:
            left.append(own_s - (row.ttft_s - base.frontend_s.value))
    return max(float(np.median(left)), 0.0) if left else None


_MOST_SIMULATED = 12
"""The most rows that are simulated for the time outside of the steps."""


def overlay_text(result: EngineCalibration, base: ServingEngine, source: str) -> str:
    """Return the overlay of a calibration as YAML."""
    known = f'{{text: "{result.rows} rows of {source}, fitted from the profile of {base.name}", provenance: measured}}'
    lines = [
        f"# windtunnel {__version__} calibrate serving: error {result.shipped_error:.1%}, then {result.error:.1%}",
        "schema: 1",
        f"engine: {result.engine}",
        f"model: {result.model}",
        f"sku: {result.sku}",
        f"key: {result.key}",
        f"sources:\n  rows: {known}",
        "values:",
    ]
    for number in result.numbers:
        unit = " s" if number.name.endswith("_s") else ""
        low, high = min(number.low, number.value), max(number.high, number.value)
        entry = f"value: {number.value:.6g}{unit}, source: rows, low: {low:.5g}{unit}, high: {high:.5g}{unit}"
        lines.append(f"  {number.name}: {{{result.key}: {{{entry}}}}}")
    unseen = base.values.get(f"unseen_error.{result.key}", base.values.get(f"unseen_error.{OTHER}"))
    wide = max(1.2 * result.error_factor, 1.5 if unseen is None else unseen.value)
    lines.append(f"  error: {{{result.key}: {{value: {result.error_factor:.4g}, source: rows}}}}")
    lines.append(f"  unseen_error: {{{result.key}: {{value: {wide:.4g}, source: rows}}}}")
    if result.frontend_s is not None:
        lines.append(f"  frontend_s: {{value: {result.frontend_s:.6g} s, source: rows}}")
    return "\n".join(lines) + "\n"
