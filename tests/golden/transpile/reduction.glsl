// Sum the elements of each block in a tree.
//
// Written by Windtunnel from the kernel 'reduction': GLSL for Vulkan.
// Compile with -V --target-env vulkan1.1: glslang's; mark every operation on floats NoContraction, or a product and a sum may become one operation.

#version 450
#extension GL_KHR_memory_scope_semantics : require

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(push_constant) uniform Params {
    int x_shape0;
} params;

layout(set = 0, binding = 0, std430) readonly buffer wt_buffer0 { int x[]; };
layout(set = 0, binding = 1, std430) buffer wt_buffer1 { int out_[]; };
shared int part[256];

void main() {
    int t = int(gl_LocalInvocationID.x);
    int i = int(gl_WorkGroupID.x) * int(gl_WorkGroupSize.x) + int(gl_LocalInvocationID.x);
    part[t] = i < params.x_shape0 ? x[i] : 0;
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
    int stride = int(gl_WorkGroupSize.x) / 2;
    while (stride > 0) {
        if (t < stride) {
            part[t] += part[t + stride];
        }
        controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
        stride = stride / 2;
    }
    if (t == 0) {
        out_[int(gl_WorkGroupID.x)] = part[0];
    }
}
