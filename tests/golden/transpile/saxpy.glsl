// Compute y = a x + y, one element per thread.
//
// The result is rounded twice: after the product and after the sum.
//
// Written by Windtunnel from the kernel 'saxpy': GLSL for Vulkan.
// Compile with -V --target-env vulkan1.1: glslang's; mark every operation on floats NoContraction, or a product and a sum may become one operation.

#version 450

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(push_constant) uniform Params {
    int n;
    float a;
} params;

layout(set = 0, binding = 0, std430) readonly buffer wt_buffer0 { float x[]; };
layout(set = 0, binding = 1, std430) buffer wt_buffer1 { float y[]; };

void main() {
    int i = int(gl_WorkGroupID.x) * int(gl_WorkGroupSize.x) + int(gl_LocalInvocationID.x);
    if (i < params.n) {
        y[i] = params.a * x[i] + y[i];
    }
}
