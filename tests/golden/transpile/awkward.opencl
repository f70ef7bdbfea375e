// Use reserved names, choices that must not be evaluated, and an evaluation in a condition.
//
// Written by Windtunnel from the kernel 'awkward': OpenCL C.
// Compile with -cl-fp32-correctly-rounded-divide-sqrt: if the device supports it; no option that relaxes floating point (-cl-mad-enable, -cl-fast-relaxed-math).

#pragma OPENCL FP_CONTRACT OFF

__kernel void awkward(__global float *out, __global const float *sampler_, int out_shape0_, int sampler_shape0, int kernel_, float half_, int out_shape0) {
    int i = (int)get_group_id(0) * (int)get_local_size(0) + (int)get_local_id(0);
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
