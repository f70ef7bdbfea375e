// Reverses each block's part of an array in shared memory.
__global__ void reverse(const float *in, float *out) {
    __shared__ float held[BLOCK];
    int t = threadIdx.x, i = blockIdx.x * BLOCK + t;
    held[t] = in[i];
#ifdef SYNC
    __syncthreads();
#endif
    out[i] = held[BLOCK - 1 - t];
}
