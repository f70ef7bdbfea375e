// launch: grid=1,1 block=16,16 in=arange:256:float32 out=zeros:256:float32
// truth: DataRace
__global__ void transpose(const float *in, float *out) {
    __shared__ float tile[16][17];
    tile[threadIdx.y][threadIdx.x] = in[threadIdx.y * 16 + threadIdx.x];
    out[threadIdx.y * 16 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
