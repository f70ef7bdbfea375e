"""What tests of `windtunnel plan` share: a scenario with a slow and a fast device, and one of a chat model."""

from __future__ import annotations

from typing import Any

from windtunnel_models.catalogue import shipped_catalogue

KNOWN = shipped_catalogue()
CHAT: dict[str, Any] = {
    "schema": 1, "name": "chat", "seed": 1,
    "fleet": [
        {"device": "h100-sxm-80gb", "price": "2.99 USD/h", "engine": "vllm"},
        {"device": "l40s", "price": "1.55 USD/h", "engine": "vllm"},
    ],
    "models": {"chat": {"catalogue": "llama-3.1-8b"}},
    "workload": [
        {"name": "chat", "arrivals": {"process": "poisson", "rate": "6 /s"},
         "ops": [{"generate": {"model": "chat", "prompt": 300, "output": 30}}]}
    ],
    "policy": {"name": "least-loaded", "batch": {"kind": "continuous", "tokens": 512, "size": 32}},
    "stop": {"jobs": 250},
    "targets": ["ttft p95 <= 1 s", "tpot p95 <= 50 ms"],
    "plan": {"max": 2, "loads": [0.5, 1, 2, 4]},
}  # fmt: skip


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
