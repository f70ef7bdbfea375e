// Compute with 16-bit floats; every operation is rounded.
//
// Written by Windtunnel from the kernel 'halves': GLSL for Vulkan.
// Compile with -V --target-env vulkan1.1: glslang's; mark every operation on floats NoContraction, or a product and a sum may become one operation.

#version 450
#extension GL_EXT_shader_16bit_storage : require

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(push_constant) uniform Params {
    int x_shape0;
    float a;
    float scale;
} params;

layout(set = 0, binding = 0, std430) readonly buffer wt_buffer0 { uint16_t x[]; };
layout(set = 0, binding = 1, std430) buffer wt_buffer1 { uint16_t y[]; };

float wt_load_f16(uint b) {
    // GLSL leaves the rounding of its own halves to the driver, and whether small ones become 0.
    uint sign = (b & 0x8000u) << 16, size = b & 0x7fffu;
    if (size >= 0x7c00u) return uintBitsToFloat(sign | 0x7f800000u | (size & 0x3ffu) << 13);
    if (size < 0x400u) return uintBitsToFloat(sign | floatBitsToUint(float(size) * 5.9604644775390625e-8f));
    return uintBitsToFloat(sign | (size << 13) + 0x38000000u);
}

uint wt_store_f16(float x) {
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

float wt_round_f16(float x) {
    return wt_load_f16(wt_store_f16(x));
}

float wt_fmod_f32(float x, float y) {
    // Exact, bit by bit, as C's; GLSL's mod is neither.
    uint a = floatBitsToUint(x), b = floatBitsToUint(y), sign = a & 0x80000000u;
    a ^= sign;
    b &= ~0x80000000u;
    if (a >= 0x7f800000u || b > 0x7f800000u || b == 0u) return uintBitsToFloat(0x7fc00000u);
    if (a < b) return x;
    int ea = int(a >> 23), eb = int(b >> 23);
    a = ea == 0 ? a : a & 0x800000u - 1u | 0x800000u;
    b = eb == 0 ? b : b & 0x800000u - 1u | 0x800000u;
    for (int e = max(ea, 1); e > max(eb, 1); --e) {
        if (a >= b) a -= b;
        a <<= 1;
    }
    if (a >= b) a -= b;
    if (a == 0u) return uintBitsToFloat(sign);
    eb = max(eb, 1);
    while (a < 0x800000u && eb > 1) {
        a <<= 1;
        --eb;
    }
    return uintBitsToFloat(sign | (a < 0x800000u ? a : a - 0x800000u | uint(eb) << 23));
}

float wt_copysign_f32(float x, float y) {
    return uintBitsToFloat(floatBitsToUint(x) & ~0x80000000u | floatBitsToUint(y) & 0x80000000u);
}

float wt_floor_div_f32(float a, float b) {
    // Rounds down, as Python and NumPy do, from the exact remainder.
    if (b == 0.0f) return a / b;
    float r = wt_fmod_f32(a, b);
    float q = (a - r) / b;
    if (r != 0.0f && (b < 0.0f) != (r < 0.0f)) q -= 1.0f;
    if (q == 0.0f) return wt_copysign_f32(0.0f, a / b);
    float down = floor(q);
    return q - down > 0.5f ? down + 1.0f : down;
}

bool wt_isnan_f32(float x) {
    return (floatBitsToUint(x) & ~0x80000000u) > 0x7f800000u;
}

float wt_fmax_f32(float a, float b) {
    // A NaN is not the larger one.
    return b > a || wt_isnan_f32(a) ? b : a;
}

float wt_fmin_f32(float a, float b) {
    // A NaN is not the smaller one.
    return b < a || wt_isnan_f32(a) ? b : a;
}

void main() {
    float a = params.a;
    int i = int(gl_WorkGroupID.x) * int(gl_WorkGroupSize.x) + int(gl_LocalInvocationID.x);
    if (i < params.x_shape0) {
        float z = wt_round_f16(wt_round_f16(a * wt_load_f16(uint(x[i]))) + wt_load_f16(uint(y[i])));
        z = wt_round_f16(wt_round_f16(z / wt_round_f16(abs(wt_load_f16(uint(x[i]))) + 1.0f)) - wt_round_f16(params.scale * 0.1f));
        z = wt_round_f16(z * a + wt_round_f16(wt_round_f16(sqrt(abs(wt_load_f16(uint(y[i]))))) + wt_round_f16(wt_floor_div_f32(z, 3.0f))));
        y[i] = uint16_t(wt_store_f16(wt_fmax_f32(wt_fmin_f32(z, 1000.0f), -wt_load_f16(uint(x[i])))));
    }
}
