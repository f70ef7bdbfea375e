// Sum the elements of each block in a tree.
//
// Written by Windtunnel from the kernel 'reduction': WGSL.
// There is no option against contraction: if an implementation fuses operations or flushes subnormals, the last bit may differ.

struct Params {
    x_shape0: i32,
}

@group(0) @binding(0) var<storage, read> x: array<i32>;
@group(0) @binding(1) var<storage, read_write> out: array<i32>;
@group(0) @binding(2) var<uniform> params: Params;
var<workgroup> part: array<i32, 256>;
const blockDim = vec3<i32>(256, 1, 1);

@compute @workgroup_size(256, 1, 1)
fn reduction(@builtin(local_invocation_id) local_invocation_id: vec3<u32>, @builtin(workgroup_id) workgroup_id: vec3<u32>) {
    let threadIdx = vec3<i32>(local_invocation_id);
    let blockIdx = vec3<i32>(workgroup_id);
    var t: i32 = threadIdx.x;
    var i: i32 = blockIdx.x * blockDim.x + threadIdx.x;
    var chosen: i32;
    if (i < params.x_shape0) {
        chosen = x[i];
    } else {
        chosen = 0;
    }
    part[t] = chosen;
    workgroupBarrier();
    storageBarrier();
    var stride: i32 = blockDim.x / 2;
    while (stride > 0) {
        if (t < stride) {
            part[t] += part[t + stride];
        }
        workgroupBarrier();
        storageBarrier();
        stride = stride / 2;
    }
    if (t == 0) {
        out[blockIdx.x] = part[0];
    }
}
