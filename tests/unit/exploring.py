"""What tests of `windtunnel explore` share: two scenarios, and what answers in the test's own process."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from windtunnel.core.yamlfile import Document
from windtunnel.explorer.controls import controls
from windtunnel.explorer.look import Looker
from windtunnel.scenario.changes import read_document
from windtunnel_models.catalogue import shipped_catalogue

SERVING: dict[str, Any] = {
    "schema": 1,
    "name": "small",
    "models": {"chat": {"catalogue": "llama-3.1-8b"}},
    "fleet": [{"device": "h100-sxm-80gb", "count": 2, "price": "2.99 USD/h", "engine": "vllm"}],
    "workload": [
        {
            "name": "chat",
            "arrivals": {"process": "poisson", "rate": "4 /s"},
            "ops": [{"generate": {"model": "chat", "prompt": 300, "output": 30}}],
        }
    ],
    "policy": {"name": "least-loaded", "batch": {"kind": "continuous", "size": 64, "tokens": 2048}},
    "stop": {"jobs": 40},
    "targets": ["ttft p99 <= 1 s", "slo_attainment >= 90 %"],
}
QUEUE: dict[str, Any] = {
    "schema": 1,
    "name": "queue",
    "fleet": [{"device": "server", "count": 4}],
    "workload": [
        {
            "name": "calls",
            "arrivals": {"process": "poisson", "rate": "300 /s"},
            "ops": [{"service": {"distribution": "exponential", "mean": "10 ms"}}],
        }
    ],
    "policy": "fifo",
    "stop": {"jobs": 2000},
    "targets": ["latency p99 <= 1 s"],
}


def document(data: dict[str, Any], folder: Path) -> Document:
    path = folder / "mine.yaml"
    path.write_text("# a comment\n" + yaml.safe_dump(data, sort_keys=False))
    return read_document(path)


def looker(data: dict[str, Any], folder: Path) -> Looker:
    return Looker(document(data, folder), shipped_catalogue())


def offered(of: Looker) -> dict[str, Any]:
    return {control.name: control for control in controls(of.scenario({}), of.catalogue)}


class FakeLane:
    """Answers in the event loop, in the order of the calls, when it is told to."""

    def __init__(self, of: Looker) -> None:
        self.looker = of
        self.calls: list[str] = []
        self.stopped = 0

    async def call(self, method: str, *arguments: Any) -> Any:
        self.calls.append(method)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        if method == "make_ready":
            return False
        if method == "see":  # first looks do not wait for the compiled engine
            arguments = (replace(arguments[0], whole=False),)
        return getattr(self.looker, method)(*arguments)

    def close(self) -> None:
        pass
