"""`windtunnel advise`: compares one kernel launch for each command with a persistent kernel."""

from __future__ import annotations

from windtunnel.core.results.advice import LaunchAdvice
from windtunnel.simulation.fleet import device_model as device
from windtunnel_models.catalogue import Catalogue, shipped_catalogue


def advise_launch(
    commands_per_s: float, steps_per_command: int, device_name: str, catalogue: Catalogue | None = None
) -> LaunchAdvice:
    """Compare a kernel launch for each command with a persistent kernel: costs, crossovers and recommendation."""
    from windtunnel.planning.launch_or_persist import advise

    return advise(device(device_name, catalogue or shipped_catalogue()), commands_per_s, steps_per_command)
