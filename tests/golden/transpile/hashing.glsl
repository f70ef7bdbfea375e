// Compute with signed and unsigned integers that wrap around, and with bits.
//
// Written by Windtunnel from the kernel 'hashing': GLSL for Vulkan.
// Compile with -V --target-env vulkan1.1: glslang's; mark every operation on floats NoContraction, or a product and a sum may become one operation.

#version 450

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(push_constant) uniform Params {
    int x_shape0;
} params;

layout(set = 0, binding = 0, std430) readonly buffer wt_buffer0 { int x[]; };
layout(set = 0, binding = 1, std430) buffer wt_buffer1 { uint out_[]; };
layout(set = 0, binding = 2, std430) buffer wt_buffer2 { int signed_[]; };

int wt_popc_u32(uint x) {
    return bitCount(x);
}

int wt_clz_u32(uint x) {
    return 31 - findMSB(x);
}

int wt_ffs_u32(uint x) {
    return findLSB(x) + 1;
}

int wt_abs_i32(int a) {
    return a < 0 ? -a : a;
}

int wt_shift_right_i32(int a, int b) {
    return a >> (uint(b) < 32u ? int(b) : 32 - 1);
}

int wt_shift_left_i32(int a, int b) {
    // All bits are shifted out by as many as there are, or more.
    return uint(b) < 32u ? a << int(b) : 0;
}

int wt_power_i32(int base, int exponent) {
    int product = 1;
    for (int n = 0; n < exponent; ++n) product *= base;
    return product;
}

void main() {
    int i = int(gl_WorkGroupID.x) * int(gl_WorkGroupSize.x) + int(gl_LocalInvocationID.x);
    if (i < params.x_shape0) {
        uint h = uint(x[i]) ^ 2166136261u;
        for (int turn = 0; turn < 4; ++turn) {
            h = (h ^ (h >> 15)) * 16777619u;
            h += uint(turn << 3);
        }
        out_[i] = h ^ uint(wt_popc_u32(h) + wt_clz_u32(h) + wt_ffs_u32(h));
        int s = x[i] * 1103515245 + 12345;
        s = s - (s << 13) + (s >> (i & 31)) * -s;
        signed_[i] = wt_abs_i32(s) + wt_shift_right_i32(s, i) + wt_shift_left_i32(s, i) + wt_power_i32(x[i], 3) - s * s;
    }
}
