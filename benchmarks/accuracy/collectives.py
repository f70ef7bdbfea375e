"""Collectives of an A100 DGX, with message sizes and with worker counts left out of the fit.

    .venv/bin/python benchmarks/accuracy/collectives.py ../shared/truth [reports/validation/published/collectives.md]

The parameters that the GPU kind has for all devices are fitted again to the other rows, and the shipped cost functions
estimate the rows that were left out.
"""

from __future__ import annotations

import csv
import gzip
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares
from split import metrics

from windtunnel.core.ops import OPERATIONS, Rows
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds.gpu import KIND

CATALOGUE = Catalogue()
SKU = "a100-sxm-80gb"
FOLDS = 5
SAMPLE = 200
"""Message sizes of each set of workers that a fit uses."""

START = {
    "scale_up_efficiency.all_reduce": (0.7, 1.0),
    "scale_up_efficiency.send_recv": (0.9, 0.1),
    "scale_out_efficiency.all_reduce": (0.5, 1.0),
    "scale_out_efficiency.send_recv": (0.5, 1.0),
    "scale_out_ports": (3.0, 1.0),
    "collective_launch_s.all_reduce": (25e-6, 1.0),
    "collective_launch_s.send_recv": (10e-6, 1.0),
    "collective_step_s.ll": (1e-6, 0.12),
    "collective_step_s.ll128": (2e-6, 0.12),
    "collective_step_s.simple": (4e-6, 0.12),
    "collective_step_s.ll_out": (3e-6, 0.12),
    "collective_step_s.ll128_out": (6e-6, 1.0),
    "collective_step_s.simple_out": (14e-6, 0.12),
    "protocol_share.ll": (0.3, 1.0),
    "protocol_share.ll128": (0.9, 0.05),
}
"""Start values of every fit, and the prior standard deviation (log) of each parameter around its start value.

The prior of the latencies of steps is narrow, around the values by which the library itself selects its protocol.
"""


@dataclass(frozen=True)
class Table:
    """One operation among one set of workers: sizes (B) and seconds."""

    op: str
    workers: int
    per_node: int
    size: np.ndarray
    seconds: np.ndarray

    def take(self, index: np.ndarray) -> Table:
        return Table(self.op, self.workers, self.per_node, self.size[index], self.seconds[index])

    def rows(self) -> Rows:
        numbers = {
            "bytes": self.size,
            "workers": np.full(len(self.size), float(self.workers)),
            "devices_per_node": np.full(len(self.size), float(self.per_node)),
        }
        return Rows(OPERATIONS[self.op], {"dispatch": "device", "clock": "burst", "cache": "cold"}, numbers)


def read(folder: Path) -> list[Table]:
    times: dict[tuple[str, int, int], list[tuple[float, float]]] = {}
    with gzip.open(folder / "collectives.csv.gz", "rt", newline="") as file:
        for r in csv.DictReader(file):
            key = (r["op"], int(r["workers"]), int(r["devices_per_node"]))
            times.setdefault(key, []).append((float(r["bytes"]), float(r["latency_s"])))
    return [Table(*key, *np.array(rows).T) for key, rows in sorted(times.items())]


def predict(tables: list[Table], values: Mapping[str, float]) -> list[np.ndarray]:
    overlay = {k: SourcedValue(v, Provenance.PUBLISHED, "this fold") for k, v in values.items()}
    device = CATALOGUE.device(SKU, overlay=overlay, calibrated=False)
    return [device.cost(t.rows(), intervals=False).duration_s for t in tables]


def fit(tables: list[Table]) -> dict[str, float]:
    """The parameters that minimise a soft log error, with equal weight for every set of workers."""
    rng = np.random.default_rng(0)
    thin = [t.take(rng.choice(len(t.size), size=min(SAMPLE, len(t.size)), replace=False)) for t in tables]
    start = np.log([value for value, _ in START.values()])
    deviation = np.array([deviation for _, deviation in START.values()])

    def residual(x: np.ndarray) -> np.ndarray:
        estimated = predict(thin, dict(zip(START, np.exp(x).tolist(), strict=True)))
        errors = [np.log(e / t.seconds) for e, t in zip(estimated, thin, strict=True)]
        return np.concatenate([*errors, 0.5 * (x - start) / deviation])

    solution = least_squares(residual, start, loss="soft_l1", f_scale=0.1, max_nfev=60, diff_step=1e-2)
    return dict(zip(START, np.exp(solution.x).tolist(), strict=True))


def three_parameters(train: list[Table], test: Table) -> np.ndarray:
    """A baseline: a latency, one more for each further worker, and the attained share of the link."""
    link = 300e9 if test.workers <= test.per_node else 12.5e9
    similar = [t for t in train if t.op == test.op and (t.workers <= t.per_node) == (test.workers <= test.per_node)]
    if not similar:
        return np.full(len(test.size), np.nan)

    def model(t: Table, x: np.ndarray) -> np.ndarray:
        volume = 2.0 * (t.workers - 1.0) / t.workers if t.op == "all_reduce" else 1.0
        latency, step, share = np.exp(x)
        return np.asarray(1e-6 * (latency + step * (t.workers - 1.0)) + volume * t.size / (link * share))

    def residual(x: np.ndarray) -> np.ndarray:
        return np.concatenate([*(np.log(model(t, x) / t.seconds) for t in similar), 0.1 * (x - start)])

    start = np.log([20.0, 3.0, 0.6])
    return model(test, least_squares(residual, start, loss="soft_l1", f_scale=0.1).x)


def main() -> None:
    tables = read(Path(sys.argv[1]))
    sizes = sorted({s for t in tables for s in t.size})
    fold_of = dict(zip(sizes, np.random.default_rng(0).integers(0, FOLDS, len(sizes)).tolist(), strict=True))
    fold = [np.array([fold_of[s] for s in t.size]) for t in tables]
    by_size = [np.empty(len(t.size)) for t in tables]
    by_workers = [np.empty(len(t.size)) for t in tables]
    baseline = [np.empty(len(t.size)) for t in tables]
    fits = []
    for f in range(FOLDS):
        train = [t.take(np.flatnonzero(g != f)) for t, g in zip(tables, fold, strict=True)]
        values = fit(train)
        for t, g, out in zip(tables, fold, by_size, strict=True):
            out[g == f] = predict([t.take(np.flatnonzero(g == f))], values)[0]
    for workers in sorted({t.workers for t in tables if t.op == "all_reduce"}):
        train = [t for t in tables if t.workers != workers or t.op != "all_reduce"]
        values = fit(train)
        fits.append(values)
        for i, t in enumerate(tables):
            if t.workers == workers and t.op == "all_reduce":
                by_workers[i], baseline[i] = predict([t], values)[0], three_parameters(train, t)
    for i, t in enumerate(tables):
        if t.op == "send_recv":
            by_workers[i][:], baseline[i][:] = np.nan, np.nan
    lines = [
        "# Collectives: message sizes and worker counts left out of the fit",
        "",
        "Generated by `benchmarks/accuracy/collectives.py` from microsoft/vidur@7d47513 (MIT): A100 DGX, 2 kB to",
        "67 MB. No accuracy target is defined.",
        "",
        "- `per node`: workers in each node.",
        "- `sizes left out`: MAPE with message sizes left out of the fit, in five folds. `under 1 MB`, `log bias`,",
        "  `p90`: the MAPE of messages under 1 MB, the median of ln(estimated / measured), and the 90th percentile of",
        "  the absolute percentage error, in the same cross-validation.",
        "- `workers left out`: MAPE with a worker count left out of the fit, in all its sets of workers at once.",
        "- `three parameters`: MAPE of a baseline, also with the worker count left out of the fit: a latency, a",
        "  latency for each further worker, and a share of the link's bandwidth.",
        "- –: not applicable, because send_recv has only one worker count.",
        "",
        "| operation | workers | per node | sizes left out | under 1 MB | log bias | p90 "
        "| workers left out | three parameters |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    within_node: list[float] = []
    logs: dict[tuple[str, bool], list[np.ndarray]] = {}
    for t, s, w, three in zip(tables, by_size, by_workers, baseline, strict=True):
        m = metrics(t.seconds, s)
        small = t.size < 1e6
        cells = [
            f"{m['mape']:.1%}",
            f"{np.abs(s / t.seconds - 1.0)[small].mean():.1%}",
            f"{m['log_bias']:+.3f}",
            f"{m['p90']:.1%}",
            *("–" if np.isnan(x).any() else f"{np.abs(x / t.seconds - 1.0).mean():.1%}" for x in (w, three)),
        ]
        lines.append(f"| {t.op} | {t.workers} | {t.per_node} | " + " | ".join(cells) + " |")
        local = t.workers <= t.per_node
        logs.setdefault((t.op, local), []).append(np.abs(np.log(s / t.seconds)))
        if local:
            within_node.append(m["mape"])
    lines += ["", f"Mean MAPE within a node, with sizes left out: {np.mean(within_node):.1%}.", ""]
    lines += ["Error factor that contains 90% of the rows, with sizes left out:", ""]
    for (op, local), errors in sorted(logs.items()):
        factor = np.exp(np.quantile(np.concatenate(errors), 0.9))
        lines.append(f"- {op} {'within a node' if local else 'across nodes'}: {factor:.2f}")
    everything = fit(tables)
    lines += [
        "",
        "The measured times of small messages vary between about 20 and 60 us from one set of sizes to the next,",
        "without order. No model of size and worker count can explain them. Across nodes, the bandwidth depends on the",
        "number of ports through which the rings leave a node. Four sets of workers are not enough to separate this",
        "from other effects of the network (8 workers in nodes of 4 move data faster than 16 workers in nodes of 8).",
        "The number of ports is a property of the cluster, so an overlay should contain the cluster's own value.",
        "",
        "| parameter | shipped | fitted to all | range with a worker count left out |",
        "|---|---|---|---|",
    ]
    for name in START:
        values_of_fits = [v[name] for v in fits]
        spread = f"{min(values_of_fits):.3g} to {max(values_of_fits):.3g}"
        lines.append(f"| `{name}` | {_shipped(name):.3g} | {everything[name]:.3g} | {spread} |")
    text = "\n".join(lines) + "\n"
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(text)
    print(text)


def _shipped(path: str) -> float:
    name, _, key = path.partition(".")
    parameter = KIND.parameter(name)
    default = parameter.defaults[key] if key else parameter.default
    assert default is not None
    return default.value


if __name__ == "__main__":
    main()
