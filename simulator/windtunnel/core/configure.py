"""A device with what a fleet entry of a scenario states about it."""

from __future__ import annotations

from dataclasses import replace

from windtunnel.core.device import Device
from windtunnel.core.provenance import Provenance, SourcedValue


def configure(
    device: Device,
    *,
    speed: float = 1.0,
    idle_w: float | None = None,
    max_w: float | None = None,
    memory_bytes: float | None = None,
    link_bytes_per_s: float | None = None,
    network_bytes_per_s: float | None = None,
    network_latency_s: float | None = None,
) -> Device:
    """Return ``device`` with what a fleet entry states: speed, idle power, power cap, memory, link and network.

    ``network_latency_s`` is the time of a step of the protocol with the least one; the others keep their difference.

    Raises:
        InputError: if the kind has no link or network between devices.
    """
    values = dict(device.values)
    stated = "the scenario's fleet entry"

    def put(name: str, value: float) -> None:
        values[name] = SourcedValue(value, Provenance.DATASHEET, stated)

    if idle_w is not None:
        put("idle_power_w", idle_w)
    if memory_bytes is not None:
        put("memory_bytes", memory_bytes)
    for name, rate in (("scale_up_bytes_per_s", link_bytes_per_s), ("scale_out_bytes_per_s", network_bytes_per_s)):
        if rate is not None:
            device.kind.parameter(name)
            put(name, rate)
    if network_latency_s is not None:
        device.kind.parameter("collective_step_s")
        steps = {path: own.value for path, own in values.items() if path.startswith("collective_step_s.")}
        crossing = {path: step_s for path, step_s in steps.items() if path.endswith("_out")}
        for path, step_s in crossing.items():
            put(path, step_s - min(crossing.values()) + network_latency_s)
    cap_w = None
    if max_w is not None:
        if device.kind.stated_power:
            put("max_power_w", max_w)
        else:
            cap_w = max_w
    return replace(device, values=values, speed=speed, cap_w=cap_w)
