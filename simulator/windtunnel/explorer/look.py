"""Simulates designs. The functions of `Looker` run in worker processes, one at a time.

A *look* is one simulation of a design: of its first jobs, for an answer at once, or of all of them, as `windtunnel run`
simulates it. First looks price steps of decoders for some numbers of tokens and sequences only (``COARSENESS``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from windtunnel.core.errors import InputError
from windtunnel.core.recording import Recording
from windtunnel.core.ticks import TICKS_PER_SECOND
from windtunnel.core.yamlfile import Document
from windtunnel.engine.choice import run_on, unsupported_by_compiled
from windtunnel.engine.compiled.support import unsupported_feature
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.results import invariants
from windtunnel.engine.results.metrics import notes_of, summarise
from windtunnel.explorer.controls import Value
from windtunnel.explorer.design import Changes, design
from windtunnel.explorer.figures import Seen, figures, inputs_text, targets_of
from windtunnel.report.numbers import plural
from windtunnel.scenario.changes import parse_path
from windtunnel.scenario.read import check_scenario
from windtunnel.scenario.scenario import Scenario, Stop
from windtunnel.simulation.model_error import with_model_error
from windtunnel.simulation.run import prepare_run, simulate
from windtunnel_models.catalogue import Catalogue

COARSENESS = 0.05
"""Steps are priced for numbers of tokens and sequences 5% apart in first looks."""
_VERY_COARSE = 1.0
FIRST = {"compiled": 1_000, "process": 100}
"""The number of jobs of a first look, which each engine simulates in well under a tenth of a second."""
FINER = 10_000
"""The number of jobs of each point of the finer curves."""
MOST = {"compiled": 2_000_000, "process": 5_000}
"""The number of jobs above which a scenario is not simulated whole."""
_CHECKED = 5_000
"""The number of jobs for which the values of a control are checked."""


@dataclass(frozen=True)
class Look:
    """What to simulate of a design.

    Attributes:
        changes: The design.
        whole: All jobs of the scenario, as `windtunnel run` simulates them, and not only the first ones.
        jobs: The number of jobs where not all are simulated; None: as many as take well under a tenth of a second.
        load: The load in place of that of the design; None: that of the design.
        intervals: Whether to look for intervals, which takes further runs.
        compiled: The scenarios for which this process may use the compiled engine, by ``Seen.key``.
    """

    changes: Changes
    whole: bool = False
    jobs: int | None = None
    load: float | None = None
    intervals: bool = False
    compiled: frozenset[str] = frozenset()


@dataclass
class Looker:
    """Simulates the designs of one scenario."""

    document: Document
    catalogue: Catalogue
    warm: set[str] = field(default_factory=set)

    def scenario(self, changes: Changes) -> Scenario:
        """Return a design as a checked scenario; raises InputError for the first thing that is wrong."""
        scenario = check_scenario(design(self.document, changes))
        if scenario.real_devices:
            raise InputError(
                f"{scenario.real_devices[0]} is a device of this host, which executes its jobs in real time",
                where=scenario.where("fleet"),
                expected="a fleet of device models, which can be simulated at once",
            )
        return scenario

    def see(self, look: Look) -> Seen:
        """Return the figures of a look; raises InputError for a design that cannot be simulated."""
        changes = look.changes if look.load is None else {**look.changes, "load": look.load}
        scenario = self.scenario(changes)
        return self._whole(scenario, look) if look.whole else self._first(scenario, look)

    def _first(self, scenario: Scenario, look: Look) -> Seen:
        jobs = look.jobs or FIRST["compiled"]
        prepared = prepare_run(_shortened(scenario, jobs), self.catalogue, coarseness=COARSENESS)
        key = engine_key(prepared)
        engine = "compiled" if key in look.compiled and unsupported_feature(prepared) is None else "process"
        if engine == "process" and prepared.job_count > FIRST["process"]:
            jobs = FIRST["process"]
            prepared = prepare_run(_shortened(scenario, jobs), self.catalogue, coarseness=COARSENESS)
        recording = run_on(engine, prepared)
        invariants.check(recording)
        run = summarise(prepared, [recording], scenario.parsed_targets())
        # The error of the models without further runs, so that a target has the same state as in the whole run.
        run, _ = with_model_error(prepared, recording, run, None)
        status, verdict, targets = targets_of(run)
        noun = "request" if run.serving is not None else "job"
        basis = f"the first {plural(run.jobs.arrived, noun)}"
        if run.serving is not None:
            basis += f", with steps priced {COARSENESS:.0%} apart"
        return Seen(
            jobs=run.jobs.arrived,
            whole=False,
            basis=basis,
            engine=engine,
            rate_per_s=_rate_per_s(recording, run.jobs.arrived),
            figures=figures(run),
            status=status,
            verdict=verdict,
            targets=targets,
            notes=[*recording.notes, *notes_of(run.statistics, run.workloads)],
            key=key,
        )

    def _whole(self, scenario: Scenario, look: Look) -> Seen:
        """Simulate all jobs, or the first ones of a scenario with very many."""
        prepared = prepare_run(_bounded(scenario), self.catalogue, coarseness=COARSENESS)
        key = engine_key(prepared)
        engine = "compiled" if unsupported_by_compiled(prepared) is None else "process"
        most = MOST[engine]
        endless = scenario.stop is not None and scenario.stop.relative_error is not None
        whole = not endless and prepared.job_count <= most
        chosen = scenario if whole else _shortened(scenario, min(most, prepared.job_count))
        run, recording = simulate(chosen, 1, "auto", self.catalogue, redrawn="short" if look.intervals else "never")
        status, verdict, targets = targets_of(run)
        noun = "request" if run.serving is not None else "job"
        count = plural(run.jobs.arrived, noun)
        return Seen(
            jobs=run.jobs.arrived,
            whole=whole,
            basis=f"the whole scenario, {count}" if whole else f"the first {count}, of a longer scenario",
            engine=run.engine,
            rate_per_s=_rate_per_s(recording, run.jobs.arrived),
            figures=figures(run),
            status=status,
            verdict=verdict,
            targets=targets,
            notes=run.notes,
            inputs=inputs_text(run.provenance),
            key=key,
        )

    def make_ready(self, changes: Changes) -> bool:
        """Compile the engine for a design, unless that has been done on this machine; return whether it supports it."""
        prepared = prepare_run(
            _shortened(self.scenario(changes), FIRST["process"]), self.catalogue, coarseness=COARSENESS
        )
        key = engine_key(prepared)
        if key not in self.warm:
            if unsupported_by_compiled(prepared) is not None:
                return False
            invariants.check(run_on("compiled", prepared, waits=True))
            self.warm.add(key)
        return True

    def refusals(self, changes: Changes, name: str, values: Sequence[Value]) -> dict[str, str]:
        """Return why values of a control do not fit the rest of a design, by their text; fitting ones are left out."""
        reasons = {str(value): self._refusal({**changes, name: value}, name) for value in values}
        return {value: why for value, why in reasons.items() if why is not None}

    def _refusal(self, changes: Changes, name: str) -> str | None:
        """Return why a design cannot be simulated, or why the entry of a control has no part in it."""
        path = parse_path(name)
        try:
            scenario = _shortened(self.scenario(changes), _CHECKED)
            if path[0] == "fleet" and len(scenario.fleet) == len(self.document.data["fleet"]):
                scenario = _alone(scenario, int(path[1]))
            prepare_run(scenario, self.catalogue, coarseness=_VERY_COARSE)
        except InputError as error:
            return error.problem + (f"; expected {error.expected}" if error.expected else "")
        return None


def engine_key(prepared: PreparedRun) -> str:
    """Return a name for the machine code that the compiled engine needs for a scenario."""
    from windtunnel.engine.compiled.kernels import variant_of

    return f"{variant_of(prepared)} {prepared.policy.name}"


def _shortened(scenario: Scenario, jobs: int) -> Scenario:
    """Return a scenario that ends after its first ``jobs`` jobs, or when it ends itself."""
    stop = scenario.stop
    if stop is not None and stop.jobs is not None and stop.jobs <= jobs:
        return scenario
    return scenario.changed(stop=Stop(jobs=jobs), records="all")


def _alone(scenario: Scenario, entry: int) -> Scenario:
    """Return a scenario with one entry of its fleet, so that others do not do its work; the same if it names others."""
    named = scenario.autoscale or any(work.devices is not None for work in scenario.workload)
    if named or scenario.faults or any(other.role != "both" for other in scenario.fleet):
        return scenario
    return scenario.changed(fleet=[scenario.fleet[entry]])


def _bounded(scenario: Scenario) -> Scenario:
    """Return a scenario whose jobs can be counted: one that runs until it is precise runs for many jobs."""
    stop = scenario.stop
    return _shortened(scenario, MOST["compiled"]) if stop is not None and stop.relative_error is not None else scenario


def _rate_per_s(recording: Recording, jobs: int) -> float | None:
    """Return the rate at which the jobs of a run arrived (jobs/s); None for a single job."""
    if recording.tally is not None:
        span = recording.tally.last_arrival
    else:
        arrival = recording.jobs.arrival
        span = int(arrival.max(initial=0) - arrival.min(initial=0))
    return (jobs - 1) * TICKS_PER_SECOND / span if span > 0 and jobs > 1 else None


def points(load: float) -> Sequence[float]:
    """Return loads around ``load`` for curves. Those of near loads are the same, so that they are simulated once."""
    ladder = [round(2.0 ** (k / 2.0), 4) for k in range(-20, 21)]
    return [at for at in ladder if 0.22 * load <= at <= 2.3 * load and not 0.97 <= at / load <= 1.03]
