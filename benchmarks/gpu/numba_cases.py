"""Expressions of Numba CUDA kernels, generated for all pairs of types, with edge values: the cases of numba_study.py.

A `Group` is one kernel: inputs of stated types, and cases, each of which computes a variable ``r`` and stores it. Only
Numba and NumPy are needed.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
REAL = ("bool", *INTEGERS, *FLOATS)
COMPLEX = ("complex64", "complex128")
THREADS = 192
"""The threads of a launch, and the elements of each input."""
_EDGES = 12
"""All pairs of as many edge values of two types are computed; the other elements are random."""
IMPORTS = """\
import cmath
import math
import operator
import numpy as np
from numba import (
    bool_, complex64, complex128, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
)
"""
ON_THE_GPU = """\
from numba import cuda
from numba.cuda import libdevice
"""


@dataclass(frozen=True)
class Case:
    """One expression or some statements that assign ``r``."""

    text: str
    undefined: str = ""
    """An expression of the inputs, as NumPy arrays: where it is true, the result is undefined."""
    store: str = "of[{k}, i] = r{k}; oi[{k}, i] = r{k}"
    """How the result is stored. ``{k}`` is the number of the case."""


@dataclass
class Group:
    """A kernel: its inputs ``a``, ``b`` ... and its outputs, each with a row for each case."""

    name: str
    kinds: tuple[str, ...]
    cases: list[Case]
    outs: dict[str, str] = field(default_factory=lambda: {"of": "float64", "oi": "int64"})
    """The dtypes of the outputs. ``t`` begins with the edge values of its type; others with zeros."""
    block: int = 64
    host: bool = True
    """Whether the expressions mean the same to Numba on the host."""
    options: str = ""

    def inputs(self) -> dict[str, np.ndarray]:
        """Return the inputs by name."""
        found, count = {}, THREADS - _EDGES * _EDGES
        for at, (name, kind) in enumerate(zip("abcd", self.kinds, strict=False)):
            edges = values(kind)[:_EDGES]
            random = randoms(kind, count, f"{self.kinds} {at}")
            pairs = np.repeat(edges, _EDGES) if at % 2 == 0 else np.tile(edges, _EDGES)
            found[name] = np.concatenate([pairs, random]).astype(kind)
        return found

    def outputs(self) -> dict[str, np.ndarray]:
        """Return the outputs as they are before the launch."""
        made = {name: np.zeros((len(self.cases), THREADS), kind) for name, kind in self.outs.items()}
        if "t" in made:
            kind = self.outs["t"]
            row = np.concatenate([np.tile(values(kind)[:_EDGES], _EDGES), randoms(kind, THREADS - _EDGES**2, "t")])
            made["t"][:] = row.astype(kind)
        return made

    def source(self, chosen: list[int], side: str) -> str:
        """Return a module with a function ``kernel`` that computes some of the cases. ``side``: gpu or host."""
        names = [*"abcd"[: len(self.kinds)]]
        head = ", ".join([f"{name}_" for name in names] + list(self.outs))
        gpu = side != "host"
        lines = [IMPORTS, ON_THE_GPU if gpu else "from numba import njit", ""]
        lines.append(f"@cuda.jit({self.options})" if gpu else '@njit(error_model="numpy")')
        lines.append(f"def kernel({head}):")
        lines.append("    i = cuda.grid(1)" if gpu else f"    for i in range({THREADS}):")
        indent = "    " if gpu else "        "
        lines += [f"{indent}{name} = {name}_[i]" for name in names]
        for k in chosen:
            case = self.cases[k]
            text = case.text if "\n" in case.text or "{k}" in case.text else f"r{{k}} = {case.text}"
            for line in text.replace("{k}", str(k)).split("\n"):
                lines.append(indent + line)
            lines += [indent + part.strip() for part in case.store.replace("{k}", str(k)).split(";") if part.strip()]
        return "\n".join(lines) + "\n"


def _rng(text: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(text.encode()))


def values(kind: str) -> np.ndarray:
    """Return the edge values of a type, the most important ones first."""
    dtype = np.dtype(kind)
    if dtype.kind == "b":
        return np.array([False, True] * 8)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        few = [0, 1, limits.max, limits.min, 2, 7, 3, limits.max // 2 + 1, limits.max - 1, 31, 5, 64]
        if dtype.kind == "i":
            few = [0, 1, limits.max, limits.min, -1, 7, -7, 3, -2, limits.min + 1, 31, 64]
        return np.array(few, dtype)
    if dtype.kind == "c":
        parts = [0, 1, 1j, -1, 2 - 3j, 0.5 + 0.25j, complex(0, -0.0), complex(np.inf, 1), complex(np.nan, 0), -1e10j]
        return np.array([*parts, 3 + 4j, 1e-20 + 1e20j], dtype)
    few = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.5, 3.7, -1e10, float(np.finfo(dtype).max)]
    return np.array(few, np.float64).astype(dtype)


def randoms(kind: str, count: int, seed: str) -> np.ndarray:
    """Return random values: some small, some of any size."""
    rng, dtype = _rng(f"{kind} {seed}"), np.dtype(kind)
    half = count // 2
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(bool)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        small = rng.integers(0 if dtype.kind == "u" else -40, 40, half, dtype)
        return np.concatenate([small, rng.integers(limits.min, limits.max, count - half, dtype, endpoint=True)])
    if dtype.kind == "c":
        return (rng.normal(0, 3, count) + 1j * rng.normal(0, 3, count)).astype(dtype)
    wide = rng.normal(0, 1, count - half) * 10.0 ** rng.integers(
        -4 if dtype == "f2" else -30, 4 if dtype == "f2" else 30, count - half
    )
    # Halves, on which the rules of rounding differ, and values with a fraction.
    small = np.where(rng.random(half) < 0.4, rng.integers(-9, 9, half) + 0.5, rng.normal(0, 4, half))
    return np.concatenate([small, wide]).astype(dtype)


ZERO = "b == 0"
SHIFT = "(b.astype(object) < 0) | (b.astype(object) > 63)"


def _is_float(kind: str) -> bool:
    return kind.startswith("float")


def _of_pairs(a: str, b: str) -> list[Case]:
    integers = not _is_float(a) and not _is_float(b)
    # Numba's code for the division of the least number by -1 is undefined in LLVM.
    division = f"({ZERO}) | ((b == -1) & (a == -2**63))" if integers else ""
    found = [Case(f"a {op} b") for op in ("+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=")]
    found += [Case("a // b", division), Case("a % b", division)]
    found += [Case(f"divmod(a, b)[{at}]", division) for at in (0, 1)]
    found += [
        Case("a ** b", "(a == 0) & (b < 0)" if integers else ""),
        Case("pow(a, b)", "(a == 0) & (b < 0)" if integers else ""),
    ]
    if integers:
        found += [Case(f"a {op} b") for op in ("&", "|", "^")]
        found += [Case(f"a {op} b", SHIFT) for op in ("<<", ">>")]
    found += [Case("min(a, b)"), Case("max(a, b)"), Case("min(b, a, 3)"), Case("max(a, 2.5, b)")]
    found += [
        Case("a if b else a"),
        Case("a if a > b else b"),
        Case("b and a"),
        Case("a or b"),
        Case("not a and not b"),
    ]
    found += [Case(f"math.{name}(a, b)") for name in ("atan2", "copysign", "fmod", "hypot", "pow", "remainder")]
    found.append(Case("r{k} = a\nif b > 1:\n    r{k} = b"))
    found.append(Case("r{k} = 0\nif b > 1:\n    r{k} = a"))
    found.append(Case("r{k} = a\nr{k} += b\nr{k} *= 2"))
    found.append(Case("s{k} = 0\nfor j{k} in range(3):\n    s{k} += a\n    s{k} -= b\nr{k} = s{k}"))
    found.append(Case(f"{b if b != 'bool' else 'bool_'}(a) + a"))
    return found


def _literals(a: str) -> list[Case]:
    found = []
    for text in ("2", "-3", "3000000000", "0.1", "True", "1e300", "1j"):
        if text == "1j":
            continue
        found += [Case(f"a {op} {text}") for op in ("+", "*", "/", "//", "%", ">", "==")]
        found += [Case(f"{text} {op} a", "a == 0" if op in ("//", "%") else "") for op in ("-", "/", "//", "%")]
    found += [
        Case(f"a ** {power}", "a == 0" if power.startswith("-") else "")
        for power in ("0", "1", "2", "3", "-1", "-2", "0.5", "2.0", "10")
    ]
    found += [
        Case("2 ** a", "(a < 0) | (a > 64)"),
        Case("2.0 ** a"),
        Case("(-3) ** a"),
        Case("a + i"),
        Case("a * i - 1"),
        Case("a / (i + 1)"),
    ]
    if not _is_float(a):
        found += [Case(f"a {op} {n}") for op in ("<<", ">>") for n in ("0", "1", "7", "40")]
        found += [Case(f"a {op} {n}") for op in ("&", "|", "^") for n in ("255", "-2", "4000000000")]
        found += [Case("1 << (a & 31)"), Case("i << (a & 7)"), Case("a & i")]
    return found


NAMED = tuple(kind if kind != "bool" else "bool_" for kind in REAL)
_MATH = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "degrees", "erf", "erfc", "exp", "expm1",
    "fabs", "floor", "gamma", "isfinite", "isinf", "isnan", "lgamma", "log", "log10", "log1p", "log2", "radians", "sin",
    "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
_BEYOND = "~(np.abs(a.astype(np.float64)) < 2.0**63)"
_NUMPY = (
    "abs",
    "sin",
    "sqrt",
    "exp",
    "floor",
    "ceil",
    "sign",
    "square",
    "isnan",
    "arctan",
    "log2",
    "fabs",
    "negative",
    "conj",
)


def _of_one(a: str) -> list[Case]:
    beyond = _BEYOND if _is_float(a) else ""
    found = [Case(text) for text in ("-a", "+a", "~a", "not a", "abs(a)", "bool(a)", "float(a)", "a")]
    found += [Case("int(a)", beyond), Case("round(a)", beyond), *(Case(f"round(a, {n})") for n in (0, 1, 2, -1, -2, 5))]
    # ceil, floor and trunc are integers.
    found += [Case(f"math.{name}(a)", beyond if name in ("ceil", "floor", "trunc") else "") for name in _MATH]
    for kind in INTEGERS:
        width = 2.0 ** (int(kind.strip("uint")) - (kind[0] != "u"))
        narrow = f"~((a > {-width if kind[0] != 'u' else -1}) & (a < {width}))" if _is_float(a) else ""
        found += [Case(f"{kind}(a)", narrow), Case(f"np.{kind}(a)", narrow), Case(f"{kind}(a) * {kind}(3)", narrow)]
        found += [
            Case(f"{kind}(int(a))", beyond),
            Case(f"abs({kind}(a))", narrow),
            Case(f"-{kind}(a)", narrow),
            Case(f"~{kind}(a)", narrow),
        ]
    found += [Case(f"{kind}(a)") for kind in (*FLOATS, "bool_", "np.float32", "np.float64", "np.bool_")]
    found += [Case(f"math.frexp(a)[{at}]") for at in (0, 1)] + [Case(f"math.modf(a)[{at}]") for at in (0, 1)]
    found += [Case("math.ldexp(a, 3)"), Case("math.ldexp(a, -1070)"), Case("math.ldexp(a, i - 90)")]
    found.append(Case("s{k} = 0\nfor j{k} in range(int(a) & 7):\n    s{k} += j{k} * a\nr{k} = s{k}", beyond))
    found.append(Case("s{k} = float32(0)\nfor j{k} in range(4):\n    s{k} += a\nr{k} = s{k}"))
    found.append(Case("s{k} = int8(100)\nfor j{k} in range(4):\n    s{k} = s{k} + int8(100)\nr{k} = s{k} + a"))
    found.append(Case("q{k} = (a, 2, 0.5)\nr{k} = q{k}[0] * q{k}[1] + q{k}[2]"))
    found.append(Case("j{k} = 0\nwhile j{k} < 5 and a > j{k}:\n    j{k} += 1\nr{k} = j{k}"))
    found += [
        Case("1 < a < 10"),
        Case("a is None"),
        Case("a == a"),
        Case("a != a"),
        Case("len((a, a))"),
        Case("a in (0, 1, 7)"),
    ]
    return found


_DEVICE = (
    "cuda.popc(a)", "cuda.clz(a)", "cuda.ffs(a)", "cuda.brev(a)", "cuda.cbrt(a)", "cuda.selp(a > 1, a, 5)",
    "cuda.selp(a > 1, a, 2.5)", "cuda.fma(a, a, 1.0)", "cuda.fma(a, 3, a)", "cuda.threadIdx.x + a", "cuda.blockDim.x * a",
    "cuda.blockIdx.x - a", "cuda.laneid + a", "cuda.gridDim.x / 7", "cuda.threadIdx.x - 100", "cuda.threadIdx.x // -3",
    "cuda.blockDim.x ** 3", "-cuda.threadIdx.x", "cuda.threadIdx.x << 30", "cuda.gridsize(1) + a", "cuda.warpsize * a",
    "a * a + a", "a * 3 - a", "a * 0.1 + 0.3",
)  # fmt: skip
_SHUFFLES = (
    "cuda.shfl_sync(0xffffffff, a, 3)", "cuda.shfl_up_sync(0xffffffff, a, 2)", "cuda.shfl_down_sync(0xffffffff, a, 5)",
    "cuda.shfl_xor_sync(0xffffffff, a, 9)", "cuda.match_any_sync(0xffffffff, a)", "cuda.match_all_sync(0xffffffff, a)[0]",
    "cuda.match_all_sync(0xffffffff, a)[1]", "cuda.ballot_sync(0xffffffff, a > 1)", "cuda.all_sync(0xffffffff, a == a)",
    "cuda.any_sync(0xffffffff, a > 50)", "cuda.eq_sync(0xffffffff, a > 1)", "cuda.activemask()", "cuda.lanemask_lt()",
    "cuda.syncthreads_count(a > 1)", "cuda.syncthreads_and(a == a)", "cuda.syncthreads_or(a > 100)",
    "cuda.syncthreads_count(int32(a > 1))", "cuda.syncthreads_and(1)", "cuda.ballot_sync(0xffffffff, a)",
    "cuda.shfl_sync(0xffffffff, a, i & 31)", "cuda.shfl_sync(0xffffffff, a + 1, 0)", "cuda.any_sync(0xffffffff, a)",
)  # fmt: skip
_ATOMICS = ("add", "sub", "max", "min", "nanmax", "nanmin", "exch", "and_", "or_", "xor", "inc", "dec")


def _atomics(kind: str) -> list[Case]:
    store = "of[{k}, i] = r{k}; oi[{k}, i] = r{k}"
    found = [Case(f"cuda.atomic.{name}(t, ({{k}}, i), a)", store=store) for name in _ATOMICS]
    found += [
        Case(f"cuda.atomic.{name}(t, ({{k}}, i), {text})", store=store)
        for name in ("add", "max", "exch")
        for text in ("3", "0.5", "a + 1")
    ]
    found += [
        Case("cuda.atomic.cas(t, ({k}, i), a, b)", store=store),
        Case("cuda.atomic.cas(t, ({k}, i), t[{k}, i], 1)", store=store),
    ]
    found.append(Case("cuda.atomic.compare_and_swap(t[{k}, i:], a, b)", store=store))
    found.append(Case("cuda.atomic.compare_and_swap(t[{k}, i:], t[{k}, i], 1)", store=store))
    found.append(Case("cuda.atomic.add(t[{k}], i, a)", store=store))
    # Case's text is an expression here, which `source` turns into an assignment.
    return [Case("r{k} = " + case.text, case.undefined, case.store) for case in found]


_STORES = ("=", "+=", "-=", "*=", "/=", "//=", "%=", "**=", "&=", "|=", "^=", "<<=", ">>=")


def _into(a: str, t: str) -> list[Case]:
    """Statements that change an element of an array of a type."""
    real = not a.startswith("complex") and not t.startswith("complex")
    integers = real and not _is_float(a) and not _is_float(t)
    found = []
    for op in _STORES:
        if op == "/=" and integers:  # NVVM does not compile it; it has kernels of its own
            continue
        if op in ("//=", "%=", "&=", "|=", "^=", "<<=", ">>=") and not (integers or (real and op in ("//=", "%="))):
            continue
        undefined = (
            "(a < 0) | (a > 63)" if op in ("<<=", ">>=") else "a == 0" if op in ("//=", "%=") and integers else ""
        )
        if op == "**=" and integers:
            undefined = "(a < 0) & (t == 0)"
        if t.startswith(("int", "uint")) and not integers:
            undefined = "outside"
        found.append(Case(f"t[{{k}}, i] {op} a", undefined, ""))
    found.append(Case("t[{k}, i] += 1", "outside" if _is_float(a) else "", ""))
    found.append(Case("t[{k}, i] = a + t[{k}, i]", "outside", ""))
    return found


def _complex_pairs(a: str, b: str) -> list[Case]:
    store = "oc[{k}, i] = r{k}"
    found = [Case(f"a {op} b", store=store) for op in ("+", "-", "*", "/", "**")]
    found += [Case("r{k} = a\nif i > 20:\n    r{k} = b", store=store), Case("a * 2 + b * 0.5", store=store)]
    plain = "of[{k}, i] = r{k}; oi[{k}, i] = r{k}"
    return [*found, *(Case(f"a {op} b", store=plain) for op in ("==", "!="))]


_OF_COMPLEX = (
    "-a", "+a", "a.conjugate()", "a + 1", "a * 2.5", "1j * a", "a / 2", "2 / a", "a ** 2", "a ** 0.5", "a ** -1",
    "complex(a)", "complex64(a)", "complex128(a)", "np.conj(a)",
    *(f"cmath.{name}(a)" for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "log", "log10", "sin", "sinh", "sqrt",
        "tan", "tanh",
    )),
)  # fmt: skip
_TO_COMPLEX = ("a.real", "a.imag", "abs(a)", "a == 1", "bool(a)", "not a", "cmath.phase(a)", "cmath.polar(a)[0]", "cmath.isnan(a)", "cmath.isinf(a)", "cmath.isfinite(a)")  # fmt: skip


def _libdevice() -> list[Group]:
    """Return calls of every function of libdevice with the types that it states; addresses become results."""
    from numba.cuda import libdevicefuncs

    found: dict[tuple[str, ...], list[Case]] = {}
    for name, (returned, arguments) in libdevicefuncs.functions.items():
        short = name.removeprefix("__nv_")
        given = tuple(str(arg.ty) for arg in arguments if not arg.is_ptr)
        if len(given) > 4 or not given:
            continue
        call = f"libdevice.{short}({', '.join('abcd'[: len(given)])})"
        pointers = [arg for arg in arguments if arg.is_ptr]
        if not pointers:
            found.setdefault(given, []).append(Case(call))
            continue
        parts = len(pointers) + (str(returned) not in ("none", "void"))
        found.setdefault(given, []).extend(Case(f"{call}[{at}]" if parts > 1 else call) for at in range(parts))
    groups = []
    for kinds, cases in found.items():
        for at in range(0, len(cases), 60):
            groups.append(Group(f"libdevice {' '.join(kinds)} {at // 60}", kinds, cases[at : at + 60], host=False))
    return groups


_VIEWS = (
    "len(a_)", "a_.size", "a_.shape[0]", "a_.ndim", "a_.itemsize", "a_.nbytes", "a_.strides[0]", "a_[-1]", "a_[-i - 1]",
    "a_[5:][i % 7]", "a_[::2][i % 5]", "a_[::-1][i]", "a_[i:i + 3].size", "a_[i:].size", "a_[:-3].size", "a_[-5:][0]",
    "a_[100:50].size", "a_[10:500].shape[0]", "a_[:i:7].size", "a_[i::-2].size", "a_[-500:3].size", "cuda.grid(1)",
    "cuda.threadIdx.x", "cuda.blockDim.x", "cuda.gridsize(1)", "a_[uint8(i)]", "a_[int8(-1)]", "a_[np.uint64(i)]",
    "(a_[i], 2)[0]", "len(a_[3:])", "a_.T[i]", "a_.reshape(12, 16)[i // 16, i % 16]", "a_.reshape(12, 16).shape[1]",
    "i", "i + uint8(1)", "i + uint64(1)", "i - uint64(1)", "abs(i - 100)", "len(range(i))", "len(range(i, 3, -2))",
    "a_[i] if i < 50 else 0", "(1, 2.5, a)[1]", "len((1, 2) + (3,))", "cuda.threadIdx.x * cuda.blockDim.x",
    *(f"for j{{k}} in range({kind}(5)):\n    r{{k}} = j{{k}}" for kind in ("uint8", "int8", "int32", "uint32", "uint64")),
    "s{k} = 0\nfor x{k} in a_[:5]:\n    s{k} += x{k}\nr{k} = s{k}",
    "s{k} = 0\nfor j{k}, x{k} in enumerate(a_[3:9]):\n    s{k} += x{k} * j{k}\nr{k} = s{k}",
    "s{k} = 0\nfor x{k}, y{k} in zip(a_[:4], a_[4:20]):\n    s{k} += x{k} - y{k}\nr{k} = s{k}",
    "x{k} = cuda.local.array(4, int8)\nfor j{k} in range(4):\n    x{k}[j{k}] = i * j{k}\nr{k} = x{k}[i % 4]",
    "x{k} = cuda.local.array((2, 2), uint16)\nx{k}[0, 1] = -i\nr{k} = x{k}[0, 1] * 2",
    "x{k} = cuda.local.array(3, float32)\nx{k}[1] = i * 0.1\nr{k} = x{k}[1]",
)  # fmt: skip
_HALF = (
    "a + b", "a - b", "a * b", "a / b", "-a", "abs(a)", "a < b", "a >= b", "a == b", "a != b", "a + 1", "a * 2.5",
    "a + i", "a / 3", "float32(a)", "float64(a)", "int32(a)", "int64(a)", "np.float16(a)", "a ** 2", "a // b", "a % b",
    "min(a, b)", "max(a, b)", "a if a > b else b", "round(a)", "float(a)", "int(a)", "bool(a)", "a and b", "not a",
    "cuda.fma(a, b, a)", "cuda.selp(a > b, a, b)", "cuda.shfl_sync(0xffffffff, a, 3)", "a + float32(1)", "a * int8(3)",
    "a * int16(3)", "a * uint8(3)", "a + float64(0.1)",
    *(f"math.{name}(a)" for name in _MATH),
    *(f"cuda.fp16.{name}(a, b)" for name in (
        "hadd", "hsub", "hmul", "hdiv", "heq", "hne", "hge", "hgt", "hle", "hlt", "hmax", "hmin",
    )),
    *(f"cuda.fp16.{name}(a)" for name in (
        "hneg", "habs", "hsin", "hcos", "hlog", "hlog2", "hlog10", "hexp", "hexp2", "hexp10", "hsqrt", "hrsqrt",
        "hfloor", "hceil", "hrcp", "hrint", "htrunc",
    )),
    "cuda.fp16.hfma(a, b, a)",
)  # fmt: skip


def groups(*, libdevice: bool = True) -> list[Group]:
    """Return every group, the most important ones first."""
    made = [Group(f"pairs {a} {b}", (a, b), _of_pairs(a, b)) for a in REAL for b in REAL]
    made += [Group(f"one {a}", (a,), _of_one(a)) for a in REAL]
    # Many of NumPy's functions are not in numba-cuda, and each costs a compilation: they have kernels of their own.
    made += [Group(f"numpy {a}", (a,), [Case(f"np.{name}(a)") for name in _NUMPY]) for a in REAL]
    made += [Group(f"literals {a}", (a,), _literals(a)) for a in REAL]
    made += [Group(f"device {a}", (a,), [Case(text) for text in _DEVICE], host=False) for a in REAL]
    made += [Group(f"warps {a}", (a,), [Case(text) for text in _SHUFFLES], host=False) for a in REAL]
    wide = {"t": "", "of": "float64", "oi": "int64"}
    for kind in REAL:
        for other in dict.fromkeys((kind, "int64", "float64")):
            made.append(
                Group(f"atomics {kind} {other}", (other, other), _atomics(kind), {**wide, "t": kind}, host=False)
            )
    whole = {"of": "float64", "oi": "int64", "oc": "complex128"}
    for a in COMPLEX:
        made.append(Group(f"complex {a}", (a,), [Case(t, store="oc[{k}, i] = r{k}") for t in _OF_COMPLEX] + [Case(t) for t in _TO_COMPLEX], whole))  # fmt: skip
        for b in (*COMPLEX, "float32", "float64", "int32", "uint8", "int64"):
            made.append(Group(f"pairs {a} {b}", (a, b), _complex_pairs(a, b), whole))
            if b not in COMPLEX:
                made.append(Group(f"pairs {b} {a}", (b, a), _complex_pairs(b, a), whole))
    half = "of[{k}, i] = r{k}"
    for b in ("float16", "float32", "int8", "int32", "int64"):
        made.append(
            Group(f"half {b}", ("float16", b), [Case(t, store=half) for t in _HALF], {"of": "float64"}, host=False)
        )
    fast = [Case(f"math.{name}(a)") for name in ("sin", "cos", "exp", "log", "sqrt", "tanh", "tan", "log2")]
    fast += [Case("a / 3"), Case("1 / a"), Case("a ** 0.5"), Case("a * 0.1 + 0.3")]
    made += [Group(f"fastmath {a}", (a,), fast, host=False, options="fastmath=True") for a in FLOATS]
    made += _libdevice() if libdevice else []
    made += [
        Group(f"views {a}", (a,), [Case(text) for text in _VIEWS], host=False) for a in ("int8", "uint32", "float32")
    ]
    made += [Group(f"gcd {a}", (a, a), [Case("math.gcd(a, b)")]) for a in ("int32", "int64", "uint8")]
    divided = [Case("t[{k}, i] /= a", "outside", "")]
    pairs = (("int8", "int8"), ("int32", "int64"), ("uint8", "int16"), ("int64", "int64"), ("uint64", "uint64"))
    made += [Group(f"divided {t} {a}", (a,), divided, {"t": t}) for t, a in pairs]
    made += [Group(f"into {t} {a}", (a,), _into(a, t), {"t": t}) for t in (*REAL, *COMPLEX) for a in (*REAL, *COMPLEX)
             if t in COMPLEX or a not in COMPLEX]  # fmt: skip
    return made
