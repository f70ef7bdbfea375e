"""Prepares requests that move from devices that read prompts to devices that decode: roles, links and nodes.

A KV cache moves over the links of the sender and of the receiver. Where all devices of both are in one node, these are
the links between the devices of a node, and else the network. Their rates are those of ``send_recv`` between two
devices, with the sources that the device model has for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.errors import InputError, UnsupportedOperationError
from windtunnel.core.operation import Rows
from windtunnel.core.ops import OPERATIONS
from windtunnel.core.policy import Policy
from windtunnel.core.provenance import SourcedValue
from windtunnel.engine.prepare.decoding import DecoderCosts
from windtunnel.engine.prepare.prepared import FleetClass, JobClass, KvLink, LinkRate
from windtunnel.engine.prepare.programs import Compiled
from windtunnel.scenario.policy import PolicyParts
from windtunnel.scenario.scenario import Scenario

_SMALL_BYTES, _LARGE_BYTES = 2.0**26, 2.0**30
"""The messages from whose times the rate and the latency of a link follow: of a short prompt and of a long one."""
_PARTNERS = {"prefill": ("decode", "both"), "decode": ("prefill",), "both": ()}
"""The roles of which a class with a role needs one beside it. What decodes needs a class that sends it requests."""
_PER_NODE = 8
"""The devices of a node where neither the entry nor the device states it."""


# Long: one check for each way in which roles and routes may not fit.
def check_roles(
    scenario: Scenario,
    policy: Policy,
    classes: Sequence[FleetClass],
    workloads: Sequence[JobClass],
    compiled: Mapping[tuple[int, int], Compiled],
    candidates: bool = False,
) -> None:
    """Check that every request finds a class that reads its prompt and one that decodes it.

    ``candidates``: the classes are those that a plan may use. Fleets have some of them (see ``EntrySets``), so their
    engines may differ.

    Raises:
        InputError: if it does not, if the policy has no continuous batches, or if requests move between engines.
    """
    stated = [c for c in classes if c.role != "both"]
    if stated and policy.batch.kind != "continuous":
        raise InputError(
            f"role: {stated[0].role} requires continuous batching",
            where=scenario.where("fleet", stated[0].number, "role"),
            expected="batch: {kind: continuous} in the policy, or no role",
        )
    _check_route(scenario, policy, classes)
    for job_class in [] if candidates else workloads:
        _check_engines(scenario, [classes[cls] for cls, work in compiled if work == job_class.number])
    for need in role_needs(classes, compiled):
        if not need.partners:
            entry = classes[need.class_number]
            does = "decodes them" if entry.role == "prefill" else "sends it requests whose prompt has been read"
            others = [c.name for c in classes if c.role in _PARTNERS[entry.role]]
            same = [c.name for c in classes if c.role in _PARTNERS[entry.role] and _fit(entry, c)]
            why = f" ({', '.join(others)} cannot serve them)" if others else ""
            if others and not same:
                why = f" ({', '.join(others)} with another engine: no engine takes the KV cache of another one)"
            name = workloads[need.workload].workload.name
            raise InputError(
                f"{entry.name} has the role {entry.role} for the requests of '{name}', and no entry {does}{why}",
                where=scenario.where("fleet", entry.number, "role"),
                expected=f"an entry with role: {'prefill' if entry.role == 'decode' else 'decode'} for the same model",
            )


@dataclass(frozen=True)
class RoleNeed:
    """A class with the role prefill or decode serves a workload only together with one of the ``partners``."""

    class_number: int
    workload: int
    partners: frozenset[int]


def role_needs(classes: Sequence[FleetClass], compiled: Mapping[tuple[int, int], Compiled]) -> list[RoleNeed]:
    """Return what each class with the role prefill or decode needs beside it, by workload."""
    needs = []
    for work in sorted({work for _, work in compiled}):
        able = [classes[cls] for cls, other in compiled if other == work]
        for c in able:
            if c.role != "both":
                found = [other for other in able if other.role in _PARTNERS[c.role] and _fit(c, other)]
                needs.append(RoleNeed(c.number, work, frozenset(other.number for other in found)))
    return needs


@dataclass(frozen=True)
class EntrySets:
    """Which of the classes that a plan may use a fleet may have together, by their roles.

    ``apart``: the pairs between which requests would move although their engines differ.
    """

    needs: Sequence[RoleNeed] = ()
    apart: frozenset[frozenset[int]] = frozenset()

    def go_together(self, classes: Sequence[int]) -> bool:
        """Return whether a fleet may have all of these classes, with others or without."""
        present = set(classes)
        return not any(pair <= present for pair in self.apart)

    def work(self, classes: Sequence[int]) -> bool:
        """Return whether a fleet of exactly these classes has what each role needs beside it, of the same engine."""
        present = set(classes)
        return self.go_together(classes) and all(
            need.partners & present for need in self.needs if need.class_number in present
        )


def entry_sets(classes: Sequence[FleetClass], compiled: Mapping[tuple[int, int], Compiled]) -> EntrySets:
    """Return which classes a fleet may have together."""
    apart = frozenset(
        frozenset((cls, other))
        for cls, work in compiled
        for other, same in compiled
        if same == work and classes[cls].role != "both" and not _fit(classes[cls], classes[other])
    )
    return EntrySets(role_needs(classes, compiled), apart)


def _fit(one: FleetClass, other: FleetClass) -> bool:
    """Return whether two classes can send each other KV caches: each engine has a connector of its own kind."""
    first, second = one.replica.engine, other.replica.engine
    return first is None or second is None or first.name == second.name


def _check_engines(scenario: Scenario, able: Sequence[FleetClass]) -> None:
    """Check that KV caches are sent between replicas of one engine: each engine has a connector of its own kind."""
    first = next((c for c in able if c.role != "both"), None)
    if first is None or first.replica.engine is None:
        return
    for other in able:
        engine = other.replica.engine
        if engine is not None and not _fit(first, other):
            raise InputError(
                f"{first.name} runs {first.replica.engine.name} with the role {first.role}, and {other.name} runs "
                f"{engine.name}: no engine takes the KV cache of another one",
                where=scenario.where("fleet", other.number, "engine"),
                expected=f"engine: {first.replica.engine.name} in both entries",
            )


def _check_route(scenario: Scenario, policy: Policy, classes: Sequence[FleetClass]) -> None:
    """Check the route that chooses the device that decodes."""
    route = policy.decode_route
    if route is None:
        return
    where = scenario.where("policy", "decode_route")
    if route.score is None:
        raise InputError(
            f"the route '{route.name}' does not choose a replica, and a KV cache is sent to one",
            where=where,
            expected="a route such as least-loaded or kv-aware",
        )
    stated = isinstance(scenario.policy, PolicyParts) and scenario.policy.decode_route is not None
    if stated and all(c.role != "prefill" for c in classes):
        raise InputError(
            "decode_route is for requests that move, and no entry has the role prefill",
            where=where,
            expected="role: prefill and role: decode in the fleet, or no decode_route",
        )


def kv_links(classes: Sequence[FleetClass], compiled: Mapping[tuple[int, int], Compiled]) -> dict[int, KvLink]:
    """Return how each class sends and receives KV caches; none where no request moves."""
    if all(c.role != "prefill" for c in classes):
        return {}
    links = {}
    for (cls, _), program in compiled.items():
        if program.decoder is not None and cls not in links:
            links[cls] = _link(classes[cls], program.decoder)
    return links


def _link(fleet_class: FleetClass, costs: DecoderCosts) -> KvLink:
    """Return the link of a class. The devices of one copy of the attention have the cache of a request."""
    group, memory = fleet_class.replica.group, costs.memory
    devices = group.tensor * group.pipeline
    device = fleet_class.device
    return KvLink(
        token_bytes=memory.kv_bytes_per_token * devices,
        state_bytes=memory.state_bytes_per_sequence * devices,
        inside=_rate(device, devices, node=8),
        network=_rate(device, devices, node=1),
        sources={**_sources(device, 8), **_sources(device, 1)},
    )


def _rows(device: Device, node: int) -> Rows:
    op = OPERATIONS["send_recv"]
    if not device.runs(op.name):
        raise UnsupportedOperationError(f"{device.label} does not execute {op.name}, by which KV caches are sent")
    values = op.complete({"bytes": 1, "workers": 2, "devices_per_node": node, "dispatch": "graph"})
    numbers = {name: np.full(2, float(value)) for name, value in values.items() if not isinstance(value, str)}
    numbers["bytes"] = np.array([_SMALL_BYTES, _LARGE_BYTES])
    return Rows(op, {name: value for name, value in values.items() if isinstance(value, str)}, numbers)


def _rate(device: Device, devices: int, node: int) -> LinkRate:
    """Return the rate of ``devices`` devices that send together, and the latency of a message of one of them."""
    small_s, large_s = device.cost(_rows(device, node), intervals=False).duration_s.tolist()
    bytes_per_s = (_LARGE_BYTES - _SMALL_BYTES) / (large_s - small_s)
    return LinkRate(devices * bytes_per_s, max(small_s - _SMALL_BYTES / bytes_per_s, 0.0))


def _sources(device: Device, node: int) -> Mapping[str, SourcedValue]:
    return device.sources(_rows(device, node))


def nodes_of(scenario: Scenario, classes: Sequence[FleetClass]) -> np.ndarray:
    """Return the node that has all devices of each replica, or -1 where none has; shape (replicas,).

    Entries of one SKU that follow each other, with nodes of the same size, fill nodes one after the other. Other
    entries begin a new node.
    """
    found: list[int] = []
    node, used, before = -1, 0, ("", 0)
    for c in classes:
        stated = scenario.fleet[c.number].node.devices or c.device.number("devices_per_node")
        size = int(stated or _PER_NODE)
        if (c.device.spec.sku, size) != before or used == size:
            node, used, before = node + 1, 0, (c.device.spec.sku, size)
        for _ in range(c.count):
            first, last = used, used + c.members - 1
            found.append(node + first // size if first // size == last // size else -1)
            used = last + 1
        node, used = node + (used - 1) // size, (used - 1) % size + 1
    return np.array(found, dtype=np.int64)
