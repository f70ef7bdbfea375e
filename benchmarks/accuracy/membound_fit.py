"""The fit of memory-bound kernels to measurements of some devices, and what it predicts of others; see membound.py."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares
from split import Estimates, interval_metrics, metrics

from windtunnel.core.device import Device
from windtunnel.core.ops import Elementwise, Rows
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds.gpu import KIND
from windtunnel_models.kinds.gpu.streaming import FRAMEWORK_KEYS
from windtunnel_models.learned.overlay import Overlay
from windtunnel_models.learned.transfer import relatives, transferred_values

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
