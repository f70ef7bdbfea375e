"""The functions of libdevice that kernels may call, and what each computes."""

from __future__ import annotations

from collections.abc import Mapping

from windtunnel.language.names import Name

_MATH: Mapping[str, str] = {
    **{name: name for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf",
        "erfc", "exp", "exp10", "exp2", "expm1", "fabs", "floor", "fmod", "hypot", "ldexp", "lgamma", "log", "log10",
        "log1p", "log2", "nextafter", "pow", "remainder", "rint", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh",
        "trunc", "erfcinv", "erfcx", "j0", "j1", "y0", "y1",
    )},
    "tgamma": "gamma", "nearbyint": "rint", "round": "round_half_away", "rcbrt": "rcbrt", "sinpi": "sinpi",
    "cospi": "cospi", "fdim": "fdim", "normcdf": "normcdf", "erfinv": "erfinv", "logb": "logb",
}  # fmt: skip
_FAST = ("sin", "cos", "tan", "exp", "exp10", "log", "log2", "log10", "pow")
"""Functions with an approximation, ``fast_sinf``; here they are as exact as the others."""
_INTEGERS: Mapping[str, tuple[str, str]] = {
    "abs": ("abs", "i32"), "llabs": ("abs", "i64"), "popc": ("popc", "i32"),
    "popcll": ("popc", "i64"), "clz": ("clz", "i32"), "clzll": ("clz", "i64"), "ffs": ("ffs", "i32"),
    "ffsll": ("ffs", "i64"), "brev": ("brev", "i32"), "brevll": ("brev", "i64"),
    **{f"{sign}{name}": (op, f"{kind}32") for sign, kind in (("", "i"), ("u", "u")) for name, op in (
        ("max", "max"), ("min", "min"), ("sad", "sad"), ("mul24", "mul24"), ("mulhi", "high"),
        ("hadd", "hadd"), ("rhadd", "rhadd"),
    )},
    "llmax": ("max", "i64"), "llmin": ("min", "i64"), "ullmax": ("max", "u64"), "ullmin": ("min", "u64"),
    "mul64hi": ("high", "i64"), "umul64hi": ("high", "u64"),
}  # fmt: skip
"""Functions of integers. Libdevice has no unsigned results: Numba takes their bits as signed ones."""
_PREDICATES: Mapping[str, tuple[str, str]] = {
    **{f"{name}{end}": (name, kind) for name in ("isnan", "isinf") for end, kind in (("d", "f64"), ("f", "f32"))},
    "finitef": ("isfinite", "f32"), "isfinited": ("isfinite", "f64"),
    "signbitd": ("signbit", "f64"), "signbitf": ("signbit", "f32"),
}  # fmt: skip
_CONVERSIONS = (
    *((source, to, "rn rz ru rd") for source in ("double", "float") for to in ("int", "uint", "ll", "ull")),
    ("double", "float", "rn rz ru rd"),
    *((source, "float", "rn rz ru rd") for source in ("int", "uint")),
    *((source, "double", "rn") for source in ("int", "uint")),
    *((source, to, "rn rz ru rd") for source in ("ll", "ull") for to in ("float", "double")),
)
"""Conversions, and how they round."""
_TYPES: Mapping[str, str] = {"double": "f64", "float": "f32", "int": "i32", "uint": "u32", "ll": "i64", "ull": "u64"}
_TWO_RESULTS = ("sincos", "sincospi", "frexp", "modf", "remquo")
_BITS: Mapping[str, tuple[str, str]] = {
    "float_as_int": ("f32", "i32"), "int_as_float": ("i32", "f32"), "double_as_longlong": ("f64", "i64"),
    "longlong_as_double": ("i64", "f64"),
}  # fmt: skip
_WITH_INTEGER = ("powi", "scalbn")
_TO_INTEGER = ("ilogb", "llrint", "llround")
_DIRECTED = ("add", "sub", "mul", "div", "sqrt", "rcp")
"""Operations that are rounded in any direction; there is no ``dsub``."""


def _names() -> dict[str, Name]:
    found: dict[str, Name] = {}

    def add(name: str, op: str) -> None:
        found[name] = Name(f"libdevice.{name}", f"libdevice.{op}")

    for name, op in _MATH.items():
        add(name, f"math {op} f64")
        add(f"{name}f", f"math {op} f32")
    for name in _FAST:
        add(f"fast_{name}f", f"math {name} f32")
    for name in _TWO_RESULTS:
        add(name, f"pair {name} f64")
        add(f"{name}f", f"pair {name} f32")
    for name, (op, kind) in _PREDICATES.items():
        add(name, f"predicate {op} {kind}")
    for source, to, ways in _CONVERSIONS:
        for way in ways.split():
            add(f"{source}2{to}_{way}", f"convert {_TYPES[source]}:{way} {_TYPES[to]}")
    for name, (op, kind) in _INTEGERS.items():
        add(name, f"integer {op} {kind}")
    for stem, kind, letter in (("", "f64", "d"), ("f", "f32", "f")):
        add(f"fma{stem}", f"rounded fma:rn {kind}")
        add(f"fma{stem}_rn", f"rounded fma:rn {kind}")
        for name in _DIRECTED:
            if (letter, name) != ("d", "sub"):
                add(f"{letter}{name}_rn", f"rounded {name}:rn {kind}")
        for name in ("max", "min"):
            add(f"f{name}{stem}", f"extreme {name} {kind}")
        for name in _WITH_INTEGER:
            add(f"{name}{stem}", f"power {name} {kind}")
        for name in _TO_INTEGER:
            add(f"{name}{stem}", f"whole {name} {kind}")
        add(f"normcdfinv{stem}", f"quantile normcdfinv {kind}")
        for name in ("jn", "yn"):
            add(f"{name}{stem}", f"bessel {name} {kind}")
        for rounding in ("rz", "ru", "rd"):
            add(f"fma{stem}_{rounding}", f"rounded fma:{rounding} {kind}")
            for name in _DIRECTED:
                if (letter, name) != ("d", "sub"):
                    add(f"{letter}{name}_{rounding}", f"rounded {name}:{rounding} {kind}")
    add("frsqrt_rn", "math rsqrt f32")
    add("fast_fdividef", "rounded div:rn f32")
    add("fast_sincosf", "pair sincos f32")
    add("saturatef", "saturate saturate f32")
    for name, (source, to) in _BITS.items():
        add(name, f"bits {source} {to}")
    add("byte_perm", "bytes byte_perm i32")
    add("half2float", "bits i16 f16")
    add("float2half_rn", "bits f16 i16")
    for name in ("double2hiint", "double2loint", "hiloint2double"):
        add(name, f"halves {name} f64")
    return found


NAMES: Mapping[str, Name] = _names()
"""The functions by name. The operation is what is called and the type of its numbers."""
