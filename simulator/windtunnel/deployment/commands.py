"""The commands that deploy a prepared run: one for each fleet entry that serves a decoder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from windtunnel.core.device import Device
from windtunnel.core.results.deployment import Deployment, EngineCommand, Unexpressed
from windtunnel.deployment.arguments import Arguments
from windtunnel.deployment.replicas import PLACEHOLDER, Replicas, served_replicas
from windtunnel.deployment.sglang import sglang
from windtunnel.deployment.trtllm import trtllm
from windtunnel.deployment.vllm import vllm
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.scenario.policy import PolicyParts
from windtunnel_models.engines.arguments import engine_arguments

_WRITERS: Mapping[str, Callable[[Replicas, Arguments], list[str]]] = {
    "vllm": vllm,
    "sglang": sglang,
    "trtllm": trtllm,
}
RESOURCES = {
    "NVIDIA": "nvidia.com/gpu",
    "AMD": "amd.com/gpu",
    "Intel": "gpu.intel.com/i915",
    "Google": "google.com/tpu",
}
"""The names of devices in Kubernetes by vendor: https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus, and
https://cloud.google.com/kubernetes-engine/docs/concepts/tpus."""
_ROUTERS = {
    "prefix-aware": ", such as vLLM Router or SGLang Model Gateway with --policy cache_aware, whose rule is alike and "
    "not the same"
}
"""Routers that have a route, as the end of a note. Sources: the documentation of SGLang Model Gateway, and the post on
vLLM Router of 2025-12-13 in the blog of vLLM, which says that it was made from the former."""
_TPU_SLICES = {"tpu-v5e": "tpu-v5-lite-podslice", "tpu-v6e": "tpu-v6e-slice"}
_TPU_TOPOLOGIES = {1: "1x1", 4: "2x2", 8: "2x4"}
"""The slices on one host that a pod can have whole, and their topologies by chips:
https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus."""


def deployment(run: PreparedRun, counts: Mapping[int, int] | None = None) -> Deployment | None:
    """Return the commands that deploy the fleet of a prepared run; None where nothing serves a decoder.

    ``counts`` has the replicas of each fleet entry by its number, for a fleet of a plan; by default those of the
    scenario. An entry whose engine is ``generic`` gets the arguments of vLLM.
    """
    found = served_replicas(run, counts)
    if not found:
        return None
    names = _names([replicas.name for replicas in found])
    commands = [_command(run, replicas, name) for replicas, name in zip(found, names, strict=True)]
    return Deployment(commands=commands, unexpressed=list(_outside(run, found)))


def _names(names: Sequence[str]) -> list[str]:
    """Return the names as labels of DNS, which are those of files and of objects in Kubernetes, each once.

    None is that of a file for all entries.
    """
    found: list[str] = []
    for name in names:
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:50].rstrip("-") or "entry"
        plain = plain if plain[0].isalpha() else f"entry-{plain}"
        number = 2
        unique = plain
        while unique in (*found, "kubernetes", "disaggregated"):
            unique, number = f"{plain}-{number}", number + 1
        found.append(unique)
    return found


def _command(run: PreparedRun, replicas: Replicas, name: str) -> EngineCommand:
    engine = "vllm" if replicas.engine == "generic" else replicas.engine
    arguments = Arguments(engine_arguments(engine))
    program = _WRITERS[engine](replicas, arguments)
    for key in replicas.stated_keys():
        if key not in arguments.expressed:
            arguments.note(key, f"{arguments.known.title} has no argument for it")
    device = replicas.fleet_class.device
    vendor = device.spec.vendor
    image = _image(arguments, device)
    selector = _tpu_nodes(arguments, replicas) if device.kind.name == "tpu" else {}
    if replicas.nodes > 1 and arguments.worker_flags is None:
        text = f"a replica takes {replicas.nodes} nodes; start the command on each with the engine's multi-node options"
        arguments.note("group", text)
    return EngineCommand(
        name=name,
        entry=replicas.fleet_class.name,
        device=device.label,
        engine=engine,
        title=arguments.known.title,
        checked=arguments.known.checked,
        model=replicas.checkpoint.name,
        role=replicas.role,
        replicas=replicas.count,
        least_replicas=replicas.least,
        devices_per_replica=replicas.group.devices,
        nodes_per_replica=replicas.nodes,
        resource=None if device.kind.name == "cpu" else RESOURCES.get(vendor, f"REPLACE-ME.example/{device.kind.name}"),
        image=image,
        node_selector=selector or None,
        port=arguments.known.port,
        program=program,
        arguments=arguments.flags,
        options=arguments.options,
        option_keys=arguments.option_keys,
        environment=arguments.environment,
        unexpressed=arguments.unexpressed,
        worker_arguments=arguments.worker_flags,
    )


def _image(arguments: Arguments, device: Device) -> str:
    """Return the container image of an engine for a device; a placeholder with a note where none is documented."""
    of_maker = arguments.known.images.get(device.spec.vendor)
    image = None if of_maker is None or device.kind.name == "cpu" else of_maker.on(device.spec)
    if image is not None:
        return image
    text = f"{device.spec.name}: no image of {arguments.known.title} for it is documented; supply one, if there is any"
    arguments.note("device", text)
    return f"{PLACEHOLDER}/{arguments.known.engine}"


def _tpu_nodes(arguments: Arguments, replicas: Replicas) -> dict[str, str]:
    """Return the labels of the nodes for a replica on TPUs, which Google's Kubernetes requires of each pod."""
    device, chips = replicas.fleet_class.device, replicas.group.devices // replicas.nodes
    slice_ = _TPU_SLICES.get(device.spec.base or device.spec.sku)
    topology = _TPU_TOPOLOGIES.get(chips) if replicas.nodes == 1 else None
    if slice_ is None or topology is None:
        arguments.note("device", f"{device.spec.name}, {chips} in a pod: set the node selector of their slice")
        return {}
    return {"cloud.google.com/gke-tpu-accelerator": slice_, "cloud.google.com/gke-tpu-topology": topology}


def _outside(run: PreparedRun, found: Sequence[Replicas]) -> Iterator[Unexpressed]:
    """Yield what stands outside of the engines: routes, limits of admission, scaling."""
    yield from _routes(run, found)
    stated = run.scenario.policy
    if isinstance(stated, PolicyParts):
        for key in ("fair", "preemption"):
            if getattr(stated, key) is not None:
                yield Unexpressed(f"policy.{key}", "no engine has it; a gateway in front of the servers may")
    for number, workload in enumerate(run.scenario.workload):
        for key in ("rate_limit", "max_waiting"):
            if getattr(workload, key) is not None:
                yield Unexpressed(f"workload[{number}].{key}", "it is a gateway's in front of the servers")
    for replicas in found:
        if replicas.least is not None:
            range_ = f"{replicas.least} to {replicas.count} replicas of {replicas.name}"
            yield Unexpressed("autoscale", f"{range_}: add an autoscaler with a metric of the engine")
    if run.budget_w is not None:
        yield Unexpressed("power_budget", "limits of power are set on the devices")
    if len({replicas.fleet_class.number for replicas in found}) < len(found):
        text = "an entry serves several models, and a server has one: each model needs devices of its own"
        yield Unexpressed("models", text)


def _routes(run: PreparedRun, found: Sequence[Replicas]) -> Iterator[Unexpressed]:
    """Yield the routes that a Service of Kubernetes does not have: it spreads connections evenly."""
    policy = run.policy
    if sum(replicas.count for replicas in found) > 1 and policy.route.name != "round-robin":
        name = "one central queue" if policy.route.name == "central" else policy.route.name
        text = f"{name}: the manifest's Service spreads connections evenly, so this needs a router"
        yield Unexpressed("policy.route", text + _ROUTERS.get(policy.route.name, ""))
    if any(replicas.role != "both" for replicas in found) and policy.decode_route is not None:
        yield Unexpressed("policy.decode_route", f"{policy.decode_route.name}: it is the router's")


__all__ = ["deployment"]
