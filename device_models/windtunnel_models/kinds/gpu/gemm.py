"""GEMM on a GPU: tiles and waves, overlapping traffic, and a cache that keeps part of small operands.

A library chooses a tile shape and a split of k; the cost is that of the best choice. Tiles run in whole waves over the
compute units. Operands are read once, except for what the last-level cache still holds. Arithmetic and traffic overlap,
but not completely. The numbers come from calibration, with a set for each number format. Their units suit transfer
between designs: latencies in clocks, the path to the cache relative to the peak. A device without measurements gets the
numbers of its relatives (see ``learned.transfer``).

Sources of the forms: tile and wave quantisation, NVIDIA, "Matrix Multiplication Background User's Guide"; splitting k,
Osama et al., "Stream-K", PPoPP 2023 (arXiv:2301.03598). The data of the fits, and the errors on shapes and devices that
were left out, are in benchmarks/accuracy/NOTES-gemm.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from windtunnel.core.device import Parameters, RawCost
from windtunnel.core.ops import BYTES_PER_ELEMENT, DTYPES, WEIGHT_ONLY, FloatArray, Rows, arithmetic
from windtunnel.core.provenance import Provenance, SourcedValue, assumed
from windtunnel.core.spec import Parameter
from windtunnel_models.kinds.gpu.fused import weight_only
from windtunnel_models.kinds.gpu.kernel import datasheet_format, in_context, need_product_type, vector_rate
from windtunnel_models.kinds.gpu.power import activity_of, tiles_over_units
from windtunnel_models.kinds.gpu.streaming import memory_class

_TILES = (
    (256, 256),
    (256, 128),
    (128, 256),
    (128, 128),
    (128, 64),
    (64, 128),
    (64, 64),
    (16, 128),
    (128, 16),
    (32, 32),
)
_SPLITS = (1, 2, 4, 8, 16)
"""Tile shapes and split-k factors from which a library chooses."""

_BLOCK = 2048
"""The number of rows whose tiles are compared at once, so that the arrays stay in the processor's cache."""

MOST_SPREAD = 0.95
"""The largest share of the last wave that is spread evenly; it is below 1, so that a further tile always has a cost."""

BOOST_S = 0.5e-3
"""The time (s) after which the clock has fallen half of its way from boost; fits of devices gave 0.33 to 0.57 ms."""

MOST_EFFICIENT = 0.95
"""The share of its peak that a board attains in a full wave if its power limit does not slow it."""

ANY = "any"
"""The key of the numbers of a format in which neither this device nor a relative was measured."""

STAND_INS: Mapping[str, tuple[str, ...]] = {
    "tf32": ("bfloat16",),
    "float16": ("bfloat16",),
    "bfloat16": ("float16",),
    "fp8": ("int8",),
    "fp8_block": ("fp8",),
    "nvfp4": ("fp8",),
    "int8": ("fp8",),
    "mxfp4": ("bfloat16", "float16"),
    "int4": ("bfloat16", "float16"),
}
"""Formats whose kernels come from the same libraries with the same tiles, the most similar first."""

SUSTAINED = "_sustained"
_KEYS = (*DTYPES, *(f"{dtype}{SUSTAINED}" for dtype in DTYPES), ANY)


def _number(name: str, unit: str, doc: str, value: float, low: float, high: float) -> Parameter:
    reason = "between what the fits of five measured devices gave (benchmarks/accuracy/NOTES-gemm.md)"
    return Parameter(
        f"gemm_{name}", unit, doc, keys=_KEYS, defaults={ANY: assumed(value, low, high, reason)}, fitted=True
    )


PARAMETERS = (
    _number("efficiency", "1", "attained fraction of the matrix peak inside a full wave", 0.77, 0.6, 0.95),
    _number("memory_efficiency", "1", "attained fraction of the memory bandwidth", 0.9, 0.7, 1.05),
    _number("floor_clocks", "1", "the shortest product, launch to drain, in clocks of the device", 4700.0, 2500.0, 1e4),
    _number("l2_bytes_per_flop", "B", "operands a unit draws from the cache for a FLOP of its peak", 0.02, 0.01, 0.04),
    _number("wave_clocks", "1", "clocks of a wave of 128 x 128 tiles beside its k", 2400.0, 800.0, 5000.0),
    _number("wave_area", "1", "power of a tile's area that these go with", 0.8, 0.4, 1.0),
    _number("wave_spread", "1", "share of the last wave's tiles that are spread over all units", 0.3, 0.05, 0.95),
    _number("k_step_clocks", "1", "least clocks of a tile for one element of k", 2.3, 0.5, 8.0),
    _number("cache_weights", "1", "share of the cache below which weights stay in it, cold", 0.09, 0.05, 1.0),
    _number("cache_knee", "1", "how sharply they stop to", 7.0, 3.0, 10.0),
    _number("cache_activations", "1", "share of the cache that keeps activations and results", 0.25, 0.05, 1.0),
    _number("overlap", "1", "exponent of the soft maximum of arithmetic and traffic", 2.3, 1.3, 6.0),
    _number("sag", "1", "how much longer arithmetic takes once a product outlasts the boost", 0.08, 0.03, 0.25),
    _number("split_clocks", "1", "fixed clocks of splitting k", 4300.0, 1000.0, 1.2e4),
    Parameter(
        "gemm_floor_overlap",
        "1",
        "exponent of the soft maximum of the shortest product and the rest of the time: 1 if one follows the other on "
        "the device, more if the shortest time is that of a host which launches one product after another",
        keys=_KEYS,
        fitted=True,
    ),
    _number("quantise_passes", "1", "passes over the activations that make a narrow format of them", 3.4, 0.5, 6.0),
    weight_only(
        "gemm_weight_only",
        "traffic of narrow weights with 16-bit activations over that of as many bytes of 16-bit ones",
    ),
)

FITS = {
    "gemm_efficiency": 0.15,
    "gemm_memory_efficiency": 0.15,
    "gemm_floor_clocks": 0.7,
    "gemm_l2_bytes_per_flop": 0.5,
    "gemm_wave_clocks": 0.6,
    "gemm_wave_area": 0.3,
    "gemm_wave_spread": 0.7,
    "gemm_k_step_clocks": 0.5,
    "gemm_cache_weights": 0.7,
    "gemm_cache_knee": 0.3,
    "gemm_cache_activations": 1.0,
    "gemm_overlap": 0.3,
    "gemm_sag": 0.7,
    "gemm_split_clocks": 0.7,
    "gemm_quantise_passes": 0.5,
    "gemm_floor_overlap": 0.6,
}
"""The deviation (log, one sigma) of a device's numbers from the transferred ones: the spread of the five fits."""


@dataclass(frozen=True)
class Numbers:
    """The numbers of one device in one format, as the formula takes them (SI)."""

    rate: float
    memory_rate: float
    floor_s: float
    unit_l2_rate: float
    wave_s: float
    wave_area: float
    wave_spread: float
    k_step_s: float
    kept_weights_bytes: float
    cache_knee: float
    kept_activations_bytes: float
    overlap: float
    sag: float
    split_s: float
    quantise_passes: float
    units: float
    l2_bytes: float
    floor_overlap: float = 1.0
    weight_only: float = 1.0


def number_key(p: Parameters, dtype: str, clock: str) -> str:
    """Return the key of the format's numbers on this device: its own, those of a similar format, or the default.

    Numbers of sustained loops include the power cap of their board, so those of another board are not used.
    """
    names: tuple[str, ...] = (dtype, *STAND_INS.get(dtype, ()))
    if clock == "sustained":
        for name in names:
            path = f"gemm_efficiency.{name}{SUSTAINED}"
            if p.get("gemm_efficiency", f"{name}{SUSTAINED}") is not None:
                if p.used[path].provenance is not Provenance.ASSUMED:
                    return f"{name}{SUSTAINED}"
                del p.used[path]
    for name in names:
        if p.get("gemm_efficiency", name) is not None:
            return name
    return ANY


def unit_peak(p: Parameters) -> float:
    """Return the 16-bit peak of one unit (FLOP/s), for which the path to the cache is designed.

    It is that of the matrix units if the API supports them, else that of the vector units.
    """
    for dtype in ("bfloat16", "float16") if p.feature("matrix") else ():
        peak = p.get("matrix_flops_per_s", dtype)
        if peak is not None:
            return peak / p("compute_units")
    return p("vector_flops_per_s", "float32") / p("compute_units")


def fitted_constants(p: Parameters, dtype: str, key: str) -> Numbers:
    """Return the device's numbers for GEMM in ``dtype``, from the parameters under ``key``.

    Raises UnsupportedOperationError for a format without matrix or vector units that the API supports.
    """
    multiplied = arithmetic(dtype)
    need_product_type(p, multiplied, DTYPES)
    sheet = datasheet_format(multiplied)
    rate = p.get("matrix_flops_per_s", sheet) if p.feature("matrix") else None
    if rate is not None:
        rate *= p("gemm_efficiency", key)
    else:
        rate = vector_rate(p, sheet)
    l2, clock_s = p("l2_bytes"), 1.0 / p("boost_clock_hz")

    def number(name: str) -> float:
        """Return a number under the key, or the default if an overlay states only some."""
        own = p.get(f"gemm_{name}", key)
        return p(f"gemm_{name}", ANY) if own is None else own

    return Numbers(
        rate=rate,
        memory_rate=p("memory_bandwidth_bytes_per_s") * number("memory_efficiency"),
        floor_s=number("floor_clocks") * clock_s,
        unit_l2_rate=number("l2_bytes_per_flop") * unit_peak(p),
        wave_s=number("wave_clocks") * clock_s,
        wave_area=number("wave_area"),
        wave_spread=min(number("wave_spread"), MOST_SPREAD),
        k_step_s=number("k_step_clocks") * clock_s,
        kept_weights_bytes=number("cache_weights") * l2,
        cache_knee=number("cache_knee"),
        kept_activations_bytes=number("cache_activations") * l2,
        overlap=number("overlap"),
        sag=number("sag"),
        split_s=number("split_clocks") * clock_s,
        quantise_passes=number("quantise_passes") if BYTES_PER_ELEMENT[multiplied] < 2.0 else 0.0,
        units=p("compute_units"),
        l2_bytes=l2,
        floor_overlap=max(p.get("gemm_floor_overlap", key) or 1.0, 1.0),
        weight_only=p("gemm_weight_only", dtype) if dtype in WEIGHT_ONLY else 1.0,
    )


def _same_process(of: Parameters, to: Parameters) -> bool:
    """Return whether two dies of one maker and class of memory are made alike, so that a FLOP takes similar energy.

    TSMC's 4N and 4NP are variants of one process.
    """
    process, process_to = of.lineage.process, to.lineage.process
    if process is None or process_to is None or of.vendor.casefold() != to.vendor.casefold():
        return False
    alike = process.removesuffix("P") == process_to.removesuffix("P")
    return alike and of.lineage.stacked_memory == to.lineage.stacked_memory


def _clock_gain(of: Parameters, to: Parameters, key: str) -> float:
    """Return by how much the clock under full load, relative to boost, is higher on ``to`` than on ``of``.

    A product at full rate draws more than the limit of most boards, so the clock is what the power limit allows for
    each FLOP/s of the peak. The exponent is that of loops at the power cap.
    """
    dtype = key.removesuffix(SUSTAINED)
    sheet = datasheet_format(dtype)
    peak, peak_to = of.get("matrix_flops_per_s", sheet), to.get("matrix_flops_per_s", sheet)
    power, power_to = of.get("max_power_w"), to.get("max_power_w")
    if peak is None or peak_to is None or power is None or power_to is None:
        return 1.0
    return float((power_to / peak_to / (power / peak)) ** to("throttle_exponent"))


def carried(of: Parameters, to: Parameters, path: str, value: float, same_die: bool) -> float:
    """Return a number that was fitted to GEMM on ``of``, expressed for ``to``; other numbers stay as they are.

    The share of the specified bandwidth that products attain follows that of sweeps over large arrays, which was
    measured on many boards: the quotient of the two is 1.20 to 1.26 on A100, H100, L40S and B200. Dies that are made
    alike need a similar energy for a FLOP, but their boards do not hold the same clock under load: the attained share
    of the peak rises with the power per FLOP/s of the peak, up to ``MOST_EFFICIENT``. On the same die, what a loaded
    unit takes in clocks of the boost falls alike, and the path from a unit to the cache is the same, whatever peak the
    vendor leaves to its matrix units.
    """
    name, _, key = path.partition(".")
    if name == "gemm_memory_efficiency":
        share, share_to = (p("stencil_efficiency", memory_class(p)) for p in (of, to))
        return value * share_to / share
    if name == "gemm_efficiency" and (same_die or _same_process(of, to)):
        return min(value * _clock_gain(of, to, key), max(value, MOST_EFFICIENT))
    if same_die and name in ("gemm_wave_clocks", "gemm_k_step_clocks"):
        return value / _clock_gain(of, to, key)
    if same_die and name == "gemm_l2_bytes_per_flop":
        return value * (unit_peak(of) / of("boost_clock_hz")) / (unit_peak(to) / to("boost_clock_hz"))
    return value


def tiles_s(rows: Rows, x: Numbers) -> FloatArray:
    """Return the time (s) of the compute units, in tiles and waves, for the best tile and split-k factor.

    For each element of k, a tile of tm x tn takes the longest of its arithmetic on one unit, the transfer of its
    operands from the cache, and a minimum step. ``ceil(tiles * split / units)`` waves run one after another. The last
    wave takes as long as a full one, except for the share that schedulers of persistent blocks spread over all units.
    Partial sums of a split are written and read once in float32.
    """
    n = rows.numbers
    size = BYTES_PER_ELEMENT[arithmetic(rows.choices["dtype"])]
    m, columns, k, batch = (flat.reshape(-1) for flat in np.broadcast_arrays(n["m"], n["n"], n["k"], n["batch"]))
    best = np.empty(len(m))
    for start in range(0, len(m), _BLOCK):
        some = slice(start, start + _BLOCK)
        best[some] = _tiles_of_block_s(m[some], columns[some], k[some], batch[some], size, x)
    return best.reshape(rows.shape)


def _tiles_of_block_s(
    m: FloatArray, columns: FloatArray, k: FloatArray, batch: FloatArray, size: float, x: Numbers
) -> FloatArray:
    """Return ``tiles_s`` of flat arrays, with all splits of a tile at once."""
    splits = np.array(_SPLITS, dtype=np.float64)[:, None]
    # Partial sums, and what a split takes beside them; none without a split.
    sums = splits * (8.0 * m * columns * batch / (x.units * x.unit_l2_rate)) + x.split_s
    sums[0] = 0.0
    down = {tile: np.ceil(m / tile) for tile in {tm for tm, _ in _TILES}}
    across = {tile: np.ceil(columns / tile) for tile in {tn for _, tn in _TILES}}
    best = np.full(m.shape, np.inf)
    for tm, tn in _TILES:
        per_k = max(2.0 * tm * tn / (x.rate / x.units), (tm + tn) * size / x.unit_l2_rate, x.k_step_s)
        wave_s = x.wave_s * (tm * tn / 128.0**2) ** x.wave_area
        filled = down[tm] * across[tn] * batch * (splits / x.units)
        waves = np.ceil(filled)
        took = np.where(filled > 1.0, waves + x.wave_spread * (filled - waves), waves)
        took *= k * (per_k / splits) + wave_s
        took += sums
        np.minimum(best, took.min(axis=0), out=best)
    return best


def traffic_s(rows: Rows, x: Numbers) -> FloatArray:
    """Return the time (s) of the operands: from memory without what the cache keeps, and all of them through the cache.

    The measurements rotate a few copies of the weights. Copies below a share of the cache stay in it and larger ones do
    not: x bytes are read except for 1 / (1 + (x / kept)^knee) of them. Activations and results are not rotated: of x
    bytes x^2 / (x + kept) are read. In a warm context everything that fits stays in the cache.
    """
    n, dtype = rows.numbers, rows.choices["dtype"]
    size = BYTES_PER_ELEMENT[arithmetic(dtype)]
    weights = BYTES_PER_ELEMENT[dtype] * x.weight_only * n["n"] * n["k"] * n["batch"]
    others = (size * n["m"] * n["k"] + max(size, 2.0) * n["m"] * n["n"]) * n["batch"]
    times = np.minimum(weights / x.kept_weights_bytes, 1e6) ** x.cache_knee
    drawn = weights * (times / (1.0 + times)) + others**2 / (others + x.kept_activations_bytes)
    if rows.choices["cache"] == "warm":
        drawn = np.where(weights + others <= x.l2_bytes, 0.0, drawn)
    return drawn / x.memory_rate + (weights + others) / (x.units * x.unit_l2_rate)


def formula_s(rows: Rows, x: Numbers) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the device time at boost (s) of the whole, of the tiles and of the traffic.

    The formula does not decrease in m, n, k and batch, and does not increase in any rate. In formats below 16 bits the
    activations are converted first, in a separate kernel that reads 16 bits and writes the format. Boost clocks last
    for a fraction of a millisecond under full load, so longer GEMMs compute more slowly.
    """
    compute, memory = tiles_s(rows, x), traffic_s(rows, x)
    body = np.maximum(compute, memory)
    compute = compute * (1.0 + x.sag * body / (body + BOOST_S))
    largest = np.maximum(compute, memory)
    ratio = np.minimum(compute, memory) / largest
    rest = largest * (1.0 + ratio**x.overlap) ** (1.0 / x.overlap)
    if x.floor_overlap == 1.0:
        whole = x.floor_s + rest
    else:
        high = np.maximum(x.floor_s, rest)
        whole = high * (1.0 + (np.minimum(x.floor_s, rest) / high) ** x.floor_overlap) ** (1.0 / x.floor_overlap)
    if x.quantise_passes and rows.choices.get("activations") != "narrow":
        whole = whole + _conversion_s(rows, x)
    return whole, compute, memory


def _conversion_s(rows: Rows, x: Numbers) -> FloatArray:
    """Return the device time (s) of the kernel that converts 16-bit activations to the format of the product."""
    n = rows.numbers
    moved = n["batch"] * n["m"] * n["k"] * (2.0 + BYTES_PER_ELEMENT[rows.choices["dtype"]])
    return 0.5 * x.floor_s + x.quantise_passes * moved / x.memory_rate


def gemm(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of C = A B: the formula, the residual, and the context.

    The measurements contain the conversion of activations to narrow formats. With narrow activations the formula's part
    of it is left out, but no product is faster than the peak of the units.
    """
    dtype, clock = rows.choices["dtype"], rows.choices["clock"]
    key = number_key(p, dtype, clock)
    x = fitted_constants(p, dtype, key)
    n = rows.numbers
    activity = activity_of(p, rows, tiles_over_units(p, n["m"], n["n"], n["batch"]))
    whole, compute, memory = formula_s(rows, x)
    bound = np.where(compute > memory, "compute", "memory")
    bound = np.where(np.maximum(compute, memory) < 0.5 * whole, "launch", bound)
    learned = p.correction(rows)
    if learned is not None:
        whole = whole * np.exp(learned.log_factor)
        whole = np.maximum(whole, activity.peak_s) if rows.choices.get("activations") == "narrow" else whole
    # Numbers that were fitted to sustained loops already include the effect of the power cap.
    settled = key.endswith(SUSTAINED)
    spread = None if learned is None else learned.spread
    return in_context(p, rows, whole, activity, bound, settled=settled, spread=spread)


def own_numbers(p: Parameters, rows: Rows) -> dict[str, SourcedValue]:
    """Return the numbers that rows like these read, under the key of their own format and clock.

    A calibration changes only these, so that measurements of one format do not affect another format that used it.
    """
    dtype, clock = rows.choices["dtype"], rows.choices["clock"]
    fitted_constants(p, dtype, number_key(p, dtype, clock))
    own = dtype + (SUSTAINED if clock == "sustained" else "")
    return {f"{path.partition('.')[0]}.{own}": value for path, value in p.used.items() if path.startswith("gemm_")}


def coordinates(p: Parameters, rows: Rows) -> FloatArray:
    """Return the coordinates for a residual (n x 5), in logarithms: sizes, time over floor, arithmetic over traffic."""
    rows = replace(rows, choices={**rows.choices, "activations": "wide"})
    dtype = rows.choices["dtype"]
    x = fitted_constants(p, dtype, number_key(p, dtype, rows.choices["clock"]))
    whole, compute, memory = formula_s(rows, x)
    n = rows.numbers
    m, columns, k = np.broadcast_arrays(n["m"] * n["batch"], n["n"], n["k"])
    balance = np.log((x.floor_s + compute) / (x.floor_s + memory)) / 1.5
    parts = [np.log2(m) / 3.0, np.log2(columns) / 2.0, np.log2(k) / 2.0, np.log(whole / x.floor_s) / 1.5, balance]
    return np.stack(parts, 1)
