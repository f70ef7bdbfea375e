"""What a run leaves behind: the recording (every job, slice and step) and the result (what is reported)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.core.ticks import FloatArray, TickArray, to_second_array

IntArray = npt.NDArray[np.int64]

COMPLETED, RUNNING, QUEUED, DROPPED, FAILED = range(5)
SPELLS = ("down", "unreachable", "throttled", "brown-out")
"""What may be wrong with a device, or with the fleet's power."""
STATUS = ("completed", "running", "queued", "dropped", "failed")


@dataclass(frozen=True)
class Steps:
    """A step function of time: ``values[i]`` holds from ``ticks[i]`` until ``ticks[i+1]``, the last until ``end``.

    ``ticks`` increase strictly; the first is 0.
    """

    ticks: TickArray
    values: FloatArray
    end: int

    def integral(self) -> float:
        """Value times seconds from 0 to ``end`` (for watts: joules)."""
        widths = np.diff(np.append(self.ticks, self.end))
        # Not np.dot: its sum depends on how many threads the linear algebra has.
        return float((to_second_array(widths) * self.values).sum())

    def mean(self) -> float:
        """Time-average; the value itself where no time passed."""
        return self.integral() / (self.end / 1e12) if self.end else float(self.values[-1])

    def sampled(self, points: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(time s, mean, peak) over ``points`` equal bins, for drawing: no peak is lost."""
        edges = np.linspace(0, self.end, points + 1)
        cumulative = np.concatenate(
            [[0.0], np.cumsum(np.diff(np.append(self.ticks, self.end)).astype(np.float64) * self.values)]
        )
        corners = np.append(self.ticks, self.end).astype(np.float64)
        area = np.interp(edges, corners, cumulative)
        width = max(self.end / points, 1e-300)
        index = np.clip(np.searchsorted(self.ticks, edges[:-1], side="right") - 1, 0, None)
        stop = np.clip(np.searchsorted(self.ticks, edges[1:], side="left"), 1, None)
        peak = np.array([self.values[i:j].max() if j > i else self.values[i] for i, j in zip(index, stop, strict=True)])
        return edges[:-1] / 1e12, np.diff(area) / width, peak


@dataclass(frozen=True)
class Jobs:
    """Every job in order of arrival; one array element each. Ticks are picoseconds; -1 where it did not come to that.

    ``first`` is when a generating job's first token left, ``tokens`` how many it made (0 for other jobs).
    ``energy_j`` is what the job drew above the idle power of its devices, ``starts`` how often it was started:
    ``start`` and ``device`` are those of its last attempt.
    """

    workload: IntArray
    arrival: TickArray
    start: TickArray
    finish: TickArray
    first: TickArray
    tokens: IntArray
    device: IntArray
    status: IntArray
    energy_j: FloatArray
    starts: IntArray

    def __len__(self) -> int:
        return len(self.arrival)


@dataclass(frozen=True)
class Slice:
    """Something that occupied one lane of a device from ``start`` to ``end``. Slices of a lane never overlap."""

    device: int
    lane: str
    name: str
    start: int
    end: int


@dataclass(frozen=True)
class IntervalTable:
    """Every time an engine of a device worked; one array element each. ``lane`` and ``name`` index ``words``.

    ``watts`` is above the device's idle power.
    """

    device: IntArray
    lane: IntArray
    name: IntArray
    start: TickArray
    end: TickArray
    watts: FloatArray
    words: Sequence[str]

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Spells:
    """When what was wrong with what; one array element each, by device and time.

    ``device`` is -1 for what is wrong with the whole fleet's power. ``what`` indexes ``SPELLS``. A spell that lasts
    beyond the run is cut at its end.
    """

    device: IntArray
    what: IntArray
    start: TickArray
    end: TickArray

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class DeviceRecord:
    """One device's share of a run."""

    name: str
    label: str
    kind: str
    busy_ticks: int
    """Time in which at least one engine worked."""
    energy_j: float
    jobs: int
    power_limit_w: float
    idle_power_w: float
    down_ticks: int = 0
    """Time in which it had failed."""
    rented_ticks: int | None = None
    """Time for which it was rented, where its entry is scaled; else all of the run."""


@dataclass(frozen=True)
class Scaling:
    """How many devices of a scaled entry were on, and rented (on, being provisioned or draining), over time.

    ``devices``: their numbers. ``scale_ups`` and ``scale_downs``: decisions for more and for fewer.
    """

    entry: str
    devices: range
    min: int
    max: int
    in_service: Steps
    rented: Steps
    scale_ups: int
    scale_downs: int


@dataclass(frozen=True)
class TokenGaps:
    """The times between following tokens: ``ticks[i]`` was the gap of ``weights[i]`` tokens of ``workload[i]``."""

    ticks: TickArray
    weights: IntArray
    end: TickArray
    workload: IntArray


@dataclass(frozen=True)
class Tally:
    """What is left of a run too long for every job's times to be kept.

    Series 0 is all jobs; where there are several workloads, series 1 + w is workload w. ``counts``: (workloads, 5)
    jobs by status, as in ``STATUS``. ``batches``: (series, batches in order of arrival), records of the number of jobs
    and the sum of their times in ticks, ``latency_n``, ``latency_sum``, ``waiting_n``, ``waiting_sum``; the i-th batch
    is of jobs ``width`` i to ``width`` (i + 1) - 1. ``bins``: (2, series, stretches of as many batches each, 1 + bins),
    latency and waiting in ticks: zeros, then the bins of engine/sketch.py from bin 0 up. ``peak_w``: of the whole
    fleet. ``last_arrival``: tick. ``joules_by_hour``: the fleet's energy (24,) by hour of day.
    """

    counts: IntArray
    batches: Any
    bins: IntArray
    width: int
    peak_w: float
    last_arrival: int
    joules_by_hour: FloatArray


@dataclass(frozen=True)
class Recording:
    """All that happened in a run, in ticks.

    With a ``tally`` the jobs, intervals and slices are a sample, and power and waiting are means over short times.
    """

    end: int
    jobs: Jobs
    devices: Sequence[DeviceRecord]
    workloads: Sequence[str]
    power: Steps
    """Power of the whole fleet (W)."""
    waiting: Steps
    """Jobs that have arrived and wait."""
    slices: Sequence[Slice]
    token_gaps: TokenGaps
    intervals: IntervalTable | None = None
    sampled_slices: bool = False
    """Whether ``slices`` is only a part of the run (said wherever they are shown)."""
    notes: Sequence[str] = ()
    """Things a reader must know: fallbacks taken, batches' limits, what was sampled."""
    extra: dict[str, Any] = field(default_factory=dict)
    spells: Spells | None = None
    """What was wrong, when; None where no fault strikes devices or power."""
    returned: int = 0
    """How often a job was interrupted and waited again."""
    struck: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Faults of operations by their place in the list: how many operations were concerned, and struck."""
    corrupted: int | None = None
    """Jobs that completed with a garbled copy; None where no fault strikes operations."""
    tally: Tally | None = None
    scaling: Sequence[Scaling] = ()
    """Entries whose devices come and go."""


def result_json(result: Mapping[str, Any]) -> str:
    """``result`` as result.json holds it: the same bytes for the same run."""
    return json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


SERVING_METRICS = ("ttft", "itl")
"""The timed metrics of jobs that generate tokens: result.json has them under ``serving``."""


def distribution(part: Mapping[str, Any], metric: str) -> Mapping[str, Any] | None:
    """Return the mean and percentiles (s) of a timed metric in a result, or in a workload's part of one.

    None where the result has none, such as ``ttft`` where no job generates tokens.
    """
    holder = (part.get("serving") or {}) if metric in SERVING_METRICS else part
    distribution: Mapping[str, Any] | None = holder.get(f"{metric}_s")
    return distribution
