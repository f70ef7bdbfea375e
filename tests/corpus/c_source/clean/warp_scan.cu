// Prefix sums of a block by shuffles: within warps, then of the warps' sums.
__device__ int scanned_in_warp(int v)
{
    for (int d = 1; d < warpSize; d *= 2) {
        int other = __shfl_up_sync(0xffffffffu, v, d);
        if (threadIdx.x % warpSize >= d)
            v += other;
    }
    return v;
}

__global__ void warp_scan(const int *in, int *out)
{
    __shared__ int of_warps[4];
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int v = scanned_in_warp(in[i]);
    if (lane == 31)
        of_warps[warp] = v;
    __syncthreads();
    if (warp == 0) {
        int sum = lane < 4 ? of_warps[lane] : 0;
        sum = scanned_in_warp(sum);
        if (lane < 4)
            of_warps[lane] = sum;
    }
    __syncthreads();
    out[i] = v + (warp > 0 ? of_warps[warp - 1] : 0);
}
