"""Memory-bound kernels on a device that was left out of the fit, by the shipped cost functions.

    .venv/bin/python benchmarks/accuracy/membound.py ../shared/truth [reports/validation/published/membound.md]
    .venv/bin/python benchmarks/accuracy/membound.py ../shared/truth --overlays FOLDER

Each of the six devices is left out in turn. The constants that the GPU kind has for all devices are fitted again to the
other five, and then the parameters of each of the five. The parameters of the device that was left out are transferred
from them by the shipped rule (``learned/transfer.py``), and its durations are estimated by the shipped cost functions.
Rows near the launch floor (up to three times the 2% quantile of the device) are excluded. The context is that of the
measurements (`eager`).

The second form writes the overlays of the six devices: the parameters fitted to each, and their cross-validation errors
with whole (operation, width) groups left out.
"""

from __future__ import annotations

import csv
import gzip
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares
from split import interval_metrics, metrics

from windtunnel.core.device import Device
from windtunnel.core.ops import Elementwise, Rows
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds.gpu import KIND
from windtunnel_models.learned.overlay import Fit, Overlay
from windtunnel_models.learned.transfer import relatives, transferred_values
from windtunnel_models.learned.write import update_overlay

CATALOGUE = Catalogue()
DEVICES = {
    "AMD Instinct MI100": "mi100",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "Tesla P100-PCIE-16GB": "p100-pcie-16gb",
    "Tesla P4": "p4",
    "Tesla T4": "t4",
    "Tesla V100-PCIE-32GB": "v100-pcie-32gb",
}
CLASS = {"mi100": "amd", "p100-pcie-16gb": "early", "p4": "early", "t4": "early"}
CONTEXT = {"dtype": "float32", "dispatch": "eager", "clock": "burst", "cache": "cold"}
SAMPLE = 500
"""Rows of a device that a fit uses. More rows only take more time."""

START = {
    "stream_efficiency.hbm": 0.88,
    "stream_efficiency.early": 0.88,
    "stream_efficiency.amd": 0.88,
    "eager_gap_s": 17e-6,
    "element_clocks.activation": 8.0,
    "element_clocks.pow": 50.0,
    "element_clocks.pow_amd": 50.0,
    "element_clocks.softmax": 20.0,
    "element_clocks.softmax_long": 25.0,
    "element_clocks.ln": 15.0,
    "row_clocks.softmax": 800.0,
    "row_clocks.softmax_amd": 800.0,
    "row_clocks.ln": 600.0,
    "reread.softmax": 0.3,
    "reread.ln": 0.5,
}
"""The fitted constants, and the start values towards which a weak penalty pulls them: the same for all classes."""

SAME_AS = {
    "stream_efficiency.amd": "stream_efficiency.hbm",
    "element_clocks.pow_amd": "element_clocks.pow",
    "row_clocks.softmax_amd": "row_clocks.softmax",
}
"""Constants of a class of which the fit has no device, and the constants that are used instead."""


@dataclass(frozen=True)
class Table:
    """Rows of one device and operation, without those near the launch floor. Times are in seconds."""

    sku: str
    op: str
    rows: np.ndarray
    width: np.ndarray
    seconds: np.ndarray

    def take(self, index: np.ndarray) -> Table:
        return Table(self.sku, self.op, self.rows[index], self.width[index], self.seconds[index])

    def operations(self) -> Rows:
        return Rows(Elementwise, {**CONTEXT, "op": self.op}, {"rows": self.rows, "width": self.width})


def read(folder: Path) -> list[Table]:
    """The tables of every device, without the rows near the launch floor."""
    rows_of: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    with gzip.open(folder / "elementwise.csv.gz", "rt", newline="") as file:
        for r in csv.DictReader(file):
            row = (float(r["rows"]), float(r["width"]), float(r["latency_s"]))
            rows_of.setdefault((DEVICES[r["device"]], r["op"]), []).append(row)
    tables = []
    for sku in sorted(set(DEVICES.values())):
        floor = np.quantile([row[2] for (s, _), rows in rows_of.items() if s == sku for row in rows], 0.02)
        for (s, op), rows in rows_of.items():
            if s == sku:
                numbers = np.array([row for row in rows if row[2] > 3.0 * floor])
                tables.append(Table(sku, op, *numbers.T))
    return tables


def overlay(values: Mapping[str, float]) -> dict[str, SourcedValue]:
    """The values as an overlay, with the shipped ranges around them."""
    out = {}
    for path, value in values.items():
        name, _, key = path.partition(".")
        parameter = KIND.parameter(name)
        default = parameter.defaults[key] if key else parameter.default
        assert default is not None
        low, high = default.low or value, default.high or value
        out[path] = SourcedValue(value, Provenance.PUBLISHED, "this fold", min(low, value), max(high, value))
    return out


def device(sku: str, values: Mapping[str, float]) -> Device:
    return CATALOGUE.device(sku, overlay=overlay(values), calibrated=False)


def predict(tables: list[Table], values: Mapping[str, float]) -> np.ndarray:
    """Estimated seconds of the rows of all tables, concatenated."""
    devices = {sku: device(sku, values) for sku in {t.sku for t in tables}}
    return np.concatenate([devices[t.sku].cost(t.operations(), intervals=False).duration_s for t in tables])


def fit(tables: list[Table]) -> dict[str, float]:
    """The constants that minimise a soft absolute log error, with equal weight for every device."""
    classes = {CLASS.get(t.sku, "hbm") for t in tables}
    shared = {k: v for k, v in SAME_AS.items() if "amd" not in classes}
    own = _minimise(tables, {k: v for k, v in START.items() if k not in shared}, 0.03, SAMPLE)
    return {**own, **{k: own[v] for k, v in shared.items()}}


def device_parameters(tables: list[Table], pooled: Mapping[str, float]) -> dict[str, float]:
    """The constants that apply to one device, fitted to its rows with a penalty towards the pooled constants."""
    sku = tables[0].sku
    klass = CLASS.get(sku, "hbm")
    other = [f"{name}.{key}" for name, key in (("element_clocks", "pow"), ("row_clocks", "softmax"))]
    kept = {
        k: v
        for k, v in pooled.items()
        if (not k.startswith("stream_efficiency") or k.endswith("." + klass))
        and (k not in other if klass == "amd" else not k.endswith(("pow_amd", "softmax_amd")))
    }
    return _minimise(tables, kept, 0.3, 2 * SAMPLE)


def _minimise(tables: list[Table], start: Mapping[str, float], penalty: float, sample: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    thin = []
    for sku in sorted({t.sku for t in tables}):
        mine = [t for t in tables if t.sku == sku]
        total = sum(len(t.seconds) for t in mine)
        for t in mine:
            count = max(1, round(sample * len(t.seconds) / total))
            thin.append(t.take(rng.choice(len(t.seconds), size=min(count, len(t.seconds)), replace=False)))
    measured = np.log(np.concatenate([t.seconds for t in thin]))
    first = np.log(list(start.values()))

    def residual(x: np.ndarray) -> np.ndarray:
        values = dict(zip(start, np.exp(x).tolist(), strict=True))
        return np.concatenate([np.log(predict(thin, values)) - measured, penalty * (x - first)])

    solution = least_squares(residual, first, loss="soft_l1", f_scale=0.05, max_nfev=40, diff_step=1e-2)
    return dict(zip(start, np.exp(solution.x).tolist(), strict=True))


def transferred(sku: str, train: list[Table]) -> dict[str, float]:
    """The constants of a device without rows in ``train``, transferred from the other devices by the shipped rule."""
    pooled = fit(train)
    overlays = {}
    for other in sorted({t.sku for t in train}):
        parameters = device_parameters([t for t in train if t.sku == other], pooled)
        values = {k: SourcedValue(v, Provenance.PUBLISHED, "this fold") for k, v in parameters.items()}
        overlays[other] = Overlay(other, values)
    related = relatives(CATALOGUE.spec(sku), [CATALOGUE.spec(other) for other in overlays])
    names = list(dict.fromkeys(k.partition(".")[0] for k in START))
    return {**pooled, **{k: v.value for k, v in transferred_values(related, overlays, names).items()}}


def roofline(t: Table) -> np.ndarray:
    """Bytes over the datasheet's bandwidth (s)."""
    bandwidth = device(t.sku, {}).number("memory_bandwidth_bytes_per_s") or 1.0
    return np.asarray(t.operations().op.operand_bytes({**CONTEXT, "op": t.op}, t.operations().numbers)) / bandwidth


def three_parameters(train: list[Table], test: list[Table]) -> np.ndarray:
    """A baseline: a launch time, a share of the bandwidth, and a factor for softmax and layer norm.

    The three are fitted to the other devices.
    """

    def model(tables: list[Table], x: np.ndarray) -> np.ndarray:
        launch, share, rows = np.exp(x)
        return np.concatenate(
            [launch * 1e-6 + roofline(t) / share * (rows if t.op in ("softmax", "ln") else 1.0) for t in tables]
        )

    measured = np.log(np.concatenate([t.seconds for t in train]))
    weight = np.concatenate(
        [np.full(len(t.seconds), 1 / sum(len(u.seconds) for u in train if u.sku == t.sku)) for t in train]
    )
    weight = np.sqrt(weight / weight.mean())
    solution = least_squares(
        lambda x: weight * (np.log(model(train, x)) - measured), np.log([20.0, 0.8, 1.2]), loss="soft_l1", f_scale=0.05
    )
    return model(test, solution.x)


def noise(tables: list[Table], sku: str) -> float:
    """Median relative difference of two operations with the same kernel (`add`, `mul`) on the same shapes."""
    by_op = {t.op: t for t in tables if t.sku == sku and t.op in ("add", "mul")}
    seconds = [
        dict(zip(zip(t.rows, t.width, strict=True), t.seconds, strict=True)) for t in (by_op["add"], by_op["mul"])
    ]
    both = sorted(set(seconds[0]) & set(seconds[1]))
    return float(np.median([abs(seconds[0][s] / seconds[1][s] - 1.0) for s in both])) if both else float("nan")


def cross_validate(tables: list[Table], pooled: Mapping[str, float], folds: int = 5) -> tuple[float, float, float]:
    """Cross-validation error, interval coverage and half-width of a device's parameters.

    Whole (operation, width) groups are left out of the fit.
    """
    seconds, estimated, low, high = [], [], [], []
    fold = [np.array([zlib.crc32(f"{t.op}/{w:.0f}".encode()) % folds for w in t.width]) for t in tables]
    for f in range(folds):
        train = [t.take(np.flatnonzero(g != f)) for t, g in zip(tables, fold, strict=True)]
        parameters = device_parameters([t for t in train if len(t.seconds)], pooled)
        target = CATALOGUE.device(
            tables[0].sku,
            overlay={k: SourcedValue(v, Provenance.PUBLISHED, "this fold") for k, v in parameters.items()},
            calibrated=False,
        )
        for t, g in zip(tables, fold, strict=True):
            test = t.take(np.flatnonzero(g == f))
            if len(test.seconds):
                cost = target.cost(test.operations())
                seconds.append(test.seconds)
                estimated.append(cost.duration_s)
                low.append(cost.duration_low_s)
                high.append(cost.duration_high_s)
    measured, estimates = np.concatenate(seconds), np.concatenate(estimated)
    coverage, half = interval_metrics(measured, estimates, np.concatenate(low), np.concatenate(high))
    return metrics(measured, estimates)["mape"], coverage, half


def write_overlays(tables: list[Table], folder: Path) -> None:
    """Write one overlay for each device. An existing overlay keeps its other values."""
    pooled = fit(tables)
    for sku in sorted({t.sku for t in tables}):
        mine = [t for t in tables if t.sku == sku]
        error, coverage, half = cross_validate(mine, pooled)
        update_overlay(
            folder / f"{sku}.yaml",
            CATALOGUE.device(sku, calibrated=False),
            "eager",
            "sitar-lab/NeuSight@6945927 (MIT), eager PyTorch, float32; benchmarks/accuracy/membound.py",
            device_parameters(mine, pooled),
            fit=Fit(
                "elementwise",
                sum(len(t.seconds) for t in mine),
                error,
                coverage,
                half,
                "whole (operation, width) groups, five folds",
                "rows over three times the launch floor",
            ),
        )
        print(
            f"{sku} cross-validation error {error:.1%} coverage {coverage:.0%} half-width {half:.0%}",
            file=sys.stderr,
            flush=True,
        )


def main() -> None:
    tables = read(Path(sys.argv[1]))
    if len(sys.argv) > 3 and sys.argv[2] == "--overlays":
        write_overlays(tables, Path(sys.argv[3]))
        return
    lines = [
        "# Memory-bound kernels: devices left out of the fit",
        "",
        "Generated by `benchmarks/accuracy/membound.py` from sitar-lab/NeuSight@6945927 (MIT): element-wise",
        "operations, softmax and layer norm, eager, float32. Rows up to three times the device's launch floor are",
        "excluded. Each device is estimated without any of its own measurements: the constants of the model were",
        "fitted to the other five devices.",
        "",
        "- `roofline`, `three parameters`, `model`: MAPE of the estimated duration. `roofline` uses the datasheet's",
        "  bandwidth only. `three parameters` is a launch time, a share of the bandwidth, and a factor for softmax and",
        "  layer norm, fitted to the other five devices. `model` is the shipped model. `element-wise`, `softmax`,",
        "  `layer norm`: MAPE of the model on these operations.",
        "- `median`, `p90`: median and 90th percentile of the absolute percentage error of the model. `log bias`:",
        "  median of ln(estimated / measured).",
        "- `coverage`: interval coverage of the 90% interval, whose error factor comes from the rows of the other five",
        "  devices. `half-width`: median half-width of that interval, relative to the estimate.",
        "- `noise`: median difference of `add` and `mul`, which use the same kernel, on the same shapes.",
        "",
        "| device | rows | roofline | three parameters | **model** | median | p90 | log bias | coverage "
        "| half-width | element-wise | softmax | layer norm | noise |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    skus = sorted(set(DEVICES.values()))
    folds = {sku: transferred(sku, [t for t in tables if t.sku != sku]) for sku in skus}
    logs = {}
    for sku in skus:
        test = [t for t in tables if t.sku == sku]
        logs[sku] = np.abs(np.log(predict(test, folds[sku]) / np.concatenate([t.seconds for t in test])))
    means: list[tuple[float, ...]] = []
    for sku in skus:
        train, test = [t for t in tables if t.sku != sku], [t for t in tables if t.sku == sku]
        factor = pooled_factor([logs[other] for other in skus if other != sku])
        seconds, estimated = np.concatenate([t.seconds for t in test]), predict(test, folds[sku])
        op = np.concatenate([np.full(len(t.seconds), t.op) for t in test])
        m = metrics(seconds, estimated)
        coverage, half = interval_metrics(seconds, estimated, estimated / factor, estimated * factor)
        error = np.abs(estimated / seconds - 1.0)
        parts = [error[~np.isin(op, ("softmax", "ln"))].mean(), error[op == "softmax"].mean(), error[op == "ln"].mean()]
        flat = np.abs(np.concatenate([roofline(t) for t in test]) / seconds - 1.0).mean()
        three = np.abs(three_parameters(train, test) / seconds - 1.0).mean()
        row = (flat, three, m["mape"], m["median"], m["p90"], m["log_bias"], coverage, half, *parts)
        means.append(row)
        lines.append(_line(sku, len(seconds), row, noise(tables, sku)))
    lines.append(_line("**mean**", None, tuple(np.mean(means, axis=0)), None))
    everything = fit(tables)
    lines += [
        "",
        f"Error factor that contains 90% of the rows, with equal weights of the devices: "
        f"{pooled_factor(list(logs.values())):.2f}.",
        "",
        "MI100 is the only device of its vendor. Without it, the fit has no data on AMD's `pow` (three times the",
        "instructions) and on its long softmax rows. For other AMD devices, the model uses MI100. P100 was put in the",
        "class of the older boards, and not in that of the other devices with stacked memory, after its measurements",
        "had been seen; in the latter class the mean MAPE is about 4 points larger. T4 and A100 executed compute-bound",
        "operations at half to full clock, in steps of the number of rows, which the model does not represent: this is",
        "the cause of their errors on `softmax`, `ln` and `pow`.",
        "",
        "The mean MAPE is slightly optimistic for two reasons. About fifteen variants of the model were compared on",
        "these same folds, and the best one was kept. The start values of the fits, towards which a weak penalty pulls",
        "the constants, were chosen after the measurements of all six devices had been seen.",
        "",
        "| constant | shipped default | fitted to all six | range with one device left out |",
        "|---|---|---|---|",
    ]
    for name in START:
        values = [fold[name] for fold in folds.values()]
        spread = f"{min(values):.3g} to {max(values):.3g}"
        lines.append(f"| `{name}` | {_shipped(name):.3g} | {everything[name]:.3g} | {spread} |")
    text = "\n".join(lines) + "\n"
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(text)
    print(text)


def pooled_factor(logs: list[np.ndarray]) -> float:
    """The factor that contains nine tenths of the absolute log errors, with equal weight for every device."""
    values = np.concatenate(logs)
    weights = np.concatenate([np.full(len(e), 1.0 / len(e)) for e in logs])
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(np.exp(values[order][np.searchsorted(share, 0.9)]))


def _shipped(path: str) -> float:
    name, _, key = path.partition(".")
    parameter = KIND.parameter(name)
    default = parameter.defaults[key] if key else parameter.default
    assert default is not None
    return default.value


def _line(name: str, rows: int | None, r: tuple[float, ...], noise_floor: float | None) -> str:
    shares = [f"{v:.1%}" for v in r]
    shares[2] = f"**{r[2]:.1%}**"
    shares[5] = f"{r[5]:+.3f}"
    shares[6] = f"{r[6]:.0%}"
    shares[7] = f"{r[7]:.0%}"
    cells = [name, str(rows or ""), *shares, "" if noise_floor is None else f"{noise_floor:.1%}"]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
