"""A prepared run: the classes of devices, all jobs, and the program of every workload on every class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.executor import Executor
from windtunnel.core.policy import Batch, Policy, Score
from windtunnel.core.provenance import SourcedValue
from windtunnel.core.ticks import FloatArray, TickArray, to_ticks
from windtunnel.engine.prepare.batches import BatchTable, batch_table
from windtunnel.engine.prepare.chips import Chip, shared_chips
from windtunnel.engine.prepare.fault_schedule import FaultSchedule
from windtunnel.engine.prepare.prefixes import PromptChains
from windtunnel.engine.prepare.programs import Compiled
from windtunnel.engine.prepare.replica import Replica
from windtunnel.engine.prepare.source import ServiceTimeDraws, Source
from windtunnel.engine.prepare.tiers import ReplicaTier
from windtunnel.engine.prepare.users import CapacityExceededError, UserClass
from windtunnel.scenario.autoscale import Autoscale
from windtunnel.scenario.fleet import Role
from windtunnel.scenario.program import Stage
from windtunnel.scenario.scenario import Scenario, Workload

FAR = 2**62
"""A tick beyond the longest run: the deadline of a job that has none."""


@dataclass(frozen=True)
class FleetClass:
    """The identical devices of one fleet entry, with the numbers ``first`` to ``first + count - 1``.

    Where an entry states a group, each group counts as one device here: powers, prices and memory are those of a group.
    """

    number: int
    name: str
    device: Device
    replica: Replica
    """What each device serves decoders with: itself, or a group."""
    first: int
    count: int
    """The number of devices; for a scaled entry the largest possible number."""
    begin: int
    """The number of devices in service when the run begins."""
    streams: int
    price_usd_per_s: float | None
    idle_w: float
    active_w: float
    """Power above idle that a device draws whenever any of its hardware engines works (W)."""
    limit_w: float
    role: Role = "both"
    """What each device does for a request that generates tokens."""
    executor: Executor | None = None
    """The executor of a real device; None for a modelled one."""
    chip: str | None = None
    """The name of the chip that other entries may reach too."""

    @property
    def members(self) -> int:
        """The devices of a group; 1 if each device works alone."""
        return self.replica.group.devices

    @property
    def devices(self) -> int:
        """The devices of all groups."""
        return self.count * self.members

    @property
    def memory_bytes(self) -> float:
        """The memory of a device, or of all devices of a group (bytes)."""
        return self.device.memory_bytes * self.members

    def usable_bytes(self, batch: Batch) -> float:
        """Return how much of ``memory_bytes`` jobs may use (bytes)."""
        return self.memory_bytes * self.replica.memory_share(batch)


@dataclass(frozen=True)
class LinkRate:
    """The rate (B/s) and the latency (s) of a link in one direction."""

    bytes_per_s: float
    latency_s: float


@dataclass(frozen=True)
class KvLink:
    """How a replica of a class sends and receives the KV cache of a request.

    Attributes:
        token_bytes: What a token of the cache takes on all devices that have a part of it (bytes).
        state_bytes: What a sequence takes, whatever its length (bytes).
        inside: The link to a replica of the same node.
        network: The link to a replica of another node.
        sources: Every number on which the rates depend, by name.
    """

    token_bytes: float
    state_bytes: float
    inside: LinkRate
    network: LinkRate
    sources: Mapping[str, SourcedValue]


@dataclass(frozen=True)
class ClassDesigns:
    """The designs of a class of reconfigurable devices.

    Attributes:
        regions: How many designs a device holds at once.
        load_ticks: The time to load one.
        load_w: The power above idle during a load (W).
        needed: The designs that jobs need, in the order of the scenario.
        resident: Those that each device holds at the start, the one that is replaced last first.
        changes: Whether a device may have to load a design during the run.
    """

    regions: int
    load_ticks: int
    load_w: float
    needed: Sequence[str]
    resident: Sequence[str]
    changes: bool


@dataclass(frozen=True)
class JobClass:
    """A workload, its program and the source of its jobs' values."""

    number: int
    workload: Workload
    program: Sequence[Stage]
    source: Source
    deadline_ticks: int
    """The deadline after arrival; FAR if there is none."""
    patience: ServiceTimeDraws | None = None
    """The factors on the mean patience of the jobs, if it is random."""

    @property
    def gang(self) -> int:
        """The number of devices that each job occupies at once."""
        return self.workload.gang or 1


@dataclass(frozen=True)
class Flow:
    """A tenant's requests of one priority, with what a token that is read, or generated, counts for it.

    The flows of its priority are those from ``first`` up to ``end``.
    """

    tenant: str
    first: int
    end: int
    prompt: int
    output: int


@dataclass(frozen=True)
class JobFlows:
    """The flows of fair queueing, and those of the jobs of each workload; shape (jobs,), or (1,) if they have one."""

    flows: Sequence[Flow]
    of: Sequence[np.ndarray]


@dataclass(frozen=True)
class PreparedRun:
    """All inputs of a run. Arrays of jobs are in order of arrival and exclude the jobs of ``users``; shape (jobs,)."""

    scenario: Scenario
    policy: Policy
    classes: Sequence[FleetClass]
    workloads: Sequence[JobClass]
    compiled: Mapping[tuple[int, int], Compiled]
    """The compiled program by (class number, workload number); absent if the class cannot run the workload."""
    excluded: Mapping[tuple[int, int], str]
    """Why a class does not run a workload, by (class, workload), where ``compiled`` has no program."""
    preference: Mapping[tuple[int, int], float]
    """The rank in the recommendation matrix by (class, workload), if the policy requires it."""
    arrival: TickArray
    workload_of: np.ndarray
    rank: np.ndarray
    """The index of each job within its workload."""
    eligible: np.ndarray
    """The index of each job into ``signatures``."""
    signatures: Sequence[tuple[int, ...]]
    """The distinct sets of classes that can start a job, each in the order of the fleet."""
    end: int | None
    """The tick at which the run stops; None if it stops when it has drained."""

    decode_signatures: Sequence[tuple[int, ...]] = ()
    """For each of ``signatures`` the classes that decode what a class that only reads prompts has read."""
    links: Mapping[int, KvLink] = field(default_factory=dict)
    """How each class sends and receives KV caches, by its number; empty if no request moves."""
    nodes: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The node that has all devices of each replica, or -1; shape (replicas,)."""
    faults: FaultSchedule | None = None
    """The schedule of faults of devices and power, if the scenario has any."""
    budget_w: float | None = None
    """The power budget of the whole fleet; infinite if only brown-outs limit power, None if nothing does."""
    streamed: bool = False
    """Whether jobs are drawn while the run goes on and only summaries are kept. The arrays of jobs then have one job of
    each workload, which represents all of them."""
    expected_jobs: int = 0
    expected_ticks: int = 0
    """The expected number of jobs and the expected length of a streamed run."""
    chains: Sequence[PromptChains] = ()
    """The blocks of the prompts of each workload, if devices have prefix caches."""
    block_tokens: int = 0
    """The tokens of a block of a prefix cache; 0 without one."""
    tiers: Mapping[int, Sequence[ReplicaTier]] = field(default_factory=dict)
    """The tiers below the prefix caches of each class, by its number."""
    flows: JobFlows | None = None
    """The flows of fair queueing; None without it."""
    sampled: bool = True
    """Whether a streamed run keeps a sample of the jobs."""
    slowdown: FloatArray | None = None
    """The factor on the execution time of each job, if the scenario has stragglers."""

    users: Sequence[UserClass] = ()
    """The closed workloads."""
    limit: int | None = None
    """The number of jobs after which no more arrive, including those of users."""
    scaled: Sequence[tuple[FleetClass, Autoscale]] = ()
    """The classes that are scaled, with their rules."""
    designs: Mapping[int, ClassDesigns] = field(default_factory=dict)
    """The designs of each class of reconfigurable devices whose jobs need any."""
    step_factors: Mapping[int, float] = field(default_factory=dict)
    """How many times as long as modelled the steps of a class take, by its number; 1 for others."""
    times_only: bool = False
    """Whether only the times of jobs and tokens are asked for: no intervals of hardware engines are recorded, and the
    energy and the use of devices that follow from them are not those of the run."""
    with_capacity: Callable[[int], PreparedRun] | None = None
    """Returns the same run with random draws for this number of jobs of each closed workload."""
    prepare_redrawn: Callable[[PreparedRun, int], PreparedRun] | None = None
    """Returns a given run with another seed, and with redrawn traces."""

    @property
    def job_count(self) -> int:
        """The number of jobs that arrive, or an upper or approximate value if it is not known in advance."""
        if self.streamed:
            return self.expected_jobs
        count = len(self.arrival) + sum(users.capacity for users in self.users)
        return count if self.limit is None else min(count, self.limit)

    @property
    def device_count(self) -> int:
        """The number of devices in the whole fleet."""
        return sum(c.count for c in self.classes)

    @property
    def ganging(self) -> bool:
        """Whether some jobs occupy several devices at once."""
        return any(job_class.gang > 1 for job_class in self.workloads)

    @property
    def disaggregated(self) -> bool:
        """Whether requests move from devices that read their prompts to devices that decode."""
        return bool(self.links)

    @property
    def decode_score(self) -> Score | None:
        """The score of the devices that decode what others have read."""
        return None if self.policy.decode_route is None else self.policy.decode_route.score

    @property
    def interrupts(self) -> bool:
        """Whether the work of a device may be interrupted or slowed down."""
        return self.faults is not None or self.real or self.progresses

    @property
    def progresses(self) -> bool:
        """Whether the engine notes the progress of jobs, for checkpoints or for preemption by priority."""
        preempts = self.policy.preemption != "none" and not self.outranks
        return preempts or any(w.workload.checkpoint is not None for w in self.workloads)

    @property
    def outranks(self) -> bool:
        """Whether a request preempts requests of a continuous batch that come after it in the order of the policy."""
        return self.policy.preemption != "none" and self.policy.batch.kind == "continuous"

    @property
    def reconfigures(self) -> bool:
        """Whether a device may have to load a design during the run."""
        return any(designs.changes for designs in self.designs.values())

    @property
    def real(self) -> bool:
        """Whether the fleet has a real device."""
        return any(c.executor is not None for c in self.classes)

    @property
    def idle_w(self) -> float:
        """The idle power of the whole fleet at the beginning (W)."""
        return self.idle_of([c.begin for c in self.classes])

    @property
    def max_idle_w(self) -> float:
        """The idle power of the fleet with all scaled devices in service (W)."""
        return self.idle_of([c.count for c in self.classes])

    def idle_of(self, counts: Sequence[int]) -> float:
        """Return the idle power of so many devices of each class (W); that of a shared chip counts once."""
        return fleet_idle_w(self.classes, counts)

    @cached_property
    def chips(self) -> Sequence[Chip]:
        """The chips that several devices reach."""
        return shared_chips(self.classes)

    def idle_by_device(self) -> FloatArray:
        """Return the idle power that counts for each device (W); shape (devices,)."""
        idle_w = np.repeat([c.idle_w for c in self.classes], [c.count for c in self.classes])
        idle_w[[device for chip in self.chips for device in chip.devices[1:]]] = 0.0
        return idle_w

    @property
    def batch_wait_ticks(self) -> int:
        """How long the first job of a request-level batch waits for others (ticks)."""
        return to_ticks(self.policy.batch.wait_s)

    def is_own_interval(self, program: Compiled) -> bool:
        """Return whether each job is one segment, so that its start and finish are the interval of the device."""
        alone = program.decoder is None and self.policy.batch.kind == "none" and not self.interrupts
        return alone and program.single is not None and not self.reconfigures

    @property
    def writes_intervals(self) -> bool:
        """Whether the engine must record intervals, because the times of jobs do not show them."""
        return not all(self.is_own_interval(program) for program in self.compiled.values())

    def redrawn(self, seed: int) -> PreparedRun:
        """Return the same run with another seed. The arrivals of its traces are redrawn from those of this run."""
        assert self.prepare_redrawn is not None  # noqa: S101  `prepare` sets it
        return self.prepare_redrawn(self, seed)

    def step_error_factors(self) -> dict[int, float]:
        """Return the largest error factor of a step on each class that serves decoders (``DecoderCosts.accuracy``)."""
        factors: dict[int, float] = {}
        for (cls, _), program in self.compiled.items():
            factor = None if program.decoder is None else program.decoder.accuracy.error_factor
            if factor is not None:
                factors[cls] = max(factor, factors.get(cls, 1.0))
        return factors

    def with_step_times(self, factors: Mapping[int, float]) -> PreparedRun:
        """Return the same run where each step of these classes takes ``factors`` times as long.

        What routes and orders expect of the jobs does not change.
        """
        again = self.with_capacity
        return replace(
            self,
            step_factors=factors,
            with_capacity=None if again is None else lambda count: again(count).with_step_times(factors),
        )

    def batches(self, cls: int, work: int) -> BatchTable | None:
        """Return the table of request-level batches; None if more than number and random draws determine their cost."""
        if self.compiled[cls, work].decoder is not None:
            return None
        job_class = self.workloads[work]
        return batch_table(job_class.program, self.classes[cls].device, job_class.source, self.policy.batch.size)

    @property
    def adapting(self) -> bool:
        """Whether requests use adapters."""
        return any(compiled.adapters is not None for compiled in self.compiled.values())

    @property
    def drafted_tokens(self) -> int:
        """The most tokens that are drafted for a sequence in a step; 0 without speculative decoding."""
        return max((c.decoder.query_tokens for c in self.compiled.values() if c.decoder is not None), default=1) - 1

    def class_of_device(self) -> np.ndarray:
        """Return the class number of each device; shape (devices,)."""
        return np.repeat(np.arange(len(self.classes)), [c.count for c in self.classes])


def fleet_idle_w(classes: Sequence[FleetClass], counts: Sequence[int]) -> float:
    """Return the idle power of ``counts`` devices of each class (W); that of a chip that several reach counts once."""
    twice = [device for chip in shared_chips(classes) for device in chip.devices[1:]]
    again_w = sum(c.idle_w * sum(c.first <= device < c.first + c.count for device in twice) for c in classes if twice)
    return sum(c.idle_w * count for c, count in zip(classes, counts, strict=True)) - again_w


def kind_of_station(prepared: PreparedRun, fleet_class: FleetClass) -> str:
    """Return the kind of station that a class needs: ``continuous``, ``stream``, ``single`` or ``real``."""
    if fleet_class.executor is not None:
        return "real"
    if prepared.policy.batch.kind == "continuous":
        return "continuous"
    programs = [compiled for (c, _), compiled in prepared.compiled.items() if c == fleet_class.number]
    side_by_side = any(len(phase) > 1 for p in programs for variant in p.variants for phase in variant)
    return "stream" if fleet_class.streams > 1 or side_by_side else "single"


Result = TypeVar("Result")


def with_capacity(run: Callable[[PreparedRun], Result], prepared: PreparedRun) -> Result:
    """Run ``prepared``; if users submit more jobs than random numbers were drawn for, start again with twice as many.

    A draw belongs to its job, so earlier jobs do not change.
    """
    while True:
        try:
            return run(prepared)
        except CapacityExceededError as error:
            assert prepared.with_capacity is not None  # noqa: S101  runs with users are prepared with this function
            prepared = prepared.with_capacity(error.capacity)
