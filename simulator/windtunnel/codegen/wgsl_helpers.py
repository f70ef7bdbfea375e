"""The texts of helper functions in WGSL."""

from __future__ import annotations

from collections.abc import Mapping

_TEXTS: Mapping[str, str] = {
    "pow": """
fn $name$(x: f32, y: f32) -> f32 {
    // WGSL does not define the power of a number below 0.
    if (y == 0.0f) { return 1.0f; }
    if (!(x < 0.0f)) { return pow(x, y); }
    let size = pow(-x, y);
    if (floor(y) != y) { return (x - x) / (x - x); }
    return select(size, -size, floor(y * 0.5f) * 2.0f != y);
}
""",
    "round": """
fn $name$(x: f32) -> f32 {
    // Halves are rounded away from zero.
    return bitcast<f32>(bitcast<u32>(floor(abs(x) + 0.5f)) | (bitcast<u32>(x) & 0x80000000u));
}
""",
    "saturated_i32": """
fn $name$(x: f32) -> i32 {
    // The nearest number of the type; of a NaN it is 0.
    if (x >= 2147483648.0f) { return 2147483647; }
    if (x <= -2147483648.0f) { return i32(-2147483648); }
    if ((bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u) { return 0; }
    return i32(x);
}
""",
    "saturated_u32": """
fn $name$(x: f32) -> u32 {
    // The nearest number of the type; of a NaN it is 0.
    if (x >= 4294967296.0f) { return 4294967295u; }
    if (x <= 0.0f || (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u) { return 0u; }
    return u32(x);
}
""",
    "floor_div_i32": """
fn $name$(a: i32, b: i32) -> i32 {
    // Rounds down, as Python does; of the smallest number and -1 it wraps, of 0 it is 0.
    if (b == 0) { return 0; }
    if (b == -1) { return -a; }
    let q = a / b;
    return select(q, q - 1, q * b != a && ((a ^ b) < 0));
}
""",
    "floor_mod_i32": """
fn $name$(a: i32, b: i32) -> i32 {
    // Has the sign of b, as Python's.
    if (b == 0 || b == -1) { return 0; }
    let r = a % b;
    return select(r, r + b, r != 0 && ((r ^ b) < 0));
}
""",
    "floor_div_f32": """
fn $name$(a: f32, b: f32) -> f32 {
    // Rounds down, as Python and NumPy do, from the remainder.
    if (b == 0.0f) { return a / b; }
    let r = a % b;
    var q = (a - r) / b;
    if (r != 0.0f && ((b < 0.0f) != (r < 0.0f))) { q -= 1.0f; }
    if (q == 0.0f) { return bitcast<f32>((bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u); }
    let down = floor(q);
    return select(down, down + 1.0f, q - down > 0.5f);
}
""",
    "floor_mod_f32": """
fn $name$(a: f32, b: f32) -> f32 {
    // Has the sign of b, as Python's.
    let r = a % b;
    if (r == 0.0f) { return bitcast<f32>(bitcast<u32>(b) & 0x80000000u); }
    return select(r, r + b, (b < 0.0f) != (r < 0.0f));
}
""",
    "power_i32": """
fn $name$(base: i32, exponent: i32) -> i32 {
    var product = 1;
    for (var n = 0; n < exponent; n++) { product *= base; }
    return product;
}
""",
    "power_u32": """
fn $name$(base: u32, exponent: i32) -> u32 {
    var product = 1u;
    for (var n = 0; n < exponent; n++) { product *= base; }
    return product;
}
""",
    "shift_left_i32": """
fn $name$(a: i32, b: i32) -> i32 {
    // All bits are shifted out by as many as there are, or more.
    if (u32(b) >= 32u) { return 0; }
    return a << u32(b);
}
""",
    "shift_left_u32": """
fn $name$(a: u32, b: u32) -> u32 {
    if (b >= 32u) { return 0u; }
    return a << b;
}
""",
    "shift_right_i32": """
fn $name$(a: i32, b: i32) -> i32 {
    return a >> min(u32(b), 31u);
}
""",
    "shift_right_u32": """
fn $name$(a: u32, b: u32) -> u32 {
    if (b >= 32u) { return 0u; }
    return a >> b;
}
""",
    "square_f32": """
fn $name$(x: f32) -> f32 {
    return x * x;
}
""",
    "round_tf32": """
fn $name$(x: f32) -> f32 {
    // To 10 bits of mantissa, half to even.
    let b = bitcast<u32>(x);
    if ((b & 0x7f800000u) == 0x7f800000u) { return x; }
    return bitcast<f32>((b + 0xfffu + ((b >> 13u) & 1u)) & 0xffffe000u);
}
""",
    "log10": """
fn $name$(x: f32) -> f32 {
    return log(x) * 0.4342945f;
}
""",
    "copysign": """
fn $name$(x: f32, y: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(x) & 0x7fffffffu) | (bitcast<u32>(y) & 0x80000000u));
}
""",
    "from_bits": """
fn $name$(bits: u32) -> f32 {
    // An infinity or a NaN, which no constant may be.
    var b = bits;
    return bitcast<f32>(b);
}
""",
    "source_lane": """
fn $name$(wanted: i32, own: u32, size: u32) -> u32 {
    // The thread's own lane, if the wanted one does not exist.
    return select(own, u32(wanted), u32(wanted) < size);
}
""",
}
_CHANGES: Mapping[str, str] = {
    "add": "$old$ + wt_new",
    "sub": "$old$ - wt_new",
    "min": "min($old$, wt_new)",
    "max": "max($old$, wt_new)",
    "exch": "wt_new",
    "inc": "select($old$ + 1u, 0u, $old$ >= wt_new)",
    "dec": "select($old$ - 1u, wt_new, $old$ == 0u || $old$ > wt_new)",
}


def helper_text(helper: str, name: str) -> str:
    """Return the source of a helper."""
    if helper.startswith("atomic_"):
        _, op, kind, array = helper.split("_", 3)
        return _exchange_loop(name, op, kind, array)
    return _TEXTS[helper].strip("\n").replace("$name$", name)


def _exchange_loop(name: str, op: str, kind: str, array: str) -> str:
    """Return an atomic operation that WGSL lacks, as a compare-exchange loop."""
    word = "i32" if kind == "i32" else "u32"

    def bits(x: str) -> str:
        return f"bitcast<u32>({x})" if kind == "f32" else x

    def back(x: str) -> str:
        return f"bitcast<f32>({x})" if kind == "f32" else x

    if op == "cas":
        return (
            f"fn {name}(wt_at: i32, wt_old: {kind}, wt_new: {kind}) -> {kind} {{\n    loop {{\n"
            f"        let wt_found = atomicCompareExchangeWeak(&{array}[wt_at], {bits('wt_old')}, {bits('wt_new')});\n"
            f"        // It may fail for no reason.\n"
            f"        if (wt_found.exchanged || wt_found.old_value != {bits('wt_old')}) {{ "
            f"return {back('wt_found.old_value')}; }}\n"
            "    }\n    return wt_old;\n}"
        )
    change = bits(_CHANGES[op].replace("$old$", back("wt_seen")))
    return (
        f"fn {name}(wt_at: i32, wt_new: {kind}) -> {kind} {{\n"
        f"    var wt_seen: {word} = atomicLoad(&{array}[wt_at]);\n    loop {{\n"
        f"        let wt_found = atomicCompareExchangeWeak(&{array}[wt_at], wt_seen, {change});\n"
        "        if (wt_found.exchanged) { break; }\n        wt_seen = wt_found.old_value;\n    }\n"
        f"    return {back('wt_seen')};\n}}"
    )
