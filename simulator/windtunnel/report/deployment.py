"""The configuration to deploy: a script for each engine command, files of options, a Kubernetes manifest, and text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any

import yaml
from markupsafe import Markup

from windtunnel.core.results.deployment import (
    FIRST_NODE,
    NODE_RANK,
    OPTIONS_FILE,
    POD_IP,
    Deployment,
    EngineCommand,
    Unexpressed,
)
from windtunnel.report import page
from windtunnel.report.numbers import plural, printable
from windtunnel.report.page import Cell
from windtunnel.report.text import WIDTH, document

FOLDER = "deploy"
"""The folder of the files."""
MANIFEST, ORCHESTRATOR = "kubernetes.yaml", "disaggregated.yaml"
_MOUNT = "/etc/engine"
_FOUND = "Every argument was found in the documentation or the sources of"
_OPTIONS_OF, _JOINS = "Options of", "Joins the prefill and decode servers"
_FLEET_OF = "The access token of Hugging Face is read from the secret hf-token"
_SECRET = {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}


def files(deployment: Deployment, name: str) -> dict[str, str]:
    """Return the texts of the files by their names; ``name`` is that of the scenario."""
    texts = {f"{command.name}.sh": script(command) for command in deployment.commands}
    for command in deployment.commands:
        if command.options:
            texts[f"{command.name}.yaml"] = _options(command)
    texts[MANIFEST] = manifest(deployment, name)
    orchestrated = [c for c in deployment.commands if c.engine == "trtllm" and c.role != "both"]
    if orchestrated:
        texts[ORCHESTRATOR] = _orchestrator(orchestrated)
    return texts


def is_written_by_us(content: str) -> bool:
    """Return whether a file of the folder was written by ``files``, for this fleet or for another one."""
    return any(sentence in content for sentence in (_FOUND, _OPTIONS_OF, _JOINS, _FLEET_OF))


def text(deployment: Deployment) -> str:
    """Return the commands and what they do not express as text for a terminal."""
    lines: list[str] = []
    for command in deployment.commands:
        lines += [printable(headline(command)), *_shell(command, f"{command.name}.yaml"), ""]
        if command.options:
            lines += [f"{command.name}.yaml:", *_yaml(_plain(command.options)).splitlines(), ""]
        if command.worker_arguments:
            flags = " ".join(argument.flag for argument in command.worker_arguments)
            lines += [f"  on the nodes of a replica other than the first also: {flags}"]
        lines += [*_wrapped(command.unexpressed, "  "), ""]
    outside = _wrapped(deployment.unexpressed, "  ")
    return document([*lines, *(["outside of the engines:", *outside] if outside else [])]).rstrip("\n")


def headline(command: EngineCommand) -> str:
    """Return what a command starts: "decode: 2 replicas of 4 × h200-sxm-141gb, vLLM"."""
    number = plural(command.replicas, "replica")
    if command.least_replicas is not None and command.least_replicas < command.replicas:
        number = f"{command.least_replicas:,} to {number}"
    return f"{command.name}: {number} of {command.devices_per_replica} × {command.device}, {command.title}"


def script(command: EngineCommand) -> str:
    """Return a shell script that starts one replica."""
    lines = ["#!/bin/sh", *_comments(_about(command)), "set -e"]
    if POD_IP in command.environment.values():
        lines.append('POD_IP="${POD_IP:-$(hostname -i)}"')
    last = None
    if command.worker_arguments is not None:
        names = [
            (FIRST_NODE, "the address of the first node of the replica"),
            (NODE_RANK, "the number of this node in the replica, from 0"),
        ]
        lines += [f': "${{{_variable(name)}:?set it to {what}}}"' for name, what in names]
        if command.worker_arguments:
            words = shlex.join([a.flag for a in command.worker_arguments])
            lines += ["set --", f'[ "${_variable(NODE_RANK)}" = 0 ] || set -- {words}']
            last = '"$@"'
    for variable, value in command.environment.items():
        shown = '"$POD_IP"' if value == POD_IP else shlex.quote(value)
        lines.append(f"export {variable}={shown}")
    return document([*lines, *_shell(command, f'"$(dirname "$0")/{command.name}.yaml"', before="exec ", last=last)])


def _variable(stand_in: str) -> str:
    """Return the name of the environment variable for which a value stands in."""
    return stand_in.removeprefix("$(").removesuffix(")")


def _quoted(value: str) -> str:
    """Return a value as a word of a shell, in which the variables of a node are expanded."""
    if FIRST_NODE not in value and NODE_RANK not in value:
        return shlex.quote(value)
    return '"' + re.sub(r"\$\((\w+)\)", r"$\1", value) + '"'


def _shell(command: EngineCommand, options: str, before: str = "", last: str | None = None) -> list[str]:
    """Return a command over several lines; ``options`` is the path of its file of options, quoted where needed.

    ``last`` is a word of the shell that follows the arguments.
    """
    lines = [before + shlex.join(command.program)]
    for argument in command.arguments:
        value = options if argument.value == OPTIONS_FILE else _quoted(argument.value or "")
        lines.append(f"  {argument.flag}" + ("" if argument.value is None else f" {value}"))
    lines += [] if last is None else [f"  {last}"]
    return [line + (" \\" if i < len(lines) - 1 else "") for i, line in enumerate(lines)]


def _about(command: EngineCommand) -> list[str]:
    """Return what a file says of its command: what it starts, the versions, and what is not expressed."""
    versions = " and ".join(command.checked)
    return [
        headline(command),
        f"{_FOUND} {command.title} {versions}.",
        *_notes(command.unexpressed),
    ]


def _notes(unexpressed: Sequence[Unexpressed]) -> list[str]:
    return [f"{note.key}: {note.text}" for note in unexpressed]


def _comments(lines: Iterable[str]) -> list[str]:
    """Return lines as comments of a script or of YAML; names of a scenario cannot end them."""
    return ["# " + part for line in lines for part in wrap(printable(line), width=WIDTH, subsequent_indent="    ")]


def _wrapped(unexpressed: Sequence[Unexpressed], indent: str) -> list[str]:
    return [
        part
        for line in _notes(unexpressed)
        for part in wrap(printable(line), width=WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ")
    ]


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block, and equal parts each time in full."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def _yaml(data: object) -> str:
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)


def _options(command: EngineCommand) -> str:
    return document(_comments([f"{_OPTIONS_OF} {command.title} for {command.name}.sh."])) + _yaml(
        _plain(command.options)
    )


def _plain(options: Mapping[str, object]) -> dict[str, object]:
    return {key: _plain(value) if isinstance(value, Mapping) else value for key, value in options.items()}


def _orchestrator(commands: Sequence[EngineCommand]) -> str:
    """Return the configuration of ``trtllm-serve disaggregated``: a Service of the manifest for each role."""
    servers = {
        f"{role}_servers": [f"{c.name}:{c.port}" for c in commands if c.role == word]
        for role, word in (("context", "prefill"), ("generation", "decode"))
    }
    joined = {key: {"num_instances": len(urls), "urls": urls} for key, urls in servers.items()}
    data = {"hostname": "0.0.0.0", "port": 8000, "backend": "pytorch", **joined}  # noqa: S104  as in the engines
    about = [
        f"{_JOINS}: trtllm-serve disaggregated -c disaggregated.yaml",
        "A Service stands for all replicas of an entry; list the replicas instead to let the orchestrator route.",
    ]
    return document(_comments(about)) + _yaml(data)


def manifest(deployment: Deployment, name: str) -> str:
    """Return a Kubernetes manifest: a Service and a Deployment for each command.

    A replica on several nodes is one group of pods of a LeaderWorkerSet instead of a pod of a Deployment.
    """
    part_of = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:63].rstrip("-._") or "windtunnel"
    about = [
        f"The fleet of {name}. {_FLEET_OF}, if there is one. "
        "Restrict each Deployment to the nodes with its devices by a nodeSelector.",
        *(
            line
            for c in deployment.commands
            for line in (headline(c), *(f"{c.name}: {n}" for n in _notes(c.unexpressed)))
        ),
        *_notes(deployment.unexpressed),
    ]
    documents: list[object] = []
    for command in deployment.commands:
        several = command.nodes_per_replica > 1
        if several and command.worker_arguments is None:
            about.append(
                f"{command.name} is not below: a replica takes {command.nodes_per_replica} nodes, which a Deployment "
                f"cannot start together, and no argument of {command.title} starts one from {command.name}.sh alone"
            )
            continue
        if several:
            about.append(
                f"{command.name} needs the LeaderWorkerSet of Kubernetes, 0.6 or later: https://lws.sigs.k8s.io"
            )
        if command.options:
            documents.append(_config_map(command, part_of))
        documents += [
            _leader_worker_set(command, part_of) if several else _deployment(command, part_of),
            _service(command, part_of),
        ]
    return document(_comments(about)) + "".join(f"---\n{_yaml(data)}" for data in documents)


def _metadata(command: EngineCommand, part_of: str) -> dict[str, object]:
    labels = {"app.kubernetes.io/name": command.name, "app.kubernetes.io/part-of": part_of}
    return {"name": command.name, "labels": labels}


def _config_map(command: EngineCommand, part_of: str) -> dict[str, object]:
    content = {f"{command.name}.yaml": _yaml(_plain(command.options))}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(command, part_of), "data": content}


def _service(command: EngineCommand, part_of: str) -> dict[str, object]:
    selector = {"app.kubernetes.io/name": command.name}
    if command.nodes_per_replica > 1:
        selector["leaderworkerset.sigs.k8s.io/worker-index"] = "0"  # the first node serves
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(command, part_of),
        "spec": {
            "selector": selector,
            "ports": [{"name": "http", "port": command.port, "targetPort": command.port}],
        },
    }


def _replicas(command: EngineCommand) -> int:
    return command.replicas if command.least_replicas is None else command.least_replicas


def _deployment(command: EngineCommand, part_of: str) -> dict[str, object]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(command, part_of),
        "spec": {
            "replicas": _replicas(command),
            "selector": {"matchLabels": {"app.kubernetes.io/name": command.name}},
            "template": _pod(command, part_of),
        },
    }


def _leader_worker_set(command: EngineCommand, part_of: str) -> dict[str, object]:
    """Return the set of a command whose replica is a group of pods, one on each node; a node that fails restarts it."""
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": _metadata(command, part_of),
        "spec": {
            "replicas": _replicas(command),
            "leaderWorkerTemplate": {
                "size": command.nodes_per_replica,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": _pod(command, part_of),
                "workerTemplate": _pod(command, part_of, worker=True),
            },
        },
    }


def _pod(command: EngineCommand, part_of: str, *, worker: bool = False) -> dict[str, object]:
    """Return the template of a pod with the devices of one node; a ``worker`` is not the first node and serves none."""
    environment: list[dict[str, Any]] = [{"name": "HF_TOKEN", "valueFrom": _SECRET}]
    if POD_IP in command.environment.values():
        environment.append({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    environment += [{"name": variable, "value": value} for variable, value in command.environment.items()]
    # Processes of one engine exchange data in shared memory.
    volumes: list[dict[str, Any]] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108  the folder of shared memory
    if command.options:
        volumes.append({"name": "options", "configMap": {"name": command.name}})
        mounts.append({"name": "options", "mountPath": _MOUNT})
    words = [
        f"{_MOUNT}/{command.name}.yaml" if word == OPTIONS_FILE else word
        for word in command.words[len(command.program) :]
    ]
    if worker:
        words += [argument.flag for argument in command.worker_arguments or ()]
    container: dict[str, Any] = {
        "name": "engine",
        "image": command.image,
        "command": list(command.program),
        "args": words,
        "env": environment,
        **({} if worker else {"ports": [{"name": "http", "containerPort": command.port}]}),
        "volumeMounts": mounts,
    }
    if not worker:
        container["readinessProbe"] = {"httpGet": {"path": "/health", "port": command.port}, "periodSeconds": 10}
    if command.resource is not None:
        container["resources"] = {
            "limits": {command.resource: command.devices_per_replica // command.nodes_per_replica}
        }
    selector = {"nodeSelector": dict(command.node_selector)} if command.node_selector else {}
    return {
        "metadata": {"labels": _metadata(command, part_of)["labels"]},
        "spec": {**selector, "containers": [container], "volumes": volumes},
    }


def section(deployment: Deployment | None) -> Markup | None:
    """Return the section of a report; None where nothing serves a decoder."""
    if deployment is None:
        return None
    parts: list[Markup | None] = []
    for command in deployment.commands:
        rows: list[list[str | Cell]] = [[Cell(shlex.join(command.program)), "", ""]]
        rows += [[a.flag, a.value or "", a.key or ""] for a in command.arguments if a.value != OPTIONS_FILE]
        rows += [[key, value, ""] for key, value in _leaves(command.options)]
        table = page.table(headline(command), ["Argument", "Value", "Key"], rows, words=(0, 1, 2), hidden_caption=True)
        parts.append(page.details(headline(command), plural(len(rows) - 1, "argument"), table))
        parts.append(page.notes(_notes(command.unexpressed), "Not in the arguments"))
    parts.append(page.notes(_notes(deployment.unexpressed), "Outside of the engines"))
    found = "; ".join(dict.fromkeys(f"{c.title} {' and '.join(c.checked)}" for c in deployment.commands))
    words = f"Every argument was found in the documentation or the sources of {found}. `plan --out` writes the files."
    return page.section("deploy", "Configuration to deploy", page.prose(words), *parts)


def _leaves(options: Mapping[str, object], before: str = "") -> list[tuple[str, str]]:
    """Return the keys of a file of options with dots between their levels, and their values."""
    found: list[tuple[str, str]] = []
    for key, value in options.items():
        found += _leaves(value, f"{before}{key}.") if isinstance(value, Mapping) else [(f"{before}{key}", str(value))]
    return found
