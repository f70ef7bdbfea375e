// launch: grid=4 block=128 in=arange:512:int32 out=zeros:1:int32
// truth: clean
__inline__ __device__ int warp_sum(int value) {
    for (int step = warpSize / 2; step > 0; step /= 2) value += __shfl_down_sync(0xffffffff, value, step);
    return value;
}
__global__ void reduce_shuffle(const int *in, int *out) {
    __shared__ int sums[32];
    int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
    int value = warp_sum(in[blockIdx.x * blockDim.x + threadIdx.x]);
    if (lane == 0) sums[warp] = value;
    __syncthreads();
    value = threadIdx.x < blockDim.x / warpSize ? sums[lane] : 0;
    if (warp == 0) value = warp_sum(value);
    if (threadIdx.x == 0) atomicAdd(out, value);
}
