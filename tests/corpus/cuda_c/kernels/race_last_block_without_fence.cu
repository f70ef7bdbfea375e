// launch: grid=8 block=32 in=arange:256:int32 partial=zeros:8:int32 done=zeros:1:uint32 out=zeros:1:int32
// truth: DataRace
__global__ void last_block(const int *in, int *partial, unsigned *done, int *out) {
    if (threadIdx.x == 0) {
        int sum = 0;
        for (int k = 0; k < 32; ++k) sum += in[blockIdx.x * 32 + k];
        partial[blockIdx.x] = sum;
        if (atomicAdd(done, 1u) == gridDim.x - 1) {
            int whole = 0;
            for (unsigned b = 0; b < gridDim.x; ++b) whole += partial[b];
            *out = whole;
        }
    }
}
