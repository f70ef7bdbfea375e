"""The texts of helper functions in C. A text is filled with types and literals; ``$name$`` of a helper is its name."""

from __future__ import annotations

from collections.abc import Mapping

NARROW: Mapping[str, str] = {
    "bits_bf16": """
$fn$ $h$ $name$($f$ x) {
    return $store_bf16$(x);
}
""",
    "from_bits_bf16": """
$fn$ $f$ $name$($h$ b) {
    return $load_bf16$(b);
}
""",
    "round_tf32": """
$fn$ $f$ $name$($f$ x) {
    // To 10 bits of mantissa, half $tie$.
    $w$ b = $to$(x);
    if ((b & 0x7f800000u) != 0x7f800000u) b = (b + $half_unit$) & 0xffffe000u;
    return $back$(b);
}
""",
    "round_bf16": """
$fn$ $f$ $name$($f$ x) {
    return $load_bf16$($store_bf16$(x));
}
""",
    "load_bf16": """
$fn$ $f$ $name$($h$ b) {
    return $back$(($w$)b << 16);
}
""",
    "store_bf16": """
$fn$ $h$ $name$($f$ x) {
    $w$ b = $to$(x);
    // A NaN stays one, and is not rounded to infinity.
    if ((b & 0x7fffffffu) > 0x7f800000u) return ($h$)((b >> 16) | 0x40u);
    return ($h$)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
""",
}
"""Rounding to 16 bits or less of mantissa, and bf16 in languages that lack it."""
INTEGERS: Mapping[str, str] = {
    "floor_div": """
$fn$ $t$ $name$($t$ a, $t$ b) {
    // Rounds down, as Python does; of the smallest number and -1 it wraps, of 0 it is 0.
    if (b == 0) return 0;
    if (b == -1) return ($t$)($zero$ - ($u$)a);
    $t$ q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}
""",
    "floor_mod": """
$fn$ $t$ $name$($t$ a, $t$ b) {
    // Has the sign of b, as Python's.
    if (b == 0 || b == -1) return 0;
    $t$ r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
""",
    "abs": """
$fn$ $t$ $name$($t$ a) {
    return a < 0 ? ($t$)($zero$ - ($u$)a) : a;
}
""",
    "power": """
$fn$ $t$ $name$($t$ base, int exponent) {
    $u$ product = $one$;
    for (int n = 0; n < exponent; ++n) product *= ($u$)base;
    return ($t$)product;
}
""",
    "shift_left": """
$fn$ $t$ $name$($t$ a, $t$ b) {
    // All bits are shifted out by as many as there are, or more.
    return ($u$)b < $bits$ ? ($t$)(($u$)a << b) : 0;
}
""",
    "shift_right": """
$fn$ $t$ $name$($t$ a, $t$ b) {
    return ($u$)b < $bits$ ? a >> b : a < 0 ? -1 : 0;
}
""",
    "square": """
$fn$ $t$ $name$($t$ x) {
    return x * x;
}
""",
}
FLOATS: Mapping[str, str] = {
    "floor_div": """
$fn$ $t$ $name$($t$ a, $t$ b) {
    // Rounds down, as Python and NumPy do, from the exact remainder.
    if (b == $null$) return a / b;
    $t$ r = $fmod$(a, b);
    $t$ q = (a - r) / b;
    if (r != $null$ && (b < $null$) != (r < $null$)) q -= $unit$;
    if (q == $null$) return $copysign$($null$, a / b);
    $t$ down = $floor$(q);
    return q - down > $half$ ? down + $unit$ : down;
}
""",
    "floor_mod": """
$fn$ $t$ $name$($t$ a, $t$ b) {
    // Has the sign of b, as Python's.
    $t$ r = $fmod$(a, b);
    if (b == $null$) return r;
    if (r == $null$) return $copysign$($null$, b);
    return (b < $null$) != (r < $null$) ? r + b : r;
}
""",
}
UNSIGNED: Mapping[str, str] = {
    "shift_left": """
$fn$ $t$ $name$($t$ a, $t$ b) {
    // All bits are shifted out by as many as there are, or more.
    return b < $bits$ ? a << b : 0;
}
""",
    "shift_right": """
$fn$ $t$ $name$($t$ a, $t$ b) {
    return b < $bits$ ? a >> b : 0;
}
""",
}
"""The same of unsigned integers, where it differs."""
