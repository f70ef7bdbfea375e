"""The registry of operations: their columns, their work, and how requests combine in a batch.

An operation is one class. `windtunnel ops` prints this registry; `predict`, scenarios, calibration and
the engines read it. The cost of an operation on a kind of device is a function of that kind
(`windtunnel_models.kinds`). A kind without a cost function does not run the operation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from windtunnel.core.errors import InputError, list_choices, nearest
from windtunnel.core.registry import Registry
from windtunnel.core.units import is_dimensionless, parse_quantity

FloatArray = npt.NDArray[np.float64]
Numbers = Mapping[str, FloatArray]
Choices = Mapping[str, str]

DTYPES = ("float32", "tf32", "float16", "bfloat16", "fp8", "fp8_block", "nvfp4", "int8")
BYTES_PER_ELEMENT: Mapping[str, float] = {
    "float64": 8.0,
    "float32": 4.0,
    "tf32": 4.0,
    "float16": 2.0,
    "bfloat16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0 + 4.0 / 128**2,  # one float32 scale for each 128x128 block of weights
    "nvfp4": 0.5 + 1.0 / 16,  # one fp8 scale for every 16 elements
    "int8": 1.0,
    "mxfp4": 0.5 + 1.0 / 32,  # one 8-bit exponent for every 32 elements
    "int4": 0.5 + 2.0 / 128,  # one 16-bit scale for every 128 elements
}
"""Storage of one element in bytes, including scales."""

CONTEXT_DOC = "the context of the measurement, which a comparison of two times requires"


@dataclass(frozen=True)
class Column:
    """One column of an operation.

    ``kind`` is ``count`` (a whole number), ``real``, or ``choice``. Counts and reals are plain numbers in ``unit``
    (in tables), or text with a unit (in scenarios and on the command line).
    """

    name: str
    kind: Literal["count", "real", "choice"]
    unit: str = "1"
    default: float | str | None = None
    choices: tuple[str, ...] = ()
    minimum: float = 1.0
    maximum: float = 2.0**53
    doc: str = ""

    def parse(self, value: object) -> float | str:
        """Return the value of this column that a scenario, the command line or a cell of a table states.

        Raises:
            InputError: The value is not valid; it states what was expected and the nearest right name.
        """
        if self.kind == "choice":
            text = str(value)
            if text not in self.choices:
                raise InputError(
                    f"'{text}' is not a valid {self.name}",
                    expected=list_choices(self.choices),
                    nearest=nearest(text, self.choices),
                )
            return text
        number = self._number(value)
        if not np.isfinite(number) or number < self.minimum:
            raise InputError(f"{self.name} is {value}", expected=f"at least {self.minimum:g}{self._suffix}")
        if number > self.maximum:
            raise InputError(f"{self.name} is {value}", expected=f"at most {self.maximum:g}{self._suffix}")
        if self.kind == "count":
            # In floating point, 0.268 GB is not exactly a whole number of bytes.
            if abs(number - round(number)) > 1e-9 * number:
                raise InputError(f"{self.name} is {value}", expected="a whole number")
            return float(round(number))
        return number

    @property
    def _suffix(self) -> str:
        return "" if is_dimensionless(self.unit) else f" {self.unit}"

    def _number(self, value: object) -> float:
        if isinstance(value, bool):
            raise InputError(f"{self.name} is {value}", expected="a number")
        if isinstance(value, (int, float, np.integer, np.floating)):
            try:
                return float(value)
            except OverflowError:
                raise InputError(f"{self.name} is too large", expected=f"at most {self.maximum:g}") from None
        text = str(value)
        try:
            return float(text)
        except ValueError:
            if is_dimensionless(self.unit):
                raise InputError(f"{self.name} is '{text}'", expected="a number") from None
            return parse_quantity(text, self.unit)


def count(name: str, default: int | None = None, *, unit: str = "1", doc: str = "") -> Column:
    """Return a whole-number column whose values are at least 1."""
    return Column(name, "count", unit, default, doc=doc)


def real(name: str, default: float | None = None, *, unit: str, minimum: float = 0.0, doc: str = "") -> Column:
    """Return a real-number column in ``unit``."""
    return Column(name, "real", unit, default, minimum=minimum, doc=doc)


def choice(name: str, choices: Sequence[str], default: str | None = None, *, doc: str = "") -> Column:
    """Return a column whose values are ``choices``."""
    return Column(name, "choice", default=default, choices=tuple(choices), doc=doc)


CONTEXT = (
    choice(
        "dispatch",
        ("device", "graph", "eager"),
        "device",
        doc="device time only; replayed in a graph; launched one by one",
    ),
    choice(
        "clock", ("burst", "sustained"), "burst", doc="a short run at the boost clock; a long loop at the power limit"
    ),
    choice("cache", ("cold", "warm"), "cold", doc="operands in device memory; operands in the last-level cache"),
)
"""Further columns of every operation that runs on hardware."""


class Operation:
    """Base of all operations. Subclasses define ``name``, ``columns`` and device-independent work."""

    name: ClassVar[str]
    columns: ClassVar[tuple[Column, ...]]
    sums: ClassVar[tuple[str, ...]] = ()
    """Columns that are summed over the requests of a batch. Without any, requests are executed one after another."""
    hardware: ClassVar[bool] = True
    """False for an operation with a stated time (``service``), which has no context."""
    launched: ClassVar[bool] = True
    """False for an operation without a launch beside its own time: ``service``, ``copy`` and ``launch`` itself."""

    @classmethod
    def all_columns(cls) -> tuple[Column, ...]:
        """Return the operation's own columns, then those of its context."""
        return cls.columns + (CONTEXT if cls.hardware else ())

    @classmethod
    def column(cls, name: str) -> Column:
        """Return the column ``name``; raises InputError with the nearest right name."""
        columns = {column.name: column for column in cls.all_columns()}
        try:
            return columns[name]
        except KeyError:
            raise InputError(
                f"'{name}' is not a column of {cls.name}",
                expected=list_choices(columns, 20),
                nearest=nearest(name, columns),
            ) from None

    @classmethod
    def complete(cls, values: Mapping[str, object]) -> dict[str, float | str]:
        """Return the checked ``values`` with defaults for missing columns.

        Raises:
            InputError: A column is unknown or missing, or its value is not valid.
        """
        parsed = {name: cls.column(name).parse(value) for name, value in values.items()}
        for column in cls.all_columns():
            if column.name not in parsed:
                if column.default is None:
                    raise InputError(
                        f"{cls.name} needs '{column.name}'",
                        expected=", ".join(_column_text(column) for column in cls.columns),
                    )
                parsed[column.name] = column.default
        return parsed

    @classmethod
    def flops(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the number of arithmetic operations, by the usual count; 0 for operations that are not counted so."""
        return np.zeros(())

    @classmethod
    def operand_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the bytes of all operands, each read or written once; 0 for data that only passes through."""
        return np.zeros(())

    @classmethod
    def footprint_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the device memory (bytes) that the operands take together."""
        return cls.operand_bytes(choices, n)


def _column_text(column: Column) -> str:
    if column.default is not None:
        return f"{column.name}={column.default}"
    return f"{column.name} ({'|'.join(column.choices)})" if column.choices else column.name


OPERATIONS: Registry[type[Operation]] = Registry("operation")


def operation(cls: type[Operation]) -> type[Operation]:
    """Register an operation under its name (class decorator)."""
    return OPERATIONS.add(cls.name, cls)


@dataclass(frozen=True)
class Rows:
    """Instances of one operation with the same choices: the argument of a cost function.

    ``choices``: the value of each choice column, including the context. ``numbers``: a float64 array for each other
    column, all of one shape.
    """

    op: type[Operation]
    choices: Choices
    numbers: Numbers

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the common shape of the number columns."""
        return np.broadcast_shapes(*(np.shape(values) for values in self.numbers.values()))

    def footprint_bytes(self) -> FloatArray:
        """Return the device memory (bytes) of each instance."""
        return np.broadcast_to(self.op.footprint_bytes(self.choices, self.numbers), self.shape)


def one_row(op: type[Operation], values: Mapping[str, object]) -> Rows:
    """Return a single instance of ``op`` from plain values, checked and completed with defaults."""
    parsed = op.complete(values)
    return Rows(
        op,
        {key: value for key, value in parsed.items() if isinstance(value, str)},
        {key: np.array([value]) for key, value in parsed.items() if not isinstance(value, str)},
    )


@operation
class Gemm(Operation):
    """General matrix multiplication C[m,n] = A[m,k] @ B[k,n], ``batch`` times; 2 m n k operations each."""

    name = "gemm"
    columns = (count("m"), count("n"), count("k"), choice("dtype", DTYPES), count("batch", 1))
    sums = ("m",)

    @classmethod
    def flops(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the number of multiplications plus additions."""
        return 2.0 * n["m"] * n["n"] * n["k"] * n["batch"]

    @classmethod
    def operand_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the bytes of A, B and C, each once. Results of 8-bit and narrower types are written in 16 bits."""
        size = BYTES_PER_ELEMENT[choices["dtype"]]
        out = size if size >= 2 else 2.0
        return n["batch"] * ((n["m"] * n["k"] + n["k"] * n["n"]) * size + n["m"] * n["n"] * out)


@operation
class Attention(Operation):
    """Fused scaled dot-product attention: prefill (causal, ``kv_tokens`` queries) or decode (one query)."""

    name = "attention"
    columns = (
        choice("phase", ("prefill", "decode")),
        count("batch"),
        count("heads"),
        count("kv_heads"),
        count("head_dim"),
        count("kv_tokens"),
        choice("dtype", ("float32", "float16", "bfloat16", "fp8"), "bfloat16"),
        choice("kv_dtype", ("float32", "float16", "bfloat16", "fp8", "int8"), "bfloat16"),
    )
    sums = ("batch",)

    @classmethod
    def flops(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the operations of QK^T and PV: 4 head_dim for each score; causal prefill has kv_tokens²/2 scores."""
        scores = n["kv_tokens"] * (n["kv_tokens"] + 1) / 2 if choices["phase"] == "prefill" else n["kv_tokens"]
        return 4.0 * n["batch"] * n["heads"] * n["head_dim"] * scores

    @classmethod
    def operand_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the bytes of queries, outputs, keys and values, each once."""
        queries = n["kv_tokens"] if choices["phase"] == "prefill" else 1.0
        size, kv_size = BYTES_PER_ELEMENT[choices["dtype"]], BYTES_PER_ELEMENT[choices["kv_dtype"]]
        q_and_o = 2.0 * queries * n["heads"] * n["head_dim"] * size
        k_and_v = 2.0 * n["kv_tokens"] * n["kv_heads"] * n["head_dim"] * kv_size
        return n["batch"] * (q_and_o + k_and_v)


@operation
class Moe(Operation):
    """The gated experts of a mixture-of-experts layer on its slowest rank, without routing and exchange.

    ``tokens`` enter the layer, of all ranks of ``expert`` together, before routing. ``experts`` is the model's number,
    before division. ``skew`` is the exponent of the power law of the experts' popularity.
    """

    name = "moe"
    columns = (
        count("tokens"),
        count("width"),
        count("expert_width"),
        count("experts"),
        count("experts_per_token"),
        choice("dtype", ("bfloat16", "fp8", "fp8_block", "nvfp4", "mxfp4", "int4"), "bfloat16"),
        count("tensor", 1),
        count("expert", 1),
        real("skew", 0.0, unit="1", doc="exponent of the power law of the experts' popularity; 0 is balanced"),
    )
    sums = ("tokens",)

    @classmethod
    def flops(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the multiplications plus additions of one of ``tensor`` x ``expert`` ranks with an equal share."""
        ranks = n["tensor"] * n["expert"]
        return 6.0 * n["tokens"] * n["experts_per_token"] * n["width"] * n["expert_width"] / ranks

    @classmethod
    def distinct_experts(cls, n: Numbers) -> FloatArray:
        """Return the expected number of a rank's experts that any token of a balanced router selects.

        Each token selects ``experts_per_token`` of ``experts`` without repetition, so one expert is missed by all
        tokens with the probability (1 - experts_per_token / experts)^tokens.
        """
        share = np.minimum(n["experts_per_token"] / n["experts"], 1.0)
        missed = np.exp(n["tokens"] * np.log1p(-np.minimum(share, 1.0 - 1e-12)))
        return n["experts"] / n["expert"] * (1.0 - missed)

    @classmethod
    def operand_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the bytes of the weights of the experts that are used, and of the tokens' inputs and outputs."""
        size = BYTES_PER_ELEMENT[choices["dtype"]]
        weights = 3.0 * n["width"] * n["expert_width"] / n["tensor"] * cls.distinct_experts(n) * size
        sent = n["tokens"] * n["experts_per_token"] / n["expert"]
        return weights + sent * (2.0 * n["width"] + 3.0 * n["expert_width"] / n["tensor"]) * 2.0

    @classmethod
    def footprint_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the memory (bytes) of all weights of a rank's experts, and of the tokens."""
        size = BYTES_PER_ELEMENT[choices["dtype"]]
        weights = 3.0 * n["width"] * n["expert_width"] * n["experts"] / (n["expert"] * n["tensor"]) * size
        return weights + 4.0 * n["tokens"] * n["width"]


@operation
class LatentAttention(Operation):
    """Multi-head latent attention in absorbed form (decode), or with expanded keys and values (prefill).

    ``heads`` are those of one rank. ``kv_rank`` + ``rope_dim`` values of each token are cached. In decode each sequence
    has ``query_tokens`` queries; in prefill it has ``kv_tokens`` queries, and the attention is causal.
    """

    name = "latent_attention"
    columns = (
        choice("phase", ("prefill", "decode")),
        count("batch"),
        count("heads"),
        count("kv_tokens"),
        count("kv_rank", 512),
        count("rope_dim", 64),
        count("query_tokens", 1),
        choice("dtype", ("float16", "bfloat16", "fp8"), "bfloat16"),
        choice("kv_dtype", ("float16", "bfloat16", "fp8"), "bfloat16"),
    )
    sums = ("batch",)

    HEAD_VALUES = 128
    """Values of a head without a position, of a key and of a value, once expanded (DeepSeek-V2 and later)."""

    @classmethod
    def flops(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the operations of both products for each score: with the latent, or with expanded keys and values."""
        if choices["phase"] == "prefill":
            scores = n["kv_tokens"] * (n["kv_tokens"] + 1) / 2
            each = 2.0 * (2.0 * cls.HEAD_VALUES + n["rope_dim"])
        else:
            scores = n["query_tokens"] * n["kv_tokens"]
            each = 2.0 * (2.0 * n["kv_rank"] + n["rope_dim"])
        return n["batch"] * n["heads"] * scores * each

    @classmethod
    def operand_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the bytes of queries, outputs, and of the cached values or the expanded keys and values, each once."""
        size, kv_size = BYTES_PER_ELEMENT[choices["dtype"]], BYTES_PER_ELEMENT[choices["kv_dtype"]]
        if choices["phase"] == "prefill":
            head = 4.0 * cls.HEAD_VALUES + 2.0 * n["rope_dim"]
            return n["batch"] * n["kv_tokens"] * n["heads"] * head * size
        latent = n["kv_rank"] + n["rope_dim"]
        queries = n["query_tokens"] * n["heads"] * (latent + n["kv_rank"]) * size
        return n["batch"] * (n["kv_tokens"] * latent * kv_size + queries)


ELEMENTWISE_OPS = ("add", "addu", "mul", "mulu", "div", "divu", "pow", "powu", "relu", "gelu", "tanh", "softmax", "ln")
_TWO_OPERANDS = frozenset({"add", "mul", "div", "pow"})


@operation
class Elementwise(Operation):
    """An elementwise operation on a ``rows`` x ``width`` array: arithmetic, activations, softmax, layer norm.

    Arithmetic has two array operands, or one if the name of the operation ends in u.
    """

    name = "elementwise"
    columns = (
        choice("op", ELEMENTWISE_OPS),
        count("rows"),
        count("width"),
        choice("dtype", ("float32", "float16", "bfloat16"), "float32"),
    )
    sums = ("rows",)

    @classmethod
    def flops(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the number of arithmetic operations, by the usual count; 0 for operations that are not counted so."""
        return np.zeros(())

    @classmethod
    def operand_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the bytes of all operands, read once, and of the result, written once."""
        arrays = 3.0 if choices["op"] in _TWO_OPERANDS else 2.0
        return arrays * n["rows"] * n["width"] * BYTES_PER_ELEMENT[choices["dtype"]]


@operation
class VectorAdd(Operation):
    """c = a + b for ``n`` elements in device memory."""

    name = "vector_add"
    columns = (count("n"), choice("dtype", ("float32", "float16", "bfloat16", "int8"), "float32"))
    sums = ("n",)

    @classmethod
    def operand_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the bytes of two reads and a write of each element."""
        return 3.0 * n["n"] * BYTES_PER_ELEMENT[choices["dtype"]]


@operation
class Kernel(Operation):
    """A kernel given by its work: ``bytes`` to and from memory and ``flops`` in ``dtype`` by ``threads``."""

    name = "kernel"
    columns = (
        count("threads"),
        count("bytes", unit="B"),
        real("flops", 0.0, unit="FLOP"),
        choice("dtype", ("float32", "float16", "bfloat16", "int8"), "float32"),
    )
    sums = ("threads", "bytes", "flops")

    @classmethod
    def flops(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the column ``flops``."""
        return n["flops"]

    @classmethod
    def footprint_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the memory (bytes) of the operands."""
        return n["bytes"]


@operation
class Stencil(Operation):
    """One step of a 7-point (3D) or 5-point (2D, nz=1) stencil: eight operations, one read and one write per cell."""

    name = "stencil"
    columns = (count("nx"), count("ny"), count("nz", 1), choice("dtype", ("float32", "float16", "bfloat16"), "float32"))
    sums = ("nz",)

    @classmethod
    def cells(cls, n: Numbers) -> FloatArray:
        """Return the number of cells that one step updates."""
        return n["nx"] * n["ny"] * n["nz"]

    @classmethod
    def operand_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the bytes of one read and one write per cell; neighbours come from the cache."""
        return 2.0 * cls.cells(n) * BYTES_PER_ELEMENT[choices["dtype"]]


@operation
class Fft(Operation):
    """``batch`` complex FFTs of ``n`` points; 5 n log2 n operations each (the usual count)."""

    name = "fft"
    columns = (count("n"), count("batch", 1), choice("dtype", ("float32", "float16"), "float32"))
    sums = ("batch",)

    @classmethod
    def flops(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return 5 n log2 n operations for each FFT."""
        return 5.0 * n["n"] * np.log2(np.maximum(n["n"], 2.0)) * n["batch"]

    @classmethod
    def operand_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the bytes of the complex input and output, each once."""
        return 4.0 * n["n"] * n["batch"] * BYTES_PER_ELEMENT[choices["dtype"]]


@operation
class Copy(Operation):
    """A copy of ``bytes`` between host and device, or within the device."""

    name = "copy"
    columns = (
        count("bytes", unit="B"),
        choice("direction", ("h2d", "d2h", "d2d")),
        choice("memory", ("pageable", "pinned", "unified"), "pinned"),
    )
    sums = ("bytes",)
    launched = False

    @classmethod
    def footprint_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the memory (bytes) of the source, and within a device of the destination too."""
        return n["bytes"] * (2.0 if choices["direction"] == "d2d" else 1.0)


@operation
class Launch(Operation):
    """An empty kernel: enqueued on a stream, replayed in a graph, or a command to a persistent kernel."""

    name = "launch"
    columns = (choice("mode", ("stream", "graph", "persistent"), "stream"), count("count", 1))
    sums = ("count",)
    launched = False


IMPLEMENTATIONS = ("nccl", "vllm", "sglang", "trtllm")


class Collective(Operation):
    """Base of the operations between workers; ``bytes`` is the largest buffer of one worker, as nccl-tests count."""

    columns = (
        count("bytes", unit="B"),
        count("workers"),
        count("devices_per_node", 8),
        choice("implementation", ("nccl",), "nccl", doc="the vendor's library"),
        choice("dtype", ("float32", "float16", "bfloat16", "fp8", "int8"), "bfloat16"),
    )
    sums = ("bytes",)

    @classmethod
    def footprint_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the memory (bytes) of the operands."""
        return n["bytes"]


@operation
class AllReduce(Collective):
    """All-reduce: every worker receives the sum of ``bytes`` from each worker."""

    name = "all_reduce"
    columns = tuple(
        choice("implementation", IMPLEMENTATIONS, "nccl", doc="the vendor's library, or a serving engine's own kernels")
        if column.name == "implementation"
        else column
        for column in Collective.columns
    )


@operation
class AllGather(Collective):
    """All-gather: every worker receives the parts of all workers, ``bytes`` together."""

    name = "all_gather"


@operation
class ReduceScatter(Collective):
    """Reduce-scatter: every worker receives its part of the sum over all workers of ``bytes`` each."""

    name = "reduce_scatter"


@operation
class AllToAll(Collective):
    """All-to-all: every worker sends an equal part of its ``bytes`` to each worker."""

    name = "all_to_all"


@operation
class SendRecv(Collective):
    """Sends ``bytes`` from one worker to another."""

    name = "send_recv"


@operation
class Aes(Operation):
    """Encrypt ``bytes`` with AES; ``in_flight`` requests of that size are kept outstanding."""

    name = "aes"
    columns = (
        count("bytes", unit="B"),
        choice("key_bits", ("128", "192", "256"), "256"),
        choice("mode", ("gcm", "ctr", "cbc"), "gcm"),
        count("in_flight", 1),
    )
    sums = ("bytes",)


CODECS = ("deflate", "lz4", "zstd")


@operation
class Compress(Operation):
    """Compress ``bytes``; ``in_flight`` requests of that size are kept outstanding."""

    name = "compress"
    columns = (
        count("bytes", unit="B"),
        choice("codec", CODECS, "deflate"),
        Column("level", "count", default=1, maximum=22, doc="compression level of the codec"),
        count("in_flight", 1),
    )
    sums = ("bytes",)


@operation
class Decompress(Operation):
    """Decompress to ``bytes``; ``in_flight`` requests of that size are kept outstanding."""

    name = "decompress"
    columns = Compress.columns
    sums = ("bytes",)


@operation
class Sign(Operation):
    """``count`` public-key signatures; ``in_flight`` requests are kept outstanding."""

    name = "sign"
    columns = (choice("scheme", ("rsa2048", "ecdsa_p256"), "rsa2048"), count("count", 1), count("in_flight", 1))
    sums = ("count",)


@operation
class Packets(Operation):
    """Forward ``count`` packets of ``bytes`` each (Ethernet frame, without preamble and gap)."""

    name = "packets"
    columns = (count("count"), count("bytes", unit="B"))
    sums = ("count",)


@operation
class Rdma(Operation):
    """``count`` RDMA writes of ``bytes`` each."""

    name = "rdma"
    columns = (count("bytes", unit="B"), count("count", 1))
    sums = ("count",)


@operation
class Storage(Operation):
    """``count`` block reads or writes of ``bytes`` each by a host on a remote volume, as NVMe over Fabrics.

    ``in_flight`` requests are kept outstanding. The time is that of the initiator and the network: it does not contain
    the media of the remote volume.
    """

    name = "storage"
    columns = (
        count("bytes", 4096, unit="B", doc="size of a request"),
        count("count", 1),
        choice("direction", ("read", "write"), "read"),
        count("in_flight", 1),
    )
    sums = ("count",)


DISTRIBUTIONS = ("deterministic", "exponential", "lognormal", "gamma", "weibull")


@operation
class Service(Operation):
    """A stated service time with mean ``mean`` and coefficient of variation ``cv``, for queueing studies.

    ``cv`` applies to lognormal, gamma and weibull; deterministic has 0 and exponential 1 by definition.
    """

    name = "service"
    columns = (
        choice("distribution", DISTRIBUTIONS, "exponential"),
        Column("mean", "real", "s", None, minimum=1e-12, doc="mean service time"),
        real("cv", 1.0, unit="1", doc="standard deviation over mean"),
    )
    hardware = False
    launched = False
