// The table of one block for the next, each after a flag of its own.
__global__ void handover_in_a_block_only(float *table, float *out, unsigned int *ready)
{
    if (threadIdx.x == 0) {
        if (blockIdx.x > 0) {
            while (atomicCAS(&ready[blockIdx.x - 1], 1u, 1u) != 1u) {
            }
            __threadfence();
            out[blockIdx.x] = table[blockIdx.x - 1];
        }
        table[blockIdx.x] = 0.5f * blockIdx.x;
        __threadfence_block();
        atomicExch(&ready[blockIdx.x], 1u);
    }
}
