// launch: grid=1 block=64 shared=512 out=zeros:64:float32
// truth: DataRace
__global__ void overlapping(float *out) {
    extern __shared__ float raw[];
    float *first = raw, *second = raw + 32;
    first[threadIdx.x] = threadIdx.x;
    second[threadIdx.x] = -1.0f * threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = first[threadIdx.x] + second[threadIdx.x];
}
