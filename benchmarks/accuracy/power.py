"""Board power of kernels over 0.1 ms and what the power cap costs: the shipped functions on shapes and types left out.

    .venv/bin/python benchmarks/accuracy/power.py ../shared/truth [reports/validation/published/power.md]
    .venv/bin/python benchmarks/accuracy/power.py ../shared/truth --overlay FOLDER

One device carries power: B200, products in sustained loops of 0.3 to 1 s. Its numbers are fitted again without the
shapes, or without the type, that they answer for. The second form writes them into the device's overlay.
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
from split import shape_fold

from windtunnel.core.device import Device, Parameters
from windtunnel.core.ops import Gemm, Rows
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds.gpu.power import activity_of, power_w, sustained_s
from windtunnel_models.learned.write import update_overlay

CATALOGUE = Catalogue()
SKU = "b200-sxm-180gb"
SHORTEST_S = 1e-4
HOST_FLOOR_S = {"fp8_block": 2.5e-4}
"""Below this, rows of the type wait for the host (a floor of 0.16 ms), and the board with them."""
BELOW_CAP = 0.95
FOLDS = 10

START = {
    "power_share.base": 0.13,
    "power_share.busy": 0.35,
    "power_share.compute": 1.4,
    "power_share.memory": 0.2,
    "type_power.nvfp4": 1.0,
    "long_k_power": 1.0,
    "power_cap_share": 0.98,
    "throttle_exponent": 0.3,
}
HOLD = {
    "power_share.base": 0.2,
    "power_share.busy": 0.3,
    "power_share.compute": 0.3,
    "power_share.memory": 0.7,
    "type_power.nvfp4": 0.3,
    "long_k_power": 1.0,
    "power_cap_share": 0.005,
    "throttle_exponent": 0.5,
}
"""Where every fit starts, and the standard deviation (log) by which a number is expected to differ from it.

What a board draws awake is that of the rows that wait for the host: 0.25 of the limit, 0.13 of the range above idle.
"""


@dataclass(frozen=True)
class Table:
    """Sustained rows of one type with power: seconds, watts, and the seconds of the same shape in a burst."""

    dtype: str
    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    seconds: np.ndarray
    watts: np.ndarray
    burst_s: np.ndarray

    def take(self, index: np.ndarray) -> Table:
        arrays = (self.m, self.n, self.k, self.seconds, self.watts, self.burst_s)
        return Table(self.dtype, *(a[index] for a in arrays))

    def rows(self) -> Rows:
        choices = {"dtype": self.dtype, "dispatch": "device", "clock": "sustained", "cache": "cold"}
        return Rows(Gemm, choices, {"m": self.m, "n": self.n, "k": self.k, "batch": np.ones_like(self.m)})


def read(folder: Path) -> list[Table]:
    """The tables by type; bursts of the same type and shape beside the sustained rows."""
    burst: dict[tuple[str, str, str, str], float] = {}
    rows: dict[str, list[tuple[tuple[str, str, str, str], float, float]]] = {}
    with gzip.open(folder / "gemm.csv.gz", "rt", newline="") as file:
        for r in csv.DictReader(file):
            if r["sku"] != SKU:
                continue
            key = (r["dtype"], r["m"], r["n"], r["k"])
            if r["clock"] == "burst":
                burst[key] = float(r["latency_s"])
            elif r["power_w"] and float(r["latency_s"]) > HOST_FLOOR_S.get(r["dtype"], SHORTEST_S):
                rows.setdefault(r["dtype"], []).append((key, float(r["latency_s"]), float(r["power_w"])))
    tables = []
    for dtype, members in sorted(rows.items()):
        shape = np.array([[float(x) for x in key[1:]] for key, _, _ in members]).T
        seconds, watts = np.array([s for _, s, _ in members]), np.array([w for _, _, w in members])
        tables.append(Table(dtype, *shape, seconds, watts, np.array([burst[key] for key, _, _ in members])))
    return tables


def device(values: Mapping[str, float]) -> Device:
    overlay = {k: SourcedValue(v, Provenance.PUBLISHED, "this fold") for k, v in values.items()}
    return CATALOGUE.device(SKU, overlay=overlay, calibrated=False)


def modelled(table: Table, values: Mapping[str, float]) -> tuple[np.ndarray, np.ndarray]:
    """Power (W) over the measured time, and sustained seconds from the measured burst."""
    p = Parameters(device(values))
    activity = activity_of(p, table.rows())
    return power_w(p, table.seconds, activity), sustained_s(p, table.burst_s, activity)


def fit(tables: list[Table]) -> dict[str, float]:
    """Numbers of least soft error of power and, at half weight, of the ratio of sustained to burst time."""
    start, hold = np.log(list(START.values())), np.array(list(HOLD.values()))

    def residual(x: np.ndarray) -> np.ndarray:
        values = dict(zip(START, np.exp(x).tolist(), strict=True))
        parts = [0.1 * (x - start) / hold]
        for t in tables:
            watts, seconds = modelled(t, values)
            # Rows below the cap are few, and it is they that tell one number from another.
            weight = np.where(t.watts < BELOW_CAP * max_w(), 2.0, 1.0)
            parts += [weight * (watts / t.watts - 1.0), 0.5 * np.log(seconds / t.seconds)]
        return np.concatenate(parts)

    solution = least_squares(residual, start, loss="soft_l1", f_scale=0.06, max_nfev=60, diff_step=1e-3)
    return dict(zip(START, np.exp(solution.x).tolist(), strict=True))


def max_w() -> float:
    return CATALOGUE.device(SKU, calibrated=False).number("max_power_w") or 1.0


def errors(predicted: np.ndarray, measured: np.ndarray, watts: np.ndarray) -> tuple[str, ...]:
    """Mean of all, mean below the cap, median, 90th percentile, median signed log below the cap."""
    e = np.abs(predicted / measured - 1.0)
    low = watts < BELOW_CAP * max_w()
    bias = np.median(np.log(predicted / measured)[low])
    return (
        f"{e.mean():.1%}",
        f"{e[low].mean():.1%}",
        f"{np.median(e):.1%}",
        f"{np.quantile(e, 0.9):.1%}",
        f"{bias:+.3f}",
    )


def held_out(tables: list[Table]) -> tuple[list[tuple[np.ndarray, np.ndarray, np.ndarray]], list[dict[str, float]]]:
    """For each table: power over the measured time, sustained time from the burst, power over the modelled time."""
    which = [shape_fold(t.n, t.k, FOLDS, "power") for t in tables]
    out = [(np.empty(len(t.m)), np.empty(len(t.m)), np.empty(len(t.m))) for t in tables]
    fits = []
    for f in range(FOLDS):
        train = [t.take(np.flatnonzero(w != f)) for t, w in zip(tables, which, strict=True)]
        values = fit(train)
        fits.append(values)
        for t, w, o in zip(tables, which, out, strict=True):
            index = np.flatnonzero(w == f)
            part = t.take(index)
            if len(index):
                o[0][index], o[1][index] = modelled(part, values)
                o[2][index] = device(values).cost(part.rows(), intervals=False).power_w
    return out, fits


def main() -> None:
    tables = read(Path(sys.argv[1]))
    both = [t for t in tables if t.dtype != "fp8_block"]
    if len(sys.argv) > 3 and sys.argv[2] == "--overlay":
        write(both, Path(sys.argv[3]))
        return
    out, fits = held_out(both)
    head = "| all | below the cap | median | p90 | bias below |"
    lines = [
        "# Board power in sustained loops, and the time the cap costs",
        "",
        "Made by `benchmarks/accuracy/power.py`. Products on B200 over 0.1 ms, ai-dynamo/aiconfigurator@095f58a",
        "(Apache-2.0), mean power of loops of 0.3 to 1 s. Errors are absolute, relative to what was measured;",
        "`below the cap`: rows under 0.95 of the limit; bias is a median logarithm. Shapes are held back by whole",
        "(n, k), ten folds. Target on a device never seen: 5 / 13 (all / below the cap).",
        "",
        "**One device cannot show transfer.** No other device's power is at hand. Shares of the limit are carried to",
        "others by their datasheets; the nearest thing here to a device never seen is a type left out whole.",
        "",
        "## Shapes left out",
        "",
        f"| type | rows | answer {head}",
        "|---|---|---|---|---|---|---|---|",
    ]
    groups = [([i], t.dtype) for i, t in enumerate(both)] + [(list(range(len(both))), "both")]
    for members, name in groups:
        watts = np.concatenate([both[i].watts for i in members])
        for what, place in (("model, over the measured time", 0), ("model, over the modelled time", 2)):
            cells = errors(np.concatenate([out[i][place] for i in members]), watts, watts)
            lines.append(f"| {name} | {len(watts)} | {what} | " + " | ".join(cells) + " |")
        lines.append(
            f"| {name} | | the cap | " + " | ".join(errors(np.full(len(watts), 0.98 * max_w()), watts, watts)) + " |"
        )
    lines += ["", "## A type left out", "", f"| type | rows | answer {head}", "|---|---|---|---|---|---|---|---|"]
    for t in tables:
        train = [u for u in both if u.dtype != t.dtype]
        values = fit(train)
        values["type_power.nvfp4"] = 1.0 if t.dtype == "nvfp4" else values["type_power.nvfp4"]
        cells = errors(modelled(t, values)[0], t.watts, t.watts)
        lines.append(f"| {t.dtype} | {len(t.m)} | model | " + " | ".join(cells) + " |")
        cells = errors(modelled(t, {})[0], t.watts, t.watts)
        lines.append(f"| {t.dtype} | | assumed numbers alone | " + " | ".join(cells) + " |")
        cells = errors(np.full(len(t.m), 0.98 * max_w()), t.watts, t.watts)
        lines.append(f"| {t.dtype} | | the cap | " + " | ".join(cells) + " |")
    lines += [
        "",
        "`assumed numbers alone`: what the kind takes a board to be where none has taught it. They were written",
        "down after B200 had been seen, so their rows are no forecast; nor are the form and the weight of rows below",
        "the cap, which were chosen on these same folds. Rows of `fp8_block` under 0.25 ms wait for the host (a floor",
        "of 0.16 ms) and are left out; above, their power still grows with the length of a run, from half of the limit",
        "at 0.3 ms to three quarters at 20 ms: not steady, not modelled.",
        "",
        "## Sustained time from burst time, shapes left out",
        "",
        "Both campaigns ran the same shapes, with two versions of one framework, which differ by 2 to 4% anyway.",
        "",
        "| type | rows | as in a burst | one ratio | model | bias |",
        "|---|---|---|---|---|---|",
    ]
    for t, o in zip(both, out, strict=True):
        ratio = np.median(t.seconds / t.burst_s)  # of the rows themselves: flattered, and still worse
        cells = [np.abs(x / t.seconds - 1.0).mean() for x in (t.burst_s, ratio * t.burst_s, o[1])]
        bias = np.median(np.log(o[1] / t.seconds))
        lines.append(f"| {t.dtype} | {len(t.m)} | " + " | ".join(f"{c:.1%}" for c in cells) + f" | {bias:+.3f} |")
    lines += [
        "",
        "## Numbers",
        "",
        "Shares are of the range from idle to the limit. `long_k_power` is measured and not explained: from k = 65,536",
        "on, products in 16 bits draw 0.65 to 0.85 of the limit at rates at which shorter ones are held at the cap;",
        "k = 51,200 shows nothing of it, nor do products in 4 bits.",
        "",
        "| number | fitted to all | range over the folds |",
        "|---|---|---|",
    ]
    everything = fit(both)
    for name in START:
        got = [f[name] for f in fits]
        lines.append(f"| `{name}` | {everything[name]:.3g} | {min(got):.3g} to {max(got):.3g} |")
    text = "\n".join(lines) + "\n"
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(text)
    print(text)


def write(tables: list[Table], folder: Path) -> None:
    """The numbers into the device's overlay, beside what it holds of other things."""
    source = "ai-dynamo/aiconfigurator@095f58a (Apache-2.0), sustained products; benchmarks/accuracy/power.py"
    device = CATALOGUE.device(SKU, calibrated=False)
    update_overlay(folder / f"{SKU}.yaml", device, "power", source, fit(tables))


if __name__ == "__main__":
    main()
