// Use reserved names, choices that must not be evaluated, and an evaluation in a condition.
//
// Written by Windtunnel from the kernel 'awkward': GLSL for Vulkan.
// Compile with -V --target-env vulkan1.1: glslang's; mark every operation on floats NoContraction, or a product and a sum may become one operation.

#version 450

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(push_constant) uniform Params {
    int out_shape0_;
    int sampler_shape0;
    int kernel_;
    float half_;
    int out_shape0;
} params;

layout(set = 0, binding = 0, std430) buffer wt_buffer0 { float out_[]; };
layout(set = 0, binding = 1, std430) readonly buffer wt_buffer1 { float sampler_[]; };

void main() {
    float half_ = params.half_;
    int i = int(gl_WorkGroupID.x) * int(gl_WorkGroupSize.x) + int(gl_LocalInvocationID.x);
    float float4 = half_;
    if (i < params.out_shape0_) {
        float switch_ = i < params.sampler_shape0 ? sampler_[i] : 0.0f;
        while (i < params.sampler_shape0 && (switch_ > 0.25f ? sampler_[i] : 0.0f) > 0.5f) {
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
        const float half_stop = float(params.out_shape0);
        const float half_step = params.kernel_ > 1 ? 3.0f : 2.0f;
        for (float half_at = float(params.kernel_); half_at < half_stop; half_at += half_step) {
            half_ = half_at;
            var_ += half_;
            half_ += 1.0f;
        }
        out_[i] = half_ > 3.0f ? var_ : var_ * 2.0f;
    }
}
