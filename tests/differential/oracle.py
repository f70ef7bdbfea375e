"""An independent simulation of a fleet, small and slow: what both engines are checked against.

It shares no code with the engines' transitions. It knows: every arrival process, central queues and routes, every
order, programs of operations one after another, one job at a time on a device, jobs of several devices, failures of
devices (retried, migrated or failed jobs), throttling, and users in closed loops.

Jobs and devices are objects, and the state is searched anew at every decision. SimPy keeps the time. The rules of ties
are those of docs/engine.md.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

from windtunnel.core.policy import Candidate, JobKey
from windtunnel.core.ticks import TICKS_PER_SECOND, to_seconds
from windtunnel.engine.prepare.fault_schedule import FAIL, LOSE, MIGRATE, REPAIR, SPEED
from windtunnel.engine.prepare.prepared import FAR, PreparedRun

COMPLETION, FAULT, ARRIVAL = range(3)


@dataclass(eq=False)
class Job:
    """A job: what arrived, and what became of it."""

    number: int
    work: int
    rank: int
    classes: tuple[int, ...]
    arrival: int
    user: int = -1
    start: int = -1
    finish: int = -1
    device: int = -1
    starts: int = 0
    failed: bool = False
    on: tuple[Device, ...] = ()
    """The devices that execute it; the first one has its work."""


@dataclass(eq=False)
class Device:
    """A device: its queue, its job, and the work that remains."""

    number: int
    cls: int
    up: bool = True
    speed: float = 1.0
    job: Job | None = None
    segments: list[int] | None = None
    left: int = 0
    since: int = 0
    process: Any = None
    ready: int = 0
    turn: int = 0


class Oracle:
    """Simulates one prepared run."""

    def __init__(self, prepared: PreparedRun) -> None:
        self.prepared = prepared
        self.env = simpy.Environment()
        self.devices = [Device(c.first + i, c.number) for c in prepared.classes for i in range(c.count)]
        for device in self.devices:
            device.turn = device.number
        self.turn = len(self.devices)
        self.jobs: list[Job] = []
        self.waiting: dict[int, list[Job]] = {}
        """Waiting jobs by device; by -1 in the central queue, or those that no device accepts."""
        self.noted: list[tuple[int, int, int, Any]] = []
        self.routed = prepared.policy.route.score is not None

    # Time.

    def note(self, kind: int, entity: int, subject: Any) -> None:
        """Note that something happens at the present tick."""
        self.noted.append((kind, entity, len(self.noted), subject))

    def run(self) -> list[Job]:
        """Return all jobs, as they are at the end of the run."""
        prepared, env = self.prepared, self.env
        env.process(self.arrivals())
        if prepared.faults is not None:
            env.process(self.faults())
        end = 2**62 if prepared.end is None else prepared.end
        while True:
            while env.peek() <= (env.now if self.noted else end):
                env.step()
            if not self.noted:
                return self.jobs
            event = min(self.noted, key=lambda noted: noted[:3])
            self.noted.remove(event)
            kind, _, _, subject = event
            if kind == FAULT and self.is_over():
                return self.jobs
            {COMPLETION: self.complete, FAULT: self.fault, ARRIVAL: self.arrive}[kind](subject)

    def arrivals(self) -> Generator[Any, Any, None]:
        """Let the known jobs arrive."""
        prepared = self.prepared
        for i, tick in enumerate(prepared.arrival.tolist()):
            yield self.env.timeout(tick - self.env.now)
            classes = prepared.signatures[int(prepared.eligible[i])]
            self.note(ARRIVAL, i, Job(i, int(prepared.workload_of[i]), int(prepared.rank[i]), classes, tick))

    def faults(self) -> Generator[Any, Any, None]:
        """Let the faults take effect, as far as any run of the tests lasts."""
        assert self.prepared.faults is not None
        for i, event in enumerate(self.prepared.faults.until(10 * TICKS_PER_SECOND)):
            yield self.env.timeout(int(event["tick"]) - self.env.now)
            self.note(FAULT, i, event)

    def is_over(self) -> bool:
        """Return whether no job is present, and none will arrive."""
        arrived = len(self.jobs) == len(self.prepared.arrival)
        return arrived and not any(d.job for d in self.devices) and not any(self.waiting.values())

    # Queues.

    def key(self, job: Job) -> tuple[float, int]:
        """Return the place of a job in the order of the policy."""
        order = self.prepared.policy.order.key
        if order is None:
            return 0.0, job.number
        workload = self.prepared.workloads[job.work]
        sizes = self.prepared.compiled[job.classes[0], job.work].estimate_s
        size = float(sizes[0] if sizes.size == 1 else sizes[job.rank])
        deadline = job.arrival + workload.deadline_ticks
        return order(JobKey(job.arrival, workload.workload.priority, deadline, size)), job.number

    def place(self, job: Job) -> None:
        """Put a job into a queue: the central one, or that of the device with the best score."""
        if not self.routed:
            self.waiting.setdefault(-1, []).append(job)
            self.offer()
            return
        score = self.prepared.policy.route.score
        assert score is not None
        rated = []
        for cls in job.classes:
            members = [d for d in self.devices if d.cls == cls and d.up]
            if not members:
                continue
            device = min(members, key=lambda d: (self.load(d), d.number))
            compiled = self.prepared.compiled[cls, job.work]
            estimate = float(compiled.estimate_s[0 if compiled.estimate_s.size == 1 else job.rank])
            energy = float(compiled.energy_j[0 if compiled.energy_j.size == 1 else job.rank])
            deadline = self.prepared.workloads[job.work].deadline_ticks
            candidate = Candidate(
                jobs=self.present(device),
                backlog_s=to_seconds(max(device.ready - self.env.now, 0)),
                estimate_s=estimate,
                mean_s=compiled.mean_s,
                cost_usd=(self.prepared.classes[cls].price_usd_per_s or 0.0) * estimate,
                energy_j=energy,
                slack_s=to_seconds(deadline) if deadline < FAR else math.inf,
                last_chosen=device.turn,
                preference=self.prepared.preference[cls, job.work],
            )
            numbers = [f"{number:.10e}" for number in (*score(candidate), compiled.mean_s)]
            rated.append(([float(number) for number in numbers], device.number, device, estimate))
        if not rated:
            self.waiting.setdefault(-1, []).append(job)
            return
        _, _, device, estimate = min(rated, key=lambda row: row[:2])
        device.ready = max(device.ready, self.env.now) + round(estimate * TICKS_PER_SECOND)
        self.turn += 1
        device.turn = self.turn
        self.waiting.setdefault(device.number, []).append(job)
        self.feed(device)

    def load(self, device: Device) -> float:
        """Return the load by which devices of a class are compared."""
        by = self.prepared.policy.route.rank_by
        return {"jobs": self.present(device), "backlog": device.ready, "last_chosen": device.turn}[by]

    def present(self, device: Device) -> int:
        """Return the number of jobs that the device has."""
        return len(self.waiting.get(device.number, [])) + (device.job is not None)

    def offer(self) -> None:
        """Start the jobs of the central queue, each on the first class that has enough idle devices.

        A job that cannot start keeps those behind it from the classes that it can use, unless these may overtake it.
        """
        queue = self.waiting.get(-1, [])
        closed: set[int] = set()
        for job in sorted(queue, key=self.key):
            for cls in sorted(job.classes):
                idle = [d for d in self.devices if d.cls == cls and d.up and d.job is None]
                if cls not in closed and len(idle) >= self.size(job):
                    queue.remove(job)
                    self.start(tuple(idle[: self.size(job)]), job)
                    break
            else:
                closed.update(() if self.prepared.policy.backfill else job.classes)

    def size(self, job: Job) -> int:
        """Return the number of devices that a job occupies."""
        return self.prepared.scenario.workload[job.work].gang or 1

    def feed(self, device: Device) -> None:
        """Start the first job of the device's queue, or of the central one."""
        if not self.routed:
            self.offer()
            return
        queue = self.waiting.get(device.number, [])
        if device.job is None and device.up and queue:
            job = min(queue, key=self.key)
            queue.remove(job)
            self.start((device,), job)

    # Jobs.

    def arrive(self, job: Job) -> None:
        """Let a job arrive."""
        self.jobs.append(job)
        self.place(job)

    def start(self, devices: tuple[Device, ...], job: Job) -> None:
        """Start a job on its devices."""
        device, job.on = devices[0], devices
        job.start, job.device = self.env.now, device.number
        for member in devices:
            member.job = job
        job.starts += 1
        slow = 1.0 if self.prepared.slowdown is None else float(self.prepared.slowdown[job.number])
        phases = self.prepared.compiled[device.cls, job.work].phases(job.rank)
        ticks = [segment.at(job.rank)[0] for phase in phases for segment in phase[0]]
        device.segments = [t if slow == 1.0 else round(float(t) * slow) for t in ticks]
        device.left = device.segments.pop(0)
        self.go(device)

    def go(self, device: Device) -> None:
        """Let the device's present segment proceed, at the speed of the slowest device of the job."""
        device.since = self.env.now
        speed = self.speed(device)
        ticks = device.left if speed == 1.0 else math.ceil(float(device.left) / speed)
        device.process = self.env.process(self.work(device, ticks))

    def speed(self, device: Device) -> float:
        """Return the speed of the job of a device."""
        assert device.job is not None
        return min(member.speed for member in device.job.on)

    def work(self, device: Device, ticks: int) -> Generator[Any, Any, None]:
        """The present segment of a device."""
        job = device.job
        try:
            yield self.env.timeout(ticks)
            self.note(COMPLETION, device.number, (device, job))
        except simpy.Interrupt:
            pass

    def halt(self, device: Device) -> None:
        """Stop the present segment, and keep its progress."""
        self.noted = [n for n in self.noted if not (n[0] == COMPLETION and n[1] == device.number)]
        if device.process.is_alive:
            device.process.interrupt()
        span = self.env.now - device.since
        done = span if self.speed(device) == 1.0 else math.floor(float(span) * self.speed(device))
        device.left = max(device.left - done, 0)

    def complete(self, subject: tuple[Device, Job]) -> None:
        """End a segment, and with the last one the job."""
        device, job = subject
        assert device.segments is not None
        if device.segments:
            device.left = device.segments.pop(0)
            self.go(device)
            return
        job.finish = self.env.now
        for member in job.on:
            member.job = None
        self.left(device)
        self.feed(device)

    def left(self, device: Device) -> None:
        """Note that a job has left the device."""
        if not self.present(device):
            device.ready = 0

    # Faults.

    def fault(self, event: Any) -> None:
        """Apply an event of the schedule of faults."""
        device, code = self.devices[int(event["on"])], int(event["code"])
        if code == FAIL:
            self.fail(device, int(event["jobs"]), int(event["attempts"]))
        elif code == REPAIR:
            device.up = True
            self.feed(device)
            if self.routed:
                stranded, self.waiting[-1] = self.waiting.get(-1, []), []
                for job in stranded:
                    self.place(job)
        elif code == SPEED:
            if device.job is not None:
                self.halt(device.job.on[0])
            device.speed = float(event["value"])
            if device.job is not None:
                self.go(device.job.on[0])

    def fail(self, device: Device, becomes: int, attempts: int) -> None:
        """Let a device fail."""
        device.up = False
        moved: list[Job] = []
        job = device.job
        if job is not None:
            self.halt(job.on[0])
            for member in job.on:
                member.job = None
            if becomes == LOSE or job.starts >= attempts:
                job.failed, job.finish = True, self.env.now
            else:
                job.start = job.device = -1
                if becomes == MIGRATE and self.routed:
                    moved.append(job)
                else:
                    self.waiting.setdefault(device.number if self.routed else -1, []).append(job)
            self.left(device)
        if becomes == MIGRATE and self.routed:
            moved += sorted(self.waiting.pop(device.number, []), key=self.key)
            self.left(device)
        for moving in moved:
            self.place(moving)
        if not self.routed:
            self.offer()
