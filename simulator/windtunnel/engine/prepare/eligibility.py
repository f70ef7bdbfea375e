"""Which classes of devices can run each job, and which can decode it if another class reads its prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from windtunnel.core.errors import InputError, UnsupportedOperationError
from windtunnel.core.policy import Policy
from windtunnel.core.ticks import FloatArray
from windtunnel.core.units import format_quantity
from windtunnel.engine.prepare.prepared import FleetClass, JobClass
from windtunnel.engine.prepare.programs import Compiled
from windtunnel.scenario.scenario import Scenario

Excluded = dict[tuple[int, int], UnsupportedOperationError | str]
"""Why a class does not run a workload, by (class, workload)."""


class Signature(NamedTuple):
    """The classes that can run a job, each in the order of the fleet.

    ``readers`` start it. ``decoders`` take it over from a class that only reads prompts; empty if it never moves.
    """

    gang: int
    readers: tuple[int, ...]
    decoders: tuple[int, ...]


# Long: it determines the sets of both roles for each workload.
def eligibility(
    scenario: Scenario,
    policy: Policy,
    classes: Sequence[FleetClass],
    workloads: Sequence[JobClass],
    compiled: Mapping[tuple[int, int], Compiled],
    excluded: Excluded,
    workload_of: np.ndarray,
    rank: np.ndarray,
) -> tuple[list[Signature], np.ndarray]:
    """Return the distinct sets of classes that can run a job, for each size of a gang, and the index of each job's set.

    A class can run a job if its kind supports the operations and its memory is large enough.

    Raises:
        InputError: if no device can run a job.
    """
    signatures: dict[Signature, int] = {}
    eligible = np.zeros(len(workload_of), dtype=np.int64)
    for job_class in workloads:
        members = workload_of == job_class.number
        if not members.any():
            continue
        able = [c for c in classes if (c.number, job_class.number) in compiled]
        if not able:
            raise _no_device(scenario, job_class, excluded)
        moves = any(c.role == "prefill" for c in able)
        readers = [c for c in able if c.role != "decode"]
        decoders = [c for c in able if c.role != "prefill"] if moves else []
        sets = (readers, decoders) if moves else (readers,)
        columns = [_fits(scenario, policy, found, compiled, job_class, rank[members]) for found in sets]
        whole = np.concatenate(columns, axis=1)
        # Usually all jobs of a workload fit the same devices; this test avoids sorting a million equal rows.
        same = (whole == whole[0]).all()
        patterns, inverse = (whole[:1], None) if same else np.unique(whole, axis=0, return_inverse=True)
        codes = []
        for pattern in patterns:
            able_to_read = tuple(c.number for c, fit in zip(readers, pattern, strict=False) if fit)
            able_to_decode = tuple(c.number for c, fit in zip(decoders, pattern[len(readers) :], strict=True) if fit)
            signature = Signature(job_class.gang, able_to_read, able_to_decode)
            codes.append(signatures.setdefault(signature, len(signatures)))
        eligible[members] = codes[0] if inverse is None else np.array(codes)[inverse.reshape(-1)]
    return list(signatures), eligible


def _fits(
    scenario: Scenario,
    policy: Policy,
    able: Sequence[FleetClass],
    compiled: Mapping[tuple[int, int], Compiled],
    job_class: JobClass,
    ranks: np.ndarray,
) -> np.ndarray:
    """Return whether each class has memory for each job; shape (jobs, classes).

    Raises:
        InputError: if no class has memory for a job.
    """
    fits = np.zeros((len(ranks), len(able)), dtype=bool)
    for column, fleet_class in enumerate(able):
        need = _needed_bytes(fleet_class, compiled[fleet_class.number, job_class.number])
        fits[:, column] = (need if need.size == 1 else need[ranks]) <= fleet_class.usable_bytes(policy.batch)
    if not fits.any(axis=1).all():
        raise _no_memory(scenario, policy, able, compiled, job_class, int(ranks[np.argmin(fits.any(axis=1))]))
    return fits


def _needed_bytes(fleet_class: FleetClass, program: Compiled) -> FloatArray:
    """Return the memory that each job needs on a class (bytes): where only its prompt is read, for its prompt."""
    if fleet_class.role != "prefill" or program.decoder is None or program.prompts is None:
        return program.footprint_bytes
    return program.decoder.request_bytes(program.prompts + 1.0)


def _no_memory(
    scenario: Scenario,
    policy: Policy,
    able: Sequence[FleetClass],
    compiled: Mapping[tuple[int, int], Compiled],
    job_class: JobClass,
    job: int,
) -> InputError:
    """Return the error for a job that none of the classes ``able`` has memory for."""
    program = compiled[able[0].number, job_class.number]
    need = np.broadcast_to(_needed_bytes(able[0], program), (job_class.source.count,))[job]
    tokens = program.tokens(job)
    if able[0].role == "prefill" and program.prompts is not None:
        tokens = int(program.prompts[job]) + 1
    for c in able:
        costs = compiled[c.number, job_class.number].decoder
        if costs is not None:
            try:
                costs.check_room(tokens)
            except InputError as error:
                return error.at(scenario.where("fleet", c.number))
    largest = max(c.usable_bytes(policy.batch) for c in able)
    trace = job_class.source.trace
    row = f" ({trace.place(job)})" if trace is not None else ""
    return InputError(
        f"a job of '{job_class.workload.name}'{row} needs {format_quantity(float(need), 'B')} of memory, and "
        f"no device of the fleet that can run it has enough",
        where=scenario.where("workload", job_class.number, "ops"),
        expected=f"at most {format_quantity(largest, 'B')}",
    )


def _no_device(scenario: Scenario, job_class: JobClass, excluded: Excluded) -> InputError:
    """Return the error for a workload that no device of the fleet can run."""
    place = scenario.where("workload", job_class.number, "ops")
    for (_, work), why in excluded.items():
        if work == job_class.number and isinstance(why, UnsupportedOperationError):
            return UnsupportedOperationError(
                f"no device of the fleet can run '{job_class.workload.name}': {why.problem}",
                where=why.where if str(why.where) else place,
                expected=why.expected,
                nearest=why.nearest,
            ).at(place)
    return InputError(
        f"no device of the fleet is recommended for the use case '{job_class.workload.use_case}'",
        where=scenario.where("workload", job_class.number, "use_case"),
        expected="a device from that row of the recommendation matrix (`windtunnel advise`)",
    )
