"""Physical bounds: bytes over the bandwidth, and operations over the peak rate.

A bound uses datasheet numbers alone, without efficiency, launch or latency. If a number of the datasheet is uncertain,
the bound has a favourable end, computed from the ends of the ranges that favour the claim. A claim is impossible only
if it exceeds that end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from windtunnel.core.device import Device
from windtunnel.core.ops import Gemm, Rows
from windtunnel.core.provenance import SourcedValue
from windtunnel.core.units import format_quantity as show

AES_ROUNDS = {"128": 10.0, "192": 12.0, "256": 14.0}
"""Rounds by key length: FIPS 197."""
FRAMING_BYTES = 20.0
"""Preamble and gap around an Ethernet frame: IEEE 802.3."""


@dataclass(frozen=True)
class Bound:
    """A limit (SI), the favourable end of it, and the arithmetic of each as text."""

    value: float
    favourable: float
    why: str
    favourable_why: str = ""


@dataclass(frozen=True)
class _Term:
    """``amount`` over a rate: the nominal and the favourable one (infinite if a cache may hold the data)."""

    amount: float
    rate: float
    best: float
    what: str
    unit: str
    in_bits: bool = False

    @property
    def why(self) -> str:
        """The arithmetic at the nominal rate as text."""
        return self._at(self.rate)

    @property
    def favourable_why(self) -> str:
        """The arithmetic at the favourable rate as text."""
        return self._at(self.best)

    def _at(self, rate: float) -> str:
        """Return the arithmetic as text; rates that are quoted in bits are shown in bits too."""
        amount, shown = show(self.amount, self.unit), show(rate, f"{self.unit}/s")
        if self.in_bits:
            amount = f"{amount} ({show(8.0 * self.amount, 'bit')})"
            shown = show(8.0 * rate, "bit/s")
        return f"{amount} {self.what} at {shown} take {show(self.amount / rate, 's')}"


def time_bound(device: Device, rows: Rows, *, bytes_in: float = 0.0, bytes_out: float = 0.0) -> Bound | None:
    """Return the least time (s) of one operation on ``device``, or None if the datasheet gives no bound.

    Args:
        device: The device.
        rows: One row of the operation.
        bytes_in: Bytes that also cross the link from the host, at best at the same time as ``bytes_out``.
        bytes_out: Bytes that cross the link to the host.
    """
    terms = list(_terms(device, rows))
    across = max(bytes_in, bytes_out)
    link = _rate(device, "host_link_bytes_per_s", "host_link_bytes_s")
    if across and link is not None:
        terms.append(_Term(across, *link, "one way over the host's link", "B"))
    if not terms:
        return None
    terms.sort(key=lambda term: term.amount / term.rate, reverse=True)
    least = terms[0].amount / terms[0].rate
    # A second term of similar size is reported too, because it supports the bound by another number.
    near = [term for term in terms[:2] if term.amount / term.rate > least / 2.0]
    best = max(terms, key=lambda term: term.amount / term.best)
    return Bound(least, best.amount / best.best, " and ".join(term.why for term in near), best.favourable_why)


def rate_bound(device: Device, rows: Rows, amount: float, unit: str) -> Bound | None:
    """Return the largest rate of ``amount`` per second (SI) that the least time of the operation allows."""
    least = time_bound(device, rows)
    if least is None:
        return None
    return Bound(
        amount / least.value,
        amount / least.favourable if least.favourable else math.inf,
        f"{least.why}, so at most "
        + (show(8.0 * amount / least.value, "bit/s") if unit == "B" else show(amount / least.value, f"{unit}/s")),
    )


def power_bound(device: Device) -> Bound:
    """Return the power limit of the device (W)."""
    sourced = device.values["max_power_w"]
    return Bound(
        sourced.value,
        sourced.value if sourced.high is None else sourced.high,
        f"the device draws {show(sourced.value, 'W')} at most",
    )


def _terms(device: Device, rows: Rows) -> Iterator[_Term]:
    kind, op = device.kind.name, rows.op.name
    n = {name: float(values[0]) for name, values in rows.numbers.items()}
    memory = _rate(device, "memory_bandwidth_bytes_per_s", "memory_bytes_s")
    if kind == "fpga":
        memory = _product(_rate(device, "bank_bytes_s"), _rate(device, "memory_banks"))
    if op == "gemm":
        yield from _arithmetic(device, rows)
    if op in ("gemm", "vector_add", "stencil", "elementwise", "attention", "fft") and memory is not None:
        yield _through_memory(device, rows, *memory)
    if op == "aes":
        yield from _cipher(device, rows, n["bytes"], memory)
    if op == "packets":
        line = _rate(device, "line_rate_bytes_s")
        if line is not None:
            size = n["count"] * (n["bytes"] + FRAMING_BYTES)
            yield _Term(size, *line, "of frames and their gaps on the wire", "B", in_bits=True)
    if op == "copy":
        link = _rate(device, "host_link_bytes_per_s", "host_link_bytes_s")
        if link is not None and not device.number("unified_memory"):
            yield _Term(n["bytes"], *link, "over the host's link", "B")


def _through_memory(device: Device, rows: Rows, rate: float, best: float) -> _Term:
    """Return the term of reading every operand once from memory, or from a cache that may contain all of them."""
    size = float(rows.footprint_bytes()[0])
    cache = _rate(device, "l2_bytes", "llc_bytes", "vmem_bytes", "on_chip_bytes")
    what = "of operands through memory"
    if cache is None:
        return _Term(size, rate, best, what, "B")
    if size <= cache[0]:
        return _Term(size, rate, math.inf, f"{what} (or from {show(cache[0], 'B')} of cache, if left there)", "B")
    return _Term(size, rate, best, f"{what}, more than {show(cache[0], 'B')} of cache hold,", "B")


def _cipher(device: Device, rows: Rows, size: float, memory: tuple[float, float] | None) -> Iterator[_Term]:
    engine = _rate(device, f"bulk_bytes_s.aes_{rows.choices['mode']}")
    if engine is not None:
        yield _Term(size, *engine, "through its engines", "B", in_bits=True)
    if device.kind.name == "qat":
        link = _rate(device, "host_link_bytes_s")
        if link is not None:
            yield _Term(size, *link, "each way over its bus", "B")
    elif memory is not None:
        yield _Term(2.0 * size, *memory, "read and written through memory", "B")
    blocks = _rate(device, "aes_blocks_per_cycle")
    clock = _rate(device, "clock_hz.boost")
    if blocks is not None and clock is not None and blocks[0]:
        threads = float(rows.numbers["in_flight"][0])
        bytes_per_cycle = 16.0 * threads / AES_ROUNDS[rows.choices["key_bits"]]
        rate, best = (bytes_per_cycle * blocks[i] * clock[i] for i in (0, 1))
        yield _Term(size, rate, best, "through the AES units of one core", "B")


def _arithmetic(device: Device, rows: Rows) -> Iterator[_Term]:
    """Yield the term of multiplications and additions over the device's fastest peak for the number format."""
    dtype = rows.choices["dtype"]
    flops = float(Gemm.flops(rows.choices, rows.numbers)[0])
    peak: tuple[float, float] | None = None
    if device.kind.name == "gpu":
        key = "fp8" if dtype == "fp8_block" else dtype
        peaks = [_rate(device, f"{units}_flops_per_s.{key}") for units in ("matrix", "vector")]
        stated = [rate for rate in peaks if rate is not None]
        peak = (max(rate[0] for rate in stated), max(rate[1] for rate in stated)) if stated else None
    elif device.kind.name == "tpu":
        # Two operations for each element of each array and clock; formats with several passes are slower.
        peak = (2.0, 2.0)
        for name in ("arrays", "array_rows", "array_columns", "clock_hz"):
            peak = _product(peak, _rate(device, name))
    elif device.kind.name == "cpu":
        cores = _rate(device, "threads") or _rate(device, "cores")
        lanes = _rate(device, "simd_bits")
        peak = _product(cores, _rate(device, "clock_hz.boost"))
        for factor in (lanes, _rate(device, "fma_units"), _rate(device, f"dtype_rate.{dtype}"), (2 / 32, 2 / 32)):
            peak = _product(peak, factor)
    if peak is not None:
        yield _Term(flops, *peak, "of arithmetic", "FLOP")


def _product(a: tuple[float, float] | None, b: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return the product element by element, or None if either factor is unknown."""
    return None if a is None or b is None else (a[0] * b[0], a[1] * b[1])


def _rate(device: Device, *names: str) -> tuple[float, float] | None:
    """Return (nominal, favourable) of the first of ``names`` that the device has."""
    for name in names:
        sourced: SourcedValue | None = device.values.get(name)
        if sourced is not None and math.isfinite(sourced.value):
            return sourced.value, sourced.value if sourced.high is None else max(sourced.value, sourced.high)
    return None
