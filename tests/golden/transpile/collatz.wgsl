// Count the steps to 1; -1 if 200 steps are not enough, -2 for numbers below 1.
//
// Written by Windtunnel from the kernel 'collatz': WGSL.
// There is no option against contraction: if an implementation fuses operations or flushes subnormals, the last bit may differ.

struct Params {
    x_shape0: i32,
}

@group(0) @binding(0) var<storage, read> x: array<i32>;
@group(0) @binding(1) var<storage, read_write> steps: array<i32>;
@group(0) @binding(2) var<uniform> params: Params;
const blockDim = vec3<i32>(256, 1, 1);

fn wt_floor_mod_i32(a: i32, b: i32) -> i32 {
    // Has the sign of b, as Python's.
    if (b == 0 || b == -1) { return 0; }
    let r = a % b;
    return select(r, r + b, r != 0 && ((r ^ b) < 0));
}

fn wt_floor_div_i32(a: i32, b: i32) -> i32 {
    // Rounds down, as Python does; of the smallest number and -1 it wraps, of 0 it is 0.
    if (b == 0) { return 0; }
    if (b == -1) { return -a; }
    let q = a / b;
    return select(q, q - 1, q * b != a && ((a ^ b) < 0));
}

@compute @workgroup_size(256, 1, 1)
fn collatz(@builtin(local_invocation_id) local_invocation_id: vec3<u32>, @builtin(workgroup_id) workgroup_id: vec3<u32>) {
    let threadIdx = vec3<i32>(local_invocation_id);
    let blockIdx = vec3<i32>(workgroup_id);
    var i: i32 = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= params.x_shape0) {
        return;
    }
    var n: i32 = x[i];
    if (n <= 0) {
        steps[i] = -2;
        return;
    }
    var count: i32 = 0;
    while (true) {
        if (n == 1) {
            break;
        }
        if (count >= 200) {
            count = -1;
            break;
        }
        count += 1;
        if (wt_floor_mod_i32(n, 2) == 0) {
            n = wt_floor_div_i32(n, 2);
            continue;
        }
        n = 3 * n + 1;
    }
    steps[i] = count;
}
