"""`windtunnel plan`: the cheapest fleets for a scenario, and the files that describe them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from windtunnel.app import deploy
from windtunnel.core.files import only_writer
from windtunnel.core.processors import processors
from windtunnel.core.results.data import result_json
from windtunnel.core.results.plan import PlanResult
from windtunnel.core.worker_processes import broken_pipes_are_errors
from windtunnel.planning.planner import Planner
from windtunnel.scenario.plan import Objective, Plan
from windtunnel.scenario.read import read_scenario
from windtunnel.scenario.scenario import Scenario
from windtunnel_models.catalogue import Catalogue, shipped_catalogue


def plan(
    scenario: Scenario | str | Path,
    *,
    seed: int | None = None,
    changes: Sequence[str] = (),
    objective: Objective | None = None,
    catalogue: Catalogue | None = None,
    workers: int | None = None,
    outside_code: bool = False,
    progress: Callable[[int], None] | None = None,
    copies: int = 1,
) -> PlanResult:
    """Find the cheapest fleets of the scenario's candidates that meet its targets, with a lower bound on the cost.

    ``objective`` replaces that of the scenario. ``workers`` is the number of processes (default: one for each
    processor); it does not change the answer. ``outside_code`` lets a policy be code in a file outside of the
    scenario's folder. ``progress`` is called with the number of finished simulations. ``copies`` of this process, with
    itself, may price decoders at the beginning. Raises InputError for a scenario that is not valid.
    """
    if not isinstance(scenario, Scenario):
        scenario = read_scenario(Path(scenario), changes, seed=seed, outside_code=outside_code)
    if objective is not None:
        options = (scenario.plan or Plan()).model_copy(update={"objective": objective})
        scenario = scenario.changed(plan=options)
    catalogue = catalogue or shipped_catalogue()
    with broken_pipes_are_errors():
        return Planner(scenario, catalogue, workers or processors(), progress, copies).run()


def save(result: PlanResult, folder: Path) -> list[Path]:
    """Write plan.json and plan.html to ``folder``, and in ``deploy`` the configuration of the recommended fleet.

    Each file is written completely or not at all, and all of them are of one plan, also where two commands end at the
    same time. Returns their paths.
    """
    from windtunnel.core.csvfile import write_texts
    from windtunnel.report.plan_page import render

    texts = {"plan.json": result_json(result), "plan.html": render(result)}
    folder.mkdir(parents=True, exist_ok=True)
    with only_writer(folder):
        return [*write_texts(folder, texts), *deploy.write(result.deployment, result.name, folder)]


__all__ = ["plan", "save"]
