// Round // and % down, with signs, for zero, the smallest number and floats; indices use plain operators.
//
// Written by Windtunnel from the kernel 'floors': GLSL for Vulkan.
// Compile with -V --target-env vulkan1.1: glslang's; mark every operation on floats NoContraction, or a product and a sum may become one operation.

#version 450

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(push_constant) uniform Params {
    int a_shape0;
} params;

layout(set = 0, binding = 0, std430) readonly buffer wt_buffer0 { int a[]; };
layout(set = 0, binding = 1, std430) readonly buffer wt_buffer1 { int b[]; };
layout(set = 0, binding = 2, std430) buffer wt_buffer2 { int quotient[]; };
layout(set = 0, binding = 3, std430) buffer wt_buffer3 { int rest[]; };
layout(set = 0, binding = 4, std430) readonly buffer wt_buffer4 { float x[]; };
layout(set = 0, binding = 5, std430) readonly buffer wt_buffer5 { float y[]; };
layout(set = 0, binding = 6, std430) buffer wt_buffer6 { float fq[]; };
layout(set = 0, binding = 7, std430) buffer wt_buffer7 { float fr[]; };

int wt_floor_div_i32(int a, int b) {
    // Rounds down, as Python does; of the smallest number and -1 it wraps, of 0 it is 0.
    if (b == 0) return 0;
    if (b == -1) return -a;
    int q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

int wt_floor_mod_i32(int a, int b) {
    // Has the sign of b, as Python's. GLSL does not say what its own % is of numbers below 0.
    if (b == 0 || b == -1) return 0;
    int r = a - a / b * b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
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

float wt_floor_mod_f32(float a, float b) {
    // Has the sign of b, as Python's.
    float r = wt_fmod_f32(a, b);
    if (b == 0.0f) return r;
    if (r == 0.0f) return wt_copysign_f32(0.0f, b);
    return (b < 0.0f) != (r < 0.0f) ? r + b : r;
}

void main() {
    int i = int(gl_WorkGroupID.x) * int(gl_WorkGroupSize.x) + int(gl_LocalInvocationID.x);
    if (i < params.a_shape0) {
        quotient[i] = wt_floor_div_i32(a[i], b[i]) + int(gl_LocalInvocationID.x) / 4;
        rest[i] = wt_floor_mod_i32(a[i], b[i]) + i % 3;
        fq[i] = wt_floor_div_f32(x[i], y[i]);
        fr[i] = wt_floor_mod_f32(x[i], y[i]);
    }
}
