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

from windtunnel.core.device import Device, Parameters
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


DISAGREE = 0.1
"""The difference (log) of two measurements of one size beyond which their neighbours decide between them."""


def pooled(logs: Sequence[Sequence[float]]) -> np.ndarray:
    """One log time for each size: the mean, or the median with the neighbours' mean where two formats disagree."""
    mean = np.array([np.mean(values) for values in logs])
    for i, values in enumerate(logs[1:-1], 1):
        if np.ptp(values) > DISAGREE:
            mean[i] = np.median([*values, (mean[i - 1] + mean[i + 1]) / 2.0])
    return mean


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

    def without(self, index: np.ndarray) -> Curve:
        """The curve without the points at `index`."""
        return replace(self, size=np.delete(self.size, index), seconds=np.delete(self.seconds, index))

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
        points.append(np.stack([size, np.exp(pooled([logs[s] for s in size]))]))
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


def curve_s(device: Device, learned: LearnedCollective, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """The time of rows by the curves of a device, for another one or itself, and its spread (log)."""
    correction = learned(Parameters(device), rows)
    assert correction is not None
    return device.cost(rows, intervals=False).duration_s * np.exp(correction.log_factor), correction.spread


def network_errors(
    tables: Sequence[tuple[Curve, int]], curves: Sequence[Curve], values: Mapping[str, float]
) -> list[np.ndarray]:
    """ln(estimated / measured): the curves of A100 inside a node, the formula between nodes.

    The shortest all-reduces take the time of an eager host, and messages that of a device.
    """
    device = formula_device("a100-sxm-80gb", values)
    learned = LearnedCollective(arrays(curves, "a100-sxm-80gb", "all_reduce"))
    errors = []
    for table, per_node in tables:
        dispatch = "eager" if table.op == "all_reduce" else "device"
        whole = device.cost(table.rows(per_node, dispatch), intervals=False).duration_s
        bare = table.rows(per_node)
        own = device.cost(bare, intervals=False).duration_s
        busy = curve_s(device, learned, bare)[0] if table.op == "all_reduce" else own
        errors.append(np.log(np.maximum(whole + busy - own, busy) / table.seconds))
    return errors


def fit_network(folder: Path, curves: Sequence[Curve]) -> dict[str, float]:
    """The formula's numbers between nodes."""
    tables = [(t, n) for t, n in read_network(folder) if t.workers > n]
    return solve(NETWORK_START, lambda values: 0.3 * np.concatenate(network_errors(tables, curves, values)))


def left_out_sizes(curves: Sequence[Curve], sku: str, op: str) -> np.ndarray:
    """The errors (log) and half-widths of every third size of each curve, left out in turn, 2 x n."""
    parts, device = [], formula_device(sku)
    mine = [c for c in curves if (c.sku, c.op) == (sku, op)]
    for fold in range(3):
        left = [np.arange(1 + fold, len(c.size) - 1, 3) for c in mine]
        kept = [c.without(index) for c, index in zip(mine, left, strict=True)]
        learned = LearnedCollective(arrays(kept, sku, op))
        for c, index in zip(mine, left, strict=True):
            part = replace(c, size=c.size[index], seconds=c.seconds[index])
            took, spread = curve_s(device, learned, part.rows())
            parts.append(np.stack([np.log(took / part.seconds), spread]))
    return np.concatenate(parts, axis=1)


def ship(folder: Path) -> None:
    """Write the curves of every device into its calibration files, with the errors of sizes left out."""
    curves = read(folder)
    for sku in SKUS:
        bare = CATALOGUE.device(sku, calibrated=False)
        for op in MEASURED:
            errors = left_out_sizes(curves, sku, op)
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


def scores(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> str:
    """MAPE and 90th percentile of the absolute percentage error of (estimated, measured) seconds, as cells."""
    errors = np.concatenate([np.abs(estimated / measured - 1.0) for estimated, measured in pairs])
    return f"{errors.mean():.1%} | {np.quantile(errors, 0.9):.1%}"


def sizes_table(curves: Sequence[Curve]) -> list[str]:
    lines = ["| device | operation | MAPE | in the 90% interval | high over value |", "|---|---|---|---|---|"]
    for sku in SKUS:
        for op in MEASURED:
            e = left_out_sizes(curves, sku, op)
            inside, width = (np.abs(e[0]) <= e[1]).mean(), np.median(np.exp(e[1]))
            lines.append(f"| {sku} | {op} | {np.abs(np.expm1(e[0])).mean():.1%} | {inside:.0%} | {width:.2f} |")
    return lines


def devices_table(curves: Sequence[Curve]) -> list[str]:
    lines = [
        "| left out | implementation | MAPE | p90 | in the 90% interval | high over value | formula alone, MAPE |",
        "|---|---|---|---|---|---|---|",
    ]
    for sku in SKUS:
        device = CATALOGUE.device(sku, calibrated=False)
        for implementation in ("nccl", "vllm", "sglang", "trtllm"):
            mine = [c for c in curves if (c.sku, c.implementation) == (sku, implementation)]
            costs = [device.cost(c.rows()) for c in mine]
            inside = [
                (k.duration_low_s <= c.seconds) & (c.seconds <= k.duration_high_s)
                for k, c in zip(costs, mine, strict=True)
            ]
            width = np.median(np.concatenate([k.duration_high_s / k.duration_s for k in costs]))
            plain = formula_device(sku)
            alone = scores([(plain.cost(c.rows(), intervals=False).duration_s, c.seconds) for c in mine])
            cells = scores([(k.duration_s, c.seconds) for k, c in zip(costs, mine, strict=True)])
            share = np.concatenate(inside).mean()
            lines.append(
                f"| {sku} | {implementation} | {cells} | {share:.0%} | {width:.2f} | {alone.partition(' |')[0]} |"
            )
    return lines


def pairs_table(curves: Sequence[Curve]) -> list[str]:
    lines = ["| from | to | unchanged, MAPE | p90 | by the ratio of links, MAPE | p90 |", "|---|---|---|---|---|---|"]
    pairs = [(a, b) for a in LINKED for b in LINKED if a != b]
    for source, target in pairs:
        device = formula_device(target)
        same, scaled = [], []
        for op in MEASURED:
            held = arrays(curves, source, op)
            learned, as_is = LearnedCollective(held), LearnedCollective({**held, "sku": np.array(target)})
            for c in curves:
                if (c.sku, c.op) == (target, op):
                    same.append((curve_s(device, as_is, c.rows())[0], c.seconds))
                    scaled.append((curve_s(device, learned, c.rows())[0], c.seconds))
        lines.append(f"| {source} | {target} | {scores(same)} | {scores(scaled)} |")
    return lines


def workers_table(curves: Sequence[Curve]) -> list[str]:
    """Workers left out in a node with links, and the ring over PCIe."""
    lines = ["| device | workers | how | MAPE | p90 |", "|---|---|---|---|---|"]
    for sku in LINKED:
        pairs, device = [], formula_device(sku)
        for op in MEASURED:
            learned = LearnedCollective(arrays([c for c in curves if c.workers != 4], sku, op))
            mine = [c for c in curves if (c.sku, c.op, c.workers) == (sku, op, 4)]
            pairs += [(curve_s(device, learned, c.rows())[0], c.seconds) for c in mine]
        lines.append(f"| {sku} | 4 | between 2 and 8, by the ratio to the formula | {scores(pairs)} |")
    for workers in (4, 8):
        pairs, device = [], formula_device("l40s")
        for op in MEASURED:
            learned = LearnedCollective({**arrays(curves, "l40s", op), "sku": np.array("another")})
            mine = [c for c in curves if (c.sku, c.op, c.workers) == ("l40s", op, workers)]
            pairs += [(curve_s(device, learned, c.rows())[0], c.seconds) for c in mine]
        lines.append(f"| l40s | {workers} | the curve of 2 stretched as a ring | {scores(pairs)} |")
    return lines


def network_table(folder: Path, curves: Sequence[Curve]) -> list[str]:
    lines = ["| operation | workers | per node | MAPE | p90 | log bias |", "|---|---|---|---|---|---|"]
    tables = read_network(folder)
    for (c, per_node), error in zip(tables, network_errors(tables, curves, {}), strict=True):
        cells = scores([(np.exp(error), np.ones(len(error)))])
        lines.append(f"| {c.op} | {c.workers} | {per_node} | {cells} | {np.median(error):+.3f} |")
    return lines


def report(folder: Path) -> str:
    """The page of errors."""
    curves = read(folder)
    shipped = [KIND.parameter(name.partition(".")[0]) for name in (*START, *NETWORK_START)]
    fitted = {**fit_inside(curves), **fit_network(folder, curves)}
    numbers = []
    for (name, value), parameter in zip(fitted.items(), shipped, strict=True):
        key = name.partition(".")[2]
        default = parameter.defaults[key] if key else parameter.default
        assert default is not None
        numbers.append(f"| `{name}` | {default.value:.3g} | {value:.3g} |")
    parts = {
        "Sizes left out": (
            "Every third size of each curve of a device, left out in turn and interpolated.", sizes_table(curves)
        ),
        "Devices left out": (
            "Each device as `--calibration none` has it, from the curves of the others. L40S is the only device without"
            " a link of its own, so without it only the formula remains.", devices_table(curves)
        ),
        "One device from one other": (
            "A curve unchanged, and with its least time kept and the rest divided by the ratio of the links' nominal"
            " rates, as shipped.", pairs_table(curves)
        ),
        "Workers": (
            "The host of the L40S crosses its sockets with more than two of them, so large messages take 4 (4 workers)"
            " to 13 times (8) as long as on a ring. Other hosts do not, so the ring is what another device takes over,"
            " with an interval that contains this host at 4 workers.", workers_table(curves)
        ),
        "Between nodes": (
            "microsoft/vidur@7d47513 (MIT), A100 DGX, all-reduce with an eager host. Inside a node are the curves"
            " of A100. Rows within one node show what an eager host adds to small messages, which vary between 20 and"
            " 60 us.",
            network_table(folder, curves)
        ),
        "Numbers of the formula": (
            "The formula is used where no related device has curves.",
            ["| parameter | shipped | fitted |", "|---|---|---|", *numbers],
        ),
    }  # fmt: skip
    lines = [
        "# Collectives: sizes, workers and whole devices left out",
        "",
        "Generated by `benchmarks/accuracy/collectives.py` from ai-dynamo/aiconfigurator@095f58a (Apache-2.0):",
        "collectives within a node of A100, H100 and B200 (NVLink) and L40S (PCIe), 256 B to 1 GiB, not eager.",
        "Asked of devices whose measurements are not here: H200 7%, GB200 15%, RTX PRO 6000 35%.",
    ]
    for title, (text, table) in parts.items():
        lines += ["", f"## {title}", "", text, "", *table]
    return "\n".join(lines) + "\n"


def main() -> None:
    command, folder = sys.argv[1], Path(sys.argv[2])
    if command == "ship":
        ship(folder)
    elif command == "report":
        text = report(folder)
        if len(sys.argv) > 3:
            Path(sys.argv[3]).write_text(text, encoding="utf-8")
        print(text)
    elif command == "fit":
        curves = read(folder)
        for values in (fit_inside(curves), fit_network(folder, curves)):
            for name, value in values.items():
                print(f"{name}: {value:.3g}")


if __name__ == "__main__":
    main()
