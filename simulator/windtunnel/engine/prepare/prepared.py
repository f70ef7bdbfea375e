"""A scenario made ready to run: classes of devices, every job, and what each class would take for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.executor import Executor
from windtunnel.core.policy import Policy
from windtunnel.core.ticks import FloatArray, TickArray, to_ticks
from windtunnel.engine.prepare.fault_schedule import FaultSchedule
from windtunnel.engine.prepare.programs import (
    BatchTable,
    Compiled,
    Source,
    batch_table,
)
from windtunnel.engine.prepare.users import UserClass
from windtunnel.scenario.autoscale import Autoscale
from windtunnel.scenario.program import Stage
from windtunnel.scenario.scenario import Scenario, Workload

FAR = 2**62
"""A tick later than any run: the deadline of a job without one."""


@dataclass(frozen=True)
class FleetClass:
    """Devices that are alike: one fleet entry. Device numbers ``first`` to ``first + count - 1``."""

    number: int
    name: str
    device: Device
    first: int
    count: int
    """Devices that there are; where the entry is scaled, that there may be."""
    begin: int
    """Devices in service when the run begins."""
    streams: int
    price_usd_per_s: float | None
    idle_w: float
    active_w: float
    """Drawn above idle whenever anything runs, once."""
    limit_w: float
    executor: Executor | None = None
    """What does its work, where it is a device of this host and not a model alone."""

    @property
    def names(self) -> list[str]:
        """Each device's name: the class's, with a number where it has several."""
        if self.count == 1:
            return [self.name]
        return [f"{self.name}-{i}" for i in range(self.count)]


@dataclass(frozen=True)
class JobClass:
    """A workload with what the engine needs of it."""

    number: int
    workload: Workload
    program: Sequence[Stage]
    source: Source
    deadline_ticks: int
    """From arrival; FAR without one."""


@dataclass(frozen=True)
class PreparedRun:
    """Everything a run needs. Job arrays are in order of arrival, and leave out the jobs of users (``users``)."""

    scenario: Scenario
    policy: Policy
    classes: Sequence[FleetClass]
    workloads: Sequence[JobClass]
    compiled: Mapping[tuple[int, int], Compiled]
    """(class number, workload number) to the program compiled for it; absent where the class cannot run it."""
    preference: Mapping[tuple[int, int], float]
    """(class, workload) to its place in the recommendation matrix, where the policy asks for it."""
    arrival: TickArray
    workload_of: np.ndarray
    rank: np.ndarray
    """Each job's place within its workload."""
    eligible: np.ndarray
    """Each job's index into ``signatures``."""
    signatures: Sequence[tuple[int, ...]]
    """Sets of classes that can run a job, in the order of the fleet."""
    end: int | None
    """Tick at which everything stops; None: run until drained."""

    faults: FaultSchedule | None = None
    """What strikes devices, and when; None where nothing does."""
    budget_w: float | None = None
    """Power that the whole fleet may draw (infinite: only in a brown-out is there a limit); None without any."""
    streamed: bool = False
    """Whether jobs are drawn as they are needed, and their times summed up: the job arrays then hold one job of each
    workload, which stands for all of them."""
    expected_jobs: int = 0
    expected_ticks: int = 0
    """How many jobs will arrive over how long, about; where they are drawn as they are needed."""
    sampled: bool = True
    """Whether a sample of the jobs' times is kept then."""
    slowdown: FloatArray | None = None
    """Each job's slowdown by its number, where stragglers are stated."""

    users: Sequence[UserClass] = ()
    """Workloads whose users wait for answers."""
    limit: int | None = None
    """Jobs after which no more arrive, users' included."""
    scaled: Sequence[tuple[FleetClass, Autoscale]] = ()
    """Classes whose devices come and go, with the rule by which they do."""
    with_capacity: Callable[[int], PreparedRun] | None = None
    """The same with draws for so many jobs of each closed workload."""

    @property
    def job_count(self) -> int:
        """Jobs that arrive; where that is not known beforehand, about so many."""
        if self.streamed:
            return self.expected_jobs
        room = len(self.arrival) + sum(users.capacity for users in self.users)
        return room if self.limit is None else min(room, self.limit)

    @property
    def device_count(self) -> int:
        """Devices in the whole fleet."""
        return sum(c.count for c in self.classes)

    @property
    def interrupts(self) -> bool:
        """Whether what a device does may be interrupted or slowed."""
        return self.faults is not None or self.real

    @property
    def real(self) -> bool:
        """Whether the fleet has a device of this host."""
        return any(c.executor is not None for c in self.classes)

    @property
    def idle_w(self) -> float:
        """What the whole fleet draws when nothing runs."""
        return sum(c.idle_w * c.begin for c in self.classes)

    @property
    def batch_wait_ticks(self) -> int:
        """How long a request-level batch waits for company."""
        return to_ticks(self.policy.batch.wait_s)

    def is_own_interval(self, program: Compiled) -> bool:
        """Whether the program's jobs are of one piece, so that their own start and finish say what the device did."""
        alone = program.decoder is None and self.policy.batch.kind == "none" and not self.interrupts
        return alone and program.single is not None

    @property
    def writes_intervals(self) -> bool:
        """Whether what devices do has to be written down as it happens."""
        return not all(self.is_own_interval(program) for program in self.compiled.values())

    def batches(self, cls: int, work: int) -> BatchTable | None:
        """Request-level batches of the workload on the class; None where more than their number and draw matters."""
        if self.compiled[cls, work].decoder is not None:
            return None
        job_class = self.workloads[work]
        return batch_table(job_class.program, self.classes[cls].device, job_class.source, self.policy.batch.size)

    def class_of_device(self) -> np.ndarray:
        """Each device's class number."""
        return np.repeat(np.arange(len(self.classes)), [c.count for c in self.classes])


def kind_of_station(prepared: PreparedRun, fleet_class: FleetClass) -> str:
    """``continuous``, ``stream``, ``single`` or ``real``: what a class's fleet entry and the policy's batching need."""
    if fleet_class.executor is not None:
        return "real"
    if prepared.policy.batch.kind == "continuous":
        return "continuous"
    programs = [compiled for (c, _), compiled in prepared.compiled.items() if c == fleet_class.number]
    side_by_side = any(len(phase) > 1 for p in programs for variant in p.variants for phase in variant)
    return "stream" if fleet_class.streams > 1 or side_by_side else "single"
