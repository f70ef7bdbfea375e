"""Runs a placement scenario: a file with a cluster instead of a fleet."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from windtunnel.core.errors import InputError, Location
from windtunnel.core.provenance import SourcedValue
from windtunnel.core.results.placement import PlacementResult
from windtunnel.core.results.run import ModelInput
from windtunnel.core.units import to_unit
from windtunnel.core.version import __version__
from windtunnel.placement.recording import PlacementRecording
from windtunnel.placement.scenario import OPENB_SKUS, Inflate, NodeFile, PlacementScenario
from windtunnel_models.catalogue import Catalogue

if TYPE_CHECKING:
    from windtunnel.placement.metrics import NodePower
    from windtunnel.placement.nodes import PlacementPolicy

_PARAMETERS = ("idle_power_w", "max_power_w")


def policies() -> list[str]:
    """Return the names of all placement policies."""
    import windtunnel.placement.policies  # noqa: F401  registers them
    from windtunnel.placement.nodes import PLACEMENTS

    return list(PLACEMENTS)


def _policy(scenario: PlacementScenario) -> PlacementPolicy:
    import windtunnel.placement.policies  # noqa: F401  registers them
    from windtunnel.placement.nodes import PLACEMENTS

    try:
        return PLACEMENTS.find(scenario.policy)
    except InputError as error:
        raise error.at(scenario.where("policy")) from None


def run_placement(
    scenario: PlacementScenario, replications: int, engine: str, catalogue: Catalogue
) -> tuple[PlacementResult, PlacementRecording]:
    """Simulate ``scenario``; return the result and the recording of the first run.

    ``replications`` above 1 replaces the scenario's number of runs.

    Raises:
        InputError: if the engine is not the placement engine, or the scenario is not valid.
    """
    from windtunnel.placement import engine as placement
    from windtunnel.placement import invariants as placement_invariants
    from windtunnel.placement.metrics import summarise_placement
    from windtunnel.placement.tasks import prepare_placement

    if engine not in ("auto", "placement"):
        raise InputError(
            f"the engine '{engine}' does not place tasks on a cluster",
            where=Location(field="--engine"),
            expected="auto or placement",
        )
    policy = _policy(scenario)
    problem = prepare_placement(scenario)
    power, inputs = _power(scenario, problem.nodes.models, catalogue)
    by_node = [power.get(m, _unknown()) for m in _node_models(problem.nodes.models, problem.nodes.model)]
    inflate = isinstance(scenario.mode, Inflate)
    runs = scenario.mode.runs if isinstance(scenario.mode, Inflate) and replications == 1 else replications
    recordings, filled = [], []
    for number in range(runs):
        recording = placement.run(scenario, problem, policy, _seed(scenario.seed, number))
        placement_invariants.check(recording, problem)
        recordings.append(recording)
        if not inflate:
            seed, count = _seed(scenario.seed, number), len(recording.tasks)
            filled.append(placement.fill_without_departures(scenario, problem, policy, seed, count))
            placement_invariants.check(filled[-1], problem)
    measured = summarise_placement(
        problem, recordings, filled, by_node, scenario.parsed_targets, policy.name, scenario.ties
    )
    result = PlacementResult(
        name=scenario.name,
        description=scenario.description,
        seed=scenario.seed,
        replications=runs,
        policy=policy.name,
        **vars(measured),
        provenance=inputs,
        notes=_notes(problem.tasks.never_started, power, inflate, runs),
        scenario=scenario.resolved(),
        versions=_versions(),
    )
    return result, recordings[0]


def _seed(seed: int, number: int) -> int:
    """Return an independent seed for each run after the first, as for replications of a fleet."""
    if not number:
        return seed
    return int(np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(1, np.uint64)[0] >> 1)


def _versions() -> dict[str, str]:
    import numba

    return {
        "windtunnel": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
    }


def _unknown() -> NodePower:
    from windtunnel.placement.metrics import NodePower

    return NodePower(None, None, None, None)


def _node_models(models: Sequence[str], model: np.ndarray) -> list[str]:
    return [models[m] if m >= 0 else "" for m in model.tolist()]


def _power(
    scenario: PlacementScenario, models: Sequence[str], catalogue: Catalogue
) -> tuple[dict[str, NodePower], list[ModelInput]]:
    """Return the power and rent of each GPU model with a known SKU, and the inputs that were used."""
    from windtunnel.placement.metrics import NodePower

    stated = scenario.cluster.gpus
    openb = isinstance(scenario.cluster.nodes, NodeFile)
    for name in stated:
        if name not in models:
            raise InputError(
                f"no node has the GPU model '{name}'",
                where=scenario.where("cluster", "gpus", name),
                expected=f"one of {', '.join(models)}",
            )
    power: dict[str, NodePower] = {}
    inputs: list[ModelInput] = []
    skus = [spec.sku for spec in catalogue.specs()]
    for model in models:
        entry = stated.get(model)
        sku = entry.sku if entry is not None else None
        if sku is None:
            sku = OPENB_SKUS.get(model) if openb else (model if model in skus else None)
        price = entry.price if entry is not None else None
        if sku is None:
            power[model] = NodePower(None, None, None, price)
            continue
        try:
            device = catalogue.device(sku)
        except InputError as error:
            raise error.at(scenario.where("cluster", "gpus", model, "sku")) from None
        power[model] = NodePower(sku, device.idle_power_w, device.power_limit_w, price)
        inputs += [_source(sku, path, device.values[path]) for path in _PARAMETERS]
    return power, list({(row.device, row.parameter): row for row in inputs}.values())


def _source(sku: str, path: str, sourced: SourcedValue) -> ModelInput:
    return ModelInput(
        device=sku,
        parameter=path,
        value=to_unit(sourced.value, "W"),
        unit="W",
        provenance=sourced.provenance.label,
        source=sourced.source,
        low=sourced.low,
        high=sourced.high,
        reason=sourced.reason,
    )


def _notes(never: int, power: dict[str, NodePower], inflate: bool, runs: int) -> list[str]:
    notes = []
    unknown = [model for model, node in power.items() if node.idle_w is None]
    if inflate:
        notes.append("an inflation has no time, so it has no latency, queueing delay, throughput and energy")
    elif unknown:
        notes.append(
            f"energy is unknown, because the power of {', '.join(unknown)} is unknown (state a SKU in `cluster: gpus:`)"
        )
    else:
        notes.append(
            "energy is that of the GPUs alone; an allocated thousandth draws its share of the power limit above idle, "
            "which is an upper bound"
        )
    if never and not inflate:
        notes.append(
            f"{never:,} tasks never started in the trace; their start is taken from the next column of `duration.from`"
        )
    if runs > 1:
        notes.append(f"job counts in result.json are sums over {runs} runs; nodes are those of the first run")
    return notes
