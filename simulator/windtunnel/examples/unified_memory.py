"""A renderer's frame with pageable copies, with pinned copies, and with unified memory.

In each frame the host writes the positions of 500,000 particles (8 MB). The device projects them onto the screen (4 MB,
which the host reads for picking and labels) and shades a full-HD picture that stays on the device. All forms compute
the same.

Unified memory on a card is modelled as in CUDA without hints: a buffer that the other side accessed last migrates as a
whole when it is accessed. On a device that shares the host's memory nothing migrates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import windtunnel
from windtunnel.core.columns import Columns
from windtunnel.examples.kernels import grade
from windtunnel.examples.measure import (
    Finding,
    Opener,
    conclude,
    devices,
    percent,
    same,
    saving,
    seconds,
    table,
    usage_of,
)
from windtunnel.runtime.accelerator import Accelerator

PARTICLES = 500_000
PIXELS = 1920 * 1080
TERMS = (0, 3_000, 10_000, 50_000, 230_000)
"""Multiply-adds for a pixel: the swept parameter, which sets the share of the copies in a frame."""
SETTING = 230_000
"""The stated setting: it fills a frame of 1/60 s on the card (the article: 500,000 particles, 60 frames a second)."""
SIZES = (500_000, 1_000_000, 2_000_000)
"""The number of particles without shading: the swept parameter for devices that share the host's memory."""
CLAIM = 0.30
CARD, SHARED = "rtx-4090", "apple-m2-ultra"


def _project_work(particles: np.ndarray, screen: np.ndarray) -> Columns:
    size = particles.nbytes + screen.nbytes
    return {"op": "kernel", "threads": particles.shape[1], "bytes": size, "flops": 2.0 * screen.size}


@windtunnel.kernel(work=_project_work)
def project(particles: np.ndarray, screen: np.ndarray) -> None:
    """Project particles (4 x n: x, y, z, size) to the screen (2 x n)."""
    np.divide(particles[:2], particles[2], out=screen)


@dataclass(frozen=True)
class Scene:
    """The data that the host writes for each frame (the first is not measured), and the picture to shade."""

    frames: Sequence[np.ndarray]
    picture: np.ndarray

    @property
    def particles(self) -> int:
        """The number of particles."""
        return int(self.frames[0].shape[1])


def scene(particles: int = PARTICLES, frames: int = 2, pixels: int = PIXELS, seed: int = 1) -> Scene:
    """Return random particles in front of a camera, and a random picture."""
    draw = np.random.default_rng(seed)
    written = [draw.random((4, particles), np.float32) + np.float32(1.0) for _ in range(frames)]
    return Scene(written, draw.integers(0, 256, pixels, dtype=np.uint8))


def copied(device: Accelerator, scene: Scene, terms: int, *, pinned: bool) -> tuple[np.ndarray, float]:
    """Return the last result and the time of a frame (s) with explicit copies."""
    particles = device.empty(scene.frames[0].shape)
    screen = device.empty((2, scene.particles))
    result = np.empty(screen.shape, np.float32)

    def read_back() -> None:
        screen.copy_to(result, pinned=pinned)

    def write(frame: np.ndarray) -> None:
        particles.copy_from(frame, pinned=pinned)

    spent = _frames(device, scene, terms, particles, screen, write, read_back)
    return result, spent


def unified(device: Accelerator, scene: Scene, terms: int) -> tuple[np.ndarray, float]:
    """Return the same with unified memory."""
    particles = device.empty(scene.frames[0].shape, kind="unified")
    screen = device.empty((2, scene.particles), kind="unified")
    result = np.empty(screen.shape, np.float32)

    def read_back() -> None:
        result[...] = screen.host()

    def write(frame: np.ndarray) -> None:
        particles.host()[...] = frame

    spent = _frames(device, scene, terms, particles, screen, write, read_back)
    return result, spent


def _frames(
    device: Accelerator,
    scene: Scene,
    terms: int,
    particles: Any,
    screen: Any,
    write: Callable[[np.ndarray], None],
    read_back: Callable[[], None],
) -> float:
    picture, shaded = device.to_device(scene.picture), device.empty(scene.picture.shape, np.uint8)

    def frame(data: np.ndarray) -> None:
        write(data)
        device.launch(project, *device.configuration(scene.particles), particles, screen)
        if terms:
            device.launch(grade, *device.configuration(picture.size), picture, shaded, terms)
        read_back()
        device.synchronize()

    frame(scene.frames[0])  # the first frame has one-time costs, such as page faults
    measured = scene.frames[1:]

    def all_frames() -> None:
        for data in measured:
            frame(data)

    spent = usage_of(device, all_frames).per(len(measured))
    for buffer in (picture, shaded, particles, screen):
        buffer.free()
    return spent.seconds


@dataclass(frozen=True)
class Row:
    """The time of a frame (s) in the three forms."""

    device: str
    particles: int
    terms: int
    pageable_s: float
    pinned_s: float
    unified_s: float
    working_s: float
    """The time of the frame on the device, without copies (s)."""

    @property
    def copies(self) -> float:
        """The share of copies, and of waiting for them, in the plain frame."""
        return 1.0 - self.working_s / self.pageable_s

    @property
    def saved_by_pinned(self) -> float:
        """The saved fraction of the plain frame."""
        return saving(self.pageable_s, self.pinned_s)

    @property
    def saved_by_unified(self) -> float:
        """The saved fraction of the plain frame."""
        return saving(self.pageable_s, self.unified_s)


def compare(device: Accelerator, scene: Scene, terms: int) -> Row:
    """Run the three forms. Raises ResultsDiffer if their results differ."""
    plain, pageable_s = copied(device, scene, terms, pinned=False)
    better, pinned_s = copied(device, scene, terms, pinned=True)
    same(plain, better, "pinned")
    better, unified_s = unified(device, scene, terms)
    same(plain, better, "unified")
    nothing = _frames(
        device,
        scene,
        terms,
        device.to_device(scene.frames[0]),
        device.empty((2, scene.particles)),
        lambda _: None,
        lambda: None,
    )
    return Row(device.name, scene.particles, terms, pageable_s, pinned_s, unified_s, nothing)


def sweep(opener: Opener) -> list[Row]:
    """Sweep the work of a frame on the card, and the number of particles elsewhere."""
    card, shared, drawn = opener(CARD), opener(SHARED), scene()
    rows = [compare(card, drawn, terms) for terms in TERMS]
    return rows + [compare(shared, scene(size), 0) for size in SIZES] + [compare(shared, drawn, TERMS[2])]


def holds(rows: Sequence[Row], name: str) -> str:
    """Return a description of the part of a sweep in which the claim holds."""
    mine = [row for row in rows if row.device == name]
    best = max(mine, key=lambda row: row.saved_by_unified)
    if best.saved_by_unified < CLAIM:
        return f"nowhere on {name} (the largest saving is {percent(best.saved_by_unified)})"
    least = min((row for row in mine if row.saved_by_unified >= CLAIM), key=lambda row: row.copies)
    return f"on {name} if copies take {percent(least.copies)} of the frame ({least.particles:,} particles, no shading)"


def finding(rows: Sequence[Row]) -> Finding:
    """Evaluate the claim: unified memory saves 30% of the frame time."""
    (stated,) = [row for row in rows if row.device == CARD and row.terms == SETTING]
    saved = [row.saved_by_unified for row in rows]
    return Finding(
        stated.saved_by_unified,
        f"{PARTICLES:,} particles on {CARD}, {SETTING:,} multiply-adds per pixel: {seconds(stated.pageable_s)} per "
        f"frame with pageable copies, {seconds(stated.pinned_s)} pinned, {seconds(stated.unified_s)} unified",
        min(saved),
        max(saved),
        f"the work per pixel, and the number of particles on {SHARED}",
        f"{holds(rows, CARD)}; {holds(rows, SHARED)}",
    )


def claim(opener: Opener) -> Finding:
    """Return the finding for `windtunnel claims`."""
    return finding(sweep(opener))


def main() -> None:
    """Print the sweep on a card, and on a device that shares the host's memory."""
    rows = sweep(devices())
    print("each frame: the host writes particles and reads results; the device shades a full-HD picture")
    header = (
        "device",
        "particles",
        "multiply-adds",
        "copies",
        "pageable",
        "pinned",
        "unified",
        "pinned saves",
        "unified saves",
    )
    lines = [
        (
            row.device,
            f"{row.particles:,}",
            f"{row.terms:,}",
            percent(row.copies),
            seconds(row.pageable_s),
            seconds(row.pinned_s),
            seconds(row.unified_s),
            percent(row.saved_by_pinned),
            percent(row.saved_by_unified),
        )
        for row in rows
    ]
    print(table(header, lines))
    conclude(f"{percent(CLAIM)} of frame time saved", finding(rows), percent)


if __name__ == "__main__":
    main()
