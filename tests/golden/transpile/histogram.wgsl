// Count each value in shared memory first; also compute the largest value, and the sum of all as floats.
//
// Written by Windtunnel from the kernel 'histogram': WGSL.
// There is no option against contraction: if an implementation fuses operations or flushes subnormals, the last bit may differ.

struct Params {
    values_shape0: i32,
}

@group(0) @binding(0) var<storage, read> values: array<i32>;
@group(0) @binding(1) var<storage, read_write> bins: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read_write> largest: array<atomic<i32>>;
@group(0) @binding(3) var<storage, read_write> total: array<atomic<u32>>;
@group(0) @binding(4) var<uniform> params: Params;
var<workgroup> counts: array<atomic<u32>, 16>;
const blockDim = vec3<i32>(256, 1, 1);

fn wt_floor_mod_i32(a: i32, b: i32) -> i32 {
    // Has the sign of b, as Python's.
    if (b == 0 || b == -1) { return 0; }
    let r = a % b;
    return select(r, r + b, r != 0 && ((r ^ b) < 0));
}

fn wt_atomic_add_f32_total(wt_at: i32, wt_new: f32) -> f32 {
    var wt_seen: u32 = atomicLoad(&total[wt_at]);
    loop {
        let wt_found = atomicCompareExchangeWeak(&total[wt_at], wt_seen, bitcast<u32>(bitcast<f32>(wt_seen) + wt_new));
        if (wt_found.exchanged) { break; }
        wt_seen = wt_found.old_value;
    }
    return bitcast<f32>(wt_seen);
}

fn wt_atomic_max_f32_total(wt_at: i32, wt_new: f32) -> f32 {
    var wt_seen: u32 = atomicLoad(&total[wt_at]);
    loop {
        let wt_found = atomicCompareExchangeWeak(&total[wt_at], wt_seen, bitcast<u32>(max(bitcast<f32>(wt_seen), wt_new)));
        if (wt_found.exchanged) { break; }
        wt_seen = wt_found.old_value;
    }
    return bitcast<f32>(wt_seen);
}

@compute @workgroup_size(256, 1, 1)
fn histogram(@builtin(local_invocation_id) local_invocation_id: vec3<u32>, @builtin(workgroup_id) workgroup_id: vec3<u32>) {
    let threadIdx = vec3<i32>(local_invocation_id);
    let blockIdx = vec3<i32>(workgroup_id);
    var t: i32 = threadIdx.x;
    if (t < 16) {
        atomicStore(&counts[t], 0u);
    }
    workgroupBarrier();
    storageBarrier();
    var i: i32 = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < params.values_shape0) {
        atomicAdd(&counts[wt_floor_mod_i32(values[i], 16)], 1u);
        atomicMax(&largest[0], values[i]);
        wt_atomic_add_f32_total(0, f32(values[i]));
        wt_atomic_max_f32_total(1, f32(values[i]));
    }
    workgroupBarrier();
    storageBarrier();
    if (t < 16) {
        atomicAdd(&bins[t], atomicLoad(&counts[t]));
    }
}
