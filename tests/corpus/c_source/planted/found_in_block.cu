// Whether a block's numbers hold a key.
__global__ void found_in_block(const int *in, int key, int *found)
{
    __shared__ int any;
    if (in[blockIdx.x * blockDim.x + threadIdx.x] == key)
        atomicExch(&any, 1);
    __syncthreads();
    if (threadIdx.x == 0)
        found[blockIdx.x] = any;
}
