// launch: grid=1 block=32 index=arange:32:int32 out=zeros:32:int32
// truth: OutOfBounds
__global__ void local_array(const int *index, int *out) {
    int held[16];
    for (int k = 0; k < 16; ++k) held[k] = k * index[k];
    out[threadIdx.x] = held[index[threadIdx.x]];
}
