"""A run whose trace processes of their own compute too: it imports no tool of the tests."""

from __future__ import annotations

from tests.corpus import registry
from tests.corpus.synchronised import CASES
from tests.emulator.shared import device


def traced(seed: int) -> str:
    accelerator = device(seed)
    case = next(case for case in CASES if case.name == "chained_scan")
    arguments = case.arguments()
    given = [
        accelerator.empty(v.shape, v.dtype) if isinstance(v, registry.Empty) else accelerator.to_device(v)
        for v in arguments.values()
    ]
    accelerator.launch(case.kernel, case.grid, case.block, *given)
    return accelerator.trace_hash
