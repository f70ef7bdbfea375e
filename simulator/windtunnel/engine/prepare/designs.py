"""The designs of reconfigurable devices: which ones jobs need, which are resident at the start, and what a load costs.

A device needs no loads, and the engine does not ask for any, where the designs that are resident at the start are all
that its jobs need, and nothing takes them away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from windtunnel.core.errors import InputError, list_choices, nearest
from windtunnel.core.ticks import to_ticks
from windtunnel.engine.prepare.prepared import ClassDesigns, FleetClass, JobClass, PreparedRun
from windtunnel.engine.prepare.programs import Compiled, Segment, round_power
from windtunnel.scenario.faults import Ending, Failure
from windtunnel.scenario.scenario import Scenario


def designs_of(segment: Segment) -> list[str]:
    """Return the designs that a segment needs for any of the jobs."""
    words = [segment.design] if isinstance(segment.design, str) else np.unique(segment.design).tolist()
    return [word for word in words if word]


def class_designs(
    scenario: Scenario,
    classes: Sequence[FleetClass],
    workloads: Sequence[JobClass],
    compiled: Mapping[tuple[int, int], Compiled],
) -> dict[int, ClassDesigns]:
    """Return the designs of each class that is reconfigured and whose jobs need any, by number of the class.

    Devices of this host are not among them, because they load their designs in real time.

    Raises:
        InputError: if an entry states residents that its devices cannot hold.
    """
    found: dict[int, ClassDesigns] = {}
    lost = any(isinstance(f, Failure) or (isinstance(f, Ending) and f.reset_time is not None) for f in scenario.faults)
    for fleet_class in classes:
        stated = scenario.fleet[fleet_class.number].resident
        load = fleet_class.device.design_load()
        if load is None or fleet_class.executor is not None:
            if stated is not None:
                raise InputError(
                    f"{fleet_class.name} has no designs that could be resident",
                    where=scenario.where("fleet", fleet_class.number, "resident"),
                    expected="a modelled fpga, or no such key",
                )
            continue
        programs = [compiled[key] for w in workloads if (key := (fleet_class.number, w.number)) in compiled]
        segments = (segment for program in programs for segment in program.segments())
        needed = list(dict.fromkeys(design for segment in segments for design in designs_of(segment)))
        regions = load.regions
        resident = needed[:regions] if stated is None else _stated(scenario, fleet_class, stated, needed, regions)
        if needed:
            changes = lost or not set(needed) <= set(resident)
            load_w = round_power(max(load.power_w - fleet_class.device.idle_power_w, 0.0))
            found[fleet_class.number] = ClassDesigns(
                regions, to_ticks(load.duration_s), load_w, needed, resident, changes
            )
    return found


def check_designs(prepared: PreparedRun) -> None:
    """Check that request-level batches on reconfigured devices need one design each.

    Raises:
        InputError: if they need several.
    """
    if prepared.policy.batch.kind != "request":
        return
    for (cls, work), program in prepared.compiled.items():
        needed = {design for segment in program.segments() for design in designs_of(segment)}
        if len(needed) > 1 and cls in prepared.designs and prepared.designs[cls].changes:
            name = prepared.workloads[work].workload.name
            raise InputError(
                f"a batch on {prepared.classes[cls].name} needs one design, and '{name}' needs "
                f"{', '.join(sorted(needed))}",
                where=prepared.scenario.where("workload", work, "ops"),
                expected="operations of one design, a policy without batch, or other `devices`",
            )


def design_numbers(prepared: PreparedRun) -> dict[str, int]:
    """Return a number for each design that jobs need or devices hold; empty if no device ever loads any."""
    names: dict[str, int] = {}
    for designs in prepared.designs.values() if prepared.reconfigures else ():
        for name in (*designs.needed, *designs.resident):
            names.setdefault(name, len(names))
    return names


def resident_rows(prepared: PreparedRun, numbers: Mapping[str, int]) -> np.ndarray:
    """Return what devices hold, and what they are expected to hold (see ``transitions.designs``)."""
    devices, classes = prepared.device_count if numbers else 0, len(prepared.classes) if numbers else 0
    regions = max((d.regions for d in prepared.designs.values()), default=1)
    rows = np.full((2 * devices + bool(numbers) + classes, regions), -1, dtype=np.int64)
    for c in prepared.classes if numbers else ():
        designs = prepared.designs.get(c.number)
        row = rows[2 * devices + 1 + c.number]
        if designs is not None:
            row[: len(designs.resident)] = [numbers[name] for name in designs.resident]
        rows[c.first : c.first + c.count] = rows[devices + c.first : devices + c.first + c.count] = row
    return rows


def _operation(design: str) -> str:
    """Return the operation of a design, whose name ends in a number format."""
    return design.removesuffix("_block").rpartition("_")[0]


def _stated(
    scenario: Scenario, fleet_class: FleetClass, stated: Sequence[str], needed: Sequence[str], regions: int
) -> list[str]:
    """Return the names of the designs that an entry states, each of which may be that of an operation alone."""
    kind = fleet_class.device.kind
    known = () if kind.designs is None else kind.designs.names
    names: list[str] = []
    for place, word in enumerate(stated):
        where = scenario.where("fleet", fleet_class.number, "resident", place)
        choices = [word] if word in known else [name for name in needed if _operation(name) == word]
        if len(choices) != 1:
            of_operation = [name for name in known if _operation(name) == word]
            if choices:
                problem = f"stands for {len(choices)} designs that jobs need"
            elif of_operation:
                problem = "stands for no design, because no job needs one of this operation"
            else:
                problem = "is not a design"
            raise InputError(
                f"'{word}' {problem}",
                where=where,
                expected=list_choices(choices or of_operation or known, 40),
                nearest=None if choices or of_operation else nearest(word, known),
            )
        if choices[0] in names:
            raise InputError(f"'{word}' is stated twice", where=where, expected="each design once")
        names += choices
    if len(names) > regions:
        raise InputError(
            f"{fleet_class.name} holds {regions} {'design' if regions == 1 else 'designs'} at once, not {len(names)}",
            where=scenario.where("fleet", fleet_class.number, "resident"),
            expected=f"at most {regions} (parameter `regions` of the SKU)",
        )
    return names
