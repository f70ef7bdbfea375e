// Compute with signed and unsigned integers that wrap around, and with bits.
//
// Written by Windtunnel from the kernel 'hashing': OpenCL C.
// Compile with -cl-fp32-correctly-rounded-divide-sqrt: if the device supports it; no option that relaxes floating point (-cl-mad-enable, -cl-fast-relaxed-math).

#pragma OPENCL FP_CONTRACT OFF

static inline int wt_popc_u32(uint x) {
    return (int)popcount(x);
}

static inline int wt_clz_u32(uint x) {
    return (int)clz(x);
}

static inline int wt_ffs_u32(uint x) {
    return x ? 32 - (int)clz(x & -x) : 0;
}

static inline int wt_abs_i32(int a) {
    return a < 0 ? (int)(0u - (uint)a) : a;
}

static inline int wt_shift_right_i32(int a, int b) {
    return (uint)b < 32 ? a >> b : a < 0 ? -1 : 0;
}

static inline int wt_shift_left_i32(int a, int b) {
    // All bits are shifted out by as many as there are, or more.
    return (uint)b < 32 ? (int)((uint)a << b) : 0;
}

static inline int wt_power_i32(int base, int exponent) {
    uint product = 1u;
    for (int n = 0; n < exponent; ++n) product *= (uint)base;
    return (int)product;
}

__kernel void hashing(__global const int *x, __global uint *out, __global int *signed_, int x_shape0) {
    int i = (int)get_group_id(0) * (int)get_local_size(0) + (int)get_local_id(0);
    if (i < x_shape0) {
        uint h = (uint)x[i] ^ 2166136261u;
        for (int turn = 0; turn < 4; ++turn) {
            h = (h ^ (h >> 15u)) * 16777619u;
            h += (uint)turn << 3;
        }
        out[i] = h ^ ((uint)wt_popc_u32(h) + (uint)wt_clz_u32(h) + (uint)wt_ffs_u32(h));
        int s = (uint)x[i] * 1103515245u + 12345u;
        s = (uint)s - ((uint)s << 13) + (uint)(s >> (i & 31)) * (0u - (uint)s);
        signed_[i] = (uint)wt_abs_i32(s) + (uint)wt_shift_right_i32(s, i) + (uint)wt_shift_left_i32(s, i) + (uint)wt_power_i32(x[i], 3) - (uint)(int)((uint)s * (uint)s);
    }
}
