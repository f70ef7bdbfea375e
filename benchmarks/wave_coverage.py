"""Interval coverage where the load comes in waves: three parts of `benchmarks/interval_coverage.py`.

The true value of a source is that of all jobs of many draws from it. A source that is a process is redrawn from the
process. A trace is one draw from a source that the method does not know.
"""

from __future__ import annotations

import csv
import math
import tempfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.core.results.run import Estimate, distribution
from windtunnel.engine.arrivals.redraw import redrawn, window
from windtunnel.engine.results import steady
from windtunnel.engine.results.redrawn import interval
from windtunnel.engine.results.sample import BatchedSample
from windtunnel.engine.results.statistics import STATISTICS, estimates, widen_to_waiting
from windtunnel.engine.results.times import times_of
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.redrawn import FIRST_LOOK, FIRST_RUNS, RUNS
from windtunnel.simulation.run import prepare_run, simulate
from windtunnel_models.catalogue import shipped_catalogue

SPAN_S, SERVERS, TRUTH_RUNS = 1800.0, 8, 400
Arrivals = Callable[[np.random.Generator], np.ndarray]
Multiply = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


def _thinned(rate: Callable[[np.ndarray], np.ndarray], most: float, rng: np.random.Generator) -> np.ndarray:
    """A Poisson process at a rate that changes with time."""
    times = np.sort(rng.random(rng.poisson(most * SPAN_S)) * SPAN_S)
    return times[rng.random(len(times)) * most < rate(times)]


def _sine(period: float, mean: float, amplitude: float) -> Arrivals:
    return partial(
        _thinned,
        lambda t: mean * (1 + amplitude * np.sin(2 * np.pi * t / period)),
        mean * (1 + amplitude),
    )


def _spikes(base: float, factor: float, length: float, begins: Sequence[float]) -> Arrivals:
    def rate(t: np.ndarray) -> np.ndarray:
        return base * (1 + (factor - 1) * np.any([(t >= a) & (t < a + length) for a in begins], axis=0))

    return partial(_thinned, rate, base * factor)


def _random_spikes(base: float, factor: float, length: float, every: float) -> Arrivals:
    def draw(rng: np.random.Generator) -> np.ndarray:
        begins = rng.random(rng.poisson((SPAN_S + length) / every)) * (SPAN_S + length) - length
        return _spikes(base, factor, length, begins if len(begins) else [-1e9])(rng)

    return draw


def _mmpp(rates: Sequence[float], sojourn: float) -> Arrivals:
    def draw(rng: np.random.Generator) -> np.ndarray:
        ends = np.cumsum(rng.exponential(sojourn, int(4 * SPAN_S / sojourn) + 40))
        first = int(rng.integers(2))
        return _thinned(lambda t: np.where((np.searchsorted(ends, t) + first) % 2, rates[0], rates[1]), max(rates), rng)

    return draw


def _wandering(mean: float, sigma: float, time: float) -> Arrivals:
    """A rate that wanders (log-normal, with a correlation time), the same path in every draw."""
    rng, keep = np.random.default_rng(2), math.exp(-1 / time)
    path = np.zeros(int(SPAN_S))
    path[0] = rng.standard_normal()
    for i, noise in enumerate(rng.standard_normal(len(path) - 1)):
        path[i + 1] = keep * path[i] + math.sqrt(1 - keep**2) * noise
    rates = mean * np.exp(sigma * path - sigma**2 / 2)
    return partial(_thinned, lambda t: rates[t.astype(int)], float(rates.max()))


def _batches(size: float, wave: Arrivals) -> Arrivals:
    def draw(rng: np.random.Generator) -> np.ndarray:
        begins = wave(rng)
        return np.repeat(begins, rng.geometric(1 / size, len(begins)))

    return draw


def _rounded(step_s: float, wave: Arrivals) -> Arrivals:
    """Arrivals whose times a trace states as multiples of ``step_s`` (s)."""
    return lambda rng: np.floor(wave(rng) / step_s) * step_s


def _renewal(cv: float, mean: float, amplitude: float, period: float) -> Arrivals:
    """Gamma-distributed distances of mean 1, on a time that runs at the rate of a wave."""
    grid = np.linspace(0, SPAN_S, 18_001)
    rate = mean * (1 + amplitude * np.sin(2 * np.pi * grid / period))
    count = np.concatenate([[0], np.cumsum((rate[1:] + rate[:-1]) / 2 * grid[1])])

    def draw(rng: np.random.Generator) -> np.ndarray:
        at = np.cumsum(rng.gamma(1 / cv**2, cv**2, int(2 * count[-1]) + 100))
        return np.interp(at[at < count[-1]], count, grid)

    return draw


PROCESSES: Mapping[str, Arrivals] = {
    "one wave in the run (diurnal)": _sine(SPAN_S, 4.8, 0.5),
    "spikes at stated times, 30 s at 4 times the rate": _spikes(3.2, 4, 30, (150, 500, 850, 1200, 1550)),
    "random spikes, 30 s every 5 min at 4 times the rate": _random_spikes(3.2, 4, 30, 300),
    "MMPP, states of 10 s": _mmpp((2.0, 8.0), 10),
    "MMPP, states of 60 s": _mmpp((2.0, 8.0), 60),
    "MMPP, states of 300 s": _mmpp((2.0, 7.0), 300),
}
TRACES: Mapping[str, Arrivals] = {
    "no wave, load 0.7": _sine(1e12, 5.6, 0.0),
    "one wave in the trace": _sine(SPAN_S, 4.8, 0.5),
    "waves of 600 s": _sine(600, 4.8, 0.6),
    "waves of 120 s": _sine(120, 4.8, 0.8),
    "waves of 30 s": _sine(30, 4.8, 0.8),
    "spikes of 30 s": PROCESSES["spikes at stated times, 30 s at 4 times the rate"],
    "a rate that wanders within 10 s": _wandering(4.0, 0.8, 10),
    "a rate that wanders within 60 s": _wandering(4.4, 0.6, 60),
    "batches of 5 jobs, waves of 600 s": _batches(5, _sine(600, 0.96, 0.6)),
    "times in steps of 3 s, waves of 600 s": _rounded(3.0, _sine(600, 4.8, 0.6)),
    "irregular distances (cv 2), waves of 600 s": _renewal(2.0, 4.8, 0.6, 600),
    "regular distances (cv 0.3), waves of 600 s": _renewal(0.3, 5.2, 0.6, 600),
}


def _sizes(rng: np.random.Generator, count: int) -> np.ndarray:
    """Log-normal service times with mean 1 and a coefficient of variation of 1.3."""
    return rng.lognormal(-0.5, 1.0, count)


def _latencies(times: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Latencies and queueing delays in order of arrival; many_servers begins at the first arrival's distance from 0."""
    from benchmarks.interval_coverage import many_servers

    waits = many_servers(np.diff(times, prepend=0.0), sizes, SERVERS)
    return waits + sizes, waits


def _statistics(values: np.ndarray) -> np.ndarray:
    return np.array([values.mean() if p is None else np.quantile(values, p) for p in STATISTICS.values()])


@cache
def _truth(source: str, traced: bool) -> np.ndarray:
    arrivals = (TRACES if traced else PROCESSES)[source]
    found = []
    for seed in range(TRUTH_RUNS):
        rng = np.random.default_rng([seed, 77])
        times = arrivals(rng)
        found.append(_latencies(times, _sizes(rng, len(times)))[0])
    return _statistics(np.concatenate(found))


def _of_one_run(latencies: np.ndarray, waits: np.ndarray) -> list[Estimate]:
    """The intervals from batches of one run, which treat the waves as chance."""
    sample, of_waits = BatchedSample.from_values(latencies), BatchedSample.from_values(waits)
    within = steady.correlation_of(of_waits)
    return list(widen_to_waiting(estimates(sample, within=within), estimates(of_waits)).values())


Counts = tuple[dict[str, int], dict[str, int], dict[str, float]]


def wave(task: tuple[str, bool, int]) -> dict[str, Counts]:
    """Counts as those of `interval_coverage.cover`, by method."""
    source, traced, runs = task
    arrivals, truth = (TRACES if traced else PROCESSES)[source], _truth(source, traced)
    found: dict[str, list[list[Estimate]]] = {"redrawn runs": [], "batches of one run": []}
    for seed in range(runs):
        rng = np.random.default_rng([seed, zlib.crc32(source.encode())])
        times = arrivals(rng)
        sizes = _sizes(rng, len(times))
        latencies, waits = _latencies(times, sizes)
        found["batches of one run"].append(_of_one_run(latencies, waits))
        ticks = np.rint(times * 1e6).astype(np.int64)
        half = window(ticks) if traced else 0
        values = []
        for _ in range(RUNS):
            if traced:
                again, chosen = redrawn(ticks, rng, half)
                others, work = again / 1e6, sizes[chosen]
            else:
                others = arrivals(rng)
                work = _sizes(rng, len(others))
            values.append(_statistics(_latencies(others, work)[0]))
        own = _statistics(latencies)
        found["redrawn runs"].append(
            [interval(float(own[i]), np.array(values)[:, i], float(own[0]), traced=traced) for i in range(len(own))]
        )
    return {method: _counted(rows, truth) for method, rows in found.items()}


def _counted(rows: Sequence[Sequence[Estimate]], truth: np.ndarray) -> Counts:
    held, given, width = dict.fromkeys(STATISTICS, 0), dict.fromkeys(STATISTICS, 0), dict.fromkeys(STATISTICS, 0.0)
    for row in rows:
        for name, estimate, right in zip(STATISTICS, row, truth.tolist(), strict=True):
            if estimate.low is not None and estimate.high is not None:
                given[name] += 1
                held[name] += estimate.low <= right + 1e-12 and right - 1e-12 <= estimate.high
                width[name] += (estimate.high - estimate.low) / 2 / right
    return held, given, {name: width[name] / given[name] if given[name] else math.nan for name in STATISTICS}


def waves_part(pool: Pool, runs: int) -> Iterable[str]:
    """The table of queues whose arrivals come in waves."""
    from benchmarks.interval_coverage import HEADER, cell_line

    tasks = [(s, False, runs) for s in PROCESSES] + [(s, True, runs) for s in TRACES]
    yield "## Waves\n"
    yield (
        f"Latency of {SERVERS} servers over {SPAN_S:g} s with log-normal service times (cv 1.3), {runs} runs of each "
        f"source. The true value is that of all jobs of {TRUTH_RUNS} other draws from the source, with the same waves "
        "(for an MMPP and random spikes, with other waves). `process`: the source is a process of the scenario, and "
        f"the {RUNS} redrawn runs are other draws from it. `trace`: the run has one draw as its trace, and knows no "
        "more of the source. `batches of one run` is the method for arrivals at a constant rate. Cells as above.\n"
    )
    yield "| arrivals | source | method " + HEADER + "|---|---|---|" + "---|" * 4
    for (source, traced, _), methods in zip(tasks, pool.map(wave, tasks, chunksize=1), strict=True):
        for method, counts in methods.items():
            yield cell_line(f"| {'trace' if traced else 'process'} | {source} | {method}", runs, counts)
    yield ""


# Plans look at the intervals of a few redrawn runs first, and make the others where these do not decide.

Beyond = tuple[np.ndarray, np.ndarray, np.ndarray]


def look(task: tuple[str, bool, int]) -> Beyond:
    """By statistic, the share of runs whose true value is above the upper bound of an interval that a plan looks at.

    It is that from all redrawn runs; or also that from the first of them with 95%, or with the confidence of a plan.
    """
    source, traced, runs = task
    arrivals, truth = (TRACES if traced else PROCESSES)[source], _truth(source, traced)
    beyond = np.zeros((3, runs, len(STATISTICS)), dtype=bool)
    for seed in range(runs):
        rng = np.random.default_rng([seed, zlib.crc32(source.encode())])
        times = arrivals(rng)
        sizes = _sizes(rng, len(times))
        own = _statistics(_latencies(times, sizes)[0])
        ticks = np.rint(times * 1e6).astype(np.int64)
        half = window(ticks) if traced else 0
        values = np.array([_redrawn_values(arrivals, ticks, sizes, rng, half, traced) for _ in range(RUNS)])
        for i, right in enumerate(truth.tolist()):
            for n, (number, confidence) in enumerate(((RUNS, 0.95), (FIRST_RUNS, 0.95), (FIRST_RUNS, FIRST_LOOK))):
                redrawn_values = values[:number, i]
                found = interval(float(own[i]), redrawn_values, float(own[0]), traced=traced, confidence=confidence)
                beyond[n, seed, i] = found.high is not None and found.high < right
    late, early, sure = beyond
    return late.mean(axis=0), (late | early).mean(axis=0), (late | sure).mean(axis=0)


def _redrawn_values(
    arrivals: Arrivals, ticks: np.ndarray, sizes: np.ndarray, rng: np.random.Generator, half: int, traced: bool
) -> np.ndarray:
    if traced:
        again, chosen = redrawn(ticks, rng, half)
        return _statistics(_latencies(again / 1e6, sizes[chosen])[0])
    others = arrivals(rng)
    return _statistics(_latencies(others, _sizes(rng, len(others)))[0])


def looks_part(pool: Pool, runs: int) -> Iterable[str]:
    """The table of what the first look of a plan at its redrawn runs does to its confidence."""
    tasks = [(s, False, runs) for s in PROCESSES] + [(s, True, runs) for s in TRACES]
    yield "## Two looks at redrawn runs\n"
    yield (
        f"A plan looks at the intervals of the first {FIRST_RUNS} redrawn runs, and makes all {RUNS} only if these do "
        f"not decide the targets. The table has the share of {runs} runs in which the true value is above the upper "
        "bound of the interval, so that a fleet which misses a limit just below that value would be taken for one that "
        f"meets it (2.5% is nominal): by all {RUNS} runs alone, with a first look at intervals of 95%, and with a "
        f"first look at intervals of {FIRST_LOOK:.0%}, as plans do. "
        f"Queues and true values as above ({TRUTH_RUNS} other draws).\n"
    )
    yield "| arrivals | source | " + " | ".join(STATISTICS) + " |\n|---|---|" + "---|" * len(STATISTICS)
    total = np.zeros((3, len(STATISTICS)))
    for (source, traced, _), found in zip(tasks, pool.imap(look, tasks, chunksize=1), strict=True):
        total += found
        yield _look_line(f"| {'trace' if traced else 'process'} | {source} |", np.array(found))
    yield _look_line("| | mean of all |", total / len(tasks))
    yield ""


def _look_line(head: str, found: np.ndarray) -> str:
    return (
        head
        + " | ".join([""] + [" / ".join(f"{share:.1%}" for share in column) for column in found.T]).removeprefix(" |")
        + " |"
    )


# Continuous batching.

_DECODER = {
    "layers": 32, "width": 4096, "heads": 32, "kv_heads": 8, "feed_forward": 14336, "vocabulary": 128256,
    "dtype": "bfloat16",
}  # fmt: skip
SERVED_S, SERVED_TRUTH_RUNS = 300.0, 200


def _served(arrivals: Mapping[str, Any], seed: int, tokens: bool) -> dict[str, Any]:
    """A scenario of one A100 that serves a decoder; ``tokens`` come from the columns of a trace."""
    lengths = {"prompt": "$prompt", "output": "$output"} if tokens else {"prompt": 800, "output": 200}
    data: dict[str, Any] = {
        "schema": 1, "name": "served", "seed": seed, "fleet": [{"device": "a100-sxm-80gb"}], "models": {"m": _DECODER},
        "workload": [{"name": "chat", "arrivals": dict(arrivals), "ops": [{"generate": {"model": "m", **lengths}}]}],
        "policy": {"name": "shortest-expected-completion", "batch": {"kind": "continuous", "size": 64, "tokens": 512}},
    }  # fmt: skip
    return data if tokens else data | {"stop": {"time": f"{SERVED_S:g} s"}}


SERVED: Mapping[str, tuple[Mapping[str, Any], bool]] = {
    "Poisson, 4 jobs/s": ({"process": "poisson", "rate": "4 /s"}, False),
    "bursts of 10 s every 60 s, 2.5 and 9 jobs/s": (
        {"process": "burst", "rate": "2.5 /s", "burst_rate": "9 /s", "every": "60 s", "duration": "10 s"},
        False,
    ),
    "MMPP, states of 20 s, 2 and 7 jobs/s": (
        {"process": "mmpp", "states": [{"rate": "2 /s", "sojourn": "20 s"}, {"rate": "7 /s", "sojourn": "20 s"}]},
        False,
    ),
    "trace with waves of 120 s, 1 to 7 jobs/s": ({}, True),
}


def _trace(seed: int, folder: Path) -> Mapping[str, Any]:
    """Write a trace with one draw from waves, and return the arrivals that replay it."""
    rng = np.random.default_rng([seed, 5])
    times = np.sort(rng.random(rng.poisson(7 * SERVED_S)) * SERVED_S)
    times = times[rng.random(len(times)) * 7 < 4 + 3 * np.sin(2 * np.pi * times / 120)]
    lengths = np.maximum(rng.lognormal(math.log((700, 150)[0]), 0.6, (2, len(times))), 2).astype(int)
    lengths[1] = np.maximum(lengths[1] // 5, 2)
    path = folder / f"{seed}.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["time", "prompt", "output"])
        writer.writerows(zip(np.round(times, 6).tolist(), *lengths.tolist(), strict=True))
    return {"process": "trace", "file": str(path), "time": "time"}


def _arrivals(source: str, seed: int, folder: str) -> tuple[Mapping[str, Any], bool]:
    arrivals, tokens = SERVED[source]
    return (_trace(seed, Path(folder)) if tokens else arrivals), tokens


def serve_truth(task: tuple[str, int, str]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """All values of TTFT and ITL of one draw, with the number of observations that each stands for."""
    source, seed, folder = task
    arrivals, tokens = _arrivals(source, seed, folder)
    scenario = scenario_from_data(_served(arrivals, seed, tokens))
    prepared = prepare_run(scenario, shipped_catalogue())
    from windtunnel.engine.choice import choose, run_on

    samples = times_of(prepared, run_on(choose(prepared, "auto")[0], prepared)).samples(None)
    found = {}
    for name in ("ttft", "itl"):
        sample = samples[f"{name}_s"]
        assert sample is not None and sample.values is not None
        found[name] = sample.values, np.ones(len(sample.values)) if sample.weights is None else sample.weights
    return found


def serve(task: tuple[str, int, str]) -> dict[str, list[Estimate]]:
    """The estimates of one run of the command, by metric."""
    source, seed, folder = task
    arrivals, tokens = _arrivals(source, seed, folder)
    result, _ = simulate(scenario_from_data(_served(arrivals, seed, tokens)), 1, "auto", shipped_catalogue())
    found = {}
    for name in ("ttft", "itl"):
        times = distribution(result, name)
        assert times is not None
        found[name] = [times.of(statistic) for statistic in STATISTICS]
    return found


def _pooled(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    values, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    return np.array(
        [
            float(np.average(values, weights=weights)) if p is None else values[order][np.searchsorted(reached, p)]
            for p in STATISTICS.values()
        ]
    )


def serving_part(pool: Pool, runs: int) -> Iterable[str]:
    """The table of a decoder with continuous batching, simulated by the engine as `windtunnel run` does."""
    from benchmarks.interval_coverage import HEADER, cell_line

    yield "## Continuous batching\n"
    yield (
        f"One A100 serves an 8-billion-parameter decoder for {SERVED_S:g} s (prompts of 800 tokens and 200 generated "
        f"ones; in the trace both vary), {runs} runs of each source by the functions of `windtunnel run`. The true "
        f"value is that of all jobs of {SERVED_TRUTH_RUNS} other runs. Cells as above.\n"
    )
    yield "| source | metric " + HEADER + "|---|---|" + "---|" * 4
    with tempfile.TemporaryDirectory() as folder:
        for source in SERVED:
            drawn = pool.map(serve_truth, [(source, 10_000 + seed, folder) for seed in range(SERVED_TRUTH_RUNS)])
            found = pool.map(serve, [(source, seed, folder) for seed in range(runs)])
            for name, title in (("ttft", "TTFT"), ("itl", "ITL")):
                truth = _pooled([one[name] for one in drawn])
                yield cell_line(f"| {source} | {title}", runs, _counted([one[name] for one in found], truth))
    yield ""
