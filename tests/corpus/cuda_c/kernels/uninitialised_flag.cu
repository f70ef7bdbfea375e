// launch: grid=1 block=32 flag=empty:1:int32 out=zeros:32:int32
// truth: UninitializedRead
__global__ void flagged(const int *flag, int *out) { if (*flag == 12345) out[threadIdx.x] = 1; }
