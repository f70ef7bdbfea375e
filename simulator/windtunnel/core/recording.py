"""The recording of a run: all jobs, devices, intervals and step functions. The result is computed from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from windtunnel.core.ticks import FloatArray, TickArray, to_second_array

IntArray = npt.NDArray[np.int64]


def grouped(numbers: IntArray) -> IntArray:
    """Return the places of equal numbers next to each other, in increasing order and otherwise unchanged."""
    if len(numbers) and numbers.min() >= 0 and numbers.max() < 2**16:
        # A stable sort of 16-bit numbers is a radix sort, which is several times as fast.
        return np.argsort(numbers.astype(np.uint16), kind="stable")
    return np.argsort(numbers, kind="stable")


def sum_of_ticks(ticks: TickArray) -> int:
    """Return the exact sum of times. Those of many devices together may be longer than an int64 reaches."""
    high = ticks >> 32
    return (int(high.sum()) << 32) + int((ticks - (high << 32)).sum())


COMPLETED, RUNNING, QUEUED, DROPPED, FAILED = range(5)
DEGRADATION_CAUSES = ("down", "unreachable", "throttled", "brown-out")
"""The causes of degraded intervals, of a device or of the fleet's power."""
STATUS = ("completed", "running", "queued", "dropped", "failed")


@dataclass(frozen=True)
class Steps:
    """A step function of time: ``values[i]`` from ``ticks[i]`` to ``ticks[i+1]``, the last value to ``end``.

    ``ticks`` are strictly increasing; the first is 0.
    """

    ticks: TickArray
    values: FloatArray
    end: int

    def integral(self) -> float:
        """Return the integral from 0 to ``end``, in units of the value times seconds (joules for watts)."""
        widths = np.diff(np.append(self.ticks, self.end))
        # Not np.dot: its sum depends on the number of threads of the linear algebra library.
        return float((to_second_array(widths) * self.values).sum())

    def mean(self) -> float:
        """Return the time average; the last value where ``end`` is 0."""
        return self.integral() / (self.end / 1e12) if self.end else float(self.values[-1])

    def sampled(self, points: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return start time (s), mean and peak of ``points`` equal bins, for charts; every peak is kept."""
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


class _Lazy:
    """Columns that are built when one of them is first read, because most repeated runs need none."""

    def __init__(self, build: Callable[[], Any]) -> None:
        object.__setattr__(self, "_build", build)

    def __getattr__(self, name: str) -> Any:
        """Build the columns, and return the one with this name."""
        if name not in getattr(type(self), "__dataclass_fields__", ()):
            raise AttributeError(name)
        vars(self).update(vars(self._build()))
        return vars(self)[name]


class LazySteps(_Lazy, Steps):
    """A step function that is built when it is first read; ``build`` returns it."""


@dataclass(frozen=True)
class Jobs:
    """All jobs in order of arrival, one array element each. Times are ticks, -1 where the event did not happen.

    ``first`` is the time of a request's first token, and ``tokens`` the number of its output tokens (0 for other jobs).
    ``prompts`` are its prompt tokens. ``outside`` is the time that a request spends outside of the engine's steps
    before its first token reaches the user, a part of its times to the first and to the last token; None for 0.
    ``energy_j`` is the energy of the job above the idle power of its devices. ``starts`` is its number of attempts;
    ``start`` and ``device`` are those of its last attempt. With a prefix cache, else None: ``blocks`` is the number of
    blocks of a request's prompt, ``hit_blocks`` how many of them the cache had when the request last started, and
    ``hits`` the tokens of the prompt that it therefore did not read. They are 0 for requests that did not start.
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
    prompts: IntArray | None = None
    outside: TickArray | None = None
    hits: IntArray | None = None
    blocks: IntArray | None = None
    hit_blocks: IntArray | None = None

    def __len__(self) -> int:
        return len(self.arrival)

    def until_first(self, which: npt.NDArray[np.bool_] | slice | IntArray) -> TickArray:
        """Return the ticks from the arrival of some jobs to their first token, for those that have one."""
        return self._until(self.first, which)

    def until_finish(self, which: npt.NDArray[np.bool_] | slice | IntArray) -> TickArray:
        """Return the ticks from the arrival of some jobs to their end, for those that ended."""
        return self._until(self.finish, which)

    def _until(self, event: TickArray, which: npt.NDArray[np.bool_] | slice | IntArray) -> TickArray:
        ticks: TickArray = event[which] - self.arrival[which]
        return ticks if self.outside is None else ticks + self.outside[which]

    def prefix_hit_rate(self, which: npt.NDArray[np.bool_]) -> float | None:
        """Return the share of the blocks of some jobs' prompts that prefix caches had; None without such blocks."""
        if self.blocks is None or self.hit_blocks is None:
            return None
        blocks = int(self.blocks[which].sum())
        return int(self.hit_blocks[which].sum()) / blocks if blocks else None


LOAD_OF_DESIGN = "load design "
"""How the name of an interval begins in which a reconfigurable device loads a design; the design's name follows."""


class Slice(NamedTuple):
    """An interval of the timeline in which a lane of a device was occupied. Slices of a lane never overlap."""

    device: int
    lane: str
    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Slices(Sequence[Slice]):
    """Slices of the timeline, one array element each. ``lane`` and ``name`` index ``words``."""

    device: IntArray
    lane: IntArray
    name: IntArray
    start: TickArray
    end: TickArray
    words: Sequence[str]

    @classmethod
    def of(cls, slices: Sequence[Slice]) -> Slices:
        """Return the columns of single slices."""
        if isinstance(slices, Slices):
            return slices
        words: dict[str, int] = {}
        rows = [
            (piece.device, *(words.setdefault(word, len(words)) for word in (piece.lane, piece.name)), *piece[3:])
            for piece in slices
        ]
        return cls.of_columns(list(np.array(rows, dtype=np.int64).reshape(-1, 5).T), list(words))

    @classmethod
    def of_columns(cls, columns: Sequence[IntArray], words: Sequence[str]) -> Slices:
        """Return slices from their columns in the order of the attributes."""
        device, lane, name, start, end = columns
        return cls(device, lane, name, start, end, words)

    def __len__(self) -> int:
        return len(self.start)

    @overload
    def __getitem__(self, index: int) -> Slice: ...
    @overload
    def __getitem__(self, index: slice) -> list[Slice]: ...
    def __getitem__(self, index: int | slice) -> Slice | list[Slice]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        device, lane, name, start, end = (
            int(column[index]) for column in (self.device, self.lane, self.name, self.start, self.end)
        )
        return Slice(device, self.words[lane], self.words[name], start, end)


class LazySlices(_Lazy, Slices):
    """Slices that are built when they are first read; ``build`` returns them."""


@dataclass(frozen=True)
class IntervalTable:
    """All intervals in which a hardware engine worked, one array element each. ``lane`` and ``name`` index ``words``.

    ``watts`` is the power above the device's idle power.
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

    @property
    def is_load(self) -> npt.NDArray[np.bool_]:
        """Whether each interval is the load of a design; every other one executes an operation."""
        loads = np.array([word.startswith(LOAD_OF_DESIGN) for word in self.words], dtype=np.bool_)
        # A negative name is no word.
        return (self.name >= 0) & loads[self.name] if len(self) else np.zeros(0, dtype=np.bool_)

    @cached_property
    def by_device(self) -> tuple[IntArray, TickArray, TickArray]:
        """Device, start and end of the intervals, in the order of the devices, and for each device by start."""
        if len(self):
            # The intervals of a device are usually recorded in the order of time.
            order = grouped(self.device)
            start, device = self.start.take(order), self.device.take(order)
            if ((start[1:] >= start[:-1]) | (device[1:] != device[:-1])).all():
                return device, start, self.end.take(order)
        order = np.lexsort((self.start, self.device))
        return self.device[order], self.start[order], self.end[order]


@dataclass(frozen=True)
class DegradedIntervals:
    """All degraded intervals, one array element each, sorted by device and time.

    ``device`` is -1 for the power of the whole fleet. ``cause`` indexes ``DEGRADATION_CAUSES``. An interval that
    lasts beyond the run is cut at the end of the run.
    """

    device: IntArray
    cause: IntArray
    start: TickArray
    end: TickArray

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class DeviceRecord:
    """Totals of one device over a run."""

    name: str
    label: str
    kind: str
    busy_ticks: int
    """Time in which at least one hardware engine worked."""
    energy_j: float
    jobs: int
    power_limit_w: float
    idle_power_w: float
    down_ticks: int = 0
    """Time of its outages."""
    rented_ticks: int = 0
    """Time for which it was rented; the whole run unless its entry is scaled."""


@dataclass(frozen=True)
class ChipRecord:
    """A chip that several devices reach, by their numbers; its powers are counted once (W).

    ``busy_ticks`` is the time in which at least one of its devices was busy.
    """

    name: str
    devices: tuple[int, ...]
    busy_ticks: int
    power_limit_w: float
    idle_power_w: float


@dataclass(frozen=True)
class DeviceEntry:
    """The devices of one fleet entry. Powers are those of one device (W).

    Where the entry has groups of ``group`` devices, a group counts as one device here.
    """

    name: str
    label: str
    kind: str
    count: int
    power_limit_w: float
    idle_power_w: float
    group: int = 1

    def name_of(self, number: int) -> str:
        """Return the name of a device: that of the entry, with the number if the entry has several devices."""
        return self.name if self.count == 1 else f"{self.name}-{number}"


@dataclass(frozen=True)
class Devices(Sequence[DeviceRecord]):
    """Totals of all devices over a run, one array element each, in the order of the fleet; see `DeviceRecord`."""

    entries: Sequence[DeviceEntry]
    busy_ticks: TickArray
    energy_j: FloatArray
    jobs: IntArray
    down_ticks: TickArray
    rented_ticks: TickArray
    idle_w: FloatArray
    """The idle power that counts for each device (W): 0 if another device of its chip has it."""

    @classmethod
    def of(cls, records: Sequence[DeviceRecord]) -> Devices:
        """Return the table of single records; each is an entry of its own."""
        return cls(
            [DeviceEntry(d.name, d.label, d.kind, 1, d.power_limit_w, d.idle_power_w) for d in records],
            np.array([d.busy_ticks for d in records], dtype=np.int64),
            np.array([d.energy_j for d in records], dtype=np.float64),
            np.array([d.jobs for d in records], dtype=np.int64),
            np.array([d.down_ticks for d in records], dtype=np.int64),
            np.array([d.rented_ticks for d in records], dtype=np.int64),
            np.array([d.idle_power_w for d in records], dtype=np.float64),
        )

    def __len__(self) -> int:
        return len(self.busy_ticks)

    @overload
    def __getitem__(self, index: int) -> DeviceRecord: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[DeviceRecord]: ...

    def __getitem__(self, index: int | slice) -> DeviceRecord | Sequence[DeviceRecord]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        entry, members = next((entry, members) for entry, members in self.by_entry() if number < members.stop)
        return DeviceRecord(
            name=entry.name_of(number - members.start),
            label=entry.label,
            kind=entry.kind,
            busy_ticks=int(self.busy_ticks[number]),
            energy_j=float(self.energy_j[number]),
            jobs=int(self.jobs[number]),
            power_limit_w=entry.power_limit_w,
            idle_power_w=entry.idle_power_w,
            down_ticks=int(self.down_ticks[number]),
            rented_ticks=int(self.rented_ticks[number]),
        )

    def by_entry(self) -> Iterator[tuple[DeviceEntry, slice]]:
        """Yield each entry and the places of its devices."""
        first = 0
        for entry in self.entries:
            yield entry, slice(first, first + entry.count)
            first += entry.count

    def names(self) -> list[str]:
        """Return the name of every device."""
        return [entry.name_of(i) for entry in self.entries for i in range(entry.count)]

    def watts(self) -> tuple[FloatArray, FloatArray]:
        """Return the power limit and the idle power of every device (W)."""
        counts = [entry.count for entry in self.entries]
        limits, idle = [e.power_limit_w for e in self.entries], [e.idle_power_w for e in self.entries]
        return np.repeat(limits, counts), np.repeat(idle, counts)


@dataclass(frozen=True)
class Scaling:
    """The number of devices of a scaled entry in service, and rented (on, being provisioned or draining), over time.

    ``devices``: their indices. ``scale_ups``, ``scale_downs``: numbers of decisions that added or removed devices.
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
    """The times between consecutive tokens: ``weights[i]`` tokens of ``workload[i]`` had the gap ``ticks[i]``.

    They ended at ``end[i]``. ``of[i]`` is the job whose tokens they are, or -1 - device for a token of each sequence
    that the device decoded then. ``cuts`` has a row (job, device, end) for each time that a device was lost with a job
    that had produced tokens, the last one at the tick ``end``; shape (cuts, 3).
    """

    ticks: TickArray
    weights: IntArray
    end: TickArray
    workload: IntArray
    of: IntArray
    cuts: IntArray = field(default_factory=lambda: np.zeros((0, 3), dtype=np.int64))


@dataclass(frozen=True)
class Progress:
    """What checkpoints and interruptions cost, in ticks at the full speed of the devices.

    ``checkpoint_ticks``: writing checkpoints, also incomplete ones. ``restore_ticks``: loading them. ``lost_ticks``:
    work that interruptions discarded. ``checkpoints``, ``preemptions``: numbers of complete checkpoints and of
    preemptions.
    """

    checkpoint_ticks: int
    restore_ticks: int
    lost_ticks: int
    checkpoints: int
    preemptions: int


@dataclass(frozen=True)
class StepWork:
    """What the completed steps of the replicas of one class did.

    ``tokens[n]`` and ``heads[n]``: how many microbatches had n tokens, and n sequences that produced a token.
    ``decoded``: tokens of decoding sequences, which attended to ``contexts`` tokens together. ``chunks``: those of
    prompts, which have ``prompt_tokens`` tokens, end after ``spans`` tokens of their prompts together, and have
    ``scores`` pairs of a token and one that it attends to where attention has no window.
    """

    tokens: IntArray
    heads: IntArray
    decoded: int
    contexts: int
    chunks: int
    prompt_tokens: int
    spans: float
    scores: float


@dataclass(frozen=True)
class ServingUse:
    """How requests used devices with continuous batching, and which were not served as they arrived.

    By device, empty without continuous batching: ``peak_tokens``, the largest number of tokens for which the KV cache
    had to have room; ``token_ticks`` and ``sequence_ticks``, the integrals over the steps of the cached tokens and of
    the sequences. By class, empty without continuous batching: ``work``. By workload: ``preemptions`` of sequences
    because the cache was full or for a request that precedes them, and ``rejected`` jobs, which were not admitted.
    ``accepted``: how often 0, 1, ... drafted tokens were accepted, by workload, shape (workloads, tokens + 1); without
    rows where nothing is drafted. ``adapter_hits``, ``adapter_loads``, ``adapter_reads``: how often a sequence was
    admitted whose adapter was in a slot, was loaded into one, and of these was read from storage. Of each tier below
    the prefix caches, from the one nearest to the devices on: ``tier_blocks`` and ``tier_tokens`` that completed
    requests found there when they last started, shape (tiers, workloads), and the time for which the links of the
    devices loaded, ``tier_busy_ticks``, shape (tiers, devices).
    """

    peak_tokens: IntArray
    token_ticks: FloatArray
    sequence_ticks: FloatArray
    preemptions: IntArray
    rejected: IntArray
    tier_blocks: IntArray
    tier_tokens: IntArray
    tier_busy_ticks: IntArray
    accepted: IntArray
    adapter_hits: IntArray
    adapter_loads: IntArray
    adapter_reads: IntArray
    work: Sequence[StepWork] = ()


@dataclass(frozen=True)
class KvTransfers:
    """The transfers of KV caches that have ended, one array element each, with times in ticks.

    ``job``, ``sender`` and ``receiver`` are numbers; ``tokens`` were sent. ``asked``: when the prompt had been read;
    ``began``: when both links were free for it; ``landed``: when it ended.
    """

    job: IntArray
    sender: IntArray
    receiver: IntArray
    tokens: IntArray
    asked: TickArray
    began: TickArray
    landed: TickArray


@dataclass(frozen=True)
class Loads:
    """The loads of designs: how many began, and the time for which devices loaded (ticks)."""

    count: int
    ticks: int


@dataclass(frozen=True)
class Tally:
    """Summary of a run that is too long to keep the times of every job.

    Series 0 is all jobs; with several workloads, series 1 + w is workload w. ``counts``: jobs by status, in the order
    of ``STATUS``; shape (workloads, 5). ``batches``: records ``latency_n``, ``latency_sum``, ``waiting_n``,
    ``waiting_sum`` (numbers of jobs, and sums of their times in ticks), in order of arrival; shape (series, batches).
    The i-th batch has the jobs from ``width`` i to ``width`` (i + 1) - 1. ``bins``: histograms of latency and queueing
    delay in ticks; shape (2, series, groups of equally many batches, 1 + bins): the number of zeros, then the bins of
    the sketch from bin 0 on. ``peak_w``: peak power of the whole fleet. ``last_arrival``: tick of the last arrival.
    ``joules_by_hour``: the fleet's energy by hour of day; shape (24,).
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
    """The complete data of one run, with times in ticks.

    With a ``tally`` the jobs, intervals and slices are a sample, and power and waiting are means over short times.
    """

    end: int
    jobs: Jobs
    devices: Devices
    workloads: Sequence[str]
    power: Steps
    """Power of the whole fleet (W) over time."""
    waiting: Steps
    """Number of waiting jobs over time."""
    slices: Sequence[Slice]
    token_gaps: TokenGaps
    intervals: IntervalTable | None = None
    sampled_slices: bool = False
    """Whether ``slices`` is a sample of the run; every page that shows them states it."""
    notes: Sequence[str] = ()
    """Remarks for the reader: fallbacks, limits of batches, sampling."""
    interrupted_at_end: int = 0
    """How many jobs were interrupted at the last tick, so that they do not wait yet."""
    degraded: DegradedIntervals | None = None
    """None where no fault affects devices or power."""
    returned: int = 0
    """How often an interrupted job waited again."""
    fault_occurrences: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """For each fault of operations, by its index: the number of eligible operations, and of its occurrences."""
    corrupted: int | None = None
    """Jobs that completed with a corrupted copy; None where no fault affects operations."""
    tally: Tally | None = None
    progress: Progress | None = None
    """None without checkpoints and preemption."""
    loads: Loads | None = None
    """None where no job needs a design that a device loads."""
    use: ServingUse | None = None
    """None where no job generates tokens."""
    transfers: KvTransfers | None = None
    """None where no request moves from a device that reads its prompt to one that decodes it."""
    scaling: Sequence[Scaling] = ()
    """The scaled entries."""
    chips: Sequence[ChipRecord] = ()
    """The chips that several devices reach."""
    saved_j: float = 0.0
    """Energy that jobs would draw on chips of their own, and do not draw together on shared chips (J)."""
