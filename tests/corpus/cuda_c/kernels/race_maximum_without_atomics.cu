// launch: grid=1 block=64 in=arange:64:int32 out=zeros:1:int32
// truth: DataRace
__global__ void maximum(const int *in, int *out) {
    __shared__ int most;
    if (threadIdx.x == 0) most = 0;
    __syncthreads();
    if (in[threadIdx.x] > most) most = in[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) *out = most;
}
