"""A simulation that receives commands: with launches for each command, or with a persistent kernel.

This is the benchmark of the founding documents on an RTX 6000 Ada. *Launch per command*: the grid has 64x64x64 float32
cells. An injection changes a cell of the host's copy and uploads two whole arrays (the present and the previous
pressure) from pageable memory. A step enqueues two kernels (update, boundary) and does not wait. A query reads the
host's copy. *Persistent*: the grid has 24x24x24 cells. An injection is one message, any number of steps is one message,
and the host sleeps 100 us between polls. The mixed workload is 100 times inject, five steps and a query: 300
operations.

The two forms have different grids, and only one host sleeps. A second table compares them on the same grid with a host
that does not sleep; there both must give the same pressure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import windtunnel
from windtunnel.core.columns import Columns
from windtunnel.examples.measure import Opener, devices, percent, same, saving, seconds, table
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.buffers import Buffer

DEVICE = "rtx-6000-ada"
SIDE, PERSISTENT_SIDE = 64, 24
STEPS, REPETITIONS = 5, 100
SLEEP_S = 100e-6
"""The time (s) between two polls of the benchmark's waiting loop (its public source)."""
OVERSHOOT_S = 55e-6
"""Assumed: Linux' default timer slack of 50 us (1 to 50), and 5 us (1 to 25) until the thread is scheduled."""
STATED = {"inject": (317e-6, 0.03e-6), "one step": (3.2e-6, 163e-6), "mixed, 300 operations": (40.5e-3, 15.3e-3)}
"""The founding documents' figures (s), launched and persistent."""
COMMAND = np.dtype([("steps", np.uint32), ("cell", np.uint32), ("amplitude", np.float32)])
"""The number of steps; or 0, with a cell of the grid and the amplitude that is added to it."""


def _cells(side: int, depth: int) -> Columns:
    return {"op": "stencil", "nx": side, "ny": side, "nz": depth}


@windtunnel.kernel(work=lambda now, _before: _cells(now.shape[0], now.shape[0]))
def update(now: np.ndarray, before: np.ndarray) -> None:
    """Compute one step of the wave equation (Courant number 1/2): ``before`` becomes the pressure after ``now``."""
    inner = (slice(1, -1),) * 3
    laplacian = -6.0 * now[inner]
    for axis in range(3):
        for shift in (slice(2, None), slice(None, -2)):
            neighbour = list(inner)
            neighbour[axis] = shift
            laplacian += now[tuple(neighbour)]
    before[inner] = 2.0 * now[inner] - before[inner] + np.float32(0.25) * laplacian


@windtunnel.kernel(work=lambda pressure: _cells(pressure.shape[0], 6))
def boundary(pressure: np.ndarray) -> None:
    """Absorb half of the pressure at the walls."""
    for axis in range(3):
        for wall in (0, -1):
            face: list[Any] = [slice(None)] * 3
            face[axis] = wall
            pressure[tuple(face)] *= np.float32(0.5)


class Launched:
    """A launch for each command. Injections change the host's copy, which is uploaded as a whole."""

    def __init__(self, device: Accelerator, side: int) -> None:
        self.device = device
        self.host = [np.zeros((side,) * 3, np.float32) for _ in range(2)]
        self.arrays: list[Buffer] = [device.to_device(array) for array in self.host]
        self.grid = device.configuration(side**3)

    def inject(self, cell: int, amplitude: float) -> None:
        """Change a cell, and upload both arrays."""
        self.host[0].reshape(-1)[cell] += np.float32(amplitude)
        for array, values in zip(self.arrays, self.host, strict=True):
            array.copy_from(values)

    def step(self, steps: int) -> None:
        """Enqueue the kernels of some steps."""
        for _ in range(steps):
            now, before = self.arrays
            self.device.launch(update, *self.grid, now, before)
            self.device.launch(boundary, *self.grid, before)
            self.arrays = [before, now]

    def query(self, cell: int) -> float:
        """Read the host's copy."""
        return float(self.host[0].reshape(-1)[cell])

    def pressure(self) -> np.ndarray:
        """Return the pressure on the device."""
        return self.device.to_host(self.arrays[0])


def _command(message: Any, now: np.ndarray, _before: np.ndarray) -> list[Columns]:
    side, steps = now.shape[0], int(message["steps"])
    return [_cells(side, side), _cells(side, 6)] * steps or [{"op": "kernel", "threads": 1, "bytes": 8, "flops": 1.0}]


@windtunnel.kernel(work=_command)
def simulate(message: Any, now: np.ndarray, before: np.ndarray) -> None:
    """Execute a command: a number of steps, or an injection."""
    if not message["steps"]:
        now.reshape(-1)[message["cell"]] += message["amplitude"]
    for _ in range(message["steps"]):
        update(now, before)
        boundary(before)
        # A persistent kernel cannot swap its arrays, so it copies the result.
        now[...], before[...] = before.copy(), now.copy()


class Persistent:
    """A persistent kernel on all compute units. The host sleeps ``sleep_s`` between polls, if not 0."""

    def __init__(self, device: Accelerator, side: int, sleep_s: float) -> None:
        self.device, self.sleep_s = device, sleep_s
        self.arrays = [device.to_device(np.zeros((side,) * 3, np.float32)) for _ in range(2)]
        units = device.info.compute_units
        self.ring = device.ring(simulate, units, 256, *self.arrays, message=COMMAND, capacity=256)
        self.sent = 0

    def inject(self, cell: int, amplitude: float) -> None:
        """Send an injection without waiting."""
        self.ring.send((0, cell, amplitude))
        self.sent += 1

    def step(self, steps: int) -> None:
        """Send steps, and wait until the control block acknowledges all messages."""
        self.ring.send((steps, 0, 0.0))
        self.sent += 1
        if not self.sleep_s:
            self.ring.drain()
            return
        self.device.sleep(self.sleep_s)
        while self.ring.status().processed < self.sent:
            self.device.sleep(self.sleep_s)

    def query(self, cell: int) -> float:
        """Read the host's copy."""
        return 0.0

    def pressure(self) -> np.ndarray:
        """Return the pressure on the device."""
        return self.device.to_host(self.arrays[0])


Side = Launched | Persistent


def spent(device: Accelerator, commands: Callable[[], object]) -> float:
    """Return the host's time for commands (s)."""
    before = device.clock_s
    commands()
    return device.clock_s - before


def mixed(side: Side, repetitions: int = REPETITIONS) -> None:
    """Inject, run five steps and query, several times."""
    for number in range(repetitions):
        side.inject(number, 1.0)
        side.step(STEPS)
        side.query(number)


@dataclass(frozen=True)
class Rows:
    """The time of each row of the table (s) for one form."""

    inject_s: float
    step_s: float
    mixed_s: float


def rows(device: Accelerator, side: Side) -> Rows:
    """Measure each row from an idle device. As in the benchmark, a launched step is only enqueued."""

    def rest() -> None:
        if isinstance(side, Launched):
            device.synchronize()
        else:
            side.ring.drain()

    rest()
    injected = spent(device, lambda: side.inject(0, 1.0))
    rest()
    stepped = spent(device, lambda: side.step(1))
    rest()

    def all_of_it() -> None:
        mixed(side)
        rest()

    both = spent(device, all_of_it)
    return Rows(injected, stepped, both)


def benchmark(opener: Opener, name: str = DEVICE) -> tuple[Rows, Rows]:
    """Return the benchmark's figures (launched, persistent)."""
    device = opener(name)
    launched = rows(device, Launched(device, SIDE))
    device = opener(name)
    side = Persistent(device, PERSISTENT_SIDE, SLEEP_S + OVERSHOOT_S)
    persistent = rows(device, side)
    side.ring.terminate()
    return launched, persistent


@windtunnel.kernel(work={"op": "kernel", "threads": 1, "bytes": 8, "flops": 1.0})
def poke(now: np.ndarray, cell: int, amplitude: float) -> None:
    """Inject on the device."""
    now.reshape(-1)[cell] += np.float32(amplitude)


class InPlace(Launched):
    """A launch for each command, with injections by a kernel: nothing is uploaded."""

    def inject(self, cell: int, amplitude: float) -> None:
        """Change a cell on the device."""
        self.device.launch(poke, 1, 32, self.arrays[0], cell, amplitude)


@dataclass(frozen=True)
class Command:
    """Seconds of one command (an injection, ``steps`` steps and a wait), launched and persistent."""

    steps: int
    launched_s: float
    persistent_s: float


def like_for_like(
    opener: Opener, name: str = DEVICE, side: int = SIDE, steps: Sequence[int] = (1, 5, 50), commands: int = 4
) -> list[Command]:
    """Compare one grid, with injections on the device and no sleep. Raises ResultsDiffer if the pressures differ."""
    rows = []
    for step_count in steps:
        device, other = opener(name), opener(name)
        launched, persistent = InPlace(device, side), Persistent(other, side, 0.0)

        def launch(device: Accelerator = device, launched: InPlace = launched, step_count: int = step_count) -> None:
            for number in range(commands):
                launched.inject(number + side**3 // 2, 1.0)
                launched.step(step_count)
                device.synchronize()

        def send(persistent: Persistent = persistent, step_count: int = step_count) -> None:
            for number in range(commands):
                persistent.inject(number + side**3 // 2, 1.0)
                persistent.step(step_count)

        persistent.ring.drain()
        device.synchronize()
        times = spent(device, launch) / commands, spent(other, send) / commands
        persistent.ring.terminate()
        same(launched.pressure(), persistent.pressure(), "persistent")
        rows.append(Command(step_count, *times))
    return rows


def main() -> None:
    """Print both tables."""
    lines = []
    rows = zip(STATED.items(), *(vars(times).values() for times in benchmark(devices())), strict=True)
    for (label, stated), launched, persistent in rows:
        times = launched, stated[0], persistent, stated[1]
        lines.append([label, *map(seconds, times), f"{launched / persistent:,.3g}x"])
    print(f"the benchmark on {DEVICE}: {SIDE}^3 cells launched; {PERSISTENT_SIDE}^3 persistent, and the host sleeps")
    print(table(["", "launched", "stated", "persistent", "stated", "launched / persistent"], lines))
    print("with the catalogue's host; the benchmark's host copies more slowly: windtunnel claims --only rtx")
    print(f"\nthe same grid: {SIDE}^3 cells, injections on the device, and a wait without sleep for each command")
    commands = [
        [str(c.steps), seconds(c.launched_s), seconds(c.persistent_s), percent(saving(c.launched_s, c.persistent_s))]
        for c in like_for_like(devices())
    ]
    print(table(["steps per command", "launched", "persistent", "saved"], commands))


if __name__ == "__main__":
    main()
