"""Requests of a web service that each open a device, and requests that borrow one from a pool of four.

The time of initialisation is the difference to the same requests on a device that is already open. Opening a device
takes the API's ``context_s``. A service may also compile its kernels from source for each request (``compile_s``),
which a pool of devices does not avoid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from windtunnel.examples.kernels import graded_twice
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
from windtunnel.runtime.pool import DevicePool

SIZE = 4
"""The size of the pool, as in the article."""
REQUESTS = (4, 8, 12, 14, 20, 100)
"""The number of requests in the lifetime of a service: the swept parameter."""
SETTING = 100
"""The stated setting."""
SAMPLES = 64 * 1024
CLAIM = 0.70
CARD = "rtx-4090"
_KERNEL = graded_twice(49)


def requests(count: int, seed: int = 1) -> list[np.ndarray]:
    """Return a small picture for each request."""
    draw = np.random.default_rng(seed)
    return [draw.integers(0, 256, SAMPLES, dtype=np.uint8) for _ in range(count)]


def answer(device: Accelerator, request: np.ndarray, compiling: bool) -> np.ndarray:
    """Compute the answer of a request."""
    if compiling:
        device.compile(_KERNEL)
    return device.compute(_KERNEL, request)


def warm(device: Accelerator, asked: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Process all requests on an open device, without initialisation."""
    return [answer(device, request, False) for request in asked]


def opening(opener: Opener, asked: Sequence[np.ndarray], compiling: bool = False) -> list[np.ndarray]:
    """Open and close a device for each request."""
    answers = []
    for request in asked:
        with opener(CARD) as device:
            answers.append(answer(device, request, compiling))
    return answers


def pooled(opener: Opener, asked: Sequence[np.ndarray], size: int = SIZE, compiling: bool = False) -> list[np.ndarray]:
    """Process concurrent requests that borrow devices from the pool."""
    pool = DevicePool(lambda: opener(CARD), size)

    async def process(request: np.ndarray) -> np.ndarray:
        async with pool.acquire_async() as device:
            await asyncio.sleep(0)  # other requests run meanwhile
            return answer(device, request, compiling)

    async def process_all() -> list[np.ndarray]:
        return await asyncio.gather(*(process(request) for request in asked))

    answers = asyncio.run(process_all())
    pool.close()
    return answers


@dataclass(frozen=True)
class Row:
    """The total time of initialisation (s) in both forms."""

    requests: int
    compiling: bool
    plain_s: float
    pooled_s: float

    @property
    def saved(self) -> float | None:
        """The saved fraction of the initialisation; None if there is none."""
        return round(saving(self.plain_s, self.pooled_s), 9) + 0.0 if self.plain_s > 0 else None


def compare(opener: Opener, count: int, *, compiling: bool = False, size: int = SIZE) -> Row:
    """Run both forms. Raises ResultsDiffer if their results differ."""
    asked = requests(count)
    device = opener(CARD)
    answers = [warm(device, asked)]
    useful = usage_of(device, partial(warm, device, asked)).seconds
    plain = usage_of(device, lambda: answers.append(opening(opener, asked, compiling))).seconds
    better = usage_of(device, lambda: answers.append(pooled(opener, asked, size, compiling))).seconds
    for form, results in zip(("opening", "pooled"), answers[1:], strict=True):
        same(np.stack(answers[0]), np.stack(results), form)
    return Row(count, compiling, plain - useful, better - useful)


def sweep(opener: Opener) -> list[Row]:
    """Sweep the number of requests, from the number of devices upwards, also with compilation."""
    return [compare(opener, count) for count in REQUESTS] + [compare(opener, SETTING, compiling=True)]


def finding(rows: Sequence[Row]) -> Finding:
    """Evaluate the claim: a pool saves 70% of the initialisation."""
    (stated,) = [row for row in rows if row.requests == SETTING and not row.compiling]
    (compiling,) = [row for row in rows if row.compiling]
    saved = [row.saved for row in rows if row.saved is not None]
    enough = min((row.requests for row in rows if row.saved is not None and row.saved >= CLAIM), default=None)
    return Finding(
        stated.saved,
        f"{SETTING} requests and a pool of {SIZE} on {CARD}: {seconds(stated.plain_s)} of initialisation if each "
        f"request opens a device, {seconds(stated.pooled_s)} with the pool",
        min(saved, default=None),
        max(saved, default=None),
        "the number of requests",
        f"nowhere for up to {max(row.requests for row in rows)} requests"
        if enough is None
        else f"from {enough} requests: n requests save 1 - {SIZE}/n, however long opening a device takes (70% at "
        f"n = {SIZE / (1 - CLAIM):.1f}); {SETTING} requests that also compile save {percent(compiling.saved or 0.0)}",
    )


def claim(opener: Opener) -> Finding:
    """Return the finding for `windtunnel claims`."""
    return finding(sweep(opener))


def main() -> None:
    """Print the sweep."""
    rows = sweep(devices())
    print(f"time of initialisation on {CARD}: each request opens a device, or borrows one of {SIZE}")
    lines = [
        (
            f"{row.requests:,}{' with compilation' if row.compiling else ''}",
            seconds(row.plain_s),
            seconds(row.pooled_s),
            "-" if row.saved is None else percent(row.saved),
        )
        for row in rows
    ]
    print(table(("requests", "own device", "pool", "saved"), lines))
    conclude(f"{percent(CLAIM)} less initialisation", finding(rows), percent)


if __name__ == "__main__":
    main()
