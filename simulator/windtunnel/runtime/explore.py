"""Programs run again and again, each time with its threads in another order: what one order hides another shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windtunnel.core.errors import InputError
from windtunnel.runtime.accelerator import Accelerator


@dataclass(frozen=True)
class Exploration:
    """What the schedules of a program came to."""

    hashes: Mapping[int, str]
    """Of each seed, the hash of all steps that threads could see of each other."""
    results: Mapping[int, Any]
    """What the program returned."""

    @property
    def distinct(self) -> int:
        """How many different orders were met."""
        return len(set(self.hashes.values()))


def explored(
    program: Callable[[Accelerator], Any], opened: Callable[[int], Accelerator], schedules: int | Sequence[int]
) -> Exploration:
    """Run ``program`` on a fresh accelerator for each seed; see ``windtunnel.explore``."""
    seeds = list(range(schedules)) if isinstance(schedules, int) else list(schedules)
    if not seeds or any(not isinstance(seed, int) or isinstance(seed, bool) or seed < 0 for seed in seeds):
        raise InputError(f"{schedules!r} is not a number of schedules", expected="a number from 1, or seeds from 0")
    hashes: dict[int, str] = {}
    results: dict[int, Any] = {}
    for number, seed in enumerate(seeds, start=1):
        with opened(seed) as accelerator:
            try:
                results[seed] = program(accelerator)
                accelerator.synchronize()
            except Exception as error:
                error.schedule = seed  # type: ignore[attr-defined]  # a finding has it already; others get it here
                error.add_note(
                    f"schedule {seed}, number {number} of {len(seeds)}: windtunnel.device({accelerator.name!r}, "
                    f"schedule={seed}) runs it so again"
                )
                raise
            hashes[seed] = accelerator.trace_hash
    return Exploration(hashes, results)
