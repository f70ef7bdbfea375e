"""The tables of requests that move from a device that reads prompts to one that decodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from windtunnel.engine.prepare.prepared import FleetClass, PreparedRun
from windtunnel.engine.transitions import tables
from windtunnel.engine.transitions.tables import Records, records

_ROLES = {"both": tables.BOTH_ROLES, "prefill": tables.PREFILLS, "decode": tables.DECODES}


def write_decoders(prepared: PreparedRun, add: Callable[[np.ndarray], int], r: Records) -> None:
    """Write the classes that decode the jobs of each signature with ``add``, which returns an offset in ``ints``."""
    r.disaggregated = prepared.disaggregated
    sets = prepared.decode_signatures
    r.decode_at = add(np.cumsum([0, *(len(classes) for classes in sets)]))
    r.decode_classes = add(np.array([c for classes in sets for c in classes] or [0], dtype=np.int64))


def write_role(row: Records, prepared: PreparedRun, fleet_class: FleetClass) -> None:
    """Write what a class does for a request, and the links of its devices."""
    row.role = _ROLES[fleet_class.role]
    link = prepared.links.get(fleet_class.number)
    if link is None:
        return
    row.token_bytes, row.state_bytes = link.token_bytes, link.state_bytes
    row.link_rate, row.link_s = link.inside.bytes_per_s, link.inside.latency_s
    row.network_rate, row.network_s = link.network.bytes_per_s, link.network.latency_s


def ports(prepared: PreparedRun) -> Records:
    """Return what each device needs to hand requests over; no rows where none moves."""
    rows = records(prepared.device_count if prepared.disaggregated else 0, tables.PORT)
    for name in ("holding", "incoming", "incoming_end", "awaiting", "following"):
        rows[name] = -1
    if prepared.disaggregated:
        rows.node = prepared.nodes
    return rows
