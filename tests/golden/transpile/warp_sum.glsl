// Compute sums of warps by shuffles, and votes of their threads.
//
// Written by Windtunnel from the kernel 'warp_sum': GLSL for Vulkan.
// Compile with -V --target-env vulkan1.1: glslang's; mark every operation on floats NoContraction, or a product and a sum may become one operation.

#version 450
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(set = 0, binding = 0, std430) readonly buffer wt_buffer0 { int x[]; };
layout(set = 0, binding = 1, std430) buffer wt_buffer1 { int sums[]; };
layout(set = 0, binding = 2, std430) buffer wt_buffer2 { uint flags[]; };

uint wt_source_lane(int wanted) {
    // The thread's own lane, if the wanted one does not exist.
    return uint(wanted) < gl_SubgroupSize ? uint(wanted) : gl_SubgroupInvocationID;
}

void main() {
    int i = int(gl_WorkGroupID.x) * int(gl_WorkGroupSize.x) + int(gl_LocalInvocationID.x);
    int value = x[i];
    int distance = int(gl_SubgroupSize) / 2;
    while (distance > 0) {
        value += subgroupShuffle(value, wt_source_lane(int(gl_SubgroupInvocationID) + distance));
        distance = distance / 2;
    }
    int first = subgroupShuffle(value, uint(0) & (gl_SubgroupSize - 1u));
    int other = subgroupShuffle(i, wt_source_lane(int(gl_SubgroupInvocationID) ^ 1));
    sums[i] = first + (other - i);
    uint votes = subgroupBallot(x[i] > 0).x;
    flags[i] = subgroupAny(x[i] > 5) ? votes : 0u;
    if (int(gl_SubgroupInvocationID) == 0) {
        flags[i] += 1u;
    }
}
