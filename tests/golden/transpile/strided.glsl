// Process the elements of a thread with a constant stride.
//
// Written by Windtunnel from the kernel 'strided': GLSL for Vulkan.
// Compile with -V --target-env vulkan1.1: glslang's; mark every operation on floats NoContraction, or a product and a sum may become one operation.

#version 450

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(push_constant) uniform Params {
    int x_shape0;
    float scale;
} params;

layout(set = 0, binding = 0, std430) readonly buffer wt_buffer0 { float x[]; };
layout(set = 0, binding = 1, std430) buffer wt_buffer1 { float out_[]; };

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
    int start = int(gl_WorkGroupID.x) * int(gl_WorkGroupSize.x) + int(gl_LocalInvocationID.x);
    for (int i = start; i < params.x_shape0; i += int(gl_NumWorkGroups.x) * int(gl_WorkGroupSize.x)) {
        out_[i] = wt_fmax_f32(x[i], 0.0f) * params.scale - wt_fmin_f32(x[i], -1.0f);
    }
}
