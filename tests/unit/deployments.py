"""What tests of configurations to deploy share: scenarios, their commands, and how these are checked."""

from __future__ import annotations

import json
import os
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from windtunnel.core.results.deployment import Deployment, EngineCommand
from windtunnel.deployment.commands import deployment
from windtunnel.scenario.changes import parse_path
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import prepare_run
from windtunnel_models.catalogue import shipped_catalogue
from windtunnel_models.engines.arguments import engine_arguments

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = shipped_catalogue()
DATA: dict[str, Any] = {
    "schema": 1,
    "name": "deployed",
    "models": {"chat": {"catalogue": "llama-3.1-8b"}},
    "fleet": [{"device": "h100-sxm-80gb", "count": 4, "group": {"tensor": 2}, "engine": "vllm"}],
    "workload": [
        {
            "name": "chat",
            "arrivals": {"process": "poisson", "rate": "1 /s"},
            "ops": [{"generate": {"model": "chat", "prompt": 300, "output": 40}}],
        }
    ],
    "policy": {"name": "least-loaded", "batch": {"kind": "continuous", "size": 64, "tokens": 256, "memory": 0.85}},
    "stop": {"jobs": 5},
}  # fmt: skip
FEATURES: dict[str, Any] = {
    "models.chat": {
        "catalogue": "llama-3.1-70b",
        "weights": "fp8",
        "kv_dtype": "fp8",
        "speculation": {"draft": "llama-3.2-1b", "tokens": 3, "acceptance": 0.7},
        "adapters": {"count": 20, "rank": 24, "slots": 4, "host": 20},
    },
    "fleet[0].group": {"tensor": 4},
    "fleet[0].count": 8,
    "policy.order": "priority",
    "policy.route": "prefix-aware",
    "policy.name": None,
    "policy.batch.prefix_cache": {
        "block": 16,
        "host": {"size": "64 GiB"},
        "disk": {"size": "1 TB", "bandwidth": "4 GB/s"},
    },
}


def with_changes(**changes: Any) -> dict[str, Any]:
    data = deepcopy(DATA)
    for path, value in changes.items():
        *outer, last = parse_path(path)
        at: Any = data
        for part in outer:
            at = at[part] if isinstance(at, list) else at.setdefault(part, {})
        at[last] = value
    return data


def deployed(**changes: Any) -> Deployment:
    found = deployment(prepare_run(scenario_from_data(with_changes(**changes)), CATALOGUE))
    assert found is not None
    return found


def one(**changes: Any) -> EngineCommand:
    (command,) = deployed(**changes).commands
    return command


def flags(command: EngineCommand) -> dict[str, str | None]:
    assert len({a.flag for a in command.arguments}) == len(command.arguments), "a flag stands twice"
    return {argument.flag: argument.value for argument in command.arguments}


def named(command: EngineCommand) -> dict[str, str]:
    return {note.key: note.text for note in command.unexpressed}


def check_documented(command: EngineCommand) -> None:
    """Every word of the command is in the engine's list, whatever the writer of the command has checked itself."""
    known = engine_arguments(command.engine)
    assert [flag for flag in flags(command) if flag not in known.flags] == []
    for flag, value in flags(command).items():
        choices = known.flags[flag].choices
        assert not choices or value in [str(choice) for choice in choices], (flag, value)
        if known.flags[flag].fields:
            assert set(json.loads(value or "")) <= set(known.flags[flag].fields)
    assert set(command.environment) <= set(known.environment)
    assert set(leaves(command.options)) <= set(known.options)
    for path, value in leaves(command.options).items():
        assert not known.options[path].choices or value in known.options[path].choices


def leaves(options: Any, before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in options.items():
        found |= leaves(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return found


def check_manifest(texts: dict[str, str], found: Deployment) -> None:
    """The manifest parses, and its Services select the pods of a Deployment, or the first ones of a LeaderWorkerSet."""
    documents = [d for d in yaml.safe_load_all(texts["kubernetes.yaml"]) if d is not None]
    by_kind = {
        kind: {d["metadata"]["name"]: d for d in documents if d["kind"] == kind}
        for kind in ("Deployment", "LeaderWorkerSet", "Service", "ConfigMap")
    }
    assert sum(map(len, by_kind.values())) == len(documents)
    single = {c.name: c for c in found.commands if c.nodes_per_replica == 1}
    several = {c.name: c for c in found.commands if c.nodes_per_replica > 1 and c.worker_arguments is not None}
    assert set(by_kind["Deployment"]) == set(single) and set(by_kind["LeaderWorkerSet"]) == set(several)
    assert set(by_kind["Service"]) == {*single, *several}
    for name, command in single.items():
        spec = by_kind["Deployment"][name]["spec"]
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= labels.items()
        assert by_kind["Service"][name]["spec"]["selector"].items() <= labels.items()
        (container,) = spec["template"]["spec"]["containers"]
        assert container["resources"]["limits"] == {command.resource: command.devices_per_replica}
        assert container["readinessProbe"]["httpGet"]["port"] == command.port
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
        if command.options:
            (content,) = by_kind["ConfigMap"][name]["data"].values()
            assert yaml.safe_load(content) == yaml.safe_load(texts[f"{name}.yaml"])
        else:
            assert [*container["command"], *container["args"]] == command.words
    for name, command in several.items():
        spec = by_kind["LeaderWorkerSet"][name]["spec"]
        assert spec["replicas"] == command.replicas
        template = spec["leaderWorkerTemplate"]
        assert template["size"] == command.nodes_per_replica
        (leader,) = template["leaderTemplate"]["spec"]["containers"]
        (worker,) = template["workerTemplate"]["spec"]["containers"]
        assert [*leader["command"], *leader["args"]] == command.words
        assert worker["args"][: len(leader["args"])] == leader["args"]
        assert worker["args"][len(leader["args"]) :] == [a.flag for a in command.worker_arguments or ()]
        for container in (leader, worker):
            (devices,) = container["resources"]["limits"].values()
            assert devices * command.nodes_per_replica == command.devices_per_replica
        assert "readinessProbe" in leader and "readinessProbe" not in worker
        selector = dict(by_kind["Service"][name]["spec"]["selector"])
        assert selector.pop("leaderworkerset.sigs.k8s.io/worker-index") == "0"
        assert selector.items() <= template["leaderTemplate"]["metadata"]["labels"].items()
    for name in {c.name for c in found.commands} - set(single) - set(several):
        assert f"{name} is not below" in texts["kubernetes.yaml"]


def run_script(text: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script of a deployment in which the engine is replaced by one that prints its arguments."""
    for program in ("vllm", "python3"):
        engine = folder / program
        engine.write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n')
        engine.chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", **variables}
    return subprocess.run(["sh"], input=text, env=environment, capture_output=True, text=True, check=False)
