"""Bodies that attract each other, on a GPU with Numba."""

import math

import numpy as np
from numba import cuda, float32

TILE = 64
SOFTENING = np.float32(1e-3)


@cuda.jit(device=True)
def attraction(dx, dy, dz, mass):
    distance = dx * dx + dy * dy + dz * dz + SOFTENING
    return mass / (distance * math.sqrt(distance))


@cuda.jit
def accelerate(positions, masses, accelerations):
    """Sum the attraction of all bodies, a tile of them at a time in shared memory."""
    tile = cuda.shared.array((TILE, 4), float32)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    n = positions.shape[0]
    x = y = z = float32(0)
    if i < n:
        x, y, z = positions[i, 0], positions[i, 1], positions[i, 2]
    ax = ay = az = float32(0)
    for first in range(0, n, TILE):
        j = first + t
        if j < n:
            for axis in range(3):
                tile[t, axis] = positions[j, axis]
            tile[t, 3] = masses[j]
        cuda.syncthreads()
        for k in range(min(TILE, n - first)):
            dx, dy, dz = tile[k, 0] - x, tile[k, 1] - y, tile[k, 2] - z
            pull = attraction(dx, dy, dz, tile[k, 3])
            ax += dx * pull
            ay += dy * pull
            az += dz * pull
        cuda.syncthreads()
    if i < n:
        accelerations[i, 0], accelerations[i, 1], accelerations[i, 2] = ax, ay, az


@cuda.jit
def count_near(positions, limit, counts):
    """Count the bodies within a distance of the origin."""
    i = cuda.grid(1)
    if i < positions.shape[0]:
        x, y, z = positions[i, 0], positions[i, 1], positions[i, 2]
        if math.sqrt(x * x + y * y + z * z) < limit:
            cuda.atomic.add(counts, 0, 1)


@cuda.reduce
def total(a, b):
    return a + b


def accelerations_of(positions, masses):
    n = positions.shape[0]
    stream = cuda.stream()
    with stream.auto_synchronize():
        held = cuda.to_device(positions, stream=stream)
        weights = cuda.to_device(masses, stream=stream)
        result = cuda.device_array((n, 3), np.float32, stream=stream)
        accelerate[(n + TILE - 1) // TILE, TILE, stream](held, weights, result)
        return result.copy_to_host(stream=stream)
