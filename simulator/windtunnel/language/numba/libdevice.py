"""The functions of libdevice that kernels may call, and what each computes."""

from __future__ import annotations

from collections.abc import Mapping

from windtunnel.language.names import Name

_MATH: Mapping[str, str] = {
    **{name: name for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf",
        "erfc", "exp", "exp10", "exp2", "expm1", "fabs", "floor", "fmod", "hypot", "ldexp", "lgamma", "log", "log10",
        "log1p", "log2", "nextafter", "pow", "remainder", "rint", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh",
        "trunc",
    )},
    "tgamma": "gamma", "nearbyint": "rint", "round": "round_half_away", "rcbrt": "rcbrt", "sinpi": "sinpi",
    "cospi": "cospi", "fdim": "fdim", "normcdf": "normcdf", "erfinv": "erfinv", "logb": "logb", "rhypot": "rhypot",
}  # fmt: skip
_FAST = ("sin", "cos", "tan", "exp", "exp10", "log", "log2", "log10", "pow")
"""Functions with an approximation, ``fast_sinf``; here they are as exact as the others."""
_INTEGERS: Mapping[str, tuple[str, str]] = {
    "abs": ("abs", "i32"), "llabs": ("abs", "i64"), "max": ("max", "i32"), "min": ("min", "i32"),
    "llmax": ("max", "i64"), "llmin": ("min", "i64"), "sad": ("sad", "i32"), "popc": ("popc", "i32"),
    "popcll": ("popc", "i64"), "clz": ("clz", "i32"), "clzll": ("clz", "i64"), "ffs": ("ffs", "i32"),
    "ffsll": ("ffs", "i64"), "brev": ("brev", "i32"), "brevll": ("brev", "i64"), "mul24": ("mul24", "i32"),
}  # fmt: skip
_PREDICATES: Mapping[str, tuple[str, str]] = {
    **{f"{name}{end}": (name, kind) for name in ("isnan", "isinf") for end, kind in (("d", "f64"), ("f", "f32"))},
    "finitef": ("isfinite", "f32"), "isfinited": ("isfinite", "f64"),
    "signbitd": ("signbit", "f64"), "signbitf": ("signbit", "f32"),
}  # fmt: skip
_CONVERSIONS: Mapping[str, str] = {
    "double": "f64",
    "float": "f32",
    "int": "i32",
    "uint": "u32",
    "ll": "i64",
    "ull": "u64",
}
_TWO_RESULTS = ("sincos", "frexp", "modf")


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
    for source, kind in _CONVERSIONS.items():
        for target, to in _CONVERSIONS.items():
            for end, how in (("", "plain"), ("_rn", "rint"), ("_rz", "trunc"), ("_ru", "ceil"), ("_rd", "floor")):
                if source != target:
                    add(f"{source}2{target}{end}", f"convert {how}:{kind} {to}")
    for name, (op, kind) in _INTEGERS.items():
        add(name, f"integer {op} {kind}")
    for name, kind in (("fma", "f64"), ("fmaf", "f32")):
        add(name, f"fma fma {kind}")
    for name, op in (("fmax", "max"), ("fmin", "min")):
        add(name, f"extreme {op} f64")
        add(f"{name}f", f"extreme {op} f32")
    for rounding in ("rn", "rz", "ru", "rd"):
        for letter, kind in (("d", "f64"), ("f", "f32")):
            if rounding == "rn":
                for stem, op in (("add", "+"), ("mul", "*"), ("sub", "-"), ("div", "/")):
                    add(f"{letter}{stem}_rn", f"operator {op} {kind}")
    return found


NAMES: Mapping[str, Name] = _names()
"""The functions by name. The operation is what is called and the type of its numbers."""
