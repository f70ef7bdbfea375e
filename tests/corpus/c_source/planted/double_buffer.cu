// Relaxation steps of a rod, whose temperatures alternate between two rows of shared memory.
__global__ void double_buffer(float *rod, int steps)
{
    __shared__ float rows[2][66];
    const int t = threadIdx.x + 1;
    float *now = rows[0], *next = rows[0];
    now[t] = rod[blockIdx.x * 64 + t - 1];
    if (t == 1) {
        rows[0][0] = rows[1][0] = 1.0f;
        rows[0][65] = rows[1][65] = 0.0f;
    }
    __syncthreads();
    for (int step = 0; step < steps; ++step) {
        next[t] = 0.25f * now[t - 1] + 0.5f * now[t] + 0.25f * now[t + 1];
        __syncthreads();
        float *other = now;
        now = next;
        next = other;
    }
    rod[blockIdx.x * 64 + t - 1] = now[t];
}
