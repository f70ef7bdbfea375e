// Compute a one-dimensional stencil without a tile.
//
// Written by Windtunnel from the kernel 'smoothed': GLSL for Vulkan.
// Compile with -V --target-env vulkan1.1: glslang's; mark every operation on floats NoContraction, or a product and a sum may become one operation.

#version 450

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(push_constant) uniform Params {
    int x_shape0;
} params;

layout(set = 0, binding = 0, std430) readonly buffer wt_buffer0 { float x[]; };
layout(set = 0, binding = 1, std430) buffer wt_buffer1 { float out_[]; };

void main() {
    int x_1 = int(gl_WorkGroupID.x) * int(gl_WorkGroupSize.x) + int(gl_LocalInvocationID.x) + 2;
    if (x_1 < params.x_shape0 - 2) {
        float near = x[x_1 - 1] + x[x_1 + 1];
        out_[x_1] = 0.5f * x[x_1] + 0.25f * near - 0.0625f * (x[x_1 - 2] + x[x_1 + 2]);
    }
}
