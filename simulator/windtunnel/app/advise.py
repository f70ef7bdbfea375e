"""`windtunnel advise`: launch for each command, or a persistent kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from windtunnel.simulation.fleet import device_model as device
from windtunnel_models.catalogue import Catalogue

if TYPE_CHECKING:
    pass


def advise_launch(
    commands_per_s: float, steps_per_command: int, device_name: str, catalogue: Catalogue | None = None
) -> dict[str, Any]:
    """Launch for each command or keep a kernel running: both sides, the crossovers, and which is recommended."""
    from windtunnel.planning.launch_or_persist import advise

    return advise(device(device_name, catalogue or Catalogue()), commands_per_s, steps_per_command)


def advice_text(advice: Mapping[str, Any]) -> str:
    """What ``advise_launch`` answers, for people."""
    from windtunnel.planning import launch_or_persist

    return launch_or_persist.advice_text(advice)
