// launch: grid=1 block=64 in=arange:64:int32 out=zeros:192:int32
// truth: clean
__global__ void family(const int *in, int *out) {
    int t = threadIdx.x;
    out[t] = __syncthreads_count(in[t] % 3 == 0);
    out[64 + t] = __syncthreads_and(in[t] >= 0);
    out[128 + t] = __syncthreads_or(in[t] == 63);
}
