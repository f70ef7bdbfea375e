"""A device of this host: each operation is executed in simulated order, and its measured duration is used."""

from __future__ import annotations

from windtunnel.core.executor import Executed
from windtunnel.core.ticks import to_ticks
from windtunnel.engine.prepare.prepared import FleetClass
from windtunnel.engine.prepare.programs import Segment
from windtunnel.engine.process.stations.base import RunContext
from windtunnel.engine.process.stations.single import SingleStation

ATTEMPTS = 3
"""The maximum number of starts of a job that a real device fails to execute; it equals that of modelled devices."""


class RealStation(SingleStation):
    """One job at a time, on an executor."""

    def __init__(self, context: RunContext, number: int, fleet_class: FleetClass) -> None:
        super().__init__(context, number, fleet_class)
        self._segments: list[Segment] = []
        self._failed: Executed | None = None

    def start(self, job: int) -> None:
        """Start one job that was not queued; the station must have room."""
        rank = self.log.rank[job]
        self._failed = None
        self._segments = [segment for phase in self.program(job).phases(rank) for segment in phase[0]]
        super().start(job)

    def _next(self) -> None:
        segment = self._segments[len(self._segments) - len(self._rest)]
        executor = self.fleet_class.executor
        assert executor is not None  # noqa: S101  real stations always have an executor
        executed = executor.execute(segment.name, segment.columns(self.log.rank[self.job]))
        lane, name, _, watts = self._rest[-1]
        self._rest[-1] = (lane, name, to_ticks(executed.duration_s), watts)
        if executed.problem:
            self._failed = executed
        super()._next()

    def _failed_operation(self) -> bool:
        """Fail the job if the present operation failed, and return whether it did."""
        if self._failed is None:
            return super()._failed_operation()
        executed, self._failed = self._failed, None
        jobs, self.jobs, self.job = self.jobs, [], -1
        self._rest, self._ending, self._timed = [], None, False
        self.context.fault_injector.device_failed(self, jobs, executed, ATTEMPTS)
        return True
