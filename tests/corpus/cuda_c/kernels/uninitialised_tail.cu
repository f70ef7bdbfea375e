// launch: grid=1 block=32 scratch=empty:32:int32 out=zeros:32:int32 n=30
// truth: UninitializedRead
__global__ void tail(int *scratch, int *out, int n) {
    int t = threadIdx.x;
    if (t < n) scratch[t] = t;
    __syncthreads();
    out[t] = scratch[31 - t];
}
