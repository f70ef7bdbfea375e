"""`windtunnel advise`: compares one kernel launch for each command with a persistent kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.simulation.fleet import device_model as device
from windtunnel_models.catalogue import Catalogue, shipped_catalogue


def advise_launch(
    commands_per_s: float, steps_per_command: int, device_name: str, catalogue: Catalogue | None = None
) -> dict[str, Any]:
    """Compare a kernel launch for each command with a persistent kernel: costs, crossovers and recommendation."""
    from windtunnel.planning.launch_or_persist import advise

    return advise(device(device_name, catalogue or shipped_catalogue()), commands_per_s, steps_per_command)


def advice_text(advice: Mapping[str, Any]) -> str:
    """Return the result of ``advise_launch`` as text for a terminal."""
    from windtunnel.report import advice as report

    return report.advice_text(advice)
