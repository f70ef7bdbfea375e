"""Measured curves of collectives inside a node, and how another device takes them over.

A curve is the time over the bytes of one operation by one implementation among a number of workers. It is interpolated
in logarithms, is constant below its smallest size, and continues at the rate of its largest size. Another device takes
the curve of a device with the same sort of link: the least time of the curve stays, and the rest is divided by the
ratio of the nominal rates of the links. Over PCIe the curves of more than two workers depend on the host (on whether
they cross its sockets), so another device takes that of two workers and stretches what exceeds its least time as the
bytes of a ring (``collectives.volume``). A number of workers that was not measured has the ratio of curve to formula of
its neighbours. reports/validation/published/collectives.md has the errors on devices that were left out.

The arrays of one operation of one device:

    sku, link               its name, and the nominal rate of its link (B/s)
    implementation, dtype, workers  (C,)    of each curve; ``dtype``: "8" or "16" bits, "any" if it does not matter
    start                   (C + 1,)        where each curve begins in the following
    bytes, seconds          (N,)            its points
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from windtunnel.core.device import Arrays, Correction, Parameters
from windtunnel.core.ops import BYTES_PER_ELEMENT, FloatArray, Rows
from windtunnel.core.spec import DeviceSpec
from windtunnel_models.kinds.gpu.collectives import formula, inside_s, link_rate, volume

MEASURED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""The operations with curves."""

_LEAST_NOISE = 0.05
"""The least 90% half-width (log) of a measured time: the same bytes in two formats differ by 4%."""

_BETWEEN = np.log(1.3)
"""90% half-width (log) that a number of workers adds which was not measured. From the curves of 4 workers of A100, H100
and B200, estimated from those of 2 and 8."""

_STRETCHED = np.log(4.0)
"""The same for more than two workers over the PCIe of another host: large messages among 4 L40S take 4 times as long as
a ring, because of their host."""

_NETWORK = np.log(2.0)
"""90% half-width (log) of the time between nodes: the residuals of microsoft/vidur@7d47513 (MIT), A100 DGX."""


def same_sort_of_link(spec: DeviceSpec, other: DeviceSpec) -> bool:
    """Return whether both devices have a link to other devices of a node, or both none but the host's bus."""
    return ("scale_up_bytes_per_s" in spec.values) == ("scale_up_bytes_per_s" in other.values)


@dataclass(frozen=True)
class Curve:
    """The times (s) over bytes, ascending, of ``workers`` workers, and the 90% half-width of their logarithms."""

    workers: float
    size: FloatArray
    seconds: FloatArray
    noise: FloatArray

    @property
    def least_s(self) -> float:
        """The least time (s), which no link shortens."""
        return float(self.seconds.min())

    def at(self, size: FloatArray) -> FloatArray:
        """Return the time (s) of ``size`` bytes."""
        inside = np.exp(np.interp(np.log(size), np.log(self.size), np.log(self.seconds)))
        beyond = np.maximum(size / self.size[-1], 1.0)
        return np.asarray(self.least_s + (inside - self.least_s) * beyond)

    def noise_at(self, size: FloatArray) -> FloatArray:
        """Return the 90% half-width (log) at ``size`` bytes."""
        return np.asarray(np.interp(np.log(size), np.log(self.size), self.noise))

    def slower(self, factor: float, least_s: float | None = None) -> Curve:
        """Return the curve with what exceeds its least time multiplied, and another least time if one is given."""
        least = self.least_s if least_s is None else least_s
        return Curve(self.workers, self.size, least + (self.seconds - self.least_s) * factor, self.noise)


def roughness(seconds: FloatArray) -> FloatArray:
    """Return the 90% half-width (log) at every point of a curve, at least that of one measurement.

    It is the distance of a point, or of one of its neighbours, from the chord between those beside it, which is so much
    that sizes left out of a curve lie in the interval (reports/validation/published/collectives.md).
    """
    if len(seconds) < 3:
        return np.full(len(seconds), _LEAST_NOISE)
    log_s = np.log(seconds)
    apart = np.abs(log_s[1:-1] - (log_s[:-2] + log_s[2:]) / 2.0)
    apart = np.pad(apart, 2, mode="edge")
    return np.asarray(np.maximum(_LEAST_NOISE, np.max(np.stack([apart[:-2], apart[1:-1], apart[2:]]), axis=0)))


class LearnedCollective:
    """The correction of a collective, by the curves of one device, for that device or another one."""

    def __init__(self, arrays: Arrays) -> None:
        self._sku, self._link = str(arrays["sku"]), float(arrays["link"])
        self._curves: dict[tuple[str, str], list[Curve]] = {}
        start = arrays["start"]
        size, seconds = (np.asarray(arrays[name], dtype=np.float64) for name in ("bytes", "seconds"))
        for i, workers in enumerate(arrays["workers"]):
            part = slice(int(start[i]), int(start[i + 1]))
            key = str(arrays["implementation"][i]), str(arrays["dtype"][i])
            curve = Curve(float(workers), size[part], seconds[part], roughness(seconds[part]))
            self._curves.setdefault(key, []).append(curve)

    def __call__(self, p: Parameters, rows: Rows) -> Correction | None:
        """Return the correction of the formula for the device of ``p``, or None for an implementation without curves.

        What crosses between nodes stays as the formula has it.
        """
        op, implementation = rows.op.name, rows.choices["implementation"]
        bits = "8" if BYTES_PER_ELEMENT[rows.choices["dtype"]] < 2.0 else "16"
        measured = self._curves.get((implementation, bits)) or self._curves.get((implementation, "any"))
        measured = measured or self._curves.get((implementation, "16"))
        if not measured:
            return None
        curves = sorted(self._for(p, op, measured), key=lambda curve: curve.workers)
        split = formula(p, rows)
        size = np.broadcast_to(rows.numbers["bytes"], rows.shape)
        local = np.broadcast_to(split.local, rows.shape)
        factors = np.stack(
            [np.log(c.at(size) / inside_s(p, op, implementation, np.full(size.shape, c.workers), size)) for c in curves]
        )
        noises = np.stack([c.noise_at(size) for c in curves])
        factor, noise = _among(np.log2(local), np.log2([c.workers for c in curves]), factors, noises)
        is_measured = np.isin(local, [c.workers for c in curves])
        if p.sku != self._sku and p.get("scale_up_bytes_per_s") is None:
            noise = np.hypot(noise, np.where(local > 2.0, _STRETCHED, 0.0))
        noise = np.hypot(noise, np.where(is_measured, 0.0, _BETWEEN))
        alone = local <= 1.0
        inside = split.inside * np.exp(np.where(alone, 0.0, factor))
        whole = inside + split.network
        spread = (inside * np.where(alone, _BETWEEN, noise) + split.network * _NETWORK) / whole
        return Correction(np.log(whole / (split.inside + split.network)), spread)

    def _for(self, p: Parameters, op: str, measured: Sequence[Curve]) -> Sequence[Curve]:
        """Return the curves as the device of ``p`` has them."""
        rate = link_rate(p)
        if p.sku == self._sku or rate is None:
            return measured
        factor = self._link / rate
        if p.get("scale_up_bytes_per_s") is not None:
            return [curve.slower(factor) for curve in measured]
        pair = min(measured, key=lambda curve: curve.workers)
        sent = volume(op, np.array([pair.workers, *(curve.workers for curve in measured)]))
        return [
            Curve(curve.workers, pair.size, stretched.seconds, pair.noise)
            for curve, bytes_sent in zip(measured, sent[1:], strict=True)
            for stretched in [pair.slower(factor * float(bytes_sent / sent[0]), curve.least_s)]
        ]


def _among(
    place: FloatArray, places: FloatArray, factors: FloatArray, noises: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the log factor and the noise at ``place``, from those (C x ...) at ``places`` (C), interpolated."""
    if len(places) == 1:
        return factors[0], noises[0]
    right = np.clip(np.searchsorted(places, place), 1, len(places) - 1)
    share = np.clip((place - places[right - 1]) / (places[right] - places[right - 1]), 0.0, 1.0)

    def between(values: FloatArray) -> FloatArray:
        left_and_right = [np.take_along_axis(values, index[None], axis=0)[0] for index in (right - 1, right)]
        return np.asarray(left_and_right[0] * (1.0 - share) + left_and_right[1] * share)

    return between(factors), between(noises)
