"""Programs in virtual time that compare a technique of accelerator programs with its plain form.

`python -m windtunnel.examples.NAME` runs one, and so does its file in docs/examples of the repository. Each states its
sizes, computes real results, checks that all forms give the same numbers, and prints their times on emulated devices.
`windtunnel claims` runs the same functions.
"""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, str] = {
    "unified_memory": "a frame's data in pageable copies, in pinned copies, and in unified memory",
    "device_pool": "requests that each open a device, and requests that borrow one from a pool",
    "async_pipeline": "frames copied in, filtered and copied out: one after another, and overlapped on streams",
    "compute_graph": "the kernels of a small network: single launches, and a replayed graph",
    "five_stage": "preprocess, transfer, compute, transfer back, output: a wait for each stage, and as a pipeline",
    "launch_or_persist": "a launch for each command, and commands sent to a persistent kernel",
    "hot_reload": "a changed kernel that is reloaded while its program runs, and a restart of the program",
    "particles": "500,000 particles with pool, graph, stream and unified memory, at 60 frames per second",
}
"""The examples, and what each of them compares."""
