"""What tests of `windtunnel plan` share: a scenario with a slow and a fast device."""

from __future__ import annotations

from typing import Any


def plan_scenario(**changes: Any) -> dict[str, Any]:
    """Return the scenario, with other values of some keys."""
    data: dict[str, Any] = {
        "schema": 1,
        "name": "choice <script>",
        "seed": 2,
        "fleet": [
            {"device": "server", "name": "slow", "price": "1 USD/h", "power": {"idle": "50 W", "max": "100 W"}},
            {
                "device": "server",
                "name": "fast",
                "price": "2.7 USD/h",
                "speed": 3,
                "power": {"idle": "90 W", "max": "200 W"},
            },
        ],
        "workload": [
            {
                "name": "calls",
                "arrivals": {"process": "poisson", "rate": "500 /s"},
                "ops": [{"service": {"distribution": "exponential", "mean": "4 ms"}}],
            }
        ],
        "policy": "shortest-expected-completion",
        "stop": {"jobs": 2500},
        "targets": ["latency p95 <= 15 ms"],
    }
    return data | changes
