"""500,000 particles with pool, graph, stream and unified memory: how many frames per second on a consumer card?

Particles fall, are slowed by the air, and bounce between walls. Each frame has three kernels that read and write
positions and velocities (float32). In each frame the host writes the wind and reads all positions to draw them. The
particles are independent, so the work is proportional to their number.

The forms are: pageable copies and a launch for each kernel; the article's form (a device of a pool, a captured graph, a
stream, unified memory); and a graph with pinned copies. The article acquires a device of its pool in every frame, which
would free the particles with the device; here one device is held for all frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import windtunnel
from windtunnel.core.columns import Columns
from windtunnel.examples.measure import Finding, Opener, conclude, devices, same, seconds, table, usage_of
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.pool import DevicePool

PARTICLES = 500_000
FRAMES_PER_S = 60.0
FRAMES = 4
SIZES = (500_000, 2_000_000, 8_000_000)
"""The number of particles: the swept parameter."""
DEVICES = 4
"""The size of the pool, as in the article."""
CARD = "rtx-4090"
_STEP_S = np.float32(1.0 / FRAMES_PER_S)
_GRAVITY = np.float32(-9.81)
_KEPT = np.float32(0.999)
"""The factor on a velocity in one frame, by air resistance."""
_BOUNCE = np.float32(0.8)
"""The factor on a velocity at a wall."""


def _pass_over(flops: float, *arrays: np.ndarray, written: int) -> Columns:
    """Return the work of a kernel that reads all arrays and writes the first ``written``, with ``flops`` per number."""
    size = sum(array.nbytes for array in arrays) + sum(array.nbytes for array in arrays[:written])
    numbers = max(array.size for array in arrays)
    return {"op": "kernel", "threads": numbers // 3, "bytes": size, "flops": flops * numbers}


@windtunnel.kernel(work=lambda velocity, _wind: _pass_over(4.0, velocity, written=1))
def accelerate(velocity: np.ndarray, wind: np.ndarray) -> None:
    """Apply gravity, wind and air resistance to velocities (3 x n)."""
    velocity += (wind * _STEP_S)[:, None]
    velocity[2] += _GRAVITY * _STEP_S
    velocity *= _KEPT


@windtunnel.kernel(work=lambda position, velocity: _pass_over(2.0, position, velocity, written=1))
def move(position: np.ndarray, velocity: np.ndarray) -> None:
    """Move positions (3 x n) by one frame."""
    position += velocity * _STEP_S


@windtunnel.kernel(work=lambda position, velocity: _pass_over(4.0, position, velocity, written=2))
def bounce(position: np.ndarray, velocity: np.ndarray) -> None:
    """Reflect particles at the walls of a unit cube."""
    outside = (position < 0.0) | (position > 1.0)
    np.clip(position, 0.0, 1.0, out=position)
    np.multiply(velocity, -_BOUNCE, out=velocity, where=outside)


@dataclass(frozen=True)
class World:
    """The initial positions and velocities of particles, and the wind of each frame."""

    position: np.ndarray
    velocity: np.ndarray
    wind: Sequence[np.ndarray]


def world(particles: int = PARTICLES, frames: int = FRAMES, seed: int = 1) -> World:
    """Return random particles in a unit cube, with one frame more than is measured."""
    draw = np.random.default_rng(seed)
    return World(
        draw.random((3, particles), np.float32),
        draw.standard_normal((3, particles), np.float32),
        list(draw.standard_normal((frames + 1, 3), np.float32)),
    )


class Particles:
    """Particles on a device; ``kind`` of the memory that the host reads and writes."""

    def __init__(self, device: Accelerator, start: World, kind: Any = "device") -> None:
        self.device = device
        self.stream = device.stream()
        self.position = device.to_device(start.position, kind=kind)
        self.velocity = device.to_device(start.velocity)
        self.wind = device.to_device(start.wind[0], kind=kind)
        self.seen = np.empty_like(start.position)
        """The positions that the host draws."""
        self.next_wind = np.empty_like(start.wind[0])
        self.grid, self.block = device.configuration(start.position.shape[1])

    @property
    def buffers(self) -> tuple[Buffer, Buffer, Buffer]:
        """The buffers of the particles."""
        return self.position, self.velocity, self.wind

    def step(self) -> None:
        """Launch the three kernels of a frame."""
        launch = partial(self.device.launch, stream=self.stream)
        launch(accelerate, self.grid, self.block, self.velocity, self.wind)
        launch(move, self.grid, self.block, self.position, self.velocity)
        launch(bounce, self.grid, self.block, self.position, self.velocity)

    def copied_step(self) -> None:
        """Launch the three kernels between pinned copies."""
        self.wind.copy_from(self.next_wind, self.stream, pinned=True)
        self.step()
        self.position.copy_to(self.seen, self.stream, pinned=True)


Frame = Callable[[np.ndarray], None]


@contextmanager
def plainly(device: Accelerator, start: World) -> Iterator[tuple[Particles, Frame]]:
    """Use pageable copies and a launch for each kernel."""
    particles = Particles(device, start)

    def frame(wind: np.ndarray) -> None:
        particles.wind.copy_from(wind, particles.stream)
        particles.step()
        particles.position.copy_to(particles.seen, particles.stream)

    yield particles, frame


@contextmanager
def as_the_article_does(device: Accelerator, start: World) -> Iterator[tuple[Particles, Frame]]:
    """Use unified memory and a graph, on a stream."""
    particles = Particles(device, start, kind="unified")
    with device.capture() as graph:
        particles.step()
    compiled = graph.compile()

    def frame(wind: np.ndarray) -> None:
        particles.wind.host()[...] = wind
        compiled.replay(particles.stream)
        particles.stream.synchronize()
        particles.seen[...] = particles.position.host()

    yield particles, frame


@contextmanager
def graph_and_pinned(device: Accelerator, start: World) -> Iterator[tuple[Particles, Frame]]:
    """Use pinned copies, in the graph with the kernels."""
    particles = Particles(device, start)
    with device.capture() as graph:
        particles.copied_step()
    compiled = graph.compile()

    def frame(wind: np.ndarray) -> None:
        particles.next_wind[...] = wind
        compiled.replay(particles.stream)
        particles.stream.synchronize()

    yield particles, frame


FORMS = {"pageable, launched": plainly, "unified, graph": as_the_article_does, "pinned, graph": graph_and_pinned}
PLAIN, ARTICLE = "pageable, launched", "unified, graph"


@dataclass(frozen=True)
class Row:
    """One form at a number of particles: a frame at full speed, and a frame paced to 1/60 s."""

    particles: int
    form: str
    frame_s: float
    frame_j: float
    paced_j: float

    @property
    def frames_per_s(self) -> float:
        """The frame rate at full speed (1/s)."""
        return 1.0 / self.frame_s

    @property
    def margin(self) -> float:
        """The number of frames that fit into 1/60 s."""
        return 1.0 / FRAMES_PER_S / self.frame_s


def measure(pool: DevicePool, start: World, form: str) -> tuple[np.ndarray, Row]:
    """Return the last drawn positions and the row of one form; the first frame is not measured."""
    with pool.acquire() as device, FORMS[form](device, start) as (particles, frame):
        frame(start.wind[0])
        winds = start.wind[1:]
        quick = usage_of(device, lambda: [frame(wind) for wind in winds]).per(len(winds))
        drawn = particles.seen.copy()
        rest_s = max(1.0 / FRAMES_PER_S - quick.seconds, 0.0)
        resting = usage_of(device, lambda: device.sleep(rest_s))
        row = Row(start.position.shape[1], form, quick.seconds, quick.joules, quick.joules + resting.joules)
    return drawn, row


def compare(opener: Opener, start: World) -> list[Row]:
    """Run all forms. Raises ResultsDiffer if their results differ."""
    pool = DevicePool(lambda: opener(CARD), DEVICES)
    plain, first = measure(pool, start, PLAIN)
    rows = [first]
    for form in FORMS:
        if form != PLAIN:
            drawn, row = measure(pool, start, form)
            same(plain, drawn, form)
            rows.append(row)
    pool.close()
    return rows


def finding(rows: Sequence[Row]) -> Finding:
    """Evaluate the claim: 500,000 particles at 60 frames per second."""
    stated = next(row for row in rows if row.particles == PARTICLES and row.form == ARTICLE)
    mine = [row for row in rows if row.particles == PARTICLES]
    best = min(mine, key=lambda row: row.frame_s)
    plain = next(row for row in mine if row.form == PLAIN)
    return Finding(
        stated.frames_per_s,
        f"{PARTICLES:,} particles on {CARD} with pool, graph, stream and unified memory: {seconds(stated.frame_s)} per "
        f"frame, {stated.margin:.3g} frames in 1/60 s; {seconds(plain.frame_s)} with pageable copies and launches, "
        f"{seconds(best.frame_s)} for '{best.form}'; {stated.paced_j:.3g} J per frame at 60 frames per second",
        min(row.frames_per_s for row in mine),
        max(row.frames_per_s for row in mine),
        "the forms",
        f"for all forms, up to about {PARTICLES * min(row.margin for row in mine) / 1e6:.1f} million particles",
    )


def claim(opener: Opener) -> Finding:
    """Return the finding for `windtunnel claims`."""
    return finding(compare(opener, world(frames=1)))


def main() -> None:
    """Print every form at each size."""
    opener = devices()
    rows = [row for size in SIZES for row in compare(opener, world(size, FRAMES if size == PARTICLES else 1))]
    print(f"particles on {CARD}: frames at full speed, and energy also if paced to 60 frames per second")
    lines = [
        (
            f"{row.particles:,}",
            row.form,
            seconds(row.frame_s),
            f"{row.frames_per_s:,.0f}",
            f"{row.margin:.2f}",
            f"{row.frame_j:.3f} J",
            f"{row.paced_j:.3f} J",
        )
        for row in rows
    ]
    print(
        table(("particles", "form", "time per frame", "frames/s", "frames in 1/60 s", "energy", "paced"), lines, left=2)
    )
    conclude(
        f"{PARTICLES:,} particles at {FRAMES_PER_S:g} frames per second", finding(rows), "{:,.0f} per second".format
    )


if __name__ == "__main__":
    main()
