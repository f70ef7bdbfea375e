"""Heat that spreads along a rod, step by step on an accelerator."""

import numpy as np

import windtunnel
from windtunnel.errors import CopyError, LinkDown


@windtunnel.kernel
def spread(before, after):
    after[1:-1] = (before[:-2] + 2 * before[1:-1] + before[2:]) / 4
    after[[0, -1]] = before[[0, -1]]


def fetch(accelerator, buffer, tries=3):
    """What a buffer holds; a copy that failed is tried again."""
    for left in reversed(range(tries)):
        try:
            return accelerator.to_host(buffer)
        except (CopyError, LinkDown):
            if not left:
                raise
    raise ValueError("no tries")


def diffuse(accelerator, temperatures, steps):
    """Temperatures after so many steps; nothing is left on the device, whatever happens."""
    buffers = []
    try:
        buffers.append(accelerator.to_device(np.asarray(temperatures, np.float32)))
        buffers.append(accelerator.empty(buffers[0].shape))
        grid, block = accelerator.configuration(buffers[0].size)
        for step in range(steps):
            accelerator.launch(spread, grid, block, buffers[step % 2], buffers[(step + 1) % 2])
        return fetch(accelerator, buffers[steps % 2])
    finally:
        for buffer in buffers:
            if not buffer.freed:
                buffer.free()
