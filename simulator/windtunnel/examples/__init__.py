"""Runnable programs in virtual time, each beside its plain form: what does a technique of accelerator programs save?

`python -m windtunnel.examples.NAME`, or the file itself in docs/examples of the repository. Each states its sizes,
computes for real, checks that both forms give the same numbers, and prints what each takes on emulated devices.
`windtunnel claims` runs the same functions.
"""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, str] = {
    "unified_memory": "a frame's data by pageable copies, by pinned copies, and in unified memory",
    "device_pool": "requests that each open a device, and requests that borrow one from a pool",
    "async_pipeline": "frames copied in, worked on and copied out: one after another, and overlapped on streams",
    "compute_graph": "a small network's kernels launched one by one, and replayed as a graph",
    "five_stage": "preprocess, transfer, compute, transfer back, output: each waited for, and as a pipeline",
    "launch_or_persist": "commands that are launched, and commands sent to a kernel that stays",
    "hot_reload": "a changed kernel reloaded while its program runs, and the program started anew",
    "particles": "500,000 particles through pool, graph, stream and unified memory, at 60 frames a second",
}
"""The examples, and what each of them compares."""
