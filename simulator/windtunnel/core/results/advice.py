"""The result of `windtunnel advise`: a kernel launch for each command compared with a persistent kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windtunnel.core.results.data import Result


@dataclass(frozen=True)
class Primitives(Result):
    """The parts of both costs (s); ``write_s`` and ``poll_s`` are None if the API has no persistent kernels.

    ``step_s``: the kernels of a step, including floors. ``barriers_s``: the additional time of barriers in their place.
    ``mapped_copies_s``: the bytes of a command over the link, without the set-up of a copy, to a persistent kernel.
    """

    copy_in_s: float
    copy_out_s: float
    start_s: float
    enqueue_s: float
    synchronize_s: float
    step_s: float
    barriers_s: float
    write_s: float | None
    poll_s: float | None
    mapped_copies_s: float


@dataclass(frozen=True)
class Side(Result):
    """One of the two forms at a rate of commands.

    ``latency_s``: the time of a single command. ``response_s``: its mean including queueing; None if commands arrive
    faster than they are completed. Shares of the time: ``host_busy`` in calls, ``device_busy`` computing,
    ``device_held`` not available to others.
    """

    latency_s: float
    response_s: float | None
    capacity_per_s: float
    host_busy: float
    device_busy: float
    device_held: float


@dataclass(frozen=True)
class LaunchAdvice(Result):
    """The recommended form (``launch`` or ``persistent``) at a rate and a size of commands.

    ``saving`` is the share of the mean response that a persistent kernel saves, and ``saving_like_for_like`` the one if
    both forms copy the same bytes (None without persistent kernels). ``workload`` says what a command is.
    ``crossover_steps_ends`` are the crossovers for both ends of the assumed input. ``persistent`` is None if the API
    has no persistent kernels.
    """

    device: str
    commands_per_s: float
    steps_per_command: int
    recommended: str
    why: str
    workload: str
    saving: float
    saving_like_for_like: float | None
    crossover_steps_per_command: int | None
    crossover_steps_ends: Sequence[int | None]
    crossover_commands_per_s: float | None
    launch: Side
    persistent: Side | None
    primitives: Primitives
    assumed: str
