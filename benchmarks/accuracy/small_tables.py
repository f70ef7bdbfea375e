"""Cross-validation of the TPU, FPGA and QAT models on their small tables of measurements.

    python benchmarks/accuracy/small_tables.py ../shared/truth            # prints the tables, in a minute
    python benchmarks/accuracy/small_tables.py ../shared/truth --write    # and writes overlays and the published table

Every estimate is ``Device.cost`` of the shipped cost functions. The device of a fold is the SKU without its shipped
overlay (``calibrated=False``), with an overlay fitted to the rows of the other folds. All errors are of rows that were
left out of the fit. Only NumPy is needed.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from windtunnel.core.device import Cost, Device
from windtunnel.core.ops import OPERATIONS, Gemm, Rows, one_row
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.learned.overlay import Fit
from windtunnel_models.learned.read import CALIBRATION
from windtunnel_models.learned.write import update_overlay

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
REPOSITORY = Path(__file__).resolve().parents[2]
CATALOGUE = Catalogue()
DATE = "2026-11-21"
PUBLISHED = REPOSITORY / "reports" / "validation" / "published" / "small_tables.md"


@dataclass(frozen=True)
class Study:
    """A table of measurements of one SKU and one operation, and the parameters that are fitted to them.

    ``fitted`` maps a parameter to its bounds (SI). ``choices`` maps a parameter to the few values it may have (a
    compiler's or a designer's choice). ``fixed`` has the parameters that are not fitted. ``columns`` has the choice
    columns of the operation that differ between rows. ``groups`` maps a way of leaving out rows to one label per row;
    all rows with the same label are left out together. ``source`` and ``text`` name the measurements.
    """

    name: str
    sku: str
    op: str
    context: Mapping[str, str]
    numbers: Mapping[str, Array]
    columns: Mapping[str, Sequence[str]]
    seconds: Array
    source: str
    text: str
    fitted: Mapping[str, tuple[float, float]]
    choices: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    fixed: Mapping[str, float] = field(default_factory=dict)
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.seconds)


def device_of(study: Study, values: Mapping[str, float]) -> Device:
    """The study's SKU without its shipped calibration, with ``values`` instead."""
    source = "fitted to the rows that were not left out"
    overlay = {path: SourcedValue(value, Provenance.PUBLISHED, source) for path, value in values.items()}
    plain = CATALOGUE.device(study.sku, calibrated=False)
    return replace(plain, values={**plain.values, **overlay})


def costs(
    study: Study, device: Device, index: Indices, *, intervals: bool = False, **context: str
) -> tuple[Array, ...]:
    """Estimated time and the ends of its interval (s), for the rows of ``index``."""
    out = np.empty((3, len(index)))
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, row in enumerate(index):
        groups.setdefault(tuple(column[row] for column in study.columns.values()), []).append(place)
    for key, places in groups.items():
        at: Indices = np.array(places)
        choices = {**study.context, **context, **dict(zip(study.columns, key, strict=True))}
        numbers = {name: values[index[at]] for name, values in study.numbers.items()}
        cost: Cost = device.cost(Rows(OPERATIONS.find(study.op), choices, numbers), intervals=intervals)
        out[:, at] = cost.duration_s, cost.duration_low_s, cost.duration_high_s
    return tuple(out)


HUBER_THRESHOLD = 0.03
"""The log error up to which the loss is quadratic. Above it the loss is linear, which limits the effect of outliers."""

LEAST_GAIN = 0.1
"""The share by which another choice must reduce the loss before it is used."""


def fit(study: Study, index: Indices) -> dict[str, float]:
    """The parameters that minimise the loss over the rows of ``index``.

    Damped Gauss-Newton on the logarithms of the fitted parameters, with reweighted rows, so that an outlier has no more
    effect than in a sum of absolute errors. The first combination of choices is fitted to the end, each other one for a
    few steps, and then the best one to the end.
    """
    device = CATALOGUE.device(study.sku, calibrated=False)
    first = {path: device.number(*path.split(".")) or 1.0 for path in study.fitted}
    best: tuple[float, dict[str, float], dict[str, float]] | None = None
    for combination in itertools.product(*study.choices.values()):
        fixed = {**study.fixed, **dict(zip(study.choices, combination, strict=True))}
        loss, start = _descend(study, index, fixed, first if best is None else best[2], steps=30 if best is None else 4)
        # Another choice is used only if it reduces the loss clearly.
        if best is None or loss < best[0] * (1.0 - LEAST_GAIN):
            best = loss, fixed, start
    assert best is not None
    return {**best[1], **_descend(study, index, best[1], best[2], steps=30)[1]}


def _loss(residuals: Array) -> float:
    """The mean Huber loss of logarithmic errors."""
    size = np.abs(residuals)
    linear = HUBER_THRESHOLD * (size - 0.5 * HUBER_THRESHOLD)
    return float(np.where(size <= HUBER_THRESHOLD, 0.5 * size**2, linear).mean())


def _descend(
    study: Study, index: Indices, fixed: Mapping[str, float], first: Mapping[str, float], *, steps: int
) -> tuple[float, dict[str, float]]:
    paths = list(study.fitted)
    low, high = np.log(np.array([study.fitted[path] for path in paths])).T
    measured = np.log(study.seconds[index])

    def residual(x: Array) -> Array:
        values = {**fixed, **dict(zip(paths, np.exp(x), strict=True))}
        residuals: Array = np.log(costs(study, device_of(study, values), index)[0]) - measured
        return residuals

    x = minimise(residual, np.log(np.array([first[path] for path in paths])), low, high, steps=steps)
    return _loss(residual(x)), dict(zip(paths, np.exp(x).tolist(), strict=True))


def minimise(residual: Callable[[Array], Array], x: Array, low: Array, high: Array, *, steps: int) -> Array:
    """The point between ``low`` and ``high`` with the least loss, by damped Gauss-Newton from ``x``."""
    x = np.clip(x, low, high)
    now = residual(x)
    damping = 1e-3
    for _ in range(steps):
        slopes = np.empty((len(now), len(x)))
        for i in range(len(x)):
            moved = x.copy()
            moved[i] += 0.01 if x[i] + 0.01 < high[i] else -0.01
            slopes[:, i] = (residual(moved) - now) / (moved[i] - x[i])
        weight = np.minimum(1.0, HUBER_THRESHOLD / np.maximum(np.abs(now), 1e-12))
        normal = slopes.T @ (weight[:, None] * slopes)
        better = False
        while not better and damping < 1e4:
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -slopes.T @ (weight * now))
            trial = np.clip(x + np.clip(step, -1.0, 1.0), low, high)
            then = residual(trial)
            better = _loss(then) < _loss(now) - 1e-9
            damping = max(damping / 5.0, 1e-6) if better else damping * 5.0
        if not better:
            break
        x, now = trial, then
    return x


def cross_validate(study: Study, labels: Sequence[str], **context: str) -> tuple[Array, Array, Array]:
    """Estimated time and the ends of its interval (s) of every row, from a fit to the rows with other labels."""
    out = np.empty((3, len(study)))
    names = np.array(labels)
    for label in dict.fromkeys(labels):
        train, test = np.flatnonzero(names != label), np.flatnonzero(names == label)
        out[:, test] = costs(study, device_of(study, fit(study, train)), test, intervals=True, **context)
    return out[0], out[1], out[2]


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def arrays(rows: Sequence[Mapping[str, str]], *names: str) -> dict[str, Array]:
    """Columns as arrays. An empty cell is 1."""
    return {name: np.array([float(row[name] or 1.0) for row in rows]) for name in names}


DEVICE = {"dispatch": "device", "clock": "burst", "cache": "cold"}
EAGER = {"dispatch": "eager", "clock": "burst", "cache": "warm"}


def tpu(folder: Path) -> Study:
    """GEMM on a TPU v6e. Wall-clock times include the dispatch; all calls use the same operands, so these are warm."""
    rows = read(folder / "tpu_gemm.csv")
    n = arrays(rows, "m", "n", "k")
    return Study(
        name="TPU v6e gemm, wall clock",
        sku="tpu-v6e",
        op="gemm",
        context=EAGER,
        numbers={**n, "batch": np.ones(len(rows))},
        columns={"dtype": [row["dtype"] for row in rows]},
        seconds=np.array([float(row["time_us"]) * 1e-6 for row in rows]),
        source="v6e",
        text="yangwhale/gpu-tpu-pedia TPU v6e wall-clock timings, 84 GEMMs, fitted by small_tables.py",
        fitted={
            "round_trip_s.jax": (50e-6, 250e-6),
            "memory_efficiency": (0.5, 1.0),
            "issue_rate.bfloat16": (0.4, 1.0),
            "issue_rate.float32": (0.4, 1.0),
            "issue_rate.int8": (0.4, 1.0),
        },
        fixed={"exposed_fill": 0.0},
        choices={"vmem_panel": (2.0**23, 2.0**22, 2.0**24), "vmem_tile": (1024.0, 512.0, 2048.0)},
        groups={
            "row": [str(i) for i in range(len(rows))],
            "shape (m,n,k)": [f"{r['m']}x{r['n']}x{r['k']}" for r in rows],
            "weight shape (n,k)": [f"{r['n']}x{r['k']}" for r in rows],
        },
    )


def fpga_gemm(folder: Path) -> Study:
    """GEMMs of square matrices on an Alveo U250, kernel time. The source gives clock, lanes, units and ports."""
    rows = [row for row in read(folder / "fpga.csv") if row["op"] == "gemm_fp32"]
    n = arrays(rows, "m", "n", "k")
    return Study(
        name="Alveo U250 gemm, kernel",
        sku="alveo-u250",
        op="gemm",
        context=DEVICE,
        numbers={**n, "batch": np.ones(len(rows))},
        columns={"dtype": ["float32"] * len(rows)},
        seconds=np.array([float(row["kernel_s"]) for row in rows]),
        source="gemm",
        text="Xilinx/Vitis_Libraries blas L2_benchmark_gemm.rst, gemm_4CU, 7 kernel times, fitted by small_tables.py",
        fitted={
            "pipeline_depth.gemm": (100.0, 5000.0),
            "row_cycle_s": (20e-9, 100e-9),
        },
        fixed={"tile": 64.0, "row_bytes": 2048.0},
        groups={"row": [str(i) for i in range(len(rows))]},
    )


def fpga_gemv(folder: Path) -> Study:
    """GEMV on an Alveo U280, kernel time. The source gives clock, lanes and ports."""
    rows = [row for row in read(folder / "fpga.csv") if row["op"] == "gemv_fp32"]
    n = arrays(rows, "m", "n")
    return Study(
        name="Alveo U280 gemv, kernel",
        sku="alveo-u280",
        op="gemm",
        context=DEVICE,
        numbers={"m": n["m"], "n": np.ones(len(rows)), "k": n["n"], "batch": np.ones(len(rows))},
        columns={"dtype": ["float32"] * len(rows)},
        seconds=np.array([float(row["kernel_s"]) for row in rows]),
        source="gemv",
        text="Xilinx/Vitis_Libraries blas L2_benchmark_gemv.rst, 6 kernel times, fitted by small_tables.py",
        fitted={"pipeline_depth.gemv": (100.0, 10000.0), "issue_rate.gemv": (0.3, 1.0)},
        groups={"row": [str(i) for i in range(len(rows))]},
    )


def fpga_launch(folder: Path) -> Study:
    """Launches on an Alveo U250 by commands in flight: the time that this number of commands takes together."""
    rows = read(folder / "fpga_launch.csv")
    count = np.array([float(row["commands_in_flight"]) for row in rows])
    return Study(
        name="Alveo U250 launches, XRT",
        sku="alveo-u250",
        op="launch",
        context={"dispatch": "device", "clock": "burst", "cache": "cold", "mode": "stream"},
        numbers={"count": count},
        columns={},
        seconds=count / np.array([float(row["launches_per_s"]) for row in rows]),
        source="iops",
        text="Xilinx/Vitis_Accel_Examples iops_test_xrt, 15 counts of commands in flight, fitted by small_tables.py",
        fitted={
            "round_trip_s.xrt": (10e-6, 500e-6),
            "dispatch_s.xrt": (0.5e-6, 50e-6),
            "settled_share": (0.5, 1.0),
            "settling_commands": (100.0, 1e6),
        },
        groups={"row": [str(i) for i in range(len(rows))]},
    )


STUDIES: tuple[Callable[[Path], Study], ...] = (tpu, fpga_gemm, fpga_gemv, fpga_launch)


def work(study: Study) -> tuple[Array, Array]:
    """The shortest compute time and memory time (s) of GEMMs by the datasheet, or NaN for other operations."""
    device = CATALOGUE.device(study.sku, calibrated=False)

    def number(name: str, key: str | None = None) -> float:
        return device.number(name, key) or float("nan")

    n = study.numbers
    macs = n["m"] * n["n"] * n["k"]
    moved = np.empty(len(study))
    peak = np.empty(len(study))
    for i, dtype in enumerate(study.columns["dtype"]):
        moved[i] = Gemm.operand_bytes({"dtype": dtype}, {name: values[i : i + 1] for name, values in n.items()})[0]
        if device.kind.name == "tpu":
            peak[i] = np.prod([number(name) for name in ("arrays", "array_rows", "array_columns", "clock_hz")])
            peak[i] /= number("passes", dtype)
        else:
            design, lanes = ("gemv", "gemv") if n["n"][i] == 1 else ("gemm", f"gemm_{dtype}")
            peak[i] = number("lanes", lanes) * number("clock_hz", design)
    if device.kind.name == "tpu":
        return macs / peak, moved / number("memory_bytes_s")
    return macs / peak, moved / (number("memory_banks") * number("bank_bytes_s"))


def constants(study: Study) -> Array:
    """A baseline (s): a fixed time, an efficiency for compute and one for memory (for launches, a time per launch).

    They are fitted by least squares of the logarithm, with each row left out in turn.
    """
    compute, memory = (study.numbers["count"] * 1e-6, np.zeros(len(study))) if study.op == "launch" else work(study)
    out = np.empty(len(study))

    def model(x: Array) -> Array:
        t0, a, b = np.exp(x)
        estimated: Array = t0 + np.maximum(compute * a, memory * b)
        return estimated

    for row in range(len(study)):
        train = np.flatnonzero(np.arange(len(study)) != row)
        measured = np.log(study.seconds[train])
        start = np.log(np.array([study.seconds.min(), 1.2, 1.2]))
        wide = np.full(3, 12.0)
        x = minimise(lambda x: np.log(model(x)[train]) - measured, start, start - wide, start + wide, steps=60)  # noqa: B023
        out[row] = model(x)[row]
    return out


def line(name: str, seconds: Array, estimated: Array, low: Array | None = None, high: Array | None = None) -> str:
    """A row of a table: errors and the median signed error in percent, and the interval coverage if there is one."""
    error = estimated / seconds - 1.0
    size = np.abs(error) * 100.0
    cells = [f"{len(seconds)}", f"{size.mean():.1f}", f"{np.median(size):.1f}", f"{np.quantile(size, 0.9):.1f}"]
    cells.append(f"{100.0 * np.median(error):+.1f}")
    if low is not None and high is not None:
        covered, half = (seconds >= low) & (seconds <= high), (high - low) / 2.0 / estimated
        cells += [f"{100.0 * covered.mean():.0f}", f"{100.0 * np.median(half):.0f}"]
    else:
        cells += ["–", "–"]
    return f"| {name} | " + " | ".join(cells) + " |"


HEAD = """| left out of the fit | rows | MAPE | median | p90 | signed median | coverage | half-width |
|---|--:|--:|--:|--:|--:|--:|--:|"""


@dataclass
class Outcome:
    """The table of a study, its cross-validated estimates by group, and the parameters fitted to all rows."""

    study: Study
    lines: list[str]
    estimates: dict[str, tuple[Array, Array, Array]]
    values: dict[str, float]


def evaluate(study: Study) -> Outcome:
    """Evaluate a study: cross-validation by each group, the SKU without a calibration, and the baselines."""
    all_rows = np.arange(len(study))
    estimates = {name: cross_validate(study, labels) for name, labels in study.groups.items()}
    lines = [HEAD]
    lines += [line(f"one {name}", study.seconds, *estimate) for name, estimate in estimates.items()]
    if study.context["dispatch"] == "eager":
        cold = cross_validate(study, study.groups["weight shape (n,k)"], cache="cold")
        lines.append(line("one weight shape (n,k), estimated with `cache=cold`", study.seconds, *cold))
    uncalibrated = costs(study, CATALOGUE.device(study.sku, calibrated=False), all_rows, intervals=True)
    lines.append(line("the SKU (`--calibration none`)", study.seconds, *uncalibrated))
    lines.append(line("baseline constants, one row", study.seconds, constants(study)))
    if study.op != "launch":
        lines.append(line("baseline datasheet roofline", study.seconds, np.maximum(*work(study))))
        floor = 120e-6 if study.context["dispatch"] == "eager" else 0.0
        if floor:
            lines.append(line("baseline roofline + 120 us", study.seconds, floor + np.maximum(*work(study))))
    return Outcome(study, lines, estimates, fit(study, all_rows))


def api_calls(folder: Path) -> list[str]:
    """The measured API times of the FPGA table, and the model's estimates of a call without and with its copies."""
    rows = read(folder / "fpga.csv")
    lines = [
        "| SKU | op | size | measured call (ms) | kernel and round trip (ms) | with copies (ms) | difference (ms) |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        device = CATALOGUE.device(row["sku"])
        m, n = float(row["m"]), float(row["n"])
        shape = (m, n, float(row["k"])) if row["k"] else (m, 1.0, n)
        (a, b, c) = (4.0 * shape[0] * shape[2], 4.0 * shape[2] * shape[1], 4.0 * shape[0] * shape[1])

        def duration_s(op: str, numbers: Mapping[str, float], device: Device = device, **choices: str) -> float:
            operation = Rows(OPERATIONS.find(op), {**DEVICE, **choices}, {k: np.array([v]) for k, v in numbers.items()})
            return float(device.cost(operation, intervals=False).duration_s[0])

        sizes = dict(zip(("m", "n", "k", "batch"), (*shape, 1.0), strict=True))
        called = duration_s("gemm", sizes, dtype="float32", dispatch="eager")
        copies = sum(duration_s("copy", {"bytes": size}, direction="h2d", memory="pinned") for size in (a, b))
        copies += duration_s("copy", {"bytes": c}, direction="d2h", memory="pinned")
        lines.append(
            f"| {row['sku']} | {row['op']} | {m:.0f} | {float(row['api_s']) * 1e3:.2f} | {called * 1e3:.2f} "
            f"| {(called + copies) * 1e3:.2f} | {(float(row['api_s']) - called) * 1e3:.2f} |"
        )
    return lines


def rates() -> list[str]:
    """Every figure of the catalogue's facts on QAT and DPU, the model's estimate, and whether it was an input."""

    def rate(sku: str, op: str, work: float, **values: object) -> float:
        return work / float(CATALOGUE.device(sku).cost(one_row(OPERATIONS.find(op), values)).duration_s[0])

    gbit = 8e-9
    figures: list[tuple[str, str, float, float, str]] = [
        ("qat-8970", "RSA-2048, one at a time (/s)", 2310.0, rate("qat-8970", "sign", 1, scheme="rsa2048"), "input"),
        (
            "qat-8970",
            "RSA-2048, 72 in flight (/s)",
            65901.0,
            rate("qat-8970", "sign", 1, scheme="rsa2048", in_flight=72),
            "input",
        ),
        (
            "qat-8970",
            "RSA-2048, openssl speed on a C6xx (/s)",
            110000.0,
            rate("qat-8970", "sign", 1, scheme="rsa2048", in_flight=648),
            "not an input",
        ),
        (
            "qat-8950",
            "RSA-2048 (/s)",
            40000.0,
            rate("qat-8950", "sign", 1, scheme="rsa2048", in_flight=648),
            "input",
        ),
        (
            "qat-8950",
            "bulk crypto (Gbit/s)",
            50.0,
            gbit * rate("qat-8950", "aes", 65536, bytes=65536, in_flight=128),
            "input",
        ),
        (
            "qat-8950",
            "compression (Gbit/s)",
            24.0,
            gbit * rate("qat-8950", "compress", 65536, bytes=65536, in_flight=128),
            "input",
        ),
        (
            "qat-4xxx",
            "deflate, qzip (Gbit/s)",
            30.3,
            gbit * rate("qat-4xxx", "compress", 65536, bytes=65536, in_flight=128),
            "input",
        ),
        (
            "bluefield-2",
            "DEFLATE of 86 MB (s)",
            0.126,
            1.0 / rate("bluefield-2", "compress", 1, bytes=86_000_000),
            "input",
        ),
        (
            "bluefield-3",
            "RDMA write of 64 KB into a GPU, median (us)",
            34.0,
            1e6 / rate("bluefield-3", "rdma", 1, bytes=65536, count=1),
            "not an input: it includes the host and a GPU, which `rdma` excludes",
        ),
    ]
    lines = ["| SKU | figure | catalogue | estimated | use in the model |", "|---|---|--:|--:|---|"]
    lines += [f"| {sku} | {what} | {fact:g} | {model:.4g} | {note} |" for sku, what, fact, model, note in figures]
    return lines


def transferred() -> list[str]:
    """The RSA-2048 rate of one process as a share of the engines' rate: that of each card from that of the other card.

    These are the only figures of QAT that can be left out.
    """
    share = {}
    for sku in ("qat-8950", "qat-8970"):
        device = CATALOGUE.device(sku)
        pair, engines = device.number("queue_pair_sign_rate", "rsa2048"), device.number("sign_rate", "rsa2048")
        share[sku] = ((pair or 0.0), (engines or 1.0))
    lines = ["| card | measured (/s) | estimated from the other card (/s) | error |", "|---|--:|--:|--:|"]
    for sku, other in (("qat-8950", "qat-8970"), ("qat-8970", "qat-8950")):
        model = share[sku][1] * share[other][0] / share[other][1]
        lines.append(f"| {sku} | {share[sku][0]:.0f} | {model:.0f} | {100.0 * (model / share[sku][0] - 1.0):+.0f}% |")
    return lines


def row_by_row(outcomes: Sequence[Outcome]) -> list[str]:
    """Every measured kernel time, and its estimate from a fit to the other rows."""
    lines = ["| SKU | kernel | size | measured (us) | estimated (us) | error |", "|---|---|--:|--:|--:|--:|"]
    for outcome in outcomes:
        study, estimated = outcome.study, outcome.estimates["row"][0]
        for i, measured in enumerate(study.seconds):
            kernel = "gemv" if study.numbers["n"][i] == 1 else "gemm"
            size = f"{study.numbers['m'][i]:.0f} x {study.numbers['k'][i]:.0f}"
            times = f"{measured * 1e6:.1f} | {estimated[i] * 1e6:.1f} | {100.0 * (estimated[i] / measured - 1.0):+.1f}%"
            lines.append(f"| {study.sku} | {kernel} | {size} | {times} |")
    return lines


def write_overlay(outcome: Outcome) -> None:
    """Write the parameters fitted to all rows, and the results of the cross-validation, into the SKU's overlay."""
    study = outcome.study
    split = list(study.groups)[-1]
    estimated, low, high = outcome.estimates[split]
    values = {p: float(f"{v:.4g}") if p in study.fitted else v for p, v in outcome.values.items()}
    fit = Fit(
        study.op,
        len(study),
        float(np.abs(estimated / study.seconds - 1.0).mean()),
        float(((study.seconds >= low) & (study.seconds <= high)).mean()),
        float(np.median((high - low) / 2.0 / estimated)),
        f"one {split} left out",
        f"benchmarks/accuracy/small_tables.py, {DATE}",
    )
    device = CATALOGUE.device(study.sku, calibrated=False)
    update_overlay(CALIBRATION / f"{study.sku}.yaml", device, study.source, study.text, values, fit=fit)


def main() -> None:
    """Print the tables; with ``--write`` write the overlays and the published table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("truth", type=Path, help="folder of tpu_gemm.csv, fpga.csv and fpga_launch.csv")
    parser.add_argument("--write", action="store_true", help="write the overlays and the published table")
    options = parser.parse_args()
    outcomes = [evaluate(make(options.truth)) for make in STUDIES]
    text = ["# TPU, FPGA, QAT and DPU: small tables of measurements", ""]
    text += [
        "Generated by `benchmarks/accuracy/small_tables.py`. `benchmarks/accuracy/NOTES-small-tables.md` discusses the",
        "results. Errors are in percent, on rows that were left out of the fit.",
        "",
        "- `left out of the fit`: the group of rows that each fold leaves out, or a baseline.",
        "- `MAPE`, `median`, `p90`: mean, median and 90th percentile of the absolute percentage error.",
        "  `signed median`: median of the signed percentage error.",
        "- `coverage`: interval coverage of the 90% interval, in percent. `half-width`: its median half-width in",
        "  percent of the estimate. –: a baseline has no interval.",
        "",
    ]
    for outcome in outcomes:
        text += [f"## {outcome.study.name}", "", *outcome.lines, ""]
    kernels = [outcomes[i] for i in (1, 2)]
    seconds = np.concatenate([o.study.seconds for o in kernels])
    estimated, low, high = (np.concatenate([o.estimates["row"][i] for o in kernels]) for i in range(3))
    text += ["## FPGA kernels, gemm and gemv", "", HEAD, line("one row", seconds, estimated, low, high)]
    # The bytes of an open row of memory are fixed above. Here, each fold chooses them from the rows of its fit.
    gemm = kernels[0].study
    chosen = replace(gemm, fixed={"tile": 64.0}, choices={"row_bytes": (2048.0, 1024.0, 4096.0)})
    per_fold = cross_validate(chosen, gemm.groups["row"])
    both = [np.concatenate([per_fold[i], kernels[1].estimates["row"][i]]) for i in range(3)]
    text += [line("one row, `row_bytes` chosen in each fold", seconds, *both), ""]
    text += ["### Single rows", "", "Each row is estimated from a fit to the other rows.", "", *row_by_row(kernels)]
    text += ["", "## FPGA, API call", ""]
    text += [
        "The measured time of a call of the BLAS library, and the model's estimates without and with the copies of the",
        "operands. `difference`: the measured call minus kernel and round trip.",
        "",
        *api_calls(options.truth),
        "",
    ]
    text += ["## QAT and DPU: figures of the catalogue", "", *rates(), ""]
    text += [
        "The RSA-2048 rate of one process, estimated from the other card: the engines' rate, multiplied by the other",
        "card's ratio of the two rates.",
        "",
        *transferred(),
        "",
    ]
    print("\n".join(text))
    for outcome in outcomes:
        print(outcome.study.name, {path: float(f"{value:.4g}") for path, value in outcome.values.items()})
    if options.write:
        PUBLISHED.parent.mkdir(parents=True, exist_ok=True)
        PUBLISHED.write_text("\n".join(text))
        for outcome in outcomes:
            write_overlay(outcome)


if __name__ == "__main__":
    main()
