"""Jobs with checkpoints on a device that fails, against closed forms: judged over thousands of independent completions.

Failures come at rate f while the device is up, and each costs a repair of mean r. A stretch of work with the checkpoint
that follows it takes L. If it fails, each further try takes a restore and L, of together L'. A try of length x succeeds
with probability exp(-f x) and ends after (1 - exp(-f x)) / f in the mean, so that the stretch takes

    (1 - exp(-f L)) (1/f + r + T'),  T' = (1/f + r) (exp(f L') - 1)

in the mean (for L = L' that of J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart
dumps", Future Generation Computer Systems 22, 2006, whose every try begins with a restart). The best interval is near
sqrt(2 C / f) where a checkpoint takes C (J. W. Young, "A first order approximation to the optimum checkpoint interval",
Communications of the ACM 17, 1974).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.differential.comparison import prepared

from windtunnel.core.recording import Recording
from windtunnel.engine.compiled import run as compiled

JOBS = 6_000
FAR = 4.4
"""Standard errors; a normal value is beyond them one time in 90,000."""

CASES = {
    "rare failures": (8.0, 2.0, 0.1, 0.5, 0.02, 3.0),
    "a failure in each stretch": (6.0, 1.0, 0.3, 0.2, 0.8, 0.5),
    "long checkpoints": (4.0, 1.0, 1.0, 0.0, 0.3, 1.0),
    "long restores": (4.0, 0.5, 0.05, 1.0, 0.3, 0.2),
    "a shorter last stretch": (3.7, 1.0, 0.2, 0.4, 0.4, 1.0),
}
"""Work (s), interval (s), time of a checkpoint (s), time of a restore (s), failures in 1 s, repair (s)."""


def run_of(
    work_s: float, every_s: float, cost_s: float, restore_s: float, rate: float, repair_s: float, jobs: int = JOBS
) -> Recording:
    """Return a run of equal jobs that are all there from the beginning, one at a time."""
    checkpoint = {"every": f"{every_s!r} s", "cost": f"{cost_s!r} s", "restore": f"{restore_s!r} s"}
    data = {
        "schema": 1,
        "name": "checkpoints",
        "fleet": [{"device": "server"}],
        "workload": [
            {
                "name": "training",
                "arrivals": {"process": "deterministic", "rate": "1000000000 /s"},
                "ops": [{"service": {"distribution": "deterministic", "mean": f"{work_s!r} s"}}],
                "checkpoint": checkpoint,
            }
        ],
        "faults": [{"kind": "failure", "mtbf": f"{1 / rate!r} s", "mttr": f"{repair_s} s", "max_attempts": 1000}],
        "stop": {"jobs": jobs},
    }
    return compiled.run(prepared(data))


def completions(recording: Recording) -> np.ndarray:
    """Return the seconds between completions, which are independent: at each, the device is up."""
    return np.diff(recording.jobs.finish) / 1e12


def mean_s(
    work_s: float, every_s: float, cost_s: float, restore_s: float, rate: float, repair_s: float, complete: bool = True
) -> float:
    """Return the mean time of a job; without ``complete`` an incomplete checkpoint counts as well."""
    total = done = 0.0
    lost = 1 / rate + repair_s
    while done < work_s - 1e-9:
        stretch = min(every_s, work_s - done)
        restore = restore_s if done else 0.0
        done += stretch
        last = done >= work_s - 1e-9
        first = stretch if last or not complete else stretch + cost_s
        total += (1 - math.exp(-rate * first)) * (lost + lost * (math.exp(rate * (restore + first)) - 1))
        if not last and not complete:
            total += cost_s
    return total


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_completion_times_agree_with_theory(case: tuple[float, ...]) -> None:
    times = completions(run_of(*case))
    error = times.std(ddof=1) / math.sqrt(len(times))
    assert abs(times.mean() - mean_s(*case)) < FAR * error


def test_counting_an_incomplete_checkpoint_would_be_seen() -> None:
    case = CASES["long checkpoints"]
    times = completions(run_of(*case))
    error = times.std(ddof=1) / math.sqrt(len(times))
    assert abs(times.mean() - mean_s(*case, complete=False)) > 2 * FAR * error


def test_busy_time_is_work_checkpoints_restores_and_lost_work() -> None:
    for work_s, *rest in CASES.values():
        recording = run_of(work_s, *rest, jobs=300)  # type: ignore[arg-type]
        found = recording.progress
        assert found is not None and found.checkpoints > 0 and found.lost_ticks > 0
        useful = 300 * round(work_s * 1e12)
        busy = sum(device.busy_ticks for device in recording.devices)
        assert busy == useful + found.checkpoint_ticks + found.restore_ticks + found.lost_ticks


def test_the_best_interval_is_near_youngs() -> None:
    work_s, cost_s, rate = 100.0, 0.5, 0.01
    young_s = math.sqrt(2 * cost_s / rate)
    means = {
        share: completions(run_of(work_s, share * young_s, cost_s, 0.0, rate, 0.1, jobs=4_000)).mean()
        for share in (0.25, 0.5, 1.0, 2.0, 4.0)
    }
    assert min(means, key=means.__getitem__) == 1.0
