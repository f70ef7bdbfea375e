"""What a device does with the jobs it is given: one at a time, several on streams, or batched step by step.

A station starts work, sets an alarm for its end and writes down what occupied which engine. It asks for more when it
has room. All times are ticks, all powers watts above idle.
"""

from __future__ import annotations

from windtunnel.engine.fleet import FleetClass, Prepared
from windtunnel.engine.stations.base import FAULT, SCALE, TIMER, Alarm, RunContext, Station, event_order
from windtunnel.engine.stations.continuous import ContinuousStation
from windtunnel.engine.stations.real import RealStation
from windtunnel.engine.stations.single import SingleStation
from windtunnel.engine.stations.stream import StreamStation

__all__ = [
    "FAULT",
    "SCALE",
    "TIMER",
    "Alarm",
    "RunContext",
    "SingleStation",
    "Station",
    "event_order",
    "kind_of_station",
    "station_for",
]


def kind_of_station(prepared: Prepared, fleet_class: FleetClass) -> str:
    """``continuous``, ``stream``, ``single`` or ``real``: what a class's fleet entry and the policy's batching need."""
    if fleet_class.executor is not None:
        return "real"
    if prepared.policy.batch.kind == "continuous":
        return "continuous"
    programs = [compiled for (c, _), compiled in prepared.compiled.items() if c == fleet_class.number]
    side_by_side = any(len(phase) > 1 for p in programs for variant in p.variants for phase in variant)
    return "stream" if fleet_class.streams > 1 or side_by_side else "single"


def station_for(context: RunContext, number: int, fleet_class: FleetClass) -> Station:
    """The station of one device."""
    kinds = {"continuous": ContinuousStation, "stream": StreamStation, "single": SingleStation, "real": RealStation}
    return kinds[kind_of_station(context.prepared, fleet_class)](context, number, fleet_class)
