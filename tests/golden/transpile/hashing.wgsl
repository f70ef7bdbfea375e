// Compute with signed and unsigned integers that wrap around, and with bits.
//
// Written by Windtunnel from the kernel 'hashing': WGSL.
// There is no option against contraction: if an implementation fuses operations or flushes subnormals, the last bit may differ.

struct Params {
    x_shape0: i32,
}

@group(0) @binding(0) var<storage, read> x: array<i32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<storage, read_write> signed_: array<i32>;
@group(0) @binding(3) var<uniform> params: Params;
const blockDim = vec3<i32>(256, 1, 1);

fn wt_shift_right_i32(a: i32, b: i32) -> i32 {
    return a >> min(u32(b), 31u);
}

fn wt_shift_left_i32(a: i32, b: i32) -> i32 {
    // All bits are shifted out by as many as there are, or more.
    if (u32(b) >= 32u) { return 0; }
    return a << u32(b);
}

fn wt_power_i32(base: i32, exponent: i32) -> i32 {
    var product = 1;
    for (var n = 0; n < exponent; n++) { product *= base; }
    return product;
}

@compute @workgroup_size(256, 1, 1)
fn hashing(@builtin(local_invocation_id) local_invocation_id: vec3<u32>, @builtin(workgroup_id) workgroup_id: vec3<u32>) {
    let threadIdx = vec3<i32>(local_invocation_id);
    let blockIdx = vec3<i32>(workgroup_id);
    var i: i32 = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < params.x_shape0) {
        var h: u32 = u32(x[i]) ^ 2166136261u;
        for (var turn: i32 = 0; turn < 4; turn++) {
            h = (h ^ (h >> 15u)) * 16777619u;
            h += u32(turn << 3u);
        }
        out[i] = h ^ u32(i32(countOneBits(h)) + i32(countLeadingZeros(h)) + (i32(firstTrailingBit(h)) + 1));
        var s: i32 = x[i] * 1103515245 + 12345;
        s = s - (s << 13u) + (s >> u32(i & 31)) * -s;
        signed_[i] = abs(s) + wt_shift_right_i32(s, i) + wt_shift_left_i32(s, i) + wt_power_i32(x[i], 3) - s * s;
    }
}
