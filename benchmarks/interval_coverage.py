"""Interval coverage of the engine's 95% confidence intervals: 400 runs of each system, compared with closed forms.

    python benchmarks/interval_coverage.py [--runs 400] [--workers 2] [--out DIR] [--only PART ...]

Fast simulators of the systems (Lindley's recursion, that of Kiefer and Wolfowitz for many servers, autoregressions)
start empty and pass their values to the functions that `windtunnel run` uses. Parts: coverage, methods, bins, warmup,
growth, stopping; waves and serving are in wave_coverage.py. With --only the other parts of OUT/coverage.md stay.
"""

from __future__ import annotations

import argparse
import heapq
import math
import sys
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from itertools import pairwise
from multiprocessing import Pool
from pathlib import Path

import numba
import numpy as np
from scipy.special import log_ndtr, stdtrit
from scipy.stats import norm

from windtunnel.engine.results import sketch, steady
from windtunnel.engine.results.sample import BatchedSample, Histograms
from windtunnel.engine.results.statistics import STATISTICS, estimates, jobs_needed, widen_to_waiting

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.wave_coverage import looks_part, serving_part, waves_part
from tests.theory.queueing import MMc, mg1_mean_wait_s

CV = 2.0
SIGMA2 = math.log(1 + CV**2)


@numba.njit(cache=True)
def lindley(gaps, services):
    waits = np.empty(len(gaps))
    wait = 0.0
    for i in range(len(gaps)):
        waits[i] = wait
        if i + 1 < len(gaps):
            wait = max(wait + services[i] - gaps[i + 1], 0.0)
    return waits


@numba.njit(cache=True)
def many_servers(gaps, services, servers):
    waits = np.empty(len(gaps))
    free = [0.0] * servers
    now = 0.0
    for i in range(len(gaps)):
        now += gaps[i]
        start = max(free[0], now)
        waits[i] = start - now
        heapq.heapreplace(free, start + services[i])
    return waits


@numba.njit(cache=True)
def autoregression(noise, weight):
    values = np.empty(len(noise))
    value = noise[0]
    rest = math.sqrt(1 - weight * weight)
    for i in range(len(noise)):
        values[i] = value
        if i + 1 < len(noise):
            value = weight * value + rest * noise[i + 1]
    return values


def run(model: str, load: float, jobs: int, seed: int) -> np.ndarray:
    """The values of one run in order: queueing delays, or latencies with `sojourn`. Service times have mean 1."""
    return run_with_waits(model, load, jobs, seed)[0]


def run_with_waits(model: str, load: float, jobs: int, seed: int) -> tuple[np.ndarray, np.ndarray | None]:
    """The same, and the queueing delays if the values are latencies."""
    rng = np.random.default_rng([seed, zlib.crc32(f"{model} {load}".encode())])
    if model == "AR(1)":
        return 10 + autoregression(rng.standard_normal(jobs), load), None
    servers = 64 if "64" in model else 1
    gaps = rng.exponential(1 / (load * servers), jobs)
    if "M/G/1" in model:
        services = np.exp(rng.standard_normal(jobs) * math.sqrt(SIGMA2) - SIGMA2 / 2)
    else:
        services = rng.exponential(1.0, jobs)
    waits = lindley(gaps, services) if servers == 1 else many_servers(gaps, services, servers)
    return (waits + services, waits) if "sojourn" in model else (waits, None)


@cache
def truth(model: str, load: float) -> dict[str, float]:
    """The true mean and percentiles in the steady state."""
    quantiles = {name: p for name, p in STATISTICS.items() if p is not None}
    if model == "AR(1)":
        return {"mean": 10.0} | {name: 10 + float(norm.ppf(p)) for name, p in quantiles.items()}
    if "M/G/1" in model:
        return _mg1(load, "sojourn" in model, quantiles)
    servers = 64 if "64" in model else 1
    queue = MMc(load * servers, 1.0, servers)
    if "sojourn" in model:
        return {"mean": queue.mean_sojourn_s()} | {name: queue.sojourn_s(p) for name, p in quantiles.items()}
    return {"mean": queue.mean_wait_s()} | {name: queue.wait_s(p) for name, p in quantiles.items()}


def _mg1(load: float, sojourn: bool, quantiles: dict[str, float]) -> dict[str, float]:
    """The geometric sum of residual services of Pollaczek and Khinchine, by an FFT that is damped against aliasing."""
    step, size = 0.002, 2**22
    edge = np.maximum((np.arange(size + 1) - 0.5) * step, 1e-300)
    normal = (np.log(edge) + SIGMA2 / 2) / math.sqrt(SIGMA2)
    beyond = np.exp(log_ndtr(-normal))
    residual = np.exp(log_ndtr(normal - math.sqrt(SIGMA2))) + edge * beyond
    residual[0], beyond[0] = 0.0, 1.0
    damp = np.exp(-np.arange(size) * (20.0 / size))
    wait = (1 - load) / (1 - load * np.fft.rfft(np.diff(residual) * damp))
    if sojourn:
        wait = wait * np.fft.rfft(-np.diff(beyond) * damp)
    within = np.cumsum(np.fft.irfft(wait, size) / damp)
    mean = mg1_mean_wait_s(load, 1.0, CV) + (1.0 if sojourn else 0.0)
    return {"mean": mean} | {name: float(np.searchsorted(within, p)) * step for name, p in quantiles.items()}


# Coverage.


def kept(values: np.ndarray) -> BatchedSample:
    sample = BatchedSample.from_values(values)
    return sample.without(steady.warm_up(sample).batches)


Interval = tuple[float, float] | None


def ours(values: np.ndarray, waits: np.ndarray | None, model: str, load: float) -> dict[str, Interval]:
    """The method of `windtunnel run`: a common warm-up; the correlation of delays bounds that of latencies."""
    sample = BatchedSample.from_values(values)
    cut = steady.warm_up(sample)
    of_waits = sample if waits is None else BatchedSample.from_values(waits)
    grows = steady.assess_steady_state(of_waits).verdict == "unstable"
    within = steady.UNBOUNDED
    if waits is not None:
        batches = max(cut.batches, steady.warm_up(of_waits).batches)
        of_waits = of_waits.without(batches)
        within = steady.correlation_of(of_waits)
        sample = sample.without(batches)
    else:
        sample = sample.without(cut.batches)
    scv = CV**2 if "M/G/1" in model else 1.0
    short = model != "AR(1)" and len(values) < steady.jobs_to_steady_state(load, scv)
    intervals = estimates(sample, within=within, reason="unstable" if grows else "too short" if short else None)
    if waits is not None:
        intervals = widen_to_waiting(intervals, estimates(of_waits))
    return {name: None if e.low is None or e.high is None else (e.low, e.high) for name, e in intervals.items()}


def through_bins(values: np.ndarray) -> dict[str, Interval]:
    """The same method with 2,048 batch sums and 64 histograms."""
    edges = np.arange(2049) * len(values) // 2048
    sums = np.add.reduceat(values, edges[:-1])
    section_edges = np.arange(65) * 32
    bins = np.zeros(len(values), dtype=np.int64)
    positive = values > 0
    bins[positive] = sketch.bins_of(values[positive])
    lowest = int(bins[positive].min())
    width = int(bins[positive].max()) - lowest + 1
    counts, zeros = [], []
    for i, j in pairwise(edges[section_edges]):
        part = bins[i:j][positive[i:j]]
        counts.append(np.bincount(part - lowest, minlength=width))
        zeros.append((j - i) - len(part))
    sample = BatchedSample.from_batches(
        np.diff(edges), sums, Histograms(np.array(counts), np.array(zeros), section_edges, lowest)
    )
    intervals = estimates(sample.without(steady.warm_up(sample).batches))
    return {name: None if e.low is None or e.high is None else (e.low, e.high) for name, e in intervals.items()}


def sectioning(values: np.ndarray, batches: int = 20, cut: int | None = None) -> dict[str, Interval]:
    """The previous method of Windtunnel: twenty sections and Student's t (Asmussen and Glynn, 2007)."""
    values = values[cut:] if cut is not None else values
    sections = np.array_split(values, batches)
    intervals: dict[str, Interval] = {}
    for name, p in STATISTICS.items():
        point: Callable[[np.ndarray], float] = np.mean if p is None else partial(np.quantile, q=p)
        whole = point(values)
        error = math.sqrt(sum((point(part) - whole) ** 2 for part in sections) / (batches - 1) / batches)
        half = float(stdtrit(batches - 1, 0.975)) * error
        intervals[name] = (max(whole - half, 0.0), whole + half)
    return intervals


def sectioning_after_mser5(values: np.ndarray) -> dict[str, Interval]:
    return sectioning(values, cut=mser5(values))


def order_statistics(values: np.ndarray) -> dict[str, Interval]:
    """Intervals for independent observations."""
    ordered, count = np.sort(values), len(values)
    intervals: dict[str, Interval] = {}
    for name, p in STATISTICS.items():
        if p is None:
            half = 1.96 * float(values.std()) / math.sqrt(count)
            intervals[name] = (float(values.mean()) - half, float(values.mean()) + half)
        else:
            half = 1.96 * math.sqrt(count * p * (1 - p))
            low, high = (min(max(int(count * p + s * half), 0), count - 1) for s in (-1, 1))
            intervals[name] = (float(ordered[low]), float(ordered[high]))
    return intervals


def _batch_means(residuals: np.ndarray) -> float:
    return steady._batch_means_error(residuals)[0]


def symmetric(values: np.ndarray, *, by: str) -> dict[str, Interval]:
    """A symmetric interval of two standard errors from one estimator, without a correction for skewness."""
    sample = kept(values)
    intervals: dict[str, Interval] = {}
    for name, p in STATISTICS.items():
        if p is None:
            residuals = (sample.sums - sample.mean * sample.counts) / sample.observations
            value, slope = sample.mean, 1.0
        else:
            value = sample.ordered.quantile(p)
            counts, above = sample.above(value)
            residuals = (above - above.sum() / counts.sum() * counts) / counts.sum()
            h = min(0.2, (1 - p) / 2)
            slope = (sample.ordered.exceeded_by(1 - p - h) - sample.ordered.exceeded_by(1 - p + h)) / (2 * h)
        if not residuals.any():
            intervals[name] = (value, value)
            continue
        estimator = steady.autoregressive_error if by == "autoregression" else _batch_means
        half = 2.0 * estimator(residuals) * slope
        intervals[name] = (value - half, value + half)
    return intervals


METHODS: dict[str, Callable[[np.ndarray], dict[str, Interval]]] = {
    "sums and histograms": through_bins,
    "sectioning, 20 (previous method)": sectioning,
    "sectioning, 20, after MSER-5": sectioning_after_mser5,
    "autoregression, symmetric": partial(symmetric, by="autoregression"),
    "batch means, symmetric": partial(symmetric, by="batch means"),
    "independent observations assumed": order_statistics,
}

Cell = tuple[str, float, int]


def cover(task: tuple[str, Cell, int]) -> tuple[dict[str, int], dict[str, int], dict[str, float]]:
    """(intervals that contain the true value, intervals given, mean half-width over the true value), by statistic."""
    method, (model, load, jobs), runs = task
    right = truth(model, load)
    held, given = dict.fromkeys(right, 0), dict.fromkeys(right, 0)
    widths: dict[str, list[float]] = {name: [] for name in right}
    for seed in range(runs):
        values, waits = run_with_waits(model, load, jobs, seed)
        intervals = ours(values, waits, model, load) if method == "used" else METHODS[method](values)
        for name, interval in intervals.items():
            if interval is not None:
                given[name] += 1
                # The tolerance is for a percentile that is exactly zero.
                held[name] += interval[0] <= right[name] + 1e-12 and right[name] - 1e-12 <= interval[1]
                if right[name] > 0:
                    widths[name].append((interval[1] - interval[0]) / 2 / right[name])
    return held, given, {name: float(np.mean(w)) if w else math.nan for name, w in widths.items()}


SYSTEMS: dict[str, Sequence[float]] = {
    "M/M/1 wait": (0.3, 0.5, 0.8, 0.9, 0.95),
    "M/M/1 sojourn": (0.5, 0.9),
    "M/M/64 wait": (0.8, 0.9, 0.95),
    "M/M/64 sojourn": (0.8, 0.9, 0.95),
    "M/G/1 wait": (0.3, 0.5, 0.8, 0.9),
    "M/G/1 sojourn": (0.5, 0.8),
    "AR(1)": (0.9, 0.99),
}
LENGTHS = (3_000, 10_000, 100_000)
LONG = (("M/M/1 wait", 0.9), ("M/M/64 wait", 0.9))
MILLION = 1_000_000
COMPARED: Sequence[Cell] = (
    ("M/M/1 wait", 0.5, 10_000),
    ("M/M/1 wait", 0.9, 10_000),
    ("M/M/1 wait", 0.9, 100_000),
    ("M/M/64 wait", 0.9, 100_000),
    ("M/G/1 sojourn", 0.8, 30_000),
    ("AR(1)", 0.99, 10_000),
)


def cell_line(first: str, runs: int, counts: tuple[dict[str, int], dict[str, int], dict[str, float]]) -> str:
    held, given, width = counts
    cells = []
    for name in STATISTICS:
        if not given[name]:
            cells.append("no interval")
            continue
        declined = runs - given[name]
        text = f"{100 * held[name] / given[name]:.1f}"
        text += f", ±{100 * width[name]:.1f}%" if not math.isnan(width[name]) else ", truth 0"
        cells.append(text + (f", {100 * declined / runs:.0f}% none" if declined else ""))
    return f"{first} | " + " | ".join(cells) + " |"


HEADER = "| " + " | ".join(STATISTICS) + " |\n"


def coverage_part(pool: Pool, runs: int) -> Iterable[str]:
    cells: list[Cell] = [(m, load, n) for m, loads in SYSTEMS.items() for load in loads for n in LENGTHS]
    cells += [(model, load, MILLION) for model, load in LONG]
    cells.sort(key=lambda c: (list(SYSTEMS).index(c[0]), c[1], c[2]))
    order = sorted(range(len(cells)), key=lambda i: -cells[i][2])
    done = dict(zip(order, pool.map(cover, [("used", cells[i], runs) for i in order], chunksize=1), strict=True))
    yield "## Coverage\n"
    yield (
        f"Each cell summarises {runs} runs with different seeds: the coverage in percent of the intervals that the "
        "method gave, their mean half-width relative to the true value, and the share of runs without an interval "
        "(`none`). For a true value of 0 there is no relative half-width (`truth 0`). The parameter of AR(1) in the "
        "column `load` is its lag-1 correlation; its mean is 10 and its standard deviation 1.\n"
    )
    yield "| system | load | jobs " + HEADER + "|---|---|---|" + "---|" * 4
    good = low = many = missing = 0
    for i, (model, load, jobs) in enumerate(cells):
        yield cell_line(f"| {model} | {load:g} | {jobs:,}", runs, done[i])
        held, given, _ = done[i]
        for name in held:
            if given[name] < runs / 2 or truth(model, load)[name] == 0:
                missing += truth(model, load)[name] > 0
                continue
            many += 1
            good += 0.91 <= held[name] / given[name] <= 0.98
            low += held[name] / given[name] < 0.91
    yield (
        f"\n{many} cells have an interval in at least half of the runs and a true value above 0. Of these, {good} "
        f"have a coverage of 91 to 98%, {low} a lower and {many - good - low} a higher one. {missing} further cells "
        "have no interval in most runs. The standard error of a coverage of 95% is about 1.1 percentage points.\n"
    )


def methods_part(pool: Pool, runs: int) -> Iterable[str]:
    names = ["used", *(name for name in METHODS if name != "sums and histograms")]
    tasks = [(name, cell, runs) for cell in COMPARED for name in names]
    counts = pool.map(cover, tasks, chunksize=1)
    yield "## Methods compared\n"
    yield "| system | load | jobs | method " + HEADER + "|---|---|---|---|" + "---|" * 4
    for (name, (model, load, jobs), _), counted in zip(tasks, counts, strict=True):
        yield cell_line(f"| {model} | {load:g} | {jobs:,} | {name}", runs, counted)
    yield ""


def bins_part(pool: Pool, runs: int) -> Iterable[str]:
    cells: Sequence[Cell] = (
        ("M/M/1 wait", 0.5, 100_000),
        ("M/M/1 wait", 0.9, 100_000),
        ("M/M/64 wait", 0.9, 300_000),
        ("M/G/1 sojourn", 0.8, 100_000),
    )
    tasks = [(name, cell, runs) for cell in cells for name in ("used", "sums and histograms")]
    counts = pool.map(cover, tasks, chunksize=1)
    yield "## From sums and histograms\n"
    yield (
        "Very long runs keep 2,048 batch sums and 64 histograms. The table compares them with the same runs when "
        "every value is kept.\n"
    )
    yield "| system | load | jobs | computed from " + HEADER + "|---|---|---|---|" + "---|" * 4
    for (name, (model, load, jobs), _), counted in zip(tasks, counts, strict=True):
        kind = "values" if name == "used" else name
        yield cell_line(f"| {model} | {load:g} | {jobs:,} | {kind}", runs, counted)
    yield ""


# Warm-up.


def mser5(values: np.ndarray) -> int:
    """Number of jobs that MSER-5 (White, Cobb, Spratt, 2000) excludes; 0 if its minimum is in the second half."""
    means = values[: len(values) // 5 * 5].reshape(-1, 5).mean(axis=1)
    left = np.arange(len(means), 0, -1)
    tail = np.cumsum(means[::-1])[::-1] / left
    squares = np.cumsum((means**2)[::-1])[::-1] / left
    cut = int(np.argmin(((squares - tail**2) / left)[:-5]))
    return cut * 5 if cut <= len(means) // 2 else 0


def ours_cut(values: np.ndarray) -> int:
    return steady.warm_up(BatchedSample.from_values(values)).jobs


def started(model: str, load: float, jobs: int, seed: int, shift: float, length: int) -> np.ndarray:
    """A run with an added transient: ``shift`` times its mean, decaying over ``length`` jobs."""
    values = run(model, load, jobs, seed)
    return values + shift * truth(model, load)["mean"] * np.exp(-np.arange(jobs) / length) if shift else values


def warm(task: tuple[str, float, int, float, int, int]) -> list[tuple[float, float, float, float]]:
    """For no warm-up, MSER-5 and the method of Windtunnel: (relative bias of the mean, rms error, mean and p90 cut)."""
    model, load, jobs, shift, length, runs = task
    right = truth(model, load)["mean"]
    rows = []
    for cut in (lambda v: 0, mser5, ours_cut):
        means, cuts = [], []
        for seed in range(runs):
            values = started(model, load, jobs, seed, shift, length)
            cuts.append(cut(values))
            means.append(float(values[cuts[-1] :].mean()) / right - 1)
        rows.append(
            (
                float(np.mean(means)),
                float(np.sqrt(np.mean(np.square(means)))),
                float(np.mean(cuts)) / jobs,
                float(np.quantile(cuts, 0.9)) / jobs,
            )
        )
    return rows


def warmup_part(pool: Pool, runs: int) -> Iterable[str]:
    tasks = [
        (model, load, jobs, shift, length, runs)
        for model, load, jobs, shift, length in (
            ("M/M/1 wait", 0.5, 10_000, 0.0, 1),
            ("M/M/1 wait", 0.9, 10_000, 0.0, 1),
            ("M/M/1 wait", 0.9, 100_000, 0.0, 1),
            ("M/M/1 wait", 0.95, 30_000, 0.0, 1),
            ("M/M/64 wait", 0.9, 30_000, 0.0, 1),
            ("AR(1)", 0.9, 10_000, 0.0, 1),
            ("AR(1)", 0.9, 10_000, 0.5, 500),
            ("M/M/1 sojourn", 0.5, 10_000, 5.0, 500),
            ("M/M/1 wait", 0.8, 30_000, 10.0, 1500),
            ("M/M/1 wait", 0.8, 30_000, 10.0, 6000),
        )
    ]
    yield "## Warm-up\n"
    yield (
        "Each cell has the bias and the root mean square error (`rms`) of the mean relative to the true value, and "
        "the share of jobs excluded as warm-up (mean, and 90th percentile in parentheses). `used` is the method of "
        "Windtunnel. All runs start with an empty system. The last four rows also have a transient: a multiple of "
        "the mean that decays exponentially with the given number of jobs.\n"
    )
    yield "| system | load | jobs | transient | none | MSER-5 | used |\n|---|---|---|---|---|---|---|"
    for (model, load, jobs, shift, length, _), rows in zip(tasks, pool.map(warm, tasks, chunksize=1), strict=True):
        cells = [
            f"{100 * b:+.1f}%, rms {100 * e:.1f}%" + (f", cut {100 * c:.1f}% ({100 * p:.1f}%)" if c else "")
            for b, e, c, p in rows
        ]
        transient = f"{shift:g} × over {length:,}" if shift else "empty start"
        yield f"| {model} | {load:g} | {jobs:,} | {transient} | " + " | ".join(cells) + " |"
    yield ""


# Growth.


def grow(task: tuple[str, float, int, int]) -> tuple[float, float]:
    model, load, jobs, runs = task
    states = [
        steady.assess_steady_state(BatchedSample.from_values(run(model, load, jobs, s))).verdict for s in range(runs)
    ]
    return states.count("unstable") / runs, states.count("not shown") / runs


def growth_part(pool: Pool, runs: int) -> Iterable[str]:
    loads, lengths = (0.5, 0.8, 0.9, 0.95, 1.0, 1.02, 1.1), (3_000, 10_000, 100_000)
    models = ("M/M/1 wait", "M/M/64 wait", "M/G/1 wait")
    tasks = [(model, load, jobs, runs) for model in models for jobs in lengths for load in loads]
    shares = dict(zip(tasks, pool.map(grow, tasks, chunksize=1), strict=True))
    yield "## Detection of unstable runs\n"
    yield (
        "Each cell has the percentage of runs reported as unstable (false alarms at a load below 1), and after the "
        "slash the percentage of runs without evidence of a steady state (`not shown`).\n"
    )
    yield "| system | jobs | " + " | ".join(f"load {load:g}" for load in loads) + " |\n|---|---|" + "---|" * len(loads)
    for model in models:
        for jobs in lengths:
            cells = [shares[model, load, jobs, runs] for load in loads]
            yield f"| {model} | {jobs:,} | " + " | ".join(f"{100 * g:.1f} / {100 * n:.0f}" for g, n in cells) + " |"
    yield ""


# Stopping.

_MOST_JOBS = 2_000_000


def stop(task: tuple[str, float, float, int]) -> tuple[float, float, float, float, int]:
    """(coverage, relative bias, mean jobs, mean attempts, runs above the limit) of runs that stop at a precision."""
    model, load, error, runs = task
    right = truth(model, load)["mean"]
    held, values, jobs_used, attempts, ceiling = 0, [], [], 0, 0
    for seed in range(runs):
        jobs, reached = 5_000, None
        while reached is None:
            attempts += 1
            seen, waits = run_with_waits(model, load, jobs, seed)
            within = steady.UNBOUNDED if waits is None else steady.correlation_of(kept(waits))
            estimate = estimates(kept(seen), within=within)["mean"]
            needed = jobs_needed(estimate, error, jobs)
            if needed <= jobs or needed > _MOST_JOBS:
                ceiling += needed > jobs
                reached = estimate
            jobs_used.append(jobs) if reached is not None else None
            jobs = needed
        held += reached.low is not None and reached.high is not None and reached.low <= right <= reached.high
        values.append((reached.value or 0.0) / right - 1)
    return held / runs, float(np.mean(values)), float(np.mean(jobs_used)), attempts / runs, ceiling


def stopping_part(pool: Pool, runs: int) -> Iterable[str]:
    tasks = [
        (model, load, error, runs)
        for model, load, errors in (
            ("M/M/1 wait", 0.5, (0.1, 0.05)),
            ("M/M/1 wait", 0.8, (0.2, 0.1)),
            ("M/M/1 wait", 0.9, (0.2,)),
            ("M/M/64 sojourn", 0.9, (0.02,)),
            ("AR(1)", 0.99, (0.02,)),
        )
        for error in errors
    ]
    yield "## Runs that stop at a precision\n"
    yield (
        "A run starts with 5,000 jobs. As long as the interval is wider than the target, a longer run with the same "
        "seed replaces it, with the number of jobs that `jobs_needed` estimates.\n"
    )
    yield (
        "| system | load | target half-width | coverage | bias of the mean | mean jobs | mean attempts | runs above "
        "the limit of jobs |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for (model, load, error, _), row in zip(tasks, pool.map(stop, tasks, chunksize=1), strict=True):
        held, bias, jobs, attempts, ceiling = row
        yield (
            f"| {model} | {load:g} | ±{100 * error:g}% | {100 * held:.1f}% | {100 * bias:+.2f}% | {jobs:,.0f} "
            f"| {attempts:.1f} | {ceiling} |"
        )
    yield ""


TITLE = (
    "# Interval coverage of the confidence intervals of one run\n\n"
    "Written by `python benchmarks/interval_coverage.py`. All intervals are 95% confidence intervals. In the column "
    "`system`, `wait` is the queueing delay and `sojourn` the latency.\n"
)

PARTS: dict[str, Callable[..., Iterable[str]]] = {
    "coverage": coverage_part,
    "methods": methods_part,
    "bins": bins_part,
    "warmup": warmup_part,
    "growth": growth_part,
    "stopping": stopping_part,
    "waves": waves_part,
    "looks": looks_part,
    "serving": serving_part,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    options = parser.parse_args()
    written = options.out / "coverage.md" if options.out else None
    sections: dict[str, str] = {}
    if written is not None and written.exists():
        for text in written.read_text().split("\n## ")[1:]:
            sections[text.partition("\n")[0]] = text
    with Pool(options.workers) as pool:
        for name in options.only:
            lines = []
            for line in PARTS[name](pool, options.runs):
                print(line, flush=True)
                lines.append(line)
            text = "\n".join(lines).removeprefix("## ").rstrip() + "\n"
            sections[text.partition("\n")[0]] = text
    if written is not None:
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text("\n## ".join([TITLE, *sections.values()]))


if __name__ == "__main__":
    main()
