// launch: grid=1 block=16 in=arange:64:float32 sums=empty:16:float32
// truth: UninitializedRead
__global__ void sums_of_rows(const float *in, float *sums) {
    for (int k = 0; k < 4; ++k) sums[threadIdx.x] += in[threadIdx.x * 4 + k];
}
