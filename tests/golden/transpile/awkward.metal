// Use reserved names, choices that must not be evaluated, and an evaluation in a condition.
//
// Written by Windtunnel from the kernel 'awkward': the Metal shading language.
// Compile with -fno-fast-math -ffp-contract=off: in a program, MTLCompileOptions.mathMode = .safe; a product and a sum must not become one operation.

#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(off)

kernel void awkward(
    device float *out [[buffer(0)]],
    device const float *sampler_ [[buffer(1)]],
    constant int &out_shape0_ [[buffer(2)]],
    constant int &sampler_shape0 [[buffer(3)]],
    constant int &kernel_ [[buffer(4)]],
    constant float &wt_half_ [[buffer(5)]],
    constant int &out_shape0 [[buffer(6)]],
    uint3 threadIdx [[thread_position_in_threadgroup]],
    uint3 blockIdx [[threadgroup_position_in_grid]],
    uint3 blockDim [[threads_per_threadgroup]]) {
    float half_ = (float)wt_half_;
    int i = (int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x;
    float float4 = half_;
    if (i < out_shape0_) {
        float switch_ = i < sampler_shape0 ? sampler_[i] : 0.0f;
        while (i < sampler_shape0 && (switch_ > 0.25f ? sampler_[i] : 0.0f) > 0.5f) {
            switch_ *= half_;
            if (switch_ < 0.1f) {
                break;
            }
            if (switch_ < 0.2f || (i > 0 ? sampler_[i - 1] : 1.0f) > 0.5f) {
                continue;
            }
            switch_ -= 0.01f;
        }
        float var_ = switch_ > 0.0f ? switch_ : float4;
        const float half_stop = (float)out_shape0;
        const float half_step = kernel_ > 1 ? 3.0f : 2.0f;
        for (float half_at = (float)kernel_; half_at < half_stop; half_at += half_step) {
            half_ = half_at;
            var_ += half_;
            half_ += 1.0f;
        }
        out[i] = half_ > 3.0f ? var_ : var_ * 2.0f;
    }
}
