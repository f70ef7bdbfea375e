"""An independent simulation of a fleet, small and slow: what both engines are checked against.

It shares no code with the engines' transitions. It knows: every arrival process, central queues and routes, every
order, programs of operations one after another, one job at a time on a device, jobs of several devices, failures of
devices (retried, migrated or failed jobs, with pauses), throttling, checkpoints, preemption by the order, jobs that
give up waiting, users in closed loops, and designs that reconfigurable devices load.

Jobs and devices are objects, and the state is searched anew at every decision. SimPy keeps the time. The rules of ties
are those of docs/engine.md.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import simpy
from tests.differential.oracle_designs import Designs
from tests.differential.oracle_jobs import Device, Job, pause_ticks, remaining_segments

from windtunnel.core.policy import Candidate, JobKey
from windtunnel.core.recording import DROPPED, FAILED, Recording
from windtunnel.core.ticks import TICKS_PER_SECOND, to_seconds
from windtunnel.engine.prepare.fault_schedule import FAIL, INTERRUPT, REPAIR, SPEED
from windtunnel.engine.prepare.prepared import FAR, PreparedRun

COMPLETION, FAULT, RETURN, LEAVE, ARRIVAL = range(5)
PER_WORKLOAD = 2**40
"""Arrivals of one tick come in the order of the workloads."""


class Oracle:
    """Simulates one prepared run."""

    def __init__(self, prepared: PreparedRun) -> None:
        self.prepared = prepared
        self.designs = Designs(prepared)
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
        self.spent = {"work": 0, "checkpoint": 0, "restore": 0, "load": 0}
        """Ticks spent by all jobs at full speed."""
        self.loads = 0
        for device in self.devices:
            if device.cls in prepared.designs:
                device.holds = list(reversed(prepared.designs[device.cls].resident))
                device.expects = list(device.holds)
        self.lost = self.checkpoints = self.preemptions = 0
        self.known = len(prepared.arrival)
        """The number of jobs whose arrivals are known and lie ahead."""
        self.thinking = 0
        """The number of users who think."""
        self.thoughts: dict[tuple[int, int], int] = {}
        self.pausing: list[tuple[Job, Device | None]] = []
        """Jobs that pause, and the devices to whose queues they return."""

    # Time.

    def note(self, kind: int, entity: int, subject: Any) -> None:
        """Note that something happens at the present tick."""
        self.noted.append((kind, entity, len(self.noted), subject))

    def run(self) -> list[Job]:
        """Return all jobs, as they are at the end of the run."""
        prepared, env = self.prepared, self.env
        env.process(self.arrivals())
        for users in prepared.users:
            for user in range(users.think.users):
                self.think(users.work, user)
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
            happen = {
                COMPLETION: self.complete,
                FAULT: self.fault,
                RETURN: self.come_back,
                LEAVE: self.leave,
                ARRIVAL: self.arrive,
            }
            happen[kind](subject)
            while self.preempt():
                pass

    def arrivals(self) -> Generator[Any, Any, None]:
        """Let the known jobs arrive."""
        prepared = self.prepared
        for i, tick in enumerate(prepared.arrival.tolist()):
            yield self.env.timeout(tick - self.env.now)
            classes = prepared.signatures[int(prepared.eligible[i])]
            work, rank = int(prepared.workload_of[i]), int(prepared.rank[i])
            slow = 1.0 if prepared.slowdown is None else float(prepared.slowdown[i])
            self.known -= 1
            self.note(ARRIVAL, work * PER_WORKLOAD + i, Job(-1, work, rank, classes, tick, slow))

    def think(self, work: int, user: int) -> None:
        """Let a user think, and then submit a job."""
        users = next(users for users in self.prepared.users if users.work == work)
        before = self.thoughts.get((work, user), 0)
        ticks = users.think.ticks(user, before)
        self.thoughts[work, user] = before + 1
        if self.prepared.end is None or self.env.now + ticks < self.prepared.end:
            self.thinking += 1
            job = Job(-1, work, -1, (), self.env.now + ticks, user=user)
            self.env.process(self.after(ticks, ARRIVAL, work * PER_WORKLOAD + user, job))

    def over(self, job: Job) -> None:
        """Let the user of a job that has ended think."""
        if job.user >= 0:
            self.think(job.work, job.user)

    def faults(self) -> Generator[Any, Any, None]:
        """Let the faults take effect, as far as any run of the tests lasts."""
        assert self.prepared.faults is not None
        last = 10 * TICKS_PER_SECOND if self.prepared.end is None else self.prepared.end
        for i, event in enumerate(self.prepared.faults.until(last)):  # one at the end has no effect
            yield self.env.timeout(int(event["tick"]) - self.env.now)
            self.note(FAULT, i, event)

    def is_over(self) -> bool:
        """Return whether no job is present, and none will arrive."""
        arrived = self.is_full() or (not self.known and not self.thinking)
        return arrived and not (self.pausing or any(d.job for d in self.devices) or any(self.waiting.values()))

    def is_full(self) -> bool:
        """Return whether as many jobs have arrived as the scenario wants."""
        return self.prepared.limit is not None and len(self.jobs) >= self.prepared.limit

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
            first = [min(members, key=lambda d: (self.load(d), d.number))]
            if cls in self.prepared.designs and self.prepared.reconfigures:
                first.append(min(members, key=lambda d: (self.designs.loads_on(d, job), self.load(d), d.number)))
            compiled = self.prepared.compiled[cls, job.work]
            estimate = float(compiled.estimate_s[0 if compiled.estimate_s.size == 1 else job.rank])
            energy = float(compiled.energy_j[0 if compiled.energy_j.size == 1 else job.rank])
            deadline = self.prepared.workloads[job.work].deadline_ticks
            for device in first:
                load_s = to_seconds(self.designs.load_ticks(device, job))
                load_w = self.prepared.designs[cls].load_w + self.prepared.classes[cls].idle_w if load_s else 0.0
                candidate = Candidate(
                    jobs=self.present(device),
                    backlog_s=to_seconds(max(device.ready - self.env.now, 0)),
                    estimate_s=estimate,
                    mean_s=compiled.mean_s,
                    cost_usd=(self.prepared.classes[cls].price_usd_per_s or 0.0) * (estimate + load_s),
                    energy_j=energy + load_s * load_w,
                    slack_s=to_seconds(deadline) if deadline < FAR else math.inf,
                    last_chosen=device.turn,
                    preference=self.prepared.preference[cls, job.work],
                    load_s=load_s,
                )
                numbers = [f"{number:.10e}" for number in (*score(candidate), compiled.mean_s)]
                rated.append(([float(number) for number in numbers], device.number, device, estimate))
        if not rated:
            self.waiting.setdefault(-1, []).append(job)
            return
        _, _, device, estimate = min(rated, key=lambda row: row[:2])
        loads = self.designs.load_ticks(device, job)
        device.ready = max(device.ready, self.env.now) + round(estimate * TICKS_PER_SECOND) + loads
        for design in self.designs.needs(device, job):
            self.designs.use(device, device.expects, design)
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
        pausing = sum(returns_to is device for _, returns_to in self.pausing)
        return len(self.waiting.get(device.number, [])) + pausing + (device.job is not None)

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
        if job.user >= 0:
            self.thinking -= 1
            if self.is_full():
                return
            users = next(users for users in self.prepared.users if users.work == job.work)
            job.rank = sum(other.work == job.work for other in self.jobs)
            job.classes = self.prepared.signatures[int(users.signatures[job.rank])]
            job.slow = 1.0 if users.slowdown is None else float(users.slowdown[job.rank])
        elif self.prepared.users and self.is_full():
            return
        job.number = len(self.jobs)
        self.jobs.append(job)
        job_class = self.prepared.workloads[job.work]
        limit = job_class.workload.max_waiting
        if limit is not None and sum(map(len, self.waiting.values())) + len(self.pausing) >= limit:
            job.dropped, job.finish = True, self.env.now
            self.over(job)
            return
        patience = job_class.workload.patience
        if patience is not None:
            mean_s = patience if isinstance(patience, float) else patience.mean
            factor = 1.0 if job_class.patience is None else float(job_class.patience.values[job.rank])
            self.env.process(self.after(round(mean_s * factor * TICKS_PER_SECOND), LEAVE, job.number, job))
        self.place(job)

    def after(self, ticks: int, kind: int, entity: int, subject: Any) -> Generator[Any, Any, None]:
        """Let something happen later."""
        yield self.env.timeout(ticks)
        self.note(kind, entity, subject)

    def leave(self, job: Job) -> None:
        """Let a job leave that has never started."""
        if job.starts:
            return
        job.dropped, job.finish = True, self.env.now
        self.over(job)
        for number, queue in self.waiting.items():
            if job in queue:
                queue.remove(job)
                if number >= 0:
                    self.left(self.devices[number])
        if not self.routed:
            self.offer()  # a job of several devices may have kept those behind it from starting

    def come_back(self, subject: tuple[Job, Device | None]) -> None:
        """End the pause of an interrupted job."""
        self.pausing.remove(subject)
        job, device = subject
        if device is None and self.routed:
            self.place(job)
            return
        self.waiting.setdefault(-1 if device is None else device.number, []).append(job)
        self.offer() if device is None else self.feed(device)

    def start(self, devices: tuple[Device, ...], job: Job) -> None:
        """Start a job on its devices."""
        device, job.on = devices[0], devices
        job.start, job.device = self.env.now, device.number
        for member in devices:
            member.job = job
        job.starts += not job.preempted
        job.preempted = False
        phases = self.prepared.compiled[device.cls, job.work].phases(job.rank)
        ticks = [segment.at(job.rank)[0] for phase in phases for segment in phase[0]]
        ticks = [t if job.slow == 1.0 else round(float(t) * job.slow) for t in ticks]
        needs = self.designs.needs(device, job) or [""] * len(ticks)
        device.segments = remaining_segments(job, ticks, needs, self.prepared.workloads[job.work].workload.checkpoint)
        self.next_segment(device)

    def next_segment(self, device: Device) -> None:
        """Begin the next segment of a device's job, or a load of its design, on all devices of the job."""
        assert device.segments is not None and device.job is not None
        design, pieces = device.segments[0]
        members = device.job.on
        if design and any(design not in member.holds for member in members):
            for member in members:
                self.designs.use(member, member.holds, design)
                member.holds.remove(design)
            device.loading, self.loads = design, self.loads + len(members)
            pieces = [("load", self.prepared.designs[device.cls].load_ticks)]
        else:
            for member in members:
                self.designs.use(member, member.holds, design)
            device.segments.pop(0)
        device.pieces = pieces
        device.left = sum(ticks for _, ticks in device.pieces)
        self.go(device)

    def came_to(self, device: Device) -> None:
        """Note how far a device's job has come in its present segment, whose remaining time is ``left``."""
        job = device.job
        assert job is not None and device.pieces is not None
        passed = sum(ticks for _, ticks in device.pieces) - device.left
        for kind, ticks in device.pieces:
            took = min(ticks, passed)
            passed -= took
            self.spent[kind] += took * (len(job.on) if kind == "load" else 1)
            if kind == "work":
                job.position += took
            if took < ticks:
                break
            if kind == "checkpoint":
                job.saved = job.position
                self.checkpoints += 1
            elif kind == "restore":
                job.restoring = False
        device.pieces = []
        device.left = 0

    def lose(self, job: Job) -> None:
        """Return a job to its last checkpoint."""
        self.lost += job.position - job.saved
        job.position, job.restoring = job.saved, job.saved > 0

    # Preemption.

    def preempt(self) -> bool:
        """Let one waiting job interrupt another; return whether there is such a job."""
        if self.prepared.policy.preemption == "none":
            return False
        for number, queue in self.waiting.items():
            if self.routed and number < 0:
                continue
            closed: set[int] = set()
            for job in sorted(queue, key=self.key):
                # Of a device's own queue the job interrupts the one of this device, else those of one class.
                where = [number] if self.routed else [cls for cls in sorted(job.classes) if cls not in closed]
                sets = [victims for place in where if (victims := self.victims(job, place))]
                if sets:
                    self.interrupt(max(sets, key=lambda victims: self.urgency(victims[-1])))
                    return True
                closed.update(() if self.prepared.policy.backfill else job.classes)
        return False

    def victims(self, job: Job, place: int) -> list[Job]:
        """Return the jobs that a waiting job interrupts on a device or on a class, the least urgent first."""
        there = [d for d in self.devices if place == (d.number if self.routed else d.cls)]
        ending = {entity for kind, entity, _, _ in self.noted if kind == COMPLETION}
        others = {d.job for d in there if d.job is not None}
        able = [o for o in others if all(d.up for d in o.on) and o.on[0].number not in ending]
        able = [o for o in able if self.key(o)[0] > self.key(job)[0]]
        missing = self.size(job) - sum(d.up and d.job is None for d in there)
        chosen: list[Job] = []
        for other in sorted(able, key=self.urgency, reverse=True):
            if missing > 0:
                chosen.append(other)
                missing -= len(other.on)
        if missing > 0:
            return []
        for other in reversed(chosen.copy()):
            if missing + len(other.on) <= 0:
                chosen.remove(other)
                missing += len(other.on)
        return chosen

    def urgency(self, job: Job) -> tuple[float, int, int]:
        """Return what decides which of several jobs is interrupted: the largest."""
        return self.key(job)[0], job.start, job.on[0].number

    def interrupt(self, jobs: list[Job]) -> None:
        """Preempt jobs."""
        for job in jobs:
            device = job.on[0]
            self.halt(device)
            self.came_to(device)
            device.loading = ""
            if self.prepared.policy.preemption == "restart":
                self.lose(job)
            self.preemptions += 1
            job.preempted, job.start, job.device = True, -1, -1
            for member in job.on:
                member.job = None
            self.waiting.setdefault(device.number if self.routed else -1, []).append(job)
        self.feed(jobs[0].on[0])

    def go(self, device: Device) -> None:
        """Let the device's present segment proceed, at the speed of the slowest device of the job."""
        device.since = self.env.now
        speed = self.speed(device)
        ticks = device.left if speed == 1.0 else math.ceil(float(device.left) / speed)
        device.process = self.env.process(self.work(device, ticks))

    def speed(self, device: Device) -> float:
        """Return the speed of the job of a device; loads do not depend on it."""
        assert device.job is not None
        if device.loading:
            return 1.0
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
        device.left = 0
        self.came_to(device)
        if device.loading:
            for member in job.on:
                member.holds.append(device.loading)
            device.loading = ""
        if device.segments:
            self.next_segment(device)
            return
        job.finish = self.env.now
        self.over(job)
        for member in job.on:
            member.job = None
        self.left(device)
        self.feed(device)

    def left(self, device: Device) -> None:
        """Note that a job has left the device."""
        if not self.present(device):
            device.ready, device.expects = 0, list(device.holds)

    # Faults.

    def fault(self, event: Any) -> None:
        """Apply an event of the schedule of faults."""
        device, code = self.devices[int(event["on"])], int(event["code"])
        if code == FAIL:
            device.up = False
            job = device.job
            if job is not None and all(member.up for member in job.on if member is not device):
                self.halt(job.on[0])
            device.holds = []
            if not self.present(device):
                device.expects = []
        elif code == INTERRUPT:
            self.fail(device, self.prepared.scenario.faults[int(event["rule"]) - 1])
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

    def fail(self, device: Device, fault: Any) -> None:
        """Return the jobs of a device that has failed."""
        migrates = fault.on_failure == "migrate" and self.routed
        moved: list[Job] = []
        job = device.job
        if job is not None:
            self.came_to(job.on[0])
            job.on[0].loading = ""
            self.lose(job)
            for member in job.on:
                member.job = None
            if fault.on_failure == "fail" or job.starts >= fault.max_attempts:
                job.failed, job.finish = True, self.env.now
                self.over(job)
                self.lost += job.saved
            else:
                job.start = job.device = -1
                ticks = pause_ticks(fault.pause, job.starts)
                if ticks:
                    pausing = job, None if migrates or not self.routed else device
                    self.pausing.append(pausing)
                    self.env.process(self.after(ticks, RETURN, job.number, pausing))
                elif migrates:
                    moved.append(job)
                else:
                    self.waiting.setdefault(device.number if self.routed else -1, []).append(job)
            self.left(device)
        if migrates:
            moved += sorted(self.waiting.pop(device.number, []), key=self.key)
            self.left(device)
        for moving in moved:
            self.place(moving)
        if not self.routed:
            self.offer()


def rows(recording: Recording) -> list[tuple[int, ...]]:
    """Return device, start, finish, number of starts and end (1 if it failed, 2 if it was dropped) of each job."""
    jobs = recording.jobs
    end = (jobs.status == FAILED) + 2 * (jobs.status == DROPPED)
    columns = (jobs.device, jobs.start, jobs.finish, jobs.starts, end)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def expected(ready: PreparedRun) -> list[tuple[int, ...]]:
    """Return the same of the oracle; jobs that the run did not reach have not started."""
    return rows_of(Oracle(ready).run(), ready)


def rows_of(jobs: list[Job], ready: PreparedRun) -> list[tuple[int, ...]]:
    """Return the rows of the oracle's jobs."""
    found = [(job.device, job.start, job.finish, job.starts, job.failed + 2 * job.dropped) for job in jobs]
    if ready.users:
        return found
    return found + [(-1, -1, -1, 0, 0)] * (len(ready.arrival) - len(found))
