// Count each value in shared memory first; also compute the largest value, and the sum of all as floats.
//
// Written by Windtunnel from the kernel 'histogram': GLSL for Vulkan.
// Compile with -V --target-env vulkan1.1: glslang's; mark every operation on floats NoContraction, or a product and a sum may become one operation.

#version 450
#extension GL_KHR_memory_scope_semantics : require

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(push_constant) uniform Params {
    int values_shape0;
} params;

layout(set = 0, binding = 0, std430) readonly buffer wt_buffer0 { int values[]; };
layout(set = 0, binding = 1, std430) coherent volatile buffer wt_buffer1 { uint bins[]; };
layout(set = 0, binding = 2, std430) coherent volatile buffer wt_buffer2 { int largest[]; };
layout(set = 0, binding = 3, std430) coherent volatile buffer wt_buffer3 { uint total[]; };
shared uint counts[16];

int wt_floor_mod_i32(int a, int b) {
    // Has the sign of b, as Python's. GLSL does not say what its own % is of numbers below 0.
    if (b == 0 || b == -1) return 0;
    int r = a - a / b * b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

float wt_atomic_add_f32_total(int wt_at, float wt_new) {
    uint wt_seen = total[wt_at], wt_before;
    do {
        wt_before = wt_seen;
        float wt_old = uintBitsToFloat(wt_before);
        wt_seen = atomicCompSwap(total[wt_at], wt_before, floatBitsToUint(wt_old + wt_new));
    } while (wt_seen != wt_before);
    return uintBitsToFloat(wt_seen);
}

bool wt_isnan_f32(float x) {
    return (floatBitsToUint(x) & ~0x80000000u) > 0x7f800000u;
}

float wt_fmax_f32(float a, float b) {
    // A NaN is not the larger one.
    return b > a || wt_isnan_f32(a) ? b : a;
}

float wt_atomic_max_f32_total(int wt_at, float wt_new) {
    uint wt_seen = total[wt_at], wt_before;
    do {
        wt_before = wt_seen;
        float wt_old = uintBitsToFloat(wt_before);
        wt_seen = atomicCompSwap(total[wt_at], wt_before, floatBitsToUint(wt_fmax_f32(wt_old, wt_new)));
    } while (wt_seen != wt_before);
    return uintBitsToFloat(wt_seen);
}

void main() {
    int t = int(gl_LocalInvocationID.x);
    if (t < 16) {
        counts[t] = 0u;
    }
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
    int i = int(gl_WorkGroupID.x) * int(gl_WorkGroupSize.x) + int(gl_LocalInvocationID.x);
    if (i < params.values_shape0) {
        atomicAdd(counts[wt_floor_mod_i32(values[i], 16)], 1u);
        atomicMax(largest[0], values[i]);
        wt_atomic_add_f32_total(0, float(values[i]));
        wt_atomic_max_f32_total(1, float(values[i]));
    }
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
    if (t < 16) {
        atomicAdd(bins[t], counts[t]);
    }
}
