// Inserts keys into a table with open addressing, by compare-and-swap; one thread inserts many.
__device__ unsigned hashed(unsigned k)
{
    k ^= k >> 16;
    k *= 0x85ebca6bu;
    k ^= k >> 13;
    return k;
}

__global__ void hash_table(const unsigned *keys, unsigned *table, unsigned *counts, unsigned size, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned key = keys[i] % 8 + 1, at = hashed(key) % size;
        do {
            unsigned old = atomicCAS(&table[at], 0u, key);
            if (old == 0u || old == key)
                break;
            at = (at + 1) % size;
        } while (true);
        atomicAdd(&counts[key], 1u);
    }
}
