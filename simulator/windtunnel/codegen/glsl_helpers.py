"""The texts of helper functions in GLSL.

They work on the bits of floats as integers, because the treatment of subnormal numbers and NaN is up to the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from windtunnel.codegen import c_helpers

_INTEGERS: Mapping[str, str] = {
    "floor_div": """
$t$ $name$($t$ a, $t$ b) {
    // Rounds down, as Python does; of the smallest number and -1 it wraps, of 0 it is 0.
    if (b == 0) return $zero$;
    if (b == -1) return -a;
    $t$ q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}
""",
    "floor_mod": """
$t$ $name$($t$ a, $t$ b) {
    // Has the sign of b, as Python's. GLSL does not say what its own % is of numbers below 0.
    if (b == 0 || b == -1) return $zero$;
    $t$ r = a - a / b * b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
""",
    "abs": """
$t$ $name$($t$ a) {
    return a < 0 ? -a : a;
}
""",
    "power": """
$t$ $name$($t$ base, int exponent) {
    $t$ product = $one$;
    for (int n = 0; n < exponent; ++n) product *= base;
    return product;
}
""",
    "shift_left": """
$t$ $name$($t$ a, $t$ b) {
    // All bits are shifted out by as many as there are, or more.
    return $u$(b) < $bits$u ? a << int(b) : $zero$;
}
""",
    "shift_right": """
$t$ $name$($t$ a, $t$ b) {
    return a >> ($u$(b) < $bits$u ? int(b) : $bits$ - 1);
}
""",
    "popc": """
int $name$($t$ x) {
    return $popc$;
}
""",
    "clz": """
int $name$($t$ x) {
    return $clz$;
}
""",
    "ffs": """
int $name$($t$ x) {
    return $ffs$;
}
""",
    "brev": """
$t$ $name$($t$ x) {
    return $brev$;
}
""",
}
_UNSIGNED: Mapping[str, str] = {
    "shift_right": """
$t$ $name$($t$ a, $t$ b) {
    return b < $bits$u ? a >> int(b) : $zero$;
}
"""
}
_WORDS: Mapping[str, tuple[str, str]] = {
    "popc": ("bitCount(x)", "bitCount(uint(x)) + bitCount(uint(x >> 32))"),
    "clz": ("31 - findMSB(x)", "x >> 32 == 0 ? 63 - findMSB(uint(x)) : 31 - findMSB(uint(x >> 32))"),
    "ffs": ("findLSB(x) + 1", "uint(x) != 0u ? findLSB(uint(x)) + 1 : x != 0 ? findLSB(uint(x >> 32)) + 33 : 0"),
    "brev": (
        "bitfieldReverse(x)",
        "uint64_t(bitfieldReverse(uint(x))) << 32 | uint64_t(bitfieldReverse(uint(x >> 32)))",
    ),
}
"""For 32 and for 64 bits: GLSL finds and counts bits only in 32."""
_FLOATS: Mapping[str, str] = {
    **{name: c_helpers.FLOATS[name].replace("$fn$ ", "") for name in ("floor_div", "floor_mod")},
    "pow": """
$t$ $name$($t$ x, $t$ y) {
    // GLSL does not define the power of a number below 0.
    if (y == $null$) return $unit$;
    if (!(x < $null$)) return pow(x, y);
    $t$ size = pow(-x, y);
    if (floor(y) != y) return $back$($nan$);
    return floor(y * $half$) * 2 != y ? -size : size;
}
""",
    "round": """
$t$ $name$($t$ x) {
    // Halves are rounded away from zero.
    return $copysign$(floor(abs(x) + $half$), x);
}
""",
    "square": c_helpers.INTEGERS["square"].replace("$fn$ ", ""),
    "fmod": """
$t$ $name$($t$ x, $t$ y) {
    // Exact, bit by bit, as C's; GLSL's mod is neither.
    $u$ a = $to$(x), b = $to$(y), sign = a & $top$;
    a ^= sign;
    b &= ~$top$;
    if (a >= $infinite$ || b > $infinite$ || b == $zero$) return $back$($nan$);
    if (a < b) return x;
    int ea = int(a >> $mantissa$), eb = int(b >> $mantissa$);
    a = ea == 0 ? a : a & $hidden$ - $one$ | $hidden$;
    b = eb == 0 ? b : b & $hidden$ - $one$ | $hidden$;
    for (int e = max(ea, 1); e > max(eb, 1); --e) {
        if (a >= b) a -= b;
        a <<= 1;
    }
    if (a >= b) a -= b;
    if (a == $zero$) return $back$(sign);
    eb = max(eb, 1);
    while (a < $hidden$ && eb > 1) {
        a <<= 1;
        --eb;
    }
    return $back$(sign | (a < $hidden$ ? a : a - $hidden$ | $u$(eb) << $mantissa$));
}
""",
    "copysign": """
$t$ $name$($t$ x, $t$ y) {
    return $back$($to$(x) & ~$top$ | $to$(y) & $top$);
}
""",
    "fmin": """
$t$ $name$($t$ a, $t$ b) {
    // A NaN is not the smaller one.
    return b < a || $isnan$(a) ? b : a;
}
""",
    "fmax": """
$t$ $name$($t$ a, $t$ b) {
    // A NaN is not the larger one.
    return b > a || $isnan$(a) ? b : a;
}
""",
    "isnan": """
bool $name$($t$ x) {
    return ($to$(x) & ~$top$) > $infinite$;
}
""",
    "isinf": """
bool $name$($t$ x) {
    return ($to$(x) & ~$top$) == $infinite$;
}
""",
}
_CALLS = ("fmod", "copysign", "isnan")
"""Functions of floats that other helpers call."""
_NARROW: Mapping[str, str] = {
    "round_tf32": """
float $name$(float x) {
    // To 10 bits of mantissa, half to even.
    uint b = floatBitsToUint(x);
    if ((b & 0x7f800000u) != 0x7f800000u) b = (b + 0xfffu + ((b >> 13) & 1u)) & 0xffffe000u;
    return uintBitsToFloat(b);
}
""",
    "round_bf16": """
float $name$(float x) {
    return $load_bf16$($store_bf16$(x));
}
""",
    "load_bf16": """
float $name$(uint b) {
    return uintBitsToFloat(b << 16);
}
""",
    "store_bf16": """
uint $name$(float x) {
    uint b = floatBitsToUint(x);
    // A NaN stays one, and is not rounded to infinity.
    if ((b & 0x7fffffffu) > 0x7f800000u) return b >> 16 | 0x40u;
    return b + 0x7fffu + ((b >> 16) & 1u) >> 16;
}
""",
    "round_f16": """
float $name$(float x) {
    return $load_f16$($store_f16$(x));
}
""",
    "load_f16": """
float $name$(uint b) {
    // GLSL leaves the rounding of its own halves to the driver, and whether small ones become 0.
    uint sign = (b & 0x8000u) << 16, size = b & 0x7fffu;
    if (size >= 0x7c00u) return uintBitsToFloat(sign | 0x7f800000u | (size & 0x3ffu) << 13);
    if (size < 0x400u) return uintBitsToFloat(sign | floatBitsToUint(float(size) * 5.9604644775390625e-8f));
    return uintBitsToFloat(sign | (size << 13) + 0x38000000u);
}
""",
    "store_f16": """
uint $name$(float x) {
    // To 10 bits of mantissa, half to even.
    uint b = floatBitsToUint(x), sign = b >> 16 & 0x8000u, size = b & 0x7fffffffu;
    if (size > 0x7f800000u) return sign | 0x7e00u;
    if (size >= 0x477ff000u) return sign | 0x7c00u;
    if (size >= 0x38800000u) return sign | size + 0xfffu + (size >> 13 & 1u) - 0x38000000u >> 13;
    if (size <= 0x33000000u) return sign;
    int off = 126 - int(size >> 23);
    uint whole = size & 0x7fffffu | 0x800000u, kept = whole >> off, rest = whole - (kept << off), half_ = 1u << off - 1;
    return sign | kept + uint(rest > half_ || rest == half_ && (kept & 1u) != 0u);
}
""",
    "log10": """
float $name$(float x) {
    return log(x) * 0.4342945f;
}
""",
    "source_lane": """
uint $name$(int wanted) {
    // The thread's own lane, if the wanted one does not exist.
    return uint(wanted) < gl_SubgroupSize ? uint(wanted) : gl_SubgroupInvocationID;
}
""",
}
TYPES: Mapping[str, str] = {
    "i32": "int", "u32": "uint", "i64": "int64_t", "u64": "uint64_t", "f32": "float", "f64": "double",
}  # fmt: skip
TO_BITS: Mapping[str, tuple[str, str]] = {
    "f32": ("floatBitsToUint", "uintBitsToFloat"),
    "f64": ("doubleBitsToUint64", "uint64BitsToDouble"),
}
_WIDTHS: Mapping[str, Mapping[str, str]] = {
    "32": {"top": "0x80000000u", "infinite": "0x7f800000u", "nan": "0x7fc00000u", "hidden": "0x800000u",
           "mantissa": "23", "null": "0.0f", "unit": "1.0f", "half": "0.5f"},
    "64": {"top": "0x8000000000000000ul", "infinite": "0x7ff0000000000000ul", "nan": "0x7ff8000000000000ul",
           "hidden": "0x10000000000000ul", "mantissa": "52", "null": "0.0lf", "unit": "1.0lf", "half": "0.5lf"},
}  # fmt: skip


def helper_text(helper: str, name: str, need: Callable[[str], str]) -> str:
    """Return the source of a helper; ``need`` adds another one that it calls and returns its name."""
    if helper in _NARROW:
        text = _NARROW[helper].strip("\n").replace("$name$", name)
        for other in _NARROW:
            if f"${other}$" in text:
                text = text.replace(f"${other}$", need(other))
        return text
    root, _, kind = helper.rpartition("_")
    bits, suffix = kind[1:], "u" if kind.endswith("32") else "ul"
    if kind.startswith("f"):
        text = _FLOATS[root]
        words = {**_WIDTHS[bits], "to": TO_BITS[kind][0], "back": TO_BITS[kind][1], "zero": f"0{suffix}"}
        words |= {"one": f"1{suffix}", "floor": "floor"}
        words |= {other: need(f"{other}_{kind}") for other in _CALLS if f"${other}$" in text}
    else:
        text = (_UNSIGNED if kind.startswith("u") else {}).get(root) or _INTEGERS[root]
        own = {"i32": "", "u32": "u", "i64": "l", "u64": "ul"}[kind]
        words = {word: both[bits == "64"] for word, both in _WORDS.items()} | {"zero": f"0{own}", "one": f"1{own}"}
    words |= {"name": name, "t": TYPES[kind], "u": TYPES[f"u{bits}"], "bits": bits}
    for key, value in words.items():
        text = text.replace(f"${key}$", value)
    return text.strip("\n")


def exchange_loop(name: str, op: str, kind: str, array: str, changed: str) -> str:
    """Return an atomic operation that GLSL lacks, as a compare-exchange loop on one array.

    ``changed`` is the new value, computed from ``wt_old`` and ``wt_new``.
    """
    t, word = TYPES[kind], TYPES[f"u{kind[1:]}"] if kind.startswith("f") else TYPES[kind]
    to, back = TO_BITS.get(kind, ("", ""))
    if op == "cas":
        return (
            f"{t} {name}(int wt_at, {t} wt_old, {t} wt_new) {{\n"
            f"    return {back}(atomicCompSwap({array}[wt_at], {to}(wt_old), {to}(wt_new)));\n}}"
        )
    return (
        f"{t} {name}(int wt_at, {t} wt_new) {{\n    {word} wt_seen = {array}[wt_at], wt_before;\n    do {{\n"
        f"        wt_before = wt_seen;\n        {t} wt_old = {back}(wt_before);\n"
        f"        wt_seen = atomicCompSwap({array}[wt_at], wt_before, {to}({changed}));\n"
        f"    }} while (wt_seen != wt_before);\n    return {back}(wt_seen);\n}}"
    )
