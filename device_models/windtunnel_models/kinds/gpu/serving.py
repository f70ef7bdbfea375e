"""Experts and latent attention on a GPU: which kernels a device runs, their numbers, and the residual.

``expert_formula`` and ``latent_formula`` have the times. A family of kernels is a library and a format; the numbers of
each are fitted on the devices that run it (benchmarks/accuracy/experts.py and latent_attention.py). A device without
measurements takes those of a relative. Unless that has the same die, the attained shares of peak and bandwidth are
scaled by what products (``gemm_efficiency``, ``gemm_memory_efficiency``) attain on both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.core.device import Arrays, Parameters, RawCost, StrArray
from windtunnel.core.ops import BYTES_PER_ELEMENT, WEIGHT_ONLY, FloatArray, Rows, arithmetic
from windtunnel.core.provenance import Provenance
from windtunnel.core.spec import Parameter
from windtunnel_models.kinds._routing import geometry
from windtunnel_models.kinds.gpu import expert_formula, latent_formula
from windtunnel_models.kinds.gpu.fused import ANY, NumberTable, Sheet, bound_of, parameters, take, weight_only
from windtunnel_models.kinds.gpu.kernel import in_context, need_type, vector_rate
from windtunnel_models.kinds.gpu.local_residual import LocalResidual, flat
from windtunnel_models.kinds.gpu.power import Activity, tiles_over_units

EXPERT_FAMILIES = (
    "triton_bfloat16",
    "triton_fp8",
    "cutlass_bfloat16",
    "cutlass_fp8",
    "cutlass_fp8_block",
    "cutlass_nvfp4",
    "trtllm_bfloat16",
    "trtllm_fp8",
    "trtllm_fp8_block",
    "trtllm_nvfp4",
)
LATENT_FAMILIES = ("decode_bfloat16", "decode_fp8", "prefill_bfloat16", "prefill_fp8")

GEMM_SHARES = {"efficiency": "efficiency", "bandwidth": "memory_efficiency"}
"""The numbers that follow what products attain on another device, and the number of products."""

_UNMEASURED = 1.5
"""Factor on the interval of formats that no measurement covers."""


def _numbers(prefix: str, families: tuple[str, ...], numbers: NumberTable) -> list[Parameter]:
    out = [*parameters(prefix, families, numbers, "before any measurement: what the parts of such kernels suggest")]
    for share in GEMM_SHARES.values():
        doc = f"gemm_{share} of 16-bit products on the device on which the other numbers were fitted"
        out.append(Parameter(f"{prefix}_gemm_{share}", "1", doc, keys=families, fitted=True))
    return out


PARAMETERS = (
    *_numbers("moe", EXPERT_FAMILIES, expert_formula.NUMBERS),
    *_numbers("latent", LATENT_FAMILIES, latent_formula.NUMBERS),
    weight_only("moe_weight_only", "time of reading narrow weights over that of as many bytes of 16-bit ones"),
)

DESIGNS = ("hopper", "blackwell", "other")


def design(p: Parameters) -> str:
    """Return which kernels serving engines use: those of Hopper, of server GPUs of Blackwell, or portable ones."""
    if p.vendor == "NVIDIA" and p.lineage.architecture == "Hopper":
        return "hopper"
    return "blackwell" if p.lineage.architecture == "Blackwell" and p.lineage.stacked_memory else "other"


def expert_families(design_: str, rows: Rows) -> StrArray:
    """Return the family of kernels of each of flat rows, as vLLM 0.24 selected them where they were measured.

    Hopper: Triton for 16-bit weights and for block-scaled fp8 without expert parallelism, else CUTLASS. Blackwell:
    TensorRT-LLM's kernels; CUTLASS for four experts a token (one of the measured models). Others: Triton, and CUTLASS
    for nvfp4, which Triton does not have. ``mxfp4`` was not measured: units of Blackwell multiply it with 8-bit
    activations, in TensorRT-LLM's kernels, and others unpack it.
    """
    dtype = rows.choices["dtype"]
    base = arithmetic(dtype)
    n = rows.numbers
    count = len(n["tokens"])
    if design_ == "hopper" and dtype == "fp8_block":
        return np.where(n["expert"] == 1.0, "triton_fp8", "cutlass_fp8_block")
    if design_ == "hopper" and dtype == "fp8":
        return np.full(count, "cutlass_fp8")
    if design_ == "blackwell" and dtype == "mxfp4":
        return np.full(count, "trtllm_fp8")
    if design_ == "blackwell":
        four = (n["experts_per_token"] == 4.0) & (base in ("bfloat16", "nvfp4"))
        return np.where(four, f"cutlass_{base}", f"trtllm_{base}")
    return np.full(count, {"bfloat16": "triton_bfloat16", "nvfp4": "cutlass_nvfp4"}.get(base, "triton_fp8"))


_INSTEAD = {
    "triton_bfloat16": ("trtllm_bfloat16",),
    "triton_fp8": ("trtllm_fp8_block", "trtllm_fp8"),
    "cutlass_bfloat16": ("trtllm_bfloat16", "triton_bfloat16"),
    "cutlass_nvfp4": ("trtllm_nvfp4",),
    "cutlass_fp8": ("trtllm_fp8", "triton_fp8"),
    "cutlass_fp8_block": ("triton_fp8", "trtllm_fp8_block"),
    "trtllm_bfloat16": ("triton_bfloat16",),
    "trtllm_fp8": ("triton_fp8",),
    "trtllm_fp8_block": ("triton_fp8",),
    "trtllm_nvfp4": ("trtllm_fp8", "triton_fp8"),
}
"""The families whose numbers stand in where neither the device nor a relative ran a family, the nearest first."""


def _read(p: Parameters, prefix: str, names: Sequence[str], keys: Sequence[str]) -> dict[str, float]:
    """Return the numbers under the first key that the device has, shares scaled to it unless its own die was fitted."""
    key = next((k for k in keys if p.get(f"{prefix}_{names[0]}", k) is not None), ANY)
    x = {name: p(f"{prefix}_{name}", key) for name in names}
    carried = key != ANY and p.used[f"{prefix}_efficiency.{key}"].provenance is Provenance.ASSUMED
    if carried:
        for name, share in GEMM_SHARES.items():
            reference = p.get(f"{prefix}_gemm_{share}", key)
            own = p.get(f"gemm_{share}", "bfloat16") or p.get(f"gemm_{share}", ANY)
            if reference and own:
                x[name] = min(x[name] * own / reference, 1.0)
        if "unit_bytes_per_clock" in x:
            # What a unit keeps in flight is designed for the bandwidth of its own die, so only that limits another one.
            x["unit_bytes_per_clock"] = p("memory_bandwidth_bytes_per_s") / (p("compute_units") * p("boost_clock_hz"))
    return x


def _peak(p: Parameters, dtype: str) -> float:
    """Return the peak of the units that multiply ``dtype`` (FLOP/s); raises UnsupportedOperationError if none does."""
    need_type(p, dtype)
    key = "fp8" if dtype == "fp8_block" else dtype
    peak = p.get("matrix_flops_per_s", key) if p.feature("matrix") else None
    if peak is not None:
        return peak
    if p.get("vector_flops_per_s", key) is None:
        raise p.unsupported(
            f"does not run products in {dtype} through {p.api}: neither matrix nor vector units that the API reaches "
            "have a stated rate in it"
        )
    return vector_rate(p, key)


def moe(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of a rank's experts: the formula of its family, the residual, and the context.

    ``cache`` has no effect: the weights of the experts exceed the cache in all models.
    """
    dtype = rows.choices["dtype"]
    multiplied = "fp8" if dtype == "mxfp4" and design(p) == "blackwell" else arithmetic(dtype)
    for column in ("expert", "tensor"):
        whole = rows.numbers["experts" if column == "expert" else "expert_width"] % rows.numbers[column] == 0.0
        if not np.all(whole):
            of = "experts" if column == "expert" else "the expert_width"
            raise p.unsupported(f"cannot divide {of} by '{column}' without a rest", expected="a divisor")
    if np.any(rows.numbers["experts_per_token"] > rows.numbers["experts"]):
        raise p.unsupported(
            "cannot choose more experts for a token than there are", expected="experts_per_token <= experts"
        )
    peak = _peak(p, multiplied)
    sheet = expert_formula.Sheet(p("compute_units"), p("memory_bandwidth_bytes_per_s"), peak, p("boost_clock_hz"))
    factor = p("moe_weight_only", dtype) if dtype in WEIGHT_ONLY else 1.0
    all_rows = flat(rows)
    families = expert_families(design(p), all_rows)
    size = BYTES_PER_ELEMENT[dtype]
    g = geometry(all_rows, size)
    total, reading, multiplying = np.empty((3, len(families)))
    for family in np.unique(families).tolist():
        index = np.flatnonzero(families == family)
        x = _read(p, "moe", tuple(expert_formula.NUMBERS), (family, *_INSTEAD[family]))
        some = take(g, index)
        read_s, multiply_s, _ = expert_formula.parts(some, sheet, x)
        total[index] = expert_formula.total_s(some, sheet, x, factor)
        reading[index], multiplying[index] = read_s * factor, multiply_s
    values = g.matrices * g.width * g.slice
    weights, flops = g.hit * values * size, 2.0 * g.own * values
    moved = weights + g.own * (2.0 * g.width + g.matrices * g.slice) * 2.0
    least = np.maximum(weights / sheet.bandwidth, flops / peak)
    # The first products of an expert are wider than the last one; their columns are those of its slice.
    filled = tiles_over_units(p, g.own / np.maximum(g.hit, 1.0), (g.matrices - 1.0) * g.slice, g.hit)
    activity = Activity(flops / peak, moved, units=multiplied, filled=filled)
    return _finished(p, rows, (total, reading, multiplying), least, activity)


def latent_attention(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of latent attention: the formula of its phase and format, the residual, and the context.

    8-bit keys are measured with 16-bit queries, whose kernels convert them, so shares are of the 16-bit peak.
    """
    choices = rows.choices
    need_type(p, choices["dtype"])
    need_type(p, choices["kv_dtype"])
    peak = _peak(p, "float16" if choices["dtype"] == "float16" else "bfloat16")
    sheet = Sheet(p("compute_units"), p("memory_bandwidth_bytes_per_s"), peak)
    all_rows = flat(rows)
    name = latent_family(rows)
    x = _read(p, "latent", tuple(latent_formula.NUMBERS), (name, name.replace("fp8", "bfloat16")))
    reading, multiplying, _ = latent_formula.parts(choices, all_rows.numbers, sheet, x)
    total = latent_formula.total_s(choices, all_rows.numbers, sheet, x)
    flops = rows.op.flops(choices, all_rows.numbers)
    moved = rows.op.operand_bytes(choices, all_rows.numbers)
    fastest = _peak(p, "fp8") if "fp8" in (choices["dtype"], choices["kv_dtype"]) and p.feature("fp8") else peak
    size = BYTES_PER_ELEMENT[choices["kv_dtype"]]
    n = all_rows.numbers
    cached = n["batch"] * n["kv_tokens"] * (n["kv_rank"] + n["rope_dim"]) * size
    least = np.maximum(cached / sheet.bandwidth, flops / fastest)
    # Blocks of 64 rows of queries, and parts of at least 256 keys, as such kernels divide their work.
    queries = n["heads"] * (n["query_tokens"] if choices["phase"] == "decode" else n["kv_tokens"])
    parts = np.ceil(n["kv_tokens"] / 256.0) if choices["phase"] == "decode" else 1.0
    filled = n["batch"] * np.ceil(queries / 64.0) * parts / p("compute_units")
    activity = Activity(flops / peak, moved, units=choices["dtype"], filled=filled)
    return _finished(p, rows, (total, reading, multiplying), least, activity)


def _finished(
    p: Parameters, rows: Rows, times: tuple[FloatArray, FloatArray, FloatArray], least: FloatArray, activity: Activity
) -> RawCost:
    """Return the cost: the formula's time and the residual, not below the datasheet's limits, in its context."""
    shape = rows.shape
    total, reading, multiplying, least = (part_.reshape(shape) for part_ in (*times, least))
    bound = bound_of(total, reading, multiplying)
    learned = p.correction(rows)
    if learned is not None:
        total = total * np.exp(learned.log_factor)
    total = np.maximum(total, least)
    spread = None if learned is None else learned.spread
    parts = (activity.peak_s, activity.moved_bytes, activity.filled)
    peak_s, moved, filled = (np.asarray(part_).reshape(shape) for part_ in parts)
    activity = Activity(peak_s, moved, units=activity.units, filled=filled)
    return in_context(p, rows, total, activity, bound, spread=spread)


EXPERT_SCALE = np.array([1.5, 0.5, 0.7, 0.15, 0.4])
"""Of the features of experts: where these are smaller, what was measured says more of other shapes."""


def place_experts(rows: Rows) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the positions of flat rows of experts for a residual, their regions and factors on the intervals.

    The time of a skewed load on several ranks, region 1, depends on which rank is the slowest in one draw.
    """
    g = geometry(rows, BYTES_PER_ELEMENT[rows.choices["dtype"]])
    region = ((rows.numbers["skew"] > 0.0) & (rows.numbers["expert"] > 1.0)).astype(int)
    wider = np.full(len(region), _UNMEASURED if rows.choices["dtype"] in WEIGHT_ONLY else 1.0)
    return expert_formula.features(g) * EXPERT_SCALE, region, wider


def latent_family(rows: Rows) -> str:
    """Return the family of rows of latent attention: the phase and the format of the cache."""
    return f"{rows.choices['phase']}_{'fp8' if rows.choices['kv_dtype'] == 'fp8' else 'bfloat16'}"


def place_latent(rows: Rows) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the positions of flat rows of latent attention; region 1 are heads between the measured 16 and 128."""
    n = rows.numbers
    region = ((n["heads"] != 16.0) & (n["heads"] != 128.0)).astype(int)
    measured = rows.choices["dtype"] != "fp8"
    return latent_formula.features(rows), region, np.full(len(region), 1.0 if measured else _UNMEASURED)


class LearnedExperts(LocalResidual):
    """The residual of experts; ``design`` (an index of ``DESIGNS``) says which kernels the measured device runs."""

    def __init__(self, arrays: Arrays) -> None:
        of = DESIGNS[int(arrays["design"])]
        super().__init__(arrays, lambda rows: expert_families(of, rows), place_experts)


class LearnedLatent(LocalResidual):
    """The residual of latent attention."""

    def __init__(self, arrays: Arrays) -> None:
        super().__init__(arrays, lambda rows: np.full(len(rows.numbers["batch"]), latent_family(rows)), place_latent)
