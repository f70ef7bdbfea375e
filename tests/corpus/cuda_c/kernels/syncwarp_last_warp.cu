// launch: grid=1 block=32 in=arange:64:int32 out=zeros:1:int32
// truth: clean
__global__ void last_warp(const int *in, int *out) {
    __shared__ int held[64];
    int t = threadIdx.x;
    held[t] = in[t];
    held[t + 32] = in[t + 32];
    __syncwarp();
    for (int step = 32; step > 0; step /= 2) {
        int sum = held[t] + (t + step < 64 ? held[t + step] : 0);
        __syncwarp();
        held[t] = sum;
        __syncwarp();
    }
    if (t == 0) *out = held[0];
}
