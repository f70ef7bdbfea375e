"""Collectives: the curves of every measured device, the formula's numbers, and errors on what was left out.

    python benchmarks/accuracy/collectives.py ship TRUTH       writes the curves into the calibration files
    python benchmarks/accuracy/collectives.py fit TRUTH        prints the formula's numbers for kinds/gpu.yaml
    python benchmarks/accuracy/collectives.py report TRUTH [OUT.md]     errors of whole devices left out, and the rest

TRUTH is the folder of the measurements. The report uses the shipped functions: a device that is left out is built from
the arrays of the others.
"""

from __future__ import annotations

import csv
import gzip
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from windtunnel.core.device import Arrays, Device, Parameters
from windtunnel.core.ops import OPERATIONS, Rows
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel_models.catalogue import Catalogue, _defaults
from windtunnel_models.kinds.gpu import KIND
from windtunnel_models.kinds.gpu.collective_curves import MEASURED, LearnedCollective
from windtunnel_models.learned.overlay import Fit
from windtunnel_models.learned.read import CALIBRATION
from windtunnel_models.learned.write import update_overlay
from windtunnel_models.specs import api_profile

CATALOGUE = Catalogue()
SKUS = ("a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb", "l40s")
LINKED = SKUS[:3]
NODE = "ai-dynamo/aiconfigurator@095f58a (Apache-2.0), collectives within a node; benchmarks/accuracy/collectives.py"
NODE_GAP_S = 0.94e-6
"""The gap to the next node of a graph (apis/cuda.yaml), which the times of engines' kernels in a graph contain."""
REDUCING = ("all_reduce", "reduce_scatter")


@dataclass(frozen=True)
class Curve:
    """One measured curve: device times (s) over sizes (B)."""

    sku: str
    op: str
    implementation: str
    dtype: str
    workers: int
    size: np.ndarray
    seconds: np.ndarray

    def rows(self, per_node: int = 8, dispatch: str = "device") -> Rows:
        """The curve as rows of the operation."""
        count = len(self.size)
        numbers = {
            "bytes": self.size,
            "workers": np.full(count, float(self.workers)),
            "devices_per_node": np.full(count, float(per_node)),
        }
        choices = {"implementation": self.implementation, "dtype": self.dtype}
        choices |= {"dispatch": dispatch, "clock": "burst", "cache": "cold"}
        return Rows(OPERATIONS[self.op], choices, numbers)


def read(folder: Path) -> list[Curve]:
    """Every curve within a node except the eager ones, which contain the time of their host."""
    times: dict[tuple[str, str, str, str, int], list[tuple[float, float]]] = defaultdict(list)
    with gzip.open(folder / "node_collectives.csv.gz", "rt", newline="") as file:
        for r in csv.DictReader(file):
            if r["dispatch"] == "eager":
                continue
            op = {"alltoall": "all_to_all"}.get(r["op"], r["op"])
            gap = NODE_GAP_S if r["dispatch"] == "graph" else 0.0
            key = (r["sku"], op, r["implementation"], r["dtype"], int(r["devices"]))
            times[key].append((float(r["bytes"]), float(r["latency_s"]) - gap))
    return [Curve(*key, *np.array(sorted(rows)).T) for key, rows in sorted(times.items())]


def arrays(curves: Sequence[Curve], sku: str, op: str) -> dict[str, np.ndarray]:
    """The arrays of one operation of one device. Formats are kept apart only where the operation computes."""
    groups: dict[tuple[str, str, int], list[Curve]] = defaultdict(list)
    for c in curves:
        if (c.sku, c.op) == (sku, op):
            bits = ("8" if c.dtype == "int8" else "16") if op in REDUCING else "any"
            groups[c.implementation, bits, c.workers].append(c)
    points = []
    for members in groups.values():
        logs = defaultdict(list)
        for c in members:
            for size, seconds in zip(c.size, c.seconds, strict=True):
                logs[size].append(np.log(seconds))
        size = np.array(sorted(logs))
        points.append(np.stack([size, np.exp([np.mean(logs[s]) for s in size])]))
    sheet = Parameters(Device(CATALOGUE.spec(sku), KIND, api_profile("cuda"), CATALOGUE.device(sku).values))
    names = list(groups)
    joined = np.concatenate(points, axis=1)
    return {
        "sku": np.array(sku),
        "link": np.array(sheet.get("scale_up_bytes_per_s") or sheet("host_link_bytes_per_s")),
        "implementation": np.array([name[0] for name in names]),
        "dtype": np.array([name[1] for name in names]),
        "workers": np.array([name[2] for name in names], dtype=np.float32),
        "start": np.cumsum([0, *(p.shape[1] for p in points)]).astype(np.int32),
        "bytes": joined[0].astype(np.float64),
        "seconds": joined[1].astype(np.float32),
    }


class Relation:
    """A device that is predicted from the curves of others: (SKU, weight) pairs; `values` replace the formula's."""

    def __init__(self, curves: Sequence[Curve], sku: str, sources: Sequence[tuple[str, float]]) -> None:
        self.spec, self.curves, self.sources = CATALOGUE.spec(sku), curves, sources
        self.device = formula_device(sku)
        self.learned = {
            (source, op): LearnedCollective(arrays(curves, source, op)) for source, _ in sources for op in MEASURED
        }

    def seconds(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """The time of rows, and its own spread (log)."""
        own = self.device.cost(rows, intervals=False).duration_s
        factor, spread, total = np.zeros(rows.shape), np.zeros(rows.shape), 0.0
        for source, weight in self.sources:
            correction = self.learned[source, rows.op.name](Parameters(self.device), rows)
            if correction is not None:
                factor, spread = factor + weight * correction.log_factor, spread + weight * correction.spread
                total += weight
        return own * np.exp(factor / max(total, 1e-9)), spread / max(total, 1e-9)


def formula_device(sku: str, values: Mapping[str, float] | None = None) -> Device:
    """A device with the formula alone, and `values` in place of the kind's."""
    spec = CATALOGUE.spec(sku)
    stated = {k: SourcedValue(v, Provenance.PUBLISHED, "this fold") for k, v in (values or {}).items()}
    return Device(spec, KIND, api_profile("cuda"), {**_defaults(KIND), **spec.values, **stated})


START = {
    **{f"scale_up_efficiency.{op}": (0.75, 0.5) for op in MEASURED},
    **{f"collective_launch_s.{op}": (4e-6, 1.0) for op in MEASURED},
    "collective_launch_s.engine": (1.5e-6, 1.0),
    "collective_step_s.ll": (1e-6, 0.12),
    "collective_step_s.ll128": (2e-6, 0.3),
    "collective_step_s.simple": (4e-6, 0.3),
    "protocol_share.ll": (0.3, 1.0),
    "protocol_share.ll128": (0.9, 0.05),
}
"""Start values inside a node, and the prior standard deviation (log) of each parameter around its start value."""

NETWORK_START = {
    "scale_out_efficiency.all_reduce": (0.57, 0.5),
    "scale_out_efficiency.send_recv": (0.66, 0.5),
    "scale_out_ports": (2.75, 0.5),
    "collective_step_s.ll_out": (3e-6, 0.12),
    "collective_step_s.ll128_out": (6e-6, 1.0),
    "collective_step_s.simple_out": (14e-6, 0.12),
}
"""The same between nodes."""


def solve(start: Mapping[str, tuple[float, float]], errors: object) -> dict[str, float]:
    """The parameters of least soft error. `errors`: the errors (log) of all rows for given values."""
    first = np.log([value for value, _ in start.values()])
    deviation = np.array([d for _, d in start.values()])

    def residual(x: np.ndarray) -> np.ndarray:
        values = dict(zip(start, np.exp(x).tolist(), strict=True))
        return np.concatenate([errors(values), 0.5 * (x - first) / deviation])

    x = least_squares(residual, first, loss="soft_l1", f_scale=0.1, max_nfev=30, diff_step=1e-2).x
    return dict(zip(start, np.exp(x).tolist(), strict=True))


def fit_inside(curves: Sequence[Curve], skus: Sequence[str] = LINKED) -> dict[str, float]:
    """The formula's numbers inside a node, one set for the devices with a link."""
    kept = [c for c in curves if c.sku in skus and c.dtype != "int8"]

    def errors(values: Mapping[str, float]) -> np.ndarray:
        devices = {sku: formula_device(sku, values) for sku in skus}
        parts = [np.log(devices[c.sku].cost(c.rows(), intervals=False).duration_s / c.seconds) for c in kept]
        return 0.3 * np.concatenate(parts)

    return solve(START, errors)


def read_network(folder: Path) -> list[tuple[Curve, int]]:
    """The curves of microsoft/vidur between nodes, by op and set of workers, thinned; with workers in each node."""
    times: dict[tuple[str, int, int], list[tuple[float, float]]] = defaultdict(list)
    with gzip.open(folder / "collectives.csv.gz", "rt", newline="") as file:
        for r in csv.DictReader(file):
            times[r["op"], int(r["workers"]), int(r["devices_per_node"])].append(
                (float(r["bytes"]), float(r["latency_s"]))
            )
    rng = np.random.default_rng(0)
    tables = []
    for (op, workers, per_node), rows in sorted(times.items()):
        values = np.array(sorted(rows))
        values = values[np.sort(rng.choice(len(values), size=min(200, len(values)), replace=False))]
        tables.append((Curve("a100-sxm-80gb", op, "nccl", "float16", workers, *values.T), per_node))
    return tables


def network_errors(
    tables: Sequence[tuple[Curve, int]], curves: Sequence[Curve], values: Mapping[str, float]
) -> list[np.ndarray]:
    """ln(estimated / measured) of eager rows: the curves of A100 inside a node, the formula between nodes."""
    relation = Relation(curves, "a100-sxm-80gb", [("a100-sxm-80gb", 1.0)])
    relation.device = formula_device("a100-sxm-80gb", values)
    errors = []
    for table, per_node in tables:
        rows = table.rows(per_node, "eager")
        bare = table.rows(per_node)
        whole = relation.device.cost(rows, intervals=False).duration_s
        own = relation.device.cost(bare, intervals=False).duration_s
        busy = relation.seconds(bare)[0] if table.op in MEASURED else own
        errors.append(np.log(np.maximum(whole + busy - own, busy) / table.seconds))
    return errors


def fit_network(folder: Path, curves: Sequence[Curve]) -> dict[str, float]:
    """The formula's numbers between nodes."""
    tables = [(t, n) for t, n in read_network(folder) if t.workers > n]
    return solve(NETWORK_START, lambda values: 0.3 * np.concatenate(network_errors(tables, curves, values)))


def left_out_sizes(curves: Sequence[Curve], sku: str) -> dict[str, list[np.ndarray]]:
    """For every operation: errors (log) and half-widths of sizes left out of every curve, every third in turn."""
    out: dict[str, list[np.ndarray]] = {}
    for op in MEASURED:
        parts = []
        mine = [c for c in curves if (c.sku, c.op) == (sku, op)]
        for fold in range(3):
            kept = [
                replace(c, size=np.delete(c.size, np.s_[1 + fold : -1 : 3]), seconds=np.delete(c.seconds, np.s_[1 + fold : -1 : 3]))
                for c in mine
            ]
            relation = Relation(kept, sku, [(sku, 1.0)]) if False else None
            learned = LearnedCollective(arrays(kept, sku, op))
            device = formula_device(sku)
            for c in mine:
                index = np.arange(1 + fold, len(c.size) - 1, 3)
                part = replace(c, size=c.size[index], seconds=c.seconds[index])
                correction = learned(Parameters(device), part.rows())
                assert correction is not None and relation is None
                took = device.cost(part.rows(), intervals=False).duration_s * np.exp(correction.log_factor)
                parts.append(np.stack([np.log(took / part.seconds), correction.spread]))
        out[op] = [np.concatenate(parts, axis=1)]
    return out


def ship(folder: Path) -> None:
    """Write the curves of every device into its calibration files, with the errors of sizes left out."""
    curves = read(folder)
    for sku in SKUS:
        bare = CATALOGUE.device(sku, calibrated=False)
        for op, (errors,) in left_out_sizes(curves, sku).items():
            count = sum(len(c.size) for c in curves if (c.sku, c.op) == (sku, op))
            fit = Fit(
                op,
                count,
                float(np.abs(np.expm1(errors[0])).mean()),
                float((np.abs(errors[0]) <= errors[1]).mean()),
                float(np.median(np.sinh(errors[1]))),
                "every third size of a curve, three folds",
            )
            update_overlay(
                CALIBRATION / f"{sku}.yaml", bare, "collectives", NODE, {}, fit=fit, arrays=arrays(curves, sku, op)
            )
            print(sku, op, fit)


def main() -> None:
    command, folder = sys.argv[1], Path(sys.argv[2])
    if command == "ship":
        ship(folder)
    elif command == "fit":
        curves = read(folder)
        for values in (fit_inside(curves), fit_network(folder, curves)):
            for name, value in values.items():
                print(f"{name}: {value:.3g}")


if __name__ == "__main__":
    main()
