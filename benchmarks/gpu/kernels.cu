// Kernels whose work is known by counting: what benchmarks/gpu/measure.py times, and Nsight Compute counts.
// Every name begins with wt_, by which the profiler selects them.

extern "C" __global__ void wt_empty() {}

extern "C" __global__ void wt_copy(const float *a, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i];
}

extern "C" __global__ void wt_copy4(const float4 *a, float4 *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 4) c[i] = a[i];
}

extern "C" __global__ void wt_copy_offset(const float *a, float *c, int n, int offset) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n - offset) c[i] = a[i + offset];
}

extern "C" __global__ void wt_read_stride(const float *a, float *c, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / stride) c[i] = a[(long long)i * stride];
}

extern "C" __global__ void wt_write_stride(const float *a, float *c, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / stride) c[(long long)i * stride] = a[i];
}

extern "C" __global__ void wt_gather(const float *a, const int *index, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[index[i]];
}

extern "C" __global__ void wt_add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void wt_add_grid_stride(const float *a, const float *b, float *c, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) c[i] = a[i] + b[i];
}

extern "C" __global__ void wt_add_bytes(const unsigned char *a, const unsigned char *b, unsigned char *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void wt_add_double(const double *a, const double *b, double *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void wt_gelu(const float *a, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = 0.5f * a[i] * (1.0f + erff(a[i] * 0.70710678f));
}

extern "C" __global__ void wt_tanh(const float *a, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = tanhf(a[i]);
}

extern "C" __global__ void wt_pow(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = powf(a[i], b[i]);
}

extern "C" __global__ void wt_divide(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] / b[i];
}

extern "C" __global__ void wt_fma_f32(float *c, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float w = i * 1e-9f, x = w + 1, y = w + 2, z = w + 3;
    for (int k = 0; k < rounds; ++k) {
        w = w * 0.999f + 1e-3f; x = x * 0.999f + 1e-3f; y = y * 0.999f + 1e-3f; z = z * 0.999f + 1e-3f;
    }
    if (i < n) c[i] = w + x + y + z;
}

extern "C" __global__ void wt_fma_f64(double *c, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double w = i * 1e-9, x = w + 1, y = w + 2, z = w + 3;
    for (int k = 0; k < rounds; ++k) {
        w = w * 0.999 + 1e-3; x = x * 0.999 + 1e-3; y = y * 0.999 + 1e-3; z = z * 0.999 + 1e-3;
    }
    if (i < n) c[i] = w + x + y + z;
}

extern "C" __global__ void wt_mad_i32(int *c, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int w = i, x = i + 1, y = i + 2, z = i + 3;
    for (int k = 0; k < rounds; ++k) {
        w = w * w + k; x = x * x + k; y = y * y + k; z = z * z + k;
    }
    if (i < n) c[i] = w ^ x ^ y ^ z;
}

extern "C" __global__ void wt_latency_chain(float *c, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float w = i * 1e-9f;
    for (int k = 0; k < rounds; ++k) w = w * 0.999f + 1e-3f;
    if (i < n) c[i] = w;
}

extern "C" __global__ void wt_reduce_tree(const float *a, float *c, int n) {
    __shared__ float held[256];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    held[t] = i < n ? a[i] : 0.0f;
    __syncthreads();
    for (int step = 128; step > 0; step >>= 1) {
        if (t < step) held[t] += held[t + step];
        __syncthreads();
    }
    if (t == 0) c[blockIdx.x] = held[0];
}

extern "C" __global__ void wt_reduce_interleaved(const float *a, float *c, int n) {
    __shared__ float held[256];  // divides warps and meets bank conflicts
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    held[t] = i < n ? a[i] : 0.0f;
    __syncthreads();
    for (int step = 1; step < 256; step *= 2) {
        int at = 2 * step * t;
        if (at < 256) held[at] += held[at + step];
        __syncthreads();
    }
    if (t == 0) c[blockIdx.x] = held[0];
}

extern "C" __global__ void wt_reduce_modulo(const float *a, float *c, int n) {
    __shared__ float held[256];  // divergent in every warp
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    held[t] = i < n ? a[i] : 0.0f;
    __syncthreads();
    for (int step = 1; step < 256; step *= 2) {
        if (t % (2 * step) == 0) held[t] += held[t + step];
        __syncthreads();
    }
    if (t == 0) c[blockIdx.x] = held[0];
}

extern "C" __global__ void wt_reduce_shuffle(const float *a, float *c, int n) {
    __shared__ float sums[32];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    float v = i < n ? a[i] : 0.0f;
    for (int step = 16; step > 0; step /= 2) v += __shfl_down_sync(0xffffffff, v, step);
    if (t % 32 == 0) sums[t / 32] = v;
    __syncthreads();
    if (t < 32) {
        v = t < blockDim.x / 32 ? sums[t] : 0.0f;
        for (int step = 16; step > 0; step /= 2) v += __shfl_down_sync(0xffffffff, v, step);
        if (t == 0) c[blockIdx.x] = v;
    }
}

extern "C" __global__ void wt_atomic_one_address(int *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(c, i);
}

extern "C" __global__ void wt_atomic_one_address_old(int *c, int *old, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) old[i] = atomicAdd(c, 1);
}

extern "C" __global__ void wt_atomic_spread(int *c, int n, int addresses) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&c[i % addresses], 1);
}

extern "C" __global__ void wt_atomic_float_spread(float *c, int n, int addresses) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&c[i % addresses], 1.0f);
}

extern "C" __global__ void wt_histogram_global(const int *a, int *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&c[a[i] & 255], 1);
}

extern "C" __global__ void wt_histogram_shared(const int *a, int *c, int n) {
    __shared__ int held[256];
    held[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&held[a[i] & 255], 1);
    __syncthreads();
    atomicAdd(&c[threadIdx.x], held[threadIdx.x]);
}

extern "C" __global__ void wt_cas_lock(int *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int seen = c[0], before;
        do { before = seen; seen = atomicCAS(c, before, before + 1); } while (seen != before);
    }
}

extern "C" __global__ void wt_transpose_naive(const float *a, float *c, int side) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) c[(long long)x * side + y + k] = a[(long long)(y + k) * side + x];
}

extern "C" __global__ void wt_transpose_conflicts(const float *a, float *c, int side) {
    __shared__ float tile[32][32];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = a[(long long)(y + k) * side + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) c[(long long)(y + k) * side + x] = tile[threadIdx.x][threadIdx.y + k];
}

extern "C" __global__ void wt_transpose_padded(const float *a, float *c, int side) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = a[(long long)(y + k) * side + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) c[(long long)(y + k) * side + x] = tile[threadIdx.x][threadIdx.y + k];
}

extern "C" __global__ void wt_banks(float *c, int n, int stride, int rounds) {
    __shared__ float held[1024];
    for (int k = threadIdx.x; k < 1024; k += blockDim.x) held[k] = k;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < rounds; ++k) sum += held[((threadIdx.x + k) * stride) & 1023];
    if (i < n) c[i] = sum;
}

extern "C" __global__ void wt_divergent(float *c, int n, int ways, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, way = i % ways;
    float w = i * 1e-9f;
    for (int path = 0; path < ways; ++path)
        if (path == way)
            for (int k = 0; k < rounds; ++k) w = w * 0.999f + (path + 1) * 1e-3f;
    if (i < n) c[i] = w;
}

extern "C" __global__ void wt_uneven_loop(float *c, int n, int longest) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float w = i * 1e-9f;
    for (int k = 0; k < (i % 32 + 1) * longest / 32; ++k) w = w * 0.999f + 1e-3f;
    if (i < n) c[i] = w;
}

extern "C" __global__ void wt_stencil_naive(const float *a, float *c, int side) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x > 0 && y > 0 && x < side - 1 && y < side - 1) {
        const float *at = a + (long long)y * side + x;
        c[(long long)y * side + x] = 0.2f * (at[0] + at[-1] + at[1] + at[-side] + at[side]);
    }
}

extern "C" __global__ void wt_stencil_shared(const float *a, float *c, int side) {
    __shared__ float held[10][34];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y, tx = threadIdx.x + 1, ty = threadIdx.y + 1;
    const float *at = a + (long long)y * side + x;
    held[ty][tx] = at[0];
    if (threadIdx.x == 0) held[ty][0] = x > 0 ? at[-1] : 0.0f;
    if (threadIdx.x == 31) held[ty][33] = x < side - 1 ? at[1] : 0.0f;
    if (threadIdx.y == 0) held[0][tx] = y > 0 ? at[-side] : 0.0f;
    if (threadIdx.y == 7) held[9][tx] = y < side - 1 ? at[side] : 0.0f;
    __syncthreads();
    if (x > 0 && y > 0 && x < side - 1 && y < side - 1)
        c[(long long)y * side + x] =
            0.2f * (held[ty][tx] + held[ty][tx - 1] + held[ty][tx + 1] + held[ty - 1][tx] + held[ty + 1][tx]);
}

extern "C" __global__ void wt_matmul_naive(const float *a, const float *b, float *c, int side) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0.0f;
    for (int k = 0; k < side; ++k) sum += a[y * side + k] * b[k * side + x];
    c[y * side + x] = sum;
}

extern "C" __global__ void wt_matmul_tiled(const float *a, const float *b, float *c, int side) {
    __shared__ float left[32][32], right[32][32];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    float sum = 0.0f;
    for (int tile = 0; tile < side / 32; ++tile) {
        left[threadIdx.y][threadIdx.x] = a[y * side + tile * 32 + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(tile * 32 + threadIdx.y) * side + x];
        __syncthreads();
        for (int k = 0; k < 32; ++k) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
        __syncthreads();
    }
    c[y * side + x] = sum;
}

extern "C" __global__ void wt_softmax_rows(const float *a, float *c, int width) {
    __shared__ float held[256];
    const float *in = a + (long long)blockIdx.x * width;
    float *out = c + (long long)blockIdx.x * width, most = -1e30f, sum = 0.0f;
    int t = threadIdx.x;
    for (int k = t; k < width; k += 256) most = fmaxf(most, in[k]);
    held[t] = most;
    __syncthreads();
    for (int step = 128; step > 0; step >>= 1) {
        if (t < step) held[t] = fmaxf(held[t], held[t + step]);
        __syncthreads();
    }
    most = held[0];
    __syncthreads();
    for (int k = t; k < width; k += 256) sum += expf(in[k] - most);
    held[t] = sum;
    __syncthreads();
    for (int step = 128; step > 0; step >>= 1) {
        if (t < step) held[t] += held[t + step];
        __syncthreads();
    }
    for (int k = t; k < width; k += 256) out[k] = expf(in[k] - most) / held[0];
}

extern "C" __global__ void wt_local_array(const int *index, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float held[32];
    for (int k = 0; k < 32; ++k) held[k] = i * 0.5f + k;
    float sum = 0.0f;
    for (int k = 0; k < 8; ++k) sum += held[(index[i] + 5 * k) & 31];
    c[i] = sum;
}

extern "C" __global__ void wt_occupancy(const float *a, float *c, int n) {
    extern __shared__ float held[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    held[threadIdx.x] = i < n ? a[i] : 0.0f;
    __syncthreads();
    if (i < n) c[i] = held[blockDim.x - 1 - threadIdx.x];
}

extern "C" __global__ void wt_barriers(float *c, int n, int rounds) {
    __shared__ float held[256];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    held[t] = i;
    for (int k = 0; k < rounds; ++k) {
        __syncthreads();
        float v = held[(t + 1) & 255];
        __syncthreads();
        held[t] = v + 1.0f;
    }
    if (i < n) c[i] = held[t];
}
