"""Runs a program under many schedules: a race that one order of threads hides may appear under another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windtunnel.core.errors import InputError
from windtunnel.runtime.accelerator import Accelerator


@dataclass(frozen=True)
class Exploration:
    """The results of a program under several schedules."""

    hashes: Mapping[int, str]
    """By seed, the hash of all steps that threads can observe of each other."""
    results: Mapping[int, Any]
    """By seed, the program's return value."""

    @property
    def distinct(self) -> int:
        """The number of different orders that occurred."""
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
                error.schedule = seed  # type: ignore[attr-defined]  # findings have it already
                error.add_note(
                    f"schedule {seed}, number {number} of {len(seeds)}: windtunnel.device({accelerator.name!r}, "
                    f"schedule={seed}) repeats this run"
                )
                raise
            hashes[seed] = accelerator.trace_hash
    return Exploration(hashes, results)
