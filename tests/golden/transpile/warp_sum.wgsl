// Compute sums of warps by shuffles, and votes of their threads.
//
// Written by Windtunnel from the kernel 'warp_sum': WGSL.
// There is no option against contraction: if an implementation fuses operations or flushes subnormals, the last bit may differ.

enable subgroups;

@group(0) @binding(0) var<storage, read> x: array<i32>;
@group(0) @binding(1) var<storage, read_write> sums: array<i32>;
@group(0) @binding(2) var<storage, read_write> flags: array<u32>;
const blockDim = vec3<i32>(256, 1, 1);

fn wt_source_lane(wanted: i32, own: u32, size: u32) -> u32 {
    // The thread's own lane, if the wanted one does not exist.
    return select(own, u32(wanted), u32(wanted) < size);
}

@compute @workgroup_size(256, 1, 1)
fn warp_sum(@builtin(local_invocation_id) local_invocation_id: vec3<u32>, @builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(subgroup_invocation_id) subgroup_invocation_id: u32, @builtin(subgroup_size) subgroup_size: u32) {
    let threadIdx = vec3<i32>(local_invocation_id);
    let blockIdx = vec3<i32>(workgroup_id);
    var i: i32 = blockIdx.x * blockDim.x + threadIdx.x;
    var value: i32 = x[i];
    var distance: i32 = i32(subgroup_size) / 2;
    while (distance > 0) {
        value += subgroupShuffle(value, wt_source_lane(i32(subgroup_invocation_id) + distance, subgroup_invocation_id, subgroup_size));
        distance = distance / 2;
    }
    var first: i32 = subgroupShuffle(value, 0u & (subgroup_size - 1u));
    var other: i32 = subgroupShuffle(i, wt_source_lane(i32(subgroup_invocation_id) ^ 1, subgroup_invocation_id, subgroup_size));
    sums[i] = first + (other - i);
    var votes: u32 = subgroupBallot(x[i] > 0).x;
    flags[i] = select(0u, votes, subgroupAny(x[i] > 5));
    if (i32(subgroup_invocation_id) == 0) {
        flags[i] += 1u;
    }
}
