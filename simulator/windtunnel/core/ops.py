"""The registry of operations: their columns, their work, and how requests combine in a batch.

An operation is one class. `windtunnel ops` prints this registry; `predict`, scenarios, calibration and
the engines read it. The cost of an operation on a kind of device is a function of that kind
(`windtunnel_models.kinds`). A kind without a cost function does not run the operation.
"""

from __future__ import annotations

import numpy as np

from windtunnel.core.operation import (
    BYTES_PER_ELEMENT,
    CONTEXT,
    CONTEXT_DOC,
    DTYPES,
    OPERATIONS,
    WEIGHT_ONLY,
    Choices,
    Column,
    FloatArray,
    Numbers,
    Operation,
    Rows,
    arithmetic,
    choice,
    count,
    one_row,
    operation,
    real,
)
from windtunnel.core.serving_ops import (
    IMPLEMENTATIONS,
    AllGather,
    AllReduce,
    AllToAll,
    Collective,
    LatentAttention,
    Moe,
    ReduceScatter,
    SendRecv,
)

__all__ = [
    "BYTES_PER_ELEMENT",
    "CODECS",
    "CONTEXT",
    "CONTEXT_DOC",
    "DISTRIBUTIONS",
    "DTYPES",
    "ELEMENTWISE_OPS",
    "IMPLEMENTATIONS",
    "OPERATIONS",
    "WEIGHT_ONLY",
    "Aes",
    "AllGather",
    "AllReduce",
    "AllToAll",
    "Attention",
    "Choices",
    "Collective",
    "Column",
    "Compress",
    "Copy",
    "Decompress",
    "Elementwise",
    "Fft",
    "FloatArray",
    "Gemm",
    "Kernel",
    "LatentAttention",
    "Launch",
    "Moe",
    "Numbers",
    "Operation",
    "Packets",
    "Rdma",
    "ReduceScatter",
    "Rows",
    "SendRecv",
    "Service",
    "Sign",
    "Stencil",
    "Storage",
    "VectorAdd",
    "arithmetic",
    "choice",
    "count",
    "one_row",
    "operation",
    "real",
]


@operation
class Gemm(Operation):
    """General matrix multiplication C[m,n] = A[m,k] @ B[k,n], ``batch`` times; 2 m n k operations each.

    ``mxfp4`` and ``int4`` are formats of B alone.
    """

    name = "gemm"
    columns = (
        count("m"),
        count("n"),
        count("k"),
        choice("dtype", (*DTYPES, *WEIGHT_ONLY)),
        count("batch", 1),
        choice(
            "activations",
            ("wide", "narrow"),
            "wide",
            doc="in formats below 16 bits: A is converted by a kernel of its own before the product, or already there",
        ),
    )
    sums = ("m",)

    @classmethod
    def flops(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the number of multiplications plus additions."""
        return 2.0 * n["m"] * n["n"] * n["k"] * n["batch"]

    @classmethod
    def operand_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the bytes of A, B and C, each once. Results of 8-bit and narrower types are written in 16 bits."""
        weight = BYTES_PER_ELEMENT[choices["dtype"]]
        size = BYTES_PER_ELEMENT[arithmetic(choices["dtype"])]
        out = size if size >= 2 else 2.0
        return n["batch"] * (n["m"] * n["k"] * size + n["k"] * n["n"] * weight + n["m"] * n["n"] * out)


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
