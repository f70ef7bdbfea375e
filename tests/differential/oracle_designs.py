"""The designs that jobs need, and that devices of the independent simulation (`oracle.py`) hold and load."""

from __future__ import annotations

from tests.differential.oracle_jobs import Device, Job

from windtunnel.engine.prepare.prepared import PreparedRun


class Designs:
    """Which designs a device has to load for a job; it holds those that it used most recently."""

    def __init__(self, prepared: PreparedRun) -> None:
        self.prepared = prepared

    def needs(self, device: Device, job: Job) -> list[str]:
        """Return the design that each segment of a job needs on a device, "" for none."""
        if device.cls not in self.prepared.designs or not self.prepared.reconfigures:
            return []
        phases = self.prepared.compiled[device.cls, job.work].phases(job.rank)
        segments = [segment for phase in phases for segment in phase[0]]
        return [s.design if isinstance(s.design, str) else str(s.design[job.rank]) for s in segments]

    def use(self, device: Device, holds: list[str], design: str) -> bool:
        """Use a design on a device that holds some; return whether it must be loaded, in place of the oldest one."""
        if not design:
            return False
        missing = design not in holds
        if not missing:
            holds.remove(design)
        elif len(holds) == self.prepared.designs[device.cls].regions:
            holds.pop(0)
        holds.append(design)
        return missing

    def loads_on(self, device: Device, job: Job) -> int:
        """Return how many designs a job will load on a device."""
        holds = list(device.expects)
        return sum(self.use(device, holds, design) for design in self.needs(device, job))

    def load_ticks(self, device: Device, job: Job) -> int:
        """Return how long a device will load designs for a job."""
        loads = self.loads_on(device, job)
        return loads * self.prepared.designs[device.cls].load_ticks if loads else 0
