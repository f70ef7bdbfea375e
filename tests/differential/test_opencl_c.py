"""OpenCL C as the emulator executes it, against PoCL, which compiles it with Clang for the processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyopencl
from tests.corpus.opencl_c import CASES, LocalBytes, OpenCLCase

import windtunnel


def by_pocl(context: Any, queue: Any, case: OpenCLCase) -> list[np.ndarray | None]:
    """Return what the arguments hold after a launch on PoCL; None for local memory."""
    kernel = pyopencl.Program(context, case.source).build().all_kernels()[0]
    flags = pyopencl.mem_flags.COPY_HOST_PTR | pyopencl.mem_flags.READ_WRITE
    given = [
        pyopencl.LocalMemory(a.size) if isinstance(a, LocalBytes) else pyopencl.Buffer(context, flags, hostbuf=a)
        for a in case.arguments
    ]
    kernel(queue, case.items, case.group, *given)
    results: list[np.ndarray | None] = []
    for argument, buffer in zip(case.arguments, given, strict=True):
        if isinstance(argument, LocalBytes):
            results.append(None)
            continue
        result = np.empty_like(argument)
        pyopencl.enqueue_copy(queue, result, buffer)
        results.append(result)
    return results


def emulated(case: OpenCLCase, folder: Path, schedule: int | None) -> list[np.ndarray | None]:
    """Return what the arguments hold after an emulated launch."""
    file = folder / f"{case.name}.cl"
    file.write_text(case.source)
    module = windtunnel.load(file)
    grid = tuple(items // group for items, group in zip(case.items, case.group, strict=True))
    with windtunnel.device("h100-sxm-80gb", schedule=schedule) as accelerator:
        given = [a.size if isinstance(a, LocalBytes) else accelerator.to_device(a) for a in case.arguments]
        accelerator.launch(getattr(module, dir(module)[0]), grid, case.group, *given)
        return [None if isinstance(buffer, int) else accelerator.to_host(buffer) for buffer in given]


def close(result: np.ndarray, expected: np.ndarray) -> bool:
    """Return whether numbers are equal, and floats equal up to the errors of functions."""
    if result.dtype.kind != "f":
        return bool(np.array_equal(result, expected))
    return bool(np.allclose(result, expected, rtol=1e-5, atol=1e-6, equal_nan=True))


def test_kernels_compute_what_pocl_computes_in_lockstep_and_thread_by_thread(tmp_path: Path) -> None:
    devices = [device for platform in pyopencl.get_platforms() for device in platform.get_devices()]
    context = pyopencl.Context(devices[:1])
    queue = pyopencl.CommandQueue(context)
    for case in CASES:
        expected = by_pocl(context, queue, case)
        for schedule in (None, 1):
            for result, wanted in zip(emulated(case, tmp_path, schedule), expected, strict=True):
                if result is not None and wanted is not None:
                    assert close(result, wanted), (case.name, schedule)
