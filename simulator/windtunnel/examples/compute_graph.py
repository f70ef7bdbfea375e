"""A small network serves one request: with single launches, and as a replayed graph.

It has sixteen layers, each a product of a matrix and a vector, and a bias with ReLU: 32 kernels in a chain. The layers
share their weights, as in ALBERT. In both forms the request and its answer are in pinned memory.

A launch takes at least the dispatch time of the host and the shortest time of a kernel; a graph node takes the API's
gap between nodes. So a graph saves a fixed time per kernel, and its share falls as kernels grow. The width is swept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import windtunnel
from windtunnel.core.columns import Columns
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
from windtunnel.runtime.buffers import Buffer

LAYERS = 16
WIDTHS = (64, 128, 256, 512, 1024, 2048)
"""The swept parameter."""
SETTING = 512
"""The stated setting, the width of a small network: 16 layers are 8 million operations for a request."""
CLAIM = 0.40
CARD = "rtx-4090"


def _product_work(weights: np.ndarray, x: np.ndarray, _y: np.ndarray) -> Columns:
    n, k = weights.shape
    return {"op": "gemm", "m": x.size // k, "n": n, "k": k, "dtype": "float32"}


@windtunnel.kernel(work=_product_work)
def product(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """Compute y = weights times x."""
    np.matmul(weights, x, out=y)


def _activate_work(bias: np.ndarray, y: np.ndarray, x: np.ndarray) -> Columns:
    return {"op": "kernel", "threads": y.size, "bytes": bias.nbytes + y.nbytes + x.nbytes, "flops": 2.0 * y.size}


@windtunnel.kernel(work=_activate_work)
def activate(bias: np.ndarray, y: np.ndarray, x: np.ndarray) -> None:
    """Compute x = ReLU(y + bias)."""
    np.maximum(y + bias, 0.0, out=x)


class Network:
    """The network on a device, which serves one request at a time; requests and answers are in pinned memory."""

    def __init__(self, device: Accelerator, width: int, layers: int = LAYERS, seed: int = 1) -> None:
        draw = np.random.default_rng(seed)
        self.device, self.layers = device, layers
        self.weights = device.to_device((draw.random((width, width), np.float32) - 0.5) / np.float32(width**0.5))
        self.bias = device.to_device(draw.random(width, np.float32))
        self.x, self.y = device.empty(width), device.empty(width)
        self.request, self.answer = np.zeros(width, np.float32), np.zeros(width, np.float32)
        self.stream = device.stream()

    @property
    def buffers(self) -> Sequence[Buffer]:
        """The buffers of the network."""
        return self.weights, self.bias, self.x, self.y

    def enqueue(self) -> None:
        """Enqueue the copies and kernels of one request."""
        grid, block = self.device.configuration(self.x.size)
        self.x.copy_from(self.request, self.stream, pinned=True)
        for _ in range(self.layers):
            self.device.launch(product, grid, block, self.weights, self.x, self.y, stream=self.stream)
            self.device.launch(activate, grid, block, self.bias, self.y, self.x, stream=self.stream)
        self.x.copy_to(self.answer, self.stream, pinned=True)


def launched(network: Network, requests: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Compute the answers with separate launches."""
    return _answers(network, requests, network.enqueue)


def replayed(network: Network, requests: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Compute the answers with a graph that is captured once, before the first request."""
    with network.device.capture() as graph:
        network.enqueue()
    return _answers(network, requests, partial(graph.compile().replay, network.stream))


def _answers(network: Network, requests: Sequence[np.ndarray], enqueue: Any) -> list[np.ndarray]:
    answers = []
    for request in requests:
        network.request[:] = request
        enqueue()
        network.stream.synchronize()
        answers.append(network.answer.copy())
    return answers


@dataclass(frozen=True)
class Row:
    """The time of a request (s) in both forms, and of each kind of kernel on the device."""

    width: int
    kernels: int
    launched_s: float
    replayed_s: float
    product_s: float
    activate_s: float

    @property
    def saved(self) -> float:
        """The saved fraction of the latency."""
        return saving(self.launched_s, self.replayed_s)


def compare(device: Accelerator, width: int, layers: int = LAYERS, requests: int = 1) -> Row:
    """Run both forms. Raises ResultsDiffer if their results differ."""
    network = Network(device, width, layers)
    asked = list(np.random.default_rng(2).random((requests, width), np.float32))
    answers: list[list[np.ndarray]] = []
    spans = device.start_trace()
    plain = usage_of(device, lambda: answers.append(launched(network, asked))).per(requests)
    spans_s = {span.name: (span.end - span.start) / 1e12 for span in spans}
    graph = usage_of(device, lambda: answers.append(replayed(network, asked))).per(requests)
    same(np.stack(answers[0]), np.stack(answers[1]), "replayed")
    for buffer in network.buffers:
        buffer.free()
    return Row(
        width, 2 * layers, plain.seconds, graph.seconds, spans_s.get("product", 0.0), spans_s.get("activate", 0.0)
    )


def sweep(opener: Opener) -> list[Row]:
    """Sweep from the smallest kernels to those that take longer than their launches."""
    device = opener(CARD)
    return [compare(device, width) for width in WIDTHS]


def finding(rows: Sequence[Row]) -> Finding:
    """Evaluate the claim: graphs reduce latency by 40%."""
    (stated,) = [row for row in rows if row.width == SETTING]
    enough = [row for row in rows if row.saved >= CLAIM]
    best = max(rows, key=lambda row: row.saved)
    widest = max(enough, key=lambda row: row.width, default=None)
    holds = (
        f"nowhere: the largest saving is {percent(best.saved)}, at a width of {best.width}, where the kernels take "
        f"{seconds(best.product_s)} and {seconds(best.activate_s)}"
        if widest is None
        else f"for widths up to {widest.width}, where the kernels take {seconds(widest.product_s)} and "
        f"{seconds(widest.activate_s)}"
    )
    return Finding(
        stated.saved,
        f"{stated.kernels} kernels of {LAYERS} layers of width {SETTING} on {CARD}: {seconds(stated.launched_s)} with "
        f"single launches, {seconds(stated.replayed_s)} as a graph",
        min(row.saved for row in rows),
        max(row.saved for row in rows),
        "the width of a layer",
        holds,
    )


def claim(opener: Opener) -> Finding:
    """Return the finding for `windtunnel claims`."""
    return finding(sweep(opener))


def main() -> None:
    """Print the sweep."""
    rows = sweep(devices())
    print(f"one request through {LAYERS} layers ({rows[0].kernels} kernels) on {CARD}")
    lines = [
        (
            f"{row.width:,}",
            seconds(row.product_s),
            seconds(row.activate_s),
            seconds(row.launched_s),
            seconds(row.replayed_s),
            percent(row.saved),
        )
        for row in rows
    ]
    print(table(("width", "product", "activate", "single launches", "graph", "saved"), lines))
    conclude(f"{percent(CLAIM)} lower latency", finding(rows), percent)


if __name__ == "__main__":
    main()
