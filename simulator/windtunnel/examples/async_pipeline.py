"""Video frames copied in, filtered twice and copied out: one after another, and overlapped on streams.

A frame is HD in NV12 with 8 bits per sample (1.4 MB), in pinned memory. The plain form waits for each frame. In the
article's chain each step of a frame awaits the previous step, so nothing overlaps; several frames in flight overlap.

Copy in, compute and copy out use three hardware engines of the device. So the largest speed-up is the sum of their
times over the longest of them: three if they are equal. The times depend on the work per frame, which is swept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from windtunnel.examples.kernels import grade, graded_twice
from windtunnel.examples.measure import Finding, Opener, conclude, devices, same, seconds, table, usage_of
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.buffers import Buffer

SAMPLES = 1280 * 720 * 3 // 2
FRAMES = 24
"""A second of film."""
TERMS = (49, 600, 1_200, 3_000)
"""Multiply-adds for each sample in each of the two stages: the swept parameter."""
SETTING = 49
"""The stated setting: the multiply-adds of a 7 x 7 filter."""
CLAIM = 3.0
CARD = "rtx-4090"

Frames = Sequence[np.ndarray]


def film(frames: int = FRAMES, samples: int = SAMPLES, seed: int = 1) -> list[np.ndarray]:
    """Return random frames of 8-bit samples."""
    draw = np.random.default_rng(seed)
    first = draw.integers(0, 256, samples, dtype=np.uint8)
    return [np.roll(first, shift) for shift in range(frames)]


@dataclass
class Slot:
    """The device memory of one frame that is being processed."""

    source: Buffer
    between: Buffer
    result: Buffer

    def free(self) -> None:
        """Free the buffers."""
        for buffer in (self.source, self.between, self.result):
            buffer.free()


def slot(device: Accelerator, samples: int) -> Slot:
    """Allocate the three buffers of a frame."""
    return Slot(*(device.empty(samples, np.uint8) for _ in range(3)))


def _filter(device: Accelerator, at: Slot, terms: int, stream: object = None) -> None:
    grid, block = device.configuration(at.source.size)
    device.launch(grade, grid, block, at.source, at.between, terms, stream=stream)  # type: ignore[arg-type]
    device.launch(grade, grid, block, at.between, at.result, terms, stream=stream)  # type: ignore[arg-type]


def synchronous(device: Accelerator, frames: Frames, terms: int, *, pinned: bool = True) -> list[np.ndarray]:
    """Process the frames one after another, each with a wait at its end."""
    at, results = slot(device, frames[0].size), []
    for frame in frames:
        result = np.empty_like(frame)
        at.source.copy_from(frame, pinned=pinned)
        _filter(device, at, terms)
        at.result.copy_to(result, pinned=pinned)
        device.synchronize()
        results.append(result)
    at.free()
    return results


def chained(device: Accelerator, frames: Frames, terms: int) -> list[np.ndarray]:
    """Use the article's two streams: stage 1 on one, stage 2 on the other, the steps of a frame in order."""
    first, second = device.stream(non_blocking=True), device.stream(non_blocking=True)
    at, results = slot(device, frames[0].size), []
    grid, block = device.configuration(at.source.size)
    for frame in frames:
        result, staged = np.empty_like(frame), device.event()
        at.source.copy_from(frame, first, pinned=True)
        device.launch(grade, grid, block, at.source, at.between, terms, stream=first)
        staged.record(first)
        # The article waits here for the second stream, which is empty; the input of stage 2 is on the first.
        second.wait(staged)
        device.launch(grade, grid, block, at.between, at.result, terms, stream=second)
        at.result.copy_to(result, second, pinned=True)
        second.synchronize()
        results.append(result)
    at.free()
    return results


def streamed(device: Accelerator, frames: Frames, terms: int, streams: int) -> list[np.ndarray]:
    """Distribute the frames over ``streams`` streams with separate buffers; wait once at the end."""
    lanes = [(device.stream(non_blocking=True), slot(device, frames[0].size)) for _ in range(streams)]
    results = []
    for number, frame in enumerate(frames):
        stream, at = lanes[number % streams]
        result = np.empty_like(frame)
        at.source.copy_from(frame, stream, pinned=True)
        _filter(device, at, terms, stream)
        at.result.copy_to(result, stream, pinned=True)
        results.append(result)
    device.synchronize()
    for _, at in lanes:
        at.free()
    return results


def awaited(device: Accelerator, frames: Frames, terms: int) -> list[np.ndarray]:
    """Await all frames together with ``async_compute``; the two stages are one kernel."""

    async def process_all() -> list[np.ndarray]:
        return await asyncio.gather(*(device.async_compute(graded_twice(terms), frame) for frame in frames))

    return asyncio.run(process_all())


def one_copy_engine(device: Accelerator, frames: Frames, terms: int) -> list[np.ndarray]:
    """Use one queue for all copies, as with one copy engine: frame i + 1 is copied in before frame i is copied out."""
    copies = device.stream(non_blocking=True)
    lanes = [(device.stream(non_blocking=True), slot(device, frames[0].size)) for _ in range(2)]
    results = [np.empty_like(frame) for frame in frames]

    def out(number: int) -> None:
        stream, at = lanes[number % 2]
        done = device.event()
        done.record(stream)
        copies.wait(done)
        at.result.copy_to(results[number], copies, pinned=True)

    for number, frame in enumerate(frames):
        stream, at = lanes[number % 2]
        there = device.event()
        at.source.copy_from(frame, copies, pinned=True)
        there.record(copies)
        stream.wait(there)
        _filter(device, at, terms, stream)
        if number:
            out(number - 1)
    out(len(frames) - 1)
    device.synchronize()
    for _, at in lanes:
        at.free()
    return results


PLAIN, BEST = "pinned, synchronous", "three streams"
CHAINED, PAGEABLE = "the article's two dependent streams", "pageable, synchronous"
FORMS: dict[str, Callable[[Accelerator, Frames, int], list[np.ndarray]]] = {
    PAGEABLE: lambda device, frames, terms: synchronous(device, frames, terms, pinned=False),
    PLAIN: synchronous,
    CHAINED: chained,
    "one stream, one wait": lambda device, frames, terms: streamed(device, frames, terms, 1),
    "two streams": lambda device, frames, terms: streamed(device, frames, terms, 2),
    BEST: lambda device, frames, terms: streamed(device, frames, terms, 3),
    "two streams, one copy engine": one_copy_engine,
    "async_compute, all frames awaited": awaited,
}
"""All forms by name; ``PLAIN`` is the baseline."""


@dataclass(frozen=True)
class Row:
    """The time of a frame (s) in several forms, and in each of the three hardware engines."""

    terms: int
    seconds: dict[str, float]
    engines: dict[str, float]

    def gain(self, form: str) -> float:
        """Return the throughput relative to the plain form."""
        return self.seconds[PLAIN] / self.seconds[form]

    @property
    def balance(self) -> float:
        """The compute time over the time of a copy."""
        return self.engines["compute"] / self.engines["copy_h2d"]


def compare(device: Accelerator, frames: Frames, terms: int, forms: Sequence[str]) -> Row:
    """Run several forms. Raises ResultsDiffer if their results differ."""
    taken: dict[str, float] = {}
    engines: dict[str, float] = {}
    plain: list[np.ndarray] = []
    # Freed memory stays in the pool, so every form must start with a warm pool to pay the same for memory.
    for buffer in [device.empty(frames[0].size, np.uint8) for _ in range(3 * max(len(frames), 3))]:
        buffer.free()
    for form in (PLAIN, *(form for form in forms if form != PLAIN)):
        results: list[np.ndarray] = []
        spans = device.start_trace()
        taken[form] = usage_of(device, partial(_collect, results, form, device, frames, terms)).seconds / len(frames)
        if form == PLAIN:
            plain = results
            for span in spans:
                engines[span.engine] = engines.get(span.engine, 0.0) + (span.end - span.start) / 1e12 / len(frames)
        else:
            same(np.stack(plain), np.stack(results), form)
    return Row(terms, taken, engines)


def _collect(results: list[np.ndarray], form: str, device: Accelerator, frames: Frames, terms: int) -> None:
    results.extend(FORMS[form](device, frames, terms))


def sweep(opener: Opener, stated: Sequence[str]) -> list[Row]:
    """Sweep the work of a frame until it hides all copies; in the stated setting, run the forms ``stated``."""
    device, frames = opener(CARD), film()
    return [compare(device, frames, terms, stated if terms == SETTING else (BEST,)) for terms in TERMS]


def finding(rows: Sequence[Row]) -> Finding:
    """Evaluate the claim: three times the synchronous throughput."""
    (stated,) = [row for row in rows if row.terms == SETTING]
    best = max(rows, key=lambda row: row.gain(BEST))
    gains = [row.gain(BEST) for row in rows]
    pageable = stated.seconds[PAGEABLE] / stated.seconds[BEST]
    holds = f"if the compute time is {best.balance:.2f} times that of a copy"
    if best.gain(BEST) < CLAIM:
        holds = f"nowhere: the largest speed-up is {best.gain(BEST):.2f}x, {holds}"
    return Finding(
        stated.gain(BEST),
        f"{FRAMES} frames of {SAMPLES / 1e6:.2g} MB on {CARD}, two stages of {SETTING} multiply-adds per sample: "
        f"{seconds(stated.seconds[PLAIN])} per frame if synchronous, {seconds(stated.seconds[BEST])} on three streams; "
        f"compared with pageable copies {pageable:.2f}x, of which pinned memory gives "
        f"{pageable / stated.gain(BEST):.2f}x; the article's two dependent streams {stated.gain(CHAINED):.2f}x",
        min(gains),
        max(gains),
        "the work per frame",
        holds,
    )


def claim(opener: Opener) -> Finding:
    """Return the finding for `windtunnel claims`."""
    return finding(sweep(opener, (PAGEABLE, CHAINED, BEST)))


def main() -> None:
    """Print every form in the stated setting, then the sweep."""
    rows = sweep(devices(), tuple(FORMS))
    (stated,) = [row for row in rows if row.terms == SETTING]
    print(f"{FRAMES} frames of {SAMPLES / 1e6:.2g} MB on {CARD}, two stages of {SETTING} multiply-adds per sample")
    lines = [(form, seconds(stated.seconds[form]), f"{stated.gain(form):.2f}x") for form in FORMS]
    print(table(("form", "time per frame", "throughput"), lines))
    print()
    swept = [
        (
            f"{row.terms:,}",
            seconds(row.engines["copy_h2d"]),
            seconds(row.engines["compute"]),
            seconds(row.engines["copy_d2h"]),
            seconds(row.seconds[PLAIN]),
            seconds(row.seconds[BEST]),
            f"{row.gain(BEST):.2f}x",
        )
        for row in rows
    ]
    print(table(("multiply-adds", "copy in", "compute", "copy out", PLAIN, BEST, "throughput"), swept))
    conclude(f"{CLAIM:g}x the synchronous throughput", finding(rows), "{:.2f}x".format)


if __name__ == "__main__":
    main()
