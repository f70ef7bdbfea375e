// launch: grid=1 block=128 in=arange:128:int32 out=zeros:1:int32
// truth: DataRace
__global__ void reduce(const int *in, int *out) {
    __shared__ int sums[4];
    int v = in[threadIdx.x];
    for (int step = 16; step > 0; step /= 2) v += __shfl_down_sync(0xffffffff, v, step);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = v;
    if (threadIdx.x == 0) *out = sums[0] + sums[1] + sums[2] + sums[3];
}
