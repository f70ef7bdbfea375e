"""Executes jobs on a device: one at a time, several on streams, or batched step by step.

A station starts work, sets an alarm for its end and records which hardware engine it occupied. It requests more work
when it has room. All times are ticks, all powers are watts above idle.
"""

from __future__ import annotations

from windtunnel.engine.prepare.prepared import FleetClass, kind_of_station
from windtunnel.engine.process.stations.base import FAULT, SCALE, TIMER, Alarm, RunContext, Station, event_order
from windtunnel.engine.process.stations.continuous import ContinuousStation
from windtunnel.engine.process.stations.real import RealStation
from windtunnel.engine.process.stations.single import SingleStation
from windtunnel.engine.process.stations.stream import StreamStation

__all__ = ["FAULT", "SCALE", "TIMER", "Alarm", "RunContext", "SingleStation", "Station", "event_order", "station_for"]


def station_for(context: RunContext, number: int, fleet_class: FleetClass) -> Station:
    """Return the station of one device."""
    kinds = {"continuous": ContinuousStation, "stream": StreamStation, "single": SingleStation, "real": RealStation}
    return kinds[kind_of_station(context.prepared, fleet_class)](context, number, fleet_class)
