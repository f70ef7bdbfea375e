"""The features of a run as constants, and the marks of transitions.

The process engine executes all features. The compiled engine replaces these constants in each variant of its kernel, so
that the code of other features is not compiled (`engine/compiled/jit.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

SINGLES = True
"""Devices that execute one job, or one request-level batch, at a time."""
SERVERS = True
"""Devices with continuous batching."""
STREAMS = True
"""Devices that execute several jobs at a time, or several operations of one job."""
QUESTIONS = True
"""Transitions that need an answer in Python: failed operations, mixed batches, autoscaling, real devices."""
OPERATION_FAULTS = True
"""Faults of single operations."""
INTERRUPTS = True
"""Faults, power budgets and request-level batches: work that may be interrupted, slowed, paused or refused."""
TALLIES = True
"""Runs that are too long to keep every job."""
USERS = True
"""Closed loops."""
WAITS = True
"""Jobs that give up waiting, and pauses between attempts."""
PROGRESS = True
"""Checkpoints and preemption by priority: the progress of interrupted jobs is kept."""
GANGS = True
"""Jobs that occupy several devices at once."""
DESIGNS = True
"""Reconfigurable devices that may have to load a design."""
PREFIXES = True
"""Prefix caches of devices with continuous batching."""
TIERS = True
"""Tiers below prefix caches, from which blocks are loaded."""
TRANSFERS = True
"""Devices that only read prompts, and send the KV cache of each to a device that decodes."""
SPECULATION = True
"""Speculative decoding: sequences whose tokens of a step depend on what is accepted."""
ADAPTERS = True
"""LoRA adapters, which take slots of devices with continuous batching."""
CLASSES = True
"""Continuous batches that share fairly between tenants, or in which requests preempt others by their order."""
SIMPY = True
"""The process engine's clock."""

FEATURES = (
    "SINGLES", "SERVERS", "STREAMS", "QUESTIONS", "OPERATION_FAULTS", "INTERRUPTS", "TALLIES", "USERS", "WAITS",
    "PROGRESS", "GANGS", "DESIGNS", "PREFIXES", "TIERS", "TRANSFERS", "SPECULATION", "ADAPTERS", "CLASSES",
    "SIMPY",
)  # fmt: skip

_EVERYTHING = frozenset(FEATURES) - {"SIMPY"}
VARIANTS = {
    "fleet": frozenset({"SINGLES", "INTERRUPTS", "TALLIES"}),
    "serving": frozenset({"SERVERS"}),
    "prefixes": frozenset({"SERVERS", "PREFIXES"}),
    "tiers": frozenset({"SERVERS", "PREFIXES", "TIERS"}),
    "disaggregated": frozenset({"SERVERS", "PREFIXES", "TRANSFERS"}),
    "all": _EVERYTHING,
}
"""The features of each variant of the compiled engine."""

Function = TypeVar("Function", bound=Callable[..., Any])

INLINED: dict[FunctionType, bool] = {}
"""Every transition, and whether the compiled engine inlines it."""


def hot(function: Function) -> Function:
    """Mark a transition that every job executes; the compiled engine inlines it, because it is passed all tables."""
    INLINED[cast(FunctionType, function)] = True
    return function


def cold(function: Function) -> Function:
    """Mark a rarely executed transition; the compiled engine does not inline it, which reduces the compile time."""
    INLINED[cast(FunctionType, function)] = False
    return function
