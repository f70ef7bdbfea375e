// launch: grid=1 block=32 out=zeros:32:int32 n=5
// truth: UninitializedRead
__global__ void local_read(int *out, int n) {
    int held[8];
    for (int k = 0; k < n; ++k) held[k] = k;
    out[threadIdx.x] = held[threadIdx.x % 8];
}
