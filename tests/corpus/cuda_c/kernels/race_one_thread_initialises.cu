// launch: grid=1 block=64 out=zeros:64:int32
// truth: DataRace
__global__ void initialised(int *out) {
    __shared__ int start;
    if (threadIdx.x == 0) start = 100;
    out[threadIdx.x] = start + threadIdx.x;
}
