"""Memory-bound kernels on a device that was left out of the fit, by the shipped cost functions.

    .venv/bin/python benchmarks/accuracy/membound.py ../shared/truth [reports/validation/published/membound.md]
    .venv/bin/python benchmarks/accuracy/membound.py ../shared/truth --overlays FOLDER

Each of the six devices is left out in turn, and so are all boards with GDDR memory together. The constants that the GPU
kind has for all devices are fitted again to the others, and then the parameters of each of them. The parameters of the
device that was left out are transferred from them by the shipped rule (``learned/transfer.py``), and its durations are
estimated by the shipped cost functions in the context of the measurements (`eager`).

The host time of the framework belongs to the campaign. It is read from the smallest tensors of each device and
operation, and not fitted. A device that was left out takes the median over the others with the same API.

The second form writes the overlays of the six devices: the parameters fitted to each, and their cross-validation errors
with whole (operation, width) groups left out.
"""

from __future__ import annotations

import csv
import gzip
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import split
from scipy.optimize import least_squares
from split import Estimates, interval_metrics, metrics, percent, pooled_factor

from windtunnel.core.device import Device
from windtunnel.core.ops import Elementwise, Rows
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds.gpu import KIND
from windtunnel_models.kinds.gpu.streaming import FRAMEWORK_KEYS
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
SAMPLE = 600
"""Rows of a device that a fit uses. More rows only take more time."""

CLEAR = 3.0
"""Rows are clear of the launch floor if they take more than this factor of the device's 2% quantile."""

HOST_TRAFFIC_S = 3e-6
"""Rows that memory would move in less time than this show the host's time alone."""

GDDR = ("p4", "t4")

HOST_RANGE = 1.75
"""A host's time ranges over this factor around the median of the others: 90% by their spread (Student's t)."""

FACTOR_RANGE = 1.15
"""The factors of operations range over at least this factor around the median of the others."""

START = {
    "stream_efficiency.hbm": 0.88,
    "stream_efficiency.early": 0.88,
    "stream_efficiency.amd": 0.88,
    "eager_share": 0.5,
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
    """Rows of one device and operation, and which are clear of the launch floor. Times are in seconds."""

    sku: str
    op: str
    rows: np.ndarray
    width: np.ndarray
    seconds: np.ndarray
    clear: np.ndarray

    def take(self, index: np.ndarray) -> Table:
        arrays = (self.rows, self.width, self.seconds, self.clear)
        return Table(self.sku, self.op, *(a[index] for a in arrays))

    def operations(self) -> Rows:
        return Rows(Elementwise, {**CONTEXT, "op": self.op}, {"rows": self.rows, "width": self.width})


def read(folder: Path) -> list[Table]:
    """The tables of every device."""
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
                numbers = np.array(rows).T
                tables.append(Table(sku, op, *numbers, numbers[2] > CLEAR * floor))
    return tables


def clear_rows(tables: list[Table]) -> list[Table]:
    """The rows that are clear of the launch floor."""
    return [t.take(np.flatnonzero(t.clear)) for t in tables]


@dataclass(frozen=True)
class Host:
    """The host time (s) of the framework around an operation on two tensors, and factors of the other operations."""

    api: str
    framework_s: float
    factors: Mapping[str, float]

    def values(self) -> dict[str, float]:
        return {
            f"framework_dispatch_s.{self.api}": self.framework_s,
            **{f"framework_factor.{key}": value for key, value in self.factors.items()},
        }


def host_of(tables: list[Table]) -> Host:
    """The host's times of one device, from the rows whose traffic takes memory no time."""
    floors: dict[str, list[float]] = {}
    target = device(tables[0].sku, {})
    for t in tables:
        small = roofline(t) < HOST_TRAFFIC_S
        floors.setdefault(FRAMEWORK_KEYS.get(t.op, "two"), []).append(float(np.median(t.seconds[small])))
    dispatch_s = target.api.values["dispatch_s"].value
    own = {key: float(np.median(values)) - dispatch_s for key, values in floors.items()}
    two = own.pop("two")
    return Host(target.api.name, two, {key: value / two for key, value in own.items()})


def pooled_host(hosts: list[Host], api: str) -> dict[str, SourcedValue]:
    """Medians over the hosts of other devices with the same API, or over all of them; the range is theirs."""
    alike = [h for h in hosts if h.api == api] or hosts
    out = {f"framework_dispatch_s.{api}": _median([h.framework_s for h in alike], HOST_RANGE)}
    for key in hosts[0].factors:
        out[f"framework_factor.{key}"] = _median([h.factors[key] for h in alike], FACTOR_RANGE)
    return out


def _median(values: list[float], least: float) -> SourcedValue:
    value = float(np.median(values))
    low, high = min(*values, value / least), max(*values, value * least)
    return SourcedValue(value, Provenance.ASSUMED, "other hosts", low, high, "the host of another campaign")


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


Hosts = Mapping[str, Host]


def predict(tables: list[Table], values: Mapping[str, float], hosts: Hosts) -> np.ndarray:
    """Estimated seconds of the rows of all tables, concatenated, each with the times of its own host."""
    devices = {sku: device(sku, {**values, **hosts[sku].values()}) for sku in {t.sku for t in tables}}
    return np.concatenate([devices[t.sku].cost(t.operations(), intervals=False).duration_s for t in tables])


def fit(tables: list[Table], hosts: Hosts) -> dict[str, float]:
    """The constants that minimise a soft absolute log error, with equal weight for every device."""
    classes = {CLASS.get(t.sku, "hbm") for t in tables}
    shared = {k: v for k, v in SAME_AS.items() if "amd" not in classes}
    own = _minimise(tables, hosts, {k: v for k, v in START.items() if k not in shared}, 0.03, SAMPLE)
    return {**own, **{k: own[v] for k, v in shared.items()}}


def device_parameters(tables: list[Table], hosts: Hosts, pooled: Mapping[str, float]) -> dict[str, float]:
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
    return _minimise(tables, hosts, kept, 0.3, 2 * SAMPLE)


def _minimise(
    tables: list[Table], hosts: Hosts, start: Mapping[str, float], penalty: float, sample: int
) -> dict[str, float]:
    """The constants of ``start`` that fit the tables, all at once, with a penalty on their distance to ``start``."""
    rng = np.random.default_rng(0)
    thin = []
    for sku in sorted({t.sku for t in tables}):
        mine = [t for t in tables if t.sku == sku]
        total = sum(len(t.seconds) for t in mine)
        for t in mine:
            count = max(1, round(sample * len(t.seconds) / total))
            # Rows at the floor show the host alone; a quarter of the sample is enough of the others near it.
            weight = np.where(t.clear, 0.75 / max(t.clear.mean(), 1e-9), 0.25 / max(1.0 - t.clear.mean(), 1e-9))
            which = rng.choice(len(weight), size=min(count, len(weight)), replace=False, p=weight / weight.sum())
            thin.append(t.take(which))
    measured = np.log(np.concatenate([t.seconds for t in thin]))
    first = np.log(list(start.values()))

    def residual(x: np.ndarray) -> np.ndarray:
        values = dict(zip(start, np.exp(x).tolist(), strict=True))
        return np.concatenate([np.log(predict(thin, values, hosts)) - measured, penalty * (x - first)])

    solution = least_squares(residual, first, loss="soft_l1", f_scale=0.05, max_nfev=40, diff_step=1e-2)
    return dict(zip(start, np.exp(solution.x).tolist(), strict=True))


def transferred(sku: str, train: list[Table], hosts: Hosts) -> Device:
    """A device without rows in ``train``, with constants transferred from the other devices by the shipped rule."""
    others = sorted({t.sku for t in train})
    pooled = fit(train, hosts)
    overlays = {}
    for other in others:
        parameters = device_parameters([t for t in train if t.sku == other], hosts, pooled)
        values = {k: SourcedValue(v, Provenance.PUBLISHED, "this fold") for k, v in parameters.items()}
        overlays[other] = Overlay(other, values)
    related = relatives(CATALOGUE.spec(sku), [CATALOGUE.spec(other) for other in overlays])
    names = list(dict.fromkeys(k.partition(".")[0] for k in START))
    api = CATALOGUE.spec(sku).apis[0]
    values = {
        **overlay(pooled),
        **transferred_values(related, overlays, names, lambda _relative, _path, value: value, {}),
        **pooled_host([hosts[other] for other in others], api),
    }
    return CATALOGUE.device(sku, overlay=values, calibrated=False)


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


def cross_validate(
    tables: list[Table], hosts: Hosts, pooled: Mapping[str, float], folds: int = 5
) -> tuple[float, float, float]:
    """Cross-validation error, interval coverage and half-width of a device's parameters, on its clear rows.

    Whole (operation, width) groups are left out of the fit.
    """
    sku = tables[0].sku
    parts = []
    fold = [np.array([zlib.crc32(f"{t.op}/{w:.0f}".encode()) % folds for w in t.width]) for t in tables]
    for f in range(folds):
        train = [t.take(np.flatnonzero(g != f)) for t, g in zip(tables, fold, strict=True)]
        parameters = {**device_parameters(train, hosts, pooled), **hosts[sku].values()}
        values = {k: SourcedValue(v, Provenance.PUBLISHED, "this fold") for k, v in parameters.items()}
        target = CATALOGUE.device(sku, overlay=values, calibrated=False)
        parts.append(estimates(target, [t.take(np.flatnonzero(g == f)) for t, g in zip(tables, fold, strict=True)]))
    all_rows = Estimates(*(np.concatenate([getattr(p, name) for p in parts]) for name in Estimates.NAMES))
    seen = all_rows.take(all_rows.clear)
    coverage, half = interval_metrics(seen.seconds, seen.estimated, seen.low, seen.high)
    return metrics(seen.seconds, seen.estimated)["mape"], coverage, half


def estimates(target: Device, tables: list[Table], *, intervals: bool = True) -> Estimates:
    """The estimates of one device. ``size``: launch (at most 1.15 of the host's time), cache, or memory."""
    parts = []
    for t in tables:
        if not len(t.seconds):
            continue
        cost = target.cost(t.operations(), intervals=intervals)
        bytes_moved = roofline(t) * (target.number("memory_bandwidth_bytes_per_s") or 1.0)
        floor = np.quantile(t.seconds, 0.05)
        inside = bytes_moved <= (target.number("l2_bytes") or 0.0)
        size = np.where(t.seconds <= 1.15 * floor, "launch", np.where(inside, "cache", "memory"))
        op = np.full(len(t.seconds), t.op)
        parts.append((t.seconds, cost.duration_s, cost.duration_low_s, cost.duration_high_s, t.clear, op, size))
    return Estimates(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def write_overlays(tables: list[Table], folder: Path) -> None:
    """Write one overlay for each device. An existing overlay keeps its other values."""
    hosts = all_hosts(tables)
    pooled = fit(tables, hosts)
    for sku in sorted({t.sku for t in tables}):
        mine = [t for t in tables if t.sku == sku]
        error, coverage, half = cross_validate(mine, hosts, pooled)
        update_overlay(
            folder / f"{sku}.yaml",
            CATALOGUE.device(sku, calibrated=False),
            "eager",
            "sitar-lab/NeuSight@6945927 (MIT), eager PyTorch, float32; benchmarks/accuracy/membound.py",
            {**device_parameters(mine, hosts, pooled), **hosts[sku].values()},
            fit=Fit(
                "elementwise",
                sum(int(t.clear.sum()) for t in mine),
                error,
                coverage,
                half,
                "whole (operation, width) groups, five folds",
                "rows over three times the launch floor",
            ),
        )
        print(f"{sku}: error {error:.1%}, coverage {coverage:.0%}, half-width {half:.0%}", file=sys.stderr, flush=True)


def all_hosts(tables: list[Table]) -> dict[str, Host]:
    return {sku: host_of([t for t in tables if t.sku == sku]) for sku in sorted({t.sku for t in tables})}


def main() -> None:
    tables = read(Path(sys.argv[1]))
    if len(sys.argv) > 3 and sys.argv[2] == "--overlays":
        write_overlays(tables, Path(sys.argv[3]))
        return
    hosts = all_hosts(tables)
    folds = {sku: transferred(sku, [t for t in tables if t.sku != sku], hosts) for sku in hosts}
    no_gddr = [t for t in tables if t.sku not in GDDR]
    gddr = {sku: transferred(sku, no_gddr, hosts) for sku in GDDR}
    lines = [*HEAD, *clear_table(tables, folds), *size_table(tables, folds, hosts), *gddr_table(tables, gddr)]
    everything = fit(tables, hosts)
    lines += [
        *host_table(hosts),
        *constant_table(folds, everything),
        *share_table(Path(sys.argv[1]), tables, everything),
    ]
    text = "\n".join(lines) + "\n"
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(text)
    print(text)


HEAD = [
    "# Memory-bound kernels: devices left out of the fit",
    "",
    "Generated by `benchmarks/accuracy/membound.py` from sitar-lab/NeuSight@6945927 (MIT): element-wise operations,",
    "softmax and layer norm, eager, float32. Each device is estimated without any of its own measurements: the",
    "constants of the model were fitted to the other five devices.",
    "",
    "A row is clear of the launch floor if it takes more than three times the 2% quantile of its device.",
    "",
    "- `roofline`, `three parameters`, `model`: MAPE of the estimated duration. `roofline` uses the datasheet's",
    "  bandwidth only. `three parameters` is a launch time, a share of the bandwidth, and a factor for softmax and",
    "  layer norm, fitted to the other five devices. `model` is the shipped model. `element-wise`, `softmax`,",
    "  `layer norm`: MAPE of the model on these operations.",
    "- `median`, `p90`: median and 90th percentile of the absolute percentage error of the model. `log bias`:",
    "  median of ln(estimated / measured).",
    "- `coverage`: interval coverage of the 90% interval of the shipped model, whose error factor comes from the rows",
    "  of the other five devices. `half-width`: median half-width of that interval, relative to the estimate.",
    "- `noise`: median difference of `add` and `mul`, which use the same kernel, on the same shapes.",
    "",
]


def with_error(target: Device, factor: float) -> Device:
    """The device with an error factor of memory-bound kernels that replaces the shipped one."""
    stated = SourcedValue(factor, Provenance.PUBLISHED, "rows of the other devices")
    return replace(target, kind=replace(target.kind, errors={**target.kind.errors, "elementwise": stated}))


def clear_table(tables: list[Table], folds: Mapping[str, Device]) -> list[str]:
    """Rows that are clear of the launch floor, by device."""
    clear = clear_rows(tables)
    logs = {}
    for sku, target in folds.items():
        e = estimates(target, [t for t in clear if t.sku == sku], intervals=False)
        logs[sku] = np.abs(np.log(e.estimated / e.seconds))
    lines = [
        "## Rows clear of the launch floor",
        "",
        "| device | rows | roofline | three parameters | **model** | median | p90 | log bias | coverage "
        "| half-width | element-wise | softmax | layer norm | noise |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    means: list[tuple[float, ...]] = []
    for sku, target in folds.items():
        train, test = [t for t in clear if t.sku != sku], [t for t in clear if t.sku == sku]
        factor = pooled_factor([logs[other] for other in folds if other != sku])
        e = estimates(with_error(target, factor), test)
        m = metrics(e.seconds, e.estimated)
        coverage, half = interval_metrics(e.seconds, e.estimated, e.low, e.high)
        masks = (~np.isin(e.op, ("softmax", "ln")), e.op == "softmax", e.op == "ln")
        flat = np.abs(np.concatenate([roofline(t) for t in test]) / e.seconds - 1.0).mean()
        three = np.abs(three_parameters(train, test) / e.seconds - 1.0).mean()
        parts = (e.take(mask).mape() for mask in masks)
        row = (flat, three, m["mape"], m["median"], m["p90"], m["log_bias"], coverage, half, *parts)
        means.append(row)
        lines.append(_line(sku, len(e.seconds), row, noise(tables, sku)))
    lines.append(_line("**mean**", None, tuple(np.mean(means, axis=0)), None))
    return [
        *lines,
        "",
        f"Error factor that contains 90% of these rows, with equal weights of the devices: "
        f"{pooled_factor(list(logs.values())):.2f}. The interval also has the ranges of the transferred parameters.",
        "",
        "MI100 is the only device of its vendor. Without it, the fit has no data on AMD's `pow` (three times the",
        "instructions) and on its long softmax rows. For other AMD devices, the model uses MI100. P100 was put in the",
        "class of the older boards, and not in that of the other devices with stacked memory, after its measurements",
        "had been seen; in the latter class its MAPE is about 12 points larger. T4, P4 and A100 executed compute-bound",
        "operations at half to full clock. The steps are at numbers of rows that differ by operation, so they belong",
        "to the progress of the campaign, and the model does not represent them: hence the errors on `softmax`, `ln`",
        "and `pow`.",
        "",
        "The mean MAPE is slightly optimistic for two reasons. About twenty variants of the model were compared on",
        "these same folds, and the best one was kept. The start values of the fits, towards which a weak penalty pulls",
        "the constants, were chosen after the measurements of all six devices had been seen.",
        "",
    ]


def size_table(tables: list[Table], folds: Mapping[str, Device], hosts: Hosts) -> list[str]:
    """All rows by size, with the host of other campaigns and with the device's own."""
    lines = [
        "## All rows, by size",
        "",
        "`launch`: rows that take at most 1.15 of the shortest ones of their operation. `cache`: other rows whose",
        "operands fit in the last-level cache. `memory`: the others. The host time of the framework is that of other",
        "campaigns (`other hosts`), or is read from the smallest tensors of the device itself (`own host`).",
        "",
        "| device | rows | other hosts: all | coverage | launch | cache | memory | own host: all | launch | cache "
        "| memory |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for sku, target in folds.items():
        mine = [t for t in tables if t.sku == sku]
        known = replace(target, values={**target.values, **overlay(hosts[sku].values())})
        cells = []
        for e in (estimates(target, mine), estimates(known, mine, intervals=False)):
            cells.append(f"{e.mape():.1%}")
            cells += [] if len(cells) > 1 else [f"{e.coverage():.0%}"]
            cells += [percent(e.take(e.size == size).mape()) for size in ("launch", "cache", "memory")]
        lines.append(f"| {sku} | {sum(len(t.seconds) for t in mine)} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def gddr_table(tables: list[Table], gddr: Mapping[str, Device]) -> list[str]:
    """The boards with GDDR memory, all of them left out together."""
    lines = [
        "## All boards with GDDR memory left out together",
        "",
        "Rows clear of the launch floor. The class `early` is then that of P100 alone.",
        "",
        "| device | rows | MAPE | log bias | coverage |",
        "|---|---|---|---|---|",
    ]
    for sku, target in gddr.items():
        e = estimates(target, [t for t in clear_rows(tables) if t.sku == sku])
        bias = np.median(np.log(e.estimated / e.seconds))
        lines.append(f"| {sku} | {len(e.seconds)} | {e.mape():.1%} | {bias:+.3f} | {e.coverage():.0%} |")
    return [*lines, ""]


def host_table(hosts: Hosts) -> list[str]:
    """The host times of the campaign, by device."""
    keys = list(next(iter(hosts.values())).factors)
    lines = [
        "## Host time of the framework",
        "",
        "The time of the host around an operation on two tensors, beside the API's own, and the factors of other",
        "operations. It belongs to the host and to the version of the framework (P100's differs), not to the device.",
        "",
        "| device | API | us | " + " | ".join(f"`{key}`" for key in keys) + " |",
        "|---|---|---|" + "---|" * len(keys),
    ]
    for sku, host in hosts.items():
        factors = " | ".join(f"{host.factors[key]:.2f}" for key in keys)
        lines.append(f"| {sku} | {host.api} | {host.framework_s * 1e6:.1f} | {factors} |")
    return [*lines, ""]


def constant_table(folds: Mapping[str, Device], everything: Mapping[str, float]) -> list[str]:
    """The constants of all devices, and their range over the folds."""
    lines = [
        "## Constants",
        "",
        "| constant | shipped default | fitted to all six | range with one device left out |",
        "|---|---|---|---|",
    ]
    for name in START:
        values = [fold.values[name].value for fold in folds.values()]
        spread = f"{min(values):.3g} to {max(values):.3g}"
        lines.append(f"| `{name}` | {_shipped(name):.3g} | {everything[name]:.3g} | {spread} |")
    return lines


WEIGHTS_ROWS, WEIGHTS_BYTES = 32, 1e8
"""GEMMs of at most this many rows, on at least this many bytes, read their weights as fast as memory delivers them."""

HBM2E, HBM = "a100-sxm-80gb", ("h100-sxm-80gb", "b200-sxm-180gb")


def weight_share(t: split.Table) -> float:
    """The share of the specified bandwidth at which GEMMs read their weights: bytes over time, by least squares.

    The fit has a constant, so that the time which every GEMM takes beside its bytes does not count.
    """
    moved = split.traffic(t)
    large = (t.m <= WEIGHTS_ROWS) & (moved > WEIGHTS_BYTES)
    slope = np.polyfit(moved[large], t.seconds[large], 1)[0]
    return float(1.0 / (slope * t.sheet.bandwidth))


def share_table(folder: Path, tables: list[Table], everything: Mapping[str, float]) -> list[str]:
    """The shares of bandwidth of two kinds of memory that have no class among the devices with memory-bound kernels.

    GDDR with check bits since Ampere has the share that a fit to the boards with such memory, T4 and P4, gives. HBM2e
    has the share of the class ``hbm``, times the quotient of the shares at which GEMMs read their weights.
    """
    gemm = split.read(folder)
    shares = {sku: weight_share(gemm[sku, "bfloat16", "burst"]) for sku in (HBM2E, *HBM)}
    quotient = shares[HBM2E] / float(np.mean([shares[sku] for sku in HBM]))
    reads = ", ".join(f"{sku} {share:.3f}" for sku, share in shares.items())
    boards = [t for t in tables if t.sku in GDDR]
    with_check_bits = fit(boards, all_hosts(boards))["stream_efficiency.early"]
    return [
        "",
        "## Shares of bandwidth of other kinds of memory",
        "",
        "| memory | share | shipped | rule |",
        "|---|---|---|---|",
        f"| GDDR with check bits since Ampere | {with_check_bits:.3f} | {_shipped('stream_efficiency.gddr_ecc'):.3g} "
        f"| the fit to {' and '.join(GDDR)} alone, the boards with check bits in GDDR |",
        f"| HBM2e | {quotient * everything['stream_efficiency.hbm']:.3f} | {_shipped('stream_efficiency.hbm2e'):.3g} "
        f"| the share of the class `hbm` times {quotient:.3f}, a quotient of reads |",
        "",
        "The quotient is that of the shares of the specified bandwidth at which GEMMs with at most 32 rows and over",
        f"100 MB of operands read them: {reads}; the first over the mean of the others.",
    ]


def _shipped(path: str) -> float:
    name, _, key = path.partition(".")
    parameter = KIND.parameter(name)
    default = parameter.defaults[key] if key else parameter.default
    return default.value if default is not None else float("nan")


def _line(name: str, rows: int | None, r: tuple[float, ...], noise_floor: float | None) -> str:
    shares = [f"{v:.1%}" for v in r]
    shares[2], shares[5] = f"**{r[2]:.1%}**", f"{r[5]:+.3f}"
    shares[6:8] = f"{r[6]:.0%}", f"{r[7]:.0%}"
    cells = [name, str(rows or ""), *shares, "" if noise_floor is None else f"{noise_floor:.1%}"]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
