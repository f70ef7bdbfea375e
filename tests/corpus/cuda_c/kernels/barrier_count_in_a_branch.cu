// launch: grid=1 block=64 in=arange:64:int32 out=zeros:64:int32
// truth: BarrierDivergence
__global__ void counted(const int *in, int *out) {
    int n = -1;
    if (in[threadIdx.x] < 48) n = __syncthreads_count(in[threadIdx.x] % 2);
    out[threadIdx.x] = n;
}
