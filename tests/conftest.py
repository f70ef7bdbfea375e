"""What every test shares: small scenarios as plain data, and a run that is always checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

# Deterministic in CI, so that a red build is a changed build; by hand Hypothesis explores.
settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("explore" if os.environ.get("HYPOTHESIS_EXPLORE") else "ci")


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


def queue_scenario(**changes: Any) -> dict[str, Any]:
    """An M/M/2 at load 0.8; top-level keys can be replaced."""
    data: dict[str, Any] = {
        "schema": 1,
        "name": "queue",
        "seed": 5,
        "fleet": [{"device": "server", "count": 2, "power": {"idle": "60 W", "max": "300 W"}}],
        "workload": [
            {
                "name": "calls",
                "arrivals": {"process": "poisson", "rate": "1600 /s"},
                "ops": [{"service": {"distribution": "exponential", "mean": "1 ms"}}],
            }
        ],
        "policy": "fifo",
        "stop": {"jobs": 4000},
    }
    return data | changes


@pytest.fixture
def queue() -> Any:
    return queue_scenario
