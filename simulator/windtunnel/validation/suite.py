"""The points that are measured of a device: operations over sizes from launch-bound to memory- or compute-bound.

The device states which of them it supports. The model predicts their durations, so that the budget is divided among
many points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from windtunnel.core.ops import OPERATIONS, one_row
from windtunnel.validation.load import WARM_S, WORK_S
from windtunnel.validation.measure import LEAST_ROUNDS, LEAST_RUNS, Point, point, spread_order
from windtunnel.validation.reference_points import is_reference_point

A_VISIT_S = 0.12
"""The duration of a visit of a small operation (s), with preparation: measured with PoCL on two cores."""
AT_WORK = 1 + WORK_S / WARM_S
"""The factor of that duration for hardware that is put to work before its measurements, once in `WARM_S`."""
READY_BYTES_S = 0.5e9
"""The approximate rate (B/s) at which a visit generates, copies and compares operands."""
REFERENCE_POINT_SHARE = 1 / 6
"""The share of a device's budget that a reference point may take; other points may take ``Point.share``."""

_LENGTHS = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000)
"""Two sizes per decade, because a fit uses half of them and needs ten."""
_BYTES = (4, 64, 1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20, 1_000_000_000)
_SQUARES = (64, 128, 256, 512, 1024, 2048, 4096)
_THIN = ((1, 4096, 4096), (16, 4096, 4096), (128, 1024, 4096), (4096, 64, 1024))
_ROWS = ((64, 256), (1024, 256), (1024, 1024), (4096, 1024), (16384, 1024))
_ALL_ELEMENTWISE = ("add", "addu", "mul", "mulu", "div", "divu", "pow", "powu", "relu", "gelu", "tanh", "softmax", "ln")


def points() -> Iterator[Point]:
    """Yield all points."""
    for point_ in chain(_moving(), _arithmetic(), _libraries(), _offloaded()):
        is_reference = is_reference_point(point_.op, point_.columns)
        yield replace(point_, share=REFERENCE_POINT_SHARE) if is_reference else point_


def _moving() -> Iterator[Point]:
    launch, copy = OPERATIONS.find("launch"), OPERATIONS.find("copy")
    for mode in ("stream", "graph", "persistent"):
        for count in (1, 10, 100, 1000):
            yield point(launch, mode=mode, count=count)
    for size in _BYTES:
        for memory in ("pageable", "pinned"):
            for direction in ("h2d", "d2h"):
                yield point(copy, bytes=size, direction=direction, memory=memory)
        yield point(copy, bytes=size, direction="d2d")


def _arithmetic() -> Iterator[Point]:
    add, elementwise = OPERATIONS.find("vector_add"), OPERATIONS.find("elementwise")
    for n in _LENGTHS:
        yield point(add, n=n)
    for dtype in ("float16", "bfloat16", "int8"):
        for n in (10_000, 1_000_000):
            yield point(add, n=n, dtype=dtype)
    for n in (10_000, 1_000_000):
        yield point(add, n=n, dispatch="eager")
        yield point(add, n=n, dispatch="graph")
        yield point(add, n=n, cache="warm")
    for op in _ALL_ELEMENTWISE:
        for rows, width in _ROWS if op in ("add", "relu", "softmax") else _ROWS[1:4:2]:
            yield point(elementwise, op=op, rows=rows, width=width)


def _libraries() -> Iterator[Point]:
    gemm = OPERATIONS.find("gemm")
    for side in _SQUARES:
        for dtype in ("float32", "float16", "bfloat16", "int8"):
            yield point(gemm, m=side, n=side, k=side, dtype=dtype)
    for side in (1024, 4096):
        yield point(gemm, m=side, n=side, k=side, dtype="tf32")
    for m, n, k in _THIN:
        for dtype in ("float32", "bfloat16"):
            yield point(gemm, m=m, n=n, k=k, dtype=dtype)
    yield point(gemm, m=128, n=128, k=128, batch=64, dtype="float32")
    stencil, fft = OPERATIONS.find("stencil"), OPERATIONS.find("fft")
    for side in (128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192):
        yield point(stencil, nx=side, ny=side, dtype="float32")
    for side in (16, 24, 32, 48, 64, 96, 128, 192, 256, 384):
        yield point(stencil, nx=side, ny=side, nz=side, dtype="float32")
    for n in (256, 1024, 4096, 16384, 65536, 1 << 18, 1 << 20):
        for batch in sorted({1, *(whole // n for whole in (1 << 16, 1 << 20, 1 << 23) if whole >= n)}):
            yield point(fft, n=n, batch=batch)
    yield point(fft, n=4096, batch=256, dtype="float16")
    attention = OPERATIONS.find("attention")
    for phase, batch, tokens in (("prefill", 1, 256), ("prefill", 1, 1024), ("decode", 8, 512), ("decode", 8, 4096)):
        heads = {"heads": 8, "kv_heads": 2, "head_dim": 64}
        for dtype in ("float32", "bfloat16"):
            yield point(attention, phase=phase, batch=batch, kv_tokens=tokens, dtype=dtype, kv_dtype=dtype, **heads)


def _offloaded() -> Iterator[Point]:
    aes, sign, packets = (OPERATIONS.find(name) for name in ("aes", "sign", "packets"))
    for size in (64, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 16 << 20):
        yield point(aes, bytes=size, key_bits=256, mode="gcm")
    for mode in ("ctr", "cbc"):
        yield point(aes, bytes=64 << 10, key_bits=256, mode=mode)
    yield point(aes, bytes=64 << 10, key_bits=128, mode="gcm")
    yield point(aes, bytes=64 << 10, key_bits=256, mode="gcm", in_flight=4)
    for name in ("compress", "decompress"):
        op = OPERATIONS.find(name)
        for codec, level in (("deflate", 1), ("deflate", 6), ("lz4", 1), ("zstd", 3)):
            for size in (4 << 10, 64 << 10, 1 << 20):
                yield point(op, bytes=size, codec=codec, level=level)
        yield point(op, bytes=64 << 10, codec="deflate", level=1, in_flight=4)
    for scheme in ("rsa2048", "ecdsa_p256"):
        for count, in_flight in ((1, 1), (64, 1), (64, 8)):
            yield point(sign, scheme=scheme, count=count, in_flight=in_flight)
    for count, size in ((1, 64), (100, 64), (10_000, 64), (10_000, 1500)):
        yield point(packets, count=count, bytes=size)


def within(
    wanted: Sequence[Point],
    cost_s: Callable[[Point], float | None],
    budget_s: float,
    visit_s: float = A_VISIT_S,
) -> tuple[list[Point], list[Point]]:
    """Divide points into those that fit into the budget and those that do not.

    Points that the model does not support, or that take more than their share of the budget, do not fit. Of the others
    the reference points come first, then points spread over all operations and their sizes.

    Args:
        wanted: The points.
        cost_s: Returns the predicted duration (s) of a point, or None if the model does not support it.
        budget_s: The budget in seconds.
        visit_s: The duration (s) of a visit beside runs and operands.
    """
    takes: dict[int, float] = {}
    for number, candidate in enumerate(wanted):
        seconds = cost_s(candidate)
        if seconds is not None:
            ready_s = LEAST_ROUNDS * footprint_bytes(candidate) / READY_BYTES_S
            if LEAST_RUNS * seconds + ready_s <= budget_s * candidate.share:
                takes[number] = LEAST_RUNS * seconds + ready_s + LEAST_ROUNDS * visit_s
    kept: set[int] = set()
    left_s = budget_s
    for number in sorted(
        spread_order(list(takes), wanted), key=lambda n: not is_reference_point(wanted[n].op, wanted[n].columns)
    ):
        if takes[number] <= left_s:
            kept.add(number)
            left_s -= takes[number]
    fits = [candidate for number, candidate in enumerate(wanted) if number in kept]
    return fits, [candidate for number, candidate in enumerate(wanted) if number not in kept]


def footprint_bytes(point_: Point) -> float:
    """Return the bytes of an operation's operands."""
    return float(one_row(OPERATIONS.find(point_.op), point_.columns).footprint_bytes()[0])


def spread(wanted: Sequence[Point], count: int) -> list[Point]:
    """Return at most ``count`` points in their order, spread evenly over operations and sizes."""
    return [wanted[number] for number in sorted(spread_order(list(range(len(wanted))), wanted)[:count])]
