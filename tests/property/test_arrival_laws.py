"""Laws of arrivals: what holds for every process to the tick, and what holds on average, judged over many seeds at once.

A statistic of one seed proves little: it is right by luck, or wrong by luck. Here each law is asked of many independent
seeds and windows, and the answers are put together in one test with one error probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import integrate, linalg, stats

from windtunnel.core.errors import Location
from windtunnel.core.ticks import TICKS_PER_SECOND
from windtunnel.engine.arrivals import arrival_blocks, arrivals, merged, merged_blocks, processes
from windtunnel.scenario import arrivals as said
from windtunnel.scenario.read import scenario_from_data
from windtunnel.scenario.scenario import Scenario

OPS = [{"service": {"distribution": "deterministic", "mean": "1 ms"}}]
REAL = 1e-6  # the chance that a right program fails one of these tests, were its seeds not fixed

MMPP = {
    "process": "mmpp",
    "states": [{"rate": "20 /s", "sojourn": "2 s"}, {"rate": "200 /s", "sojourn": "500 ms"}],
}
RING = {
    "process": "mmpp",
    "states": [
        {"rate": "0 /s", "sojourn": "1 s", "next": [0, 1, 0]},
        {"rate": "50 /s", "sojourn": "2 s", "next": [0, 0, 1]},
        {"rate": "150 /s", "sojourn": "500 ms", "next": [0.75, 0.25, 0]},
    ],
}
HOURS = {"process": "diurnal", "rates": [f"{(h * 7) % 11} /h" for h in range(24)], "start_time": "05:20"}
STEPS = HOURS | {"shape": "step", "start_time": "23:59:30"}
WAVE = {"process": "diurnal", "rate": "6 /h", "amplitude": 1.0, "peak": "14:30", "start_time": "09:00"}
GIVEN = {"process": "spikes", "rate": "30 /s", "factor": 6.0, "duration": "2 s", "at": ["3 s", "0 s", "4 s", "15 s"]}
RANDOM = {"process": "spikes", "rate": "30 /s", "factor": 6.0, "duration": "2 s", "mean_interval": "5 s"}
BATCHES = {"process": "batches", "mean_interval": "200 ms", "size": 8.0}
SPREAD = BATCHES | {"spread": "1500 ms"}
BURST = {"process": "burst", "rate": "20 /s", "burst_rate": "300 /s", "every": "3 s", "duration": "500 ms"}
GAMMA = {"process": "gamma", "rate": "80 /s", "cv": 2.5}
WEIBULL = {"process": "weibull", "rate": "80 /s", "cv": 1.7}
MIX = {"process": "mix", "processes": [MMPP, SPREAD, {"process": "poisson", "rate": "10 /s"}]}
ALL = [MMPP, RING, HOURS, STEPS, WAVE, GIVEN, RANDOM, BATCHES, SPREAD, BURST, GAMMA, WEIBULL, MIX,
       {"process": "poisson", "rate": "80 /s"}, {"process": "deterministic", "rate": "80 /s"}]  # fmt: skip


def scenario(*described: dict[str, Any], stop: dict[str, Any] | None = None, seed: int = 1) -> Scenario:
    return scenario_from_data(
        {
            "schema": 1,
            "name": "arrivals",
            "seed": seed,
            "fleet": [{"device": "server"}],
            "workload": [{"name": f"w{i}", "arrivals": a, "ops": OPS} for i, a in enumerate(described)],
            "stop": stop or {"jobs": 100},
        }
    )


def nowhere(*_: Any) -> Location:
    return Location()


def drawn(described: dict[str, Any], stop: dict[str, Any], seed: int = 1) -> np.ndarray:
    one = scenario(described, stop=stop)
    return arrivals(one.workload[0], seed, one.stop, Path(), nowhere).ticks


def process_of(described: dict[str, Any]) -> said.Process:
    process = scenario(described).workload[0].arrivals
    assert isinstance(process, said.Process)
    return process


def seconds(described: dict[str, Any], until_s: float, seed: int) -> np.ndarray:
    return drawn(described, {"time": f"{until_s!r} s"}, seed) / TICKS_PER_SECOND


def counted(described: dict[str, Any], edges_s: np.ndarray, seeds: range) -> np.ndarray:
    """Jobs in each window, of shape (seeds, windows)."""
    return np.array([np.histogram(seconds(described, float(edges_s[-1]), s), edges_s)[0] for s in seeds])


# --- What holds to the tick ------------------------------------------------------------------------------------------


@st.composite
def single(draw: st.DrawFn) -> dict[str, Any]:
    rate = draw(st.floats(0.5, 500.0))
    span = st.floats(0.01, 20.0)
    kind = draw(st.sampled_from(["poisson", "deterministic", "gamma", "weibull", "burst", "mmpp", "hours", "wave",
                                 "given", "random", "batches"]))  # fmt: skip
    if kind in ("poisson", "deterministic"):
        return {"process": kind, "rate": f"{rate} /s"}
    if kind in ("gamma", "weibull"):
        return {"process": kind, "rate": f"{rate} /s", "cv": draw(st.floats(0.2, 4.0))}
    if kind == "burst":
        length = draw(span)
        every = length * draw(st.floats(1.0, 10.0))
        return {
            "process": kind,
            "rate": f"{rate} /s",
            "burst_rate": f"{rate * 9} /s",
            "every": f"{every} s",
            "duration": f"{length} s",
        }
    if kind == "mmpp":
        rates = draw(st.lists(st.sampled_from([0.0, 1.0, 30.0]), min_size=1, max_size=4))
        return {
            "process": kind,
            "states": [{"rate": f"{r} /s", "sojourn": f"{draw(st.floats(0.1, 9.0))} s"} for r in [rate, *rates]],
        }
    if kind == "hours":
        rates = draw(st.lists(st.sampled_from([0.0, 0.3, 4.0, 50.0]), min_size=23, max_size=23))
        return {"process": "diurnal", "rates": [f"{r} /min" for r in [rate + 5, *rates]], "shape": draw(st.sampled_from(["linear", "step"])),
                "start_time": draw(st.sampled_from(["00:00", "11:30", "23:59:59"]))}  # fmt: skip
    if kind == "wave":
        return {
            "process": "diurnal",
            "rate": f"{rate} /min",
            "amplitude": draw(st.sampled_from([0.0, 0.3, 1.0])),
            "peak": "13:00",
            "start_time": "01:00",
        }
    if kind == "given":
        return {"process": "spikes", "rate": f"{rate} /s", "factor": draw(st.floats(0.0, 20.0)), "duration": f"{draw(span)} s",
                "at": [f"{draw(span)} s" for _ in range(draw(st.integers(1, 4)))]}  # fmt: skip
    if kind == "random":
        every = draw(st.floats(0.5, 30.0))
        shared = draw(
            st.sampled_from([None, f"every {every}"])
        )  # who shares a clock must agree on how often it strikes
        return {"process": "spikes", "rate": f"{rate} /s", "factor": draw(st.floats(0.5, 20.0)), "duration": f"{draw(span)} s",
                "mean_interval": f"{every} s", "clock": shared}  # fmt: skip
    spread = draw(st.sampled_from([0.0, 0.5, 40.0]))
    return {
        "process": "batches",
        "mean_interval": f"{draw(span)} s",
        "size": draw(st.floats(1.0, 30.0)),
        "spread": f"{spread} s",
    }


described_processes = st.one_of(
    single(), st.builds(lambda of: {"process": "mix", "processes": of}, st.lists(single(), min_size=1, max_size=3))
)


@settings(max_examples=80)
@given(described_processes, st.integers(0, 2**40), st.integers(1, 1500), st.integers(0, 1500))
def test_the_first_jobs_are_the_same_however_many_are_asked_for(
    described: dict[str, Any], seed: int, few: int, more: int
) -> None:
    whole = drawn(described, {"jobs": few + more}, seed)
    assert len(whole) == few + more
    assert whole[0] >= 0 and bool((np.diff(whole) >= 0).all())
    assert np.array_equal(drawn(described, {"jobs": few}, seed), whole[:few])
    if whole[-1] > whole[0]:
        end = int(whole[-1])
        until = drawn(described, {"time": f"{end / TICKS_PER_SECOND!r} s"}, seed)
        # A time in seconds is a float, good to the tick or so.
        assert abs(len(until) - int((whole < end).sum())) <= int((abs(whole - end) <= 2000).sum())


@settings(max_examples=60)
@given(described_processes, st.integers(0, 2**40), st.sampled_from([(1, 1), (1, 7), (64, 512), (5000, 5000)]))
def test_where_blocks_end_does_not_show(described: dict[str, Any], seed: int, sizes: tuple[int, int]) -> None:
    jobs = 60 if sizes[1] < 10 else 3000
    usual = drawn(described, {"jobs": jobs}, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "FIRST_BLOCK", sizes[0])
        patch.setattr(processes, "BLOCK", sizes[1])
        assert np.array_equal(drawn(described, {"jobs": jobs}, seed), usual)


@settings(max_examples=40)
@given(st.lists(described_processes, min_size=2, max_size=4), st.integers(0, 1000), st.sampled_from([None, 1, 700]))
def test_streams_merged_in_blocks_are_the_streams_merged_whole(
    described: list[dict[str, Any]], seed: int, limit: int | None
) -> None:
    one = scenario(*described, stop={"jobs": 800})
    whole = {i: arrivals(w, seed, one.stop, Path(), nowhere).ticks for i, w in enumerate(one.workload)}
    whole[1] = whole[0][: len(whole[1])]  # ties, which go to the workload listed first
    at_once = merged(whole, limit)
    blocks = merged_blocks({i: iter(np.array_split(t, 1 + (seed + i) % 9)) for i, t in whole.items()}, limit)
    for one_by_one, expected in zip(zip(*blocks, strict=True), at_once, strict=True):
        assert np.array_equal(np.concatenate(one_by_one), expected)


def test_blocks_are_small_and_put_together_are_the_whole() -> None:
    for described in ALL:
        one = scenario(described, stop={"jobs": 5000 if described["process"] == "diurnal" else 50_000})
        blocks = list(arrival_blocks(one.workload[0], 3, one.stop, Path(), nowhere))
        assert np.array_equal(np.concatenate(blocks), arrivals(one.workload[0], 3, one.stop, Path(), nowhere).ticks)
        assert max(map(len, blocks)) <= 4 * processes.BLOCK


@settings(max_examples=30)
@given(single(), single(), single(), st.integers(0, 1000))
def test_a_new_workload_and_a_new_part_of_a_mix_shift_no_other(
    a: dict[str, Any], b: dict[str, Any], c: dict[str, Any], seed: int
) -> None:
    def times_of(*workloads: dict[str, Any]) -> list[np.ndarray]:
        one = scenario(*workloads, stop={"jobs": 200})
        return [arrivals(w, seed, one.stop, Path(), nowhere).ticks for w in one.workload]

    assert all(np.array_equal(x, y) for x, y in zip(times_of(a, b), times_of(a, b, c)[:2], strict=True))

    # A mix is its parts in order of time; a third part adds jobs and moves none.
    def in_blocks(process: said.Process, draws: processes.Draws, until: float) -> np.ndarray:
        found = []
        for block in processes.times(process, draws):
            found.append(block[block < until])
            if len(found[-1]) < len(block):
                return np.concatenate(found)
        raise AssertionError

    draws = processes.Draws(seed, ("w", "arrivals"))
    until = 150.0 / max(process_of(p).mean_rate_per_s() for p in (a, b, c))
    mix = process_of({"process": "mix", "processes": [a, b, c]})
    parts = [in_blocks(process_of(p), draws.part(i), until) for i, p in enumerate((a, b, c))]
    assert np.array_equal(in_blocks(mix, draws, until), np.sort(np.concatenate(parts)))


@settings(max_examples=60)
@given(described_processes, st.floats(0.1, 10.0))
def test_a_scaled_process_has_so_much_the_rate_and_is_written_as_it_is_read(
    described: dict[str, Any], factor: float
) -> None:
    one = scenario(described)
    process = one.workload[0].arrivals
    assert isinstance(process, said.Process)
    assert process.scaled(factor).mean_rate_per_s() == pytest.approx(factor * process.mean_rate_per_s(), rel=1e-9)
    assert process.scaled(factor).stationary == process.stationary
    again = scenario_from_data(one.resolved()).workload[0].arrivals
    assert isinstance(again, said.Process)
    assert again.mean_rate_per_s() == pytest.approx(process.mean_rate_per_s(), rel=1e-12)
    assert type(again) is type(process)


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.floats(1e-3, 50.0), st.sampled_from([0.0, 0.5, 3.0, 1e3]), st.sampled_from([0.0, 0.5, 3.0, 1e3])),
             min_size=1, max_size=12),
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40),
)  # fmt: skip
def test_a_time_through_pieces_is_where_the_integral_of_the_rate_is_the_count(
    lines: list[tuple[float, float, float]], parts: list[float]
) -> None:
    spans, start, end = (np.array(column) for column in zip(*lines, strict=True))
    edges = np.concatenate([[0.0], np.cumsum(spans)])
    total = float(((start + end) / 2 * spans).sum())
    assume(total)
    counts = np.sort(np.array(parts)) * total * 0.999
    stretches = iter(
        [processes.Pieces(edges[1:], start, end), processes.Pieces(np.array([math.inf]), np.ones(1), np.ones(1))]
    )
    (found,) = processes.through_pieces(iter([counts]), stretches)

    def integral(t: float) -> float:
        areas = []
        for (a, b), low, high in zip(pairwise(edges), start, end, strict=True):
            into = min(max(t - a, 0.0), b - a)
            areas.append(low * into + (high - low) / (b - a) * into**2 / 2)
        return math.fsum(areas)

    assert bool((np.diff(found) >= 0).all())
    assert [integral(t) for t in found] == pytest.approx(counts, rel=1e-9, abs=1e-9 * total)


@settings(max_examples=60)
@given(st.sampled_from([0.0, 0.2, 0.9, 0.999, 1.0]), st.integers(0, 10**6))
def test_keplers_equation_is_solved_to_the_last_digits(eccentricity: float, seed: int) -> None:
    mean = np.random.default_rng(seed).random(200) ** 3 * 2 * math.pi
    x = processes._kepler(mean, eccentricity, mean[::-1].copy())
    assert np.abs(x - eccentricity * np.sin(x) - mean).max() < 1e-14


def test_every_process_that_can_be_written_is_drawn_and_every_one_is_tried_here() -> None:
    union = set(get_args(get_args(said.Arrivals)[0])) - {said.Trace, said.Closed}
    assert union == set(processes._FUNCTIONS)
    assert union == {type(process_of(described)) for described in ALL}


# --- Clocks that workloads share -------------------------------------------------------------------------------------


def test_workloads_on_a_shared_clock_have_their_batches_and_spikes_at_the_same_times() -> None:
    beats = {"process": "batches", "mean_interval": "2 s", "size": 1.0, "clock": "incidents"}
    crowd = beats | {"size": 30.0}
    rush = {
        "process": "spikes",
        "rate": "0.05 /s",
        "factor": 2000.0,
        "duration": "50 ms",
        "mean_interval": "2 s",
        "clock": "incidents",
    }
    one = scenario(
        beats, beats, crowd, rush, beats | {"clock": "others"}, beats | {"clock": None}, stop={"time": "400 s"}
    )
    ticks = [arrivals(w, 7, one.stop, Path(), nowhere).ticks for w in one.workload]
    assert np.array_equal(ticks[0], ticks[1])
    # Every batch of the crowd is at a beat, and each beat has one.
    assert np.array_equal(np.unique(ticks[2]), ticks[0])
    # Nearly all of the rush is within 50 ms of a beat; what is not has the base rate.
    before = ticks[0][np.maximum(np.searchsorted(ticks[0], ticks[3], side="right") - 1, 0)]
    apart = (ticks[3] - before) / TICKS_PER_SECOND
    assert len(ticks[3]) > 500
    assert int((apart > 0.05 + 1e-9).sum()) < 60
    for other in ticks[4:]:
        assert not np.isin(other, ticks[0]).any()


def test_spikes_of_different_lengths_on_one_clock_begin_together_and_look_back_alike() -> None:
    process = {"process": "spikes", "rate": "1 /s", "factor": 5.0, "mean_interval": "3 s", "clock": "clock"}
    short, long = (process_of(process | {"duration": length}) for length in ("100 ms", "20 s"))
    ends = []
    for spikes in (short, long):
        assert isinstance(spikes, said.Spikes)
        pieces = next(processes._random_spikes(spikes, processes.Draws(1, ("w",))))
        ends.append(pieces.end_s[1::2])
    assert np.array_equal(ends[0], ends[1])


# --- What holds on average -------------------------------------------------------------------------------------------


def joint_z(samples: np.ndarray, expected: np.ndarray | float) -> float:
    """The probability of samples (seeds, windows) at least this far from their expected means, over all windows."""
    samples = samples.reshape(len(samples), -1)
    error = samples.std(axis=0, ddof=1) / math.sqrt(len(samples))
    t = (samples.mean(axis=0) - expected) / error
    # Student's t as normal scores, so that their squares add up to a chi-squared.
    z = stats.norm.ppf(np.clip(stats.t.cdf(t, len(samples) - 1), 1e-15, 1 - 1e-15))
    return float(stats.chi2.sf(float((z**2).sum()), z.size))


SEEDS = range(60)
STATIONARY = [MMPP, RING, RANDOM, BATCHES, SPREAD, MIX]


@pytest.mark.parametrize("described", STATIONARY, ids=lambda d: d["process"])
def test_stationary_processes_have_their_mean_rate_from_the_first_moment_on(described: dict[str, Any]) -> None:
    process = process_of(described)
    assert process.stationary
    # Windows far enough apart to be nearly independent, the first at time 0.
    edges = np.array([0.0, 1.0, 40.0, 41.0, 90.0, 120.0])
    counts = counted(described, edges, SEEDS)[:, [0, 2, 4]]
    expected = process.mean_rate_per_s() * np.array([1.0, 1.0, 30.0])
    assert joint_z(counts, expected) > REAL
    # It bites: a quarter more is no longer the same process.
    assert joint_z(counts, expected * 1.25) < REAL


def spikes_rate(t: float) -> float:
    return 30.0 * (6.0 if any(a <= t < a + 2 for a in (0, 3, 4, 15)) else 1.0)


def burst_rate(t: float) -> float:
    return 300.0 if t % 3.0 < 0.5 else 20.0


def hours_rate(t: float) -> float:
    hour = t / 3600 + 5 + 20 / 60
    a, b = ((int(hour) + k) * 1 % 24 * 7 % 11 for k in (0, 1))
    return (a + (b - a) * (hour % 1)) / 3600


def steps_rate(t: float) -> float:
    return int((t - 30) / 3600 + 24) % 24 * 7 % 11 / 3600


def wave_rate(t: float) -> float:
    return 6 / 3600 * (1 + math.cos(2 * math.pi * (t / 3600 + 9 - 14.5) / 24))


@pytest.mark.parametrize(
    ("described", "rate", "edges", "breaks"),
    [
        (GIVEN, spikes_rate, np.arange(0.0, 25.0), np.arange(25.0)),
        (BURST, burst_rate, np.arange(0.0, 12.25, 0.25), np.arange(0, 12.25, 0.25)),
        (HOURS, hours_rate, np.arange(0.0, 50.0) * 3600, np.arange(51) * 3600 - 1200),
        (STEPS, steps_rate, np.arange(0.0, 30.0) * 3600, np.arange(31) * 3600 + 30),
        (WAVE, wave_rate, np.arange(0.0, 50.0) * 3600, np.arange(51) * 3600),
    ],
    ids=["spikes", "burst", "hours", "steps", "wave"],
)  # fmt: skip
def test_counts_are_poisson_with_the_integral_of_the_rate(
    described: dict[str, Any], rate: Callable[[float], float], edges: np.ndarray, breaks: np.ndarray
) -> None:
    process = process_of(described)
    assert not process.stationary

    def area(a: float, b: float) -> float:
        cuts = sorted({a, b, *(float(x) for x in breaks if a < x < b)})
        return math.fsum(integrate.quad(rate, x, y, epsabs=1e-9)[0] for x, y in pairwise(cuts))

    expected = np.array([area(a, b) for a, b in pairwise(edges)])
    seeds = range(40)
    total = counted(described, edges, seeds).sum(axis=0)
    mu = expected * len(seeds)
    assert bool((total[mu == 0] == 0).all())
    total, mu = total[mu > 5], mu[mu > 5]
    p = float(stats.chi2.sf(float(((total - mu) ** 2 / mu).sum()), len(mu)))
    assert REAL < p < 1 - REAL  # neither too far from the rate, nor nearer than chance brings it
    assert stats.chi2.sf(float(((total - mu * 1.15) ** 2 / mu).sum()), len(mu)) < REAL
    # The stated mean is that of the rate over its period; given spikes end, and what remains is the base rate.
    period = {"diurnal": 86_400.0, "burst": 3.0}.get(described["process"])
    mean = area(0.0, period) / period if period else 30.0
    assert process.mean_rate_per_s() == pytest.approx(mean, rel=1e-6)


def test_gamma_and_weibull_distances_have_their_mean_and_coefficient_of_variation() -> None:
    for described in (GAMMA, WEIBULL, GAMMA | {"cv": 0.3}, WEIBULL | {"cv": 0.3}, WEIBULL | {"cv": 3.0}):
        cv, rate = described["cv"], 80.0
        gaps = np.array([np.diff(drawn(described, {"jobs": 4000}, s)) / TICKS_PER_SECOND * rate for s in SEEDS])
        # Means and second moments are unbiased as they stand, unlike a ratio of them.
        assert joint_z(gaps.mean(axis=1), 1.0) > REAL, described
        assert joint_z((gaps**2).mean(axis=1), 1.0 + cv**2) > REAL, described
        assert joint_z((gaps**2).mean(axis=1), 1.0 + (1.15 * cv) ** 2) < REAL, described
    # And they are what they are called: Kolmogorov and Smirnov's distance of the last of each, at its own parameters.
    weibull = np.diff(drawn(WEIBULL, {"jobs": 20_000})) / TICKS_PER_SECOND
    shape = processes.weibull_shape(1.7)
    law = stats.weibull_min(shape, scale=processes.weibull_scale(shape) / 80)
    assert stats.kstest(weibull, law.cdf).pvalue > REAL
    assert stats.kstest(weibull, stats.gamma(1.7**-2, scale=1.7**2 / 80).cdf).pvalue < REAL


def dispersion(counts: np.ndarray) -> np.ndarray:
    """Each seed's index of dispersion of counts, of shape (seeds,), from counts of shape (seeds, windows)."""
    return ((counts - counts.mean()) ** 2).mean(axis=1) / counts.mean()


@pytest.mark.parametrize("window_s", [0.1, 1.0, 10.0])
def test_the_index_of_dispersion_of_an_mmpp_is_heffes_and_lucantonis(window_s: float) -> None:
    # Heffes and Lucantoni, A Markov modulated characterization of packetized voice and data traffic and related
    # statistical multiplexer performance (1986): two states of rates l1, l2 that are left at r1, r2.
    l1, l2, r1, r2 = 20.0, 200.0, 1 / 2.0, 1 / 0.5
    r = r1 + r2
    share = 2 * (l1 - l2) ** 2 * r1 * r2 / (r**2 * (l1 * r2 + l2 * r1))
    theory = 1 + share * (1 - (1 - math.exp(-r * window_s)) / (r * window_s))
    counts = counted(MMPP, np.arange(0.0, 1000.0 + window_s / 2, window_s), range(100, 180))
    found = dispersion(counts)
    assert joint_z(found, theory) > REAL
    assert joint_z(found, theory * 1.3) < REAL


def test_a_chain_of_three_states_goes_where_it_is_said_to() -> None:
    process = process_of(RING)
    assert isinstance(process, said.Mmpp)
    # The generator and its stationary distribution, by hand: visits 3:4:4, stays 1, 2 and 1/2 s.
    generator = np.array([[-1, 1, 0], [0, -0.5, 0.5], [1.5, 0.5, -2.0]])
    shares = np.array([3.0, 8.0, 2.0]) / 13
    assert shares @ generator == pytest.approx([0, 0, 0], abs=1e-12)
    assert process.stationary_shares() == pytest.approx(shares)
    rates = np.array([0.0, 50.0, 150.0])
    mean = float(shares @ rates)
    assert process.mean_rate_per_s() == pytest.approx(mean)
    window = 2.0

    def covariance(s: float) -> float:
        return float((shares * rates) @ linalg.expm(generator * s) @ rates) - mean**2

    modulated = 2 * integrate.quad(lambda s: (window - s) * covariance(s), 0, window)[0]
    counts = counted(RING, np.arange(0.0, 401.0, window), range(200, 240))
    assert joint_z(dispersion(counts), 1 + modulated / (mean * window)) > REAL
    # The same states in the other direction have another dispersion.
    backwards = generator.T * shares[None, :] / shares[:, None]
    assert not np.allclose(backwards, generator)


def test_batches_are_geometric_and_independent() -> None:
    # Of a compound Poisson process Var N / E N = E B² / E B, which for a geometric size of mean m is 2 m - 1.
    counts = counted(BATCHES, np.arange(0.0, 201.0, 1.0), range(40))
    assert joint_z(dispersion(counts), 2 * 8.0 - 1) > REAL
    assert joint_z(dispersion(counts), 2 * 8.0 - 1 + 3) < REAL
    sizes = np.concatenate(
        [np.unique(drawn(BATCHES, {"jobs": 20_000}, s), return_counts=True)[1][:-1] for s in range(5)]
    )
    observed = np.bincount(np.minimum(sizes, 40), minlength=41)[1:]
    chance = stats.geom(1 / 8).pmf(np.arange(1, 40))
    expected = np.append(chance, 1 - chance.sum()) * len(sizes)
    assert stats.chi2.sf(float(((observed - expected) ** 2 / expected).sum()), len(expected) - 1) > REAL


def test_poisson_processes_on_top_of_each_other_are_one() -> None:
    parts = [{"process": "poisson", "rate": f"{rate} /s"} for rate in (10, 25, 65)]
    gaps = np.concatenate([np.diff(drawn({"process": "mix", "processes": parts}, {"jobs": 3000}, s)) for s in range(8)])
    assert stats.kstest(gaps / TICKS_PER_SECOND, stats.expon(scale=1 / 100).cdf).pvalue > REAL
    assert stats.kstest(gaps / TICKS_PER_SECOND, stats.expon(scale=1 / 108).cdf).pvalue < REAL
