// launch: grid=1 block=64 in=arange:64:int32 out=zeros:64:int32
// truth: DataRace
__global__ void warp_only(const int *in, int *out) {
    __shared__ int held[64];
    held[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    out[threadIdx.x] = held[63 - threadIdx.x];
}
