"""What no implementation can beat: bytes over the rate that carries them, operations over the peak that does them.

A bound is built from datasheet numbers alone: no efficiency, no launch, no latency enters. Where a number of the
datasheet is itself uncertain, the bound has a favourable end too, made from the ends of the ranges that favour the
claim; a claim is called impossible only when it breaks that one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from windtunnel.core.device import Device
from windtunnel.core.ops import Gemm, Rows
from windtunnel.core.provenance import Sourced
from windtunnel.core.units import format_quantity as show

AES_ROUNDS = {"128": 10.0, "192": 12.0, "256": 14.0}
"""Rounds by key length: FIPS 197."""
FRAMING_BYTES = 20.0
"""Preamble and gap around an Ethernet frame: IEEE 802.3."""


@dataclass(frozen=True)
class Bound:
    """A limit (SI), the same from the favourable ends of uncertain numbers, and the arithmetic in words."""

    value: float
    favourable: float
    why: str


@dataclass(frozen=True)
class _Term:
    """``amount`` over a rate: nominal, favourable (infinite where a cache may spare it)."""

    amount: float
    rate: float
    best: float
    what: str
    unit: str
    in_bits: bool = False

    @property
    def why(self) -> str:
        """The arithmetic; what is sold by the bit is shown in bits too."""
        amount, rate = show(self.amount, self.unit), show(self.rate, f"{self.unit}/s")
        if self.in_bits:
            amount = f"{amount} ({show(8.0 * self.amount, 'bit')})"
            rate = show(8.0 * self.rate, "bit/s")
        return f"{amount} {self.what} at {rate} take {show(self.amount / self.rate, 's')}"


def time_bound(device: Device, rows: Rows, *, bytes_in: float = 0.0, bytes_out: float = 0.0) -> Bound | None:
    """The least time (s) of one operation on ``device``; None where the datasheet says nothing that bounds it.

    ``bytes_in`` and ``bytes_out`` cross the link to the host besides, one way each, at the same time at best.
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
    # A second limit that is nearly as hard proves the same by another number.
    near = [term for term in terms[:2] if term.amount / term.rate > least / 2.0]
    return Bound(least, max(term.amount / term.best for term in terms), " and ".join(term.why for term in near))


def rate_bound(device: Device, rows: Rows, amount: float, unit: str) -> Bound | None:
    """The most of ``amount`` a second (SI): what the least time of the operation allows."""
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
    """What the device may draw at most (W)."""
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
    """Every operand once. They lie in memory, as "data resident" says; what a cache could hold is given the doubt."""
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
        each = 16.0 * threads / AES_ROUNDS[rows.choices["key_bits"]]
        rate, best = (each * blocks[i] * clock[i] for i in (0, 1))
        yield _Term(size, rate, best, "through the AES units of one core", "B")


def _arithmetic(device: Device, rows: Rows) -> Iterator[_Term]:
    """Multiplications and additions over the fastest peak that the silicon has for the type."""
    dtype = rows.choices["dtype"]
    flops = float(Gemm.flops(rows.numbers)[0])
    peak: tuple[float, float] | None = None
    if device.kind.name == "gpu":
        key = "fp8" if dtype == "fp8_block" else dtype
        peaks = [_rate(device, f"{units}_flops_per_s.{key}") for units in ("matrix", "vector")]
        known = [found for found in peaks if found is not None]
        peak = (max(p[0] for p in known), max(p[1] for p in known)) if known else None
    elif device.kind.name == "tpu":
        # Two operations for each element of each array and clock; a type that takes several passes is slower yet.
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
    """Element by element; None where either is unknown."""
    return None if a is None or b is None else (a[0] * b[0], a[1] * b[1])


def _rate(device: Device, *names: str) -> tuple[float, float] | None:
    """(nominal, favourable) of the first of ``names`` that the device's file or kind gives."""
    for name in names:
        sourced: Sourced | None = device.values.get(name)
        if sourced is not None and math.isfinite(sourced.value):
            return sourced.value, sourced.value if sourced.high is None else max(sourced.value, sourced.high)
    return None
