// launch: grid=4 block=32 whole=zeros:8:int32 wide=zeros:2:uint64 real=zeros:2:float32
// truth: clean
__global__ void atomics(int *whole, unsigned long long *wide, float *real) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __shared__ int held;
    if (threadIdx.x == 0) held = 0;
    __syncthreads();
    atomicAdd_block(&held, 1);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd_system(&whole[0], held);
    atomicMax(&whole[1], i); atomicMin(&whole[2], -i); atomicSub(&whole[3], i);
    atomicOr(&whole[4], 1 << (i % 31)); atomicXor(&whole[5], i); atomicAnd(&whole[6], ~i);
    atomicAdd(&wide[0], (unsigned long long)i); atomicMax(&wide[1], (unsigned long long)i);
    atomicAdd(&real[0], 0.5f);
}
