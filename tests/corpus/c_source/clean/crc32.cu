// CRC of each thread's bytes, with a table that a block computes first.
__global__ void crc32(const unsigned char *text, unsigned *out, int each)
{
    __shared__ unsigned table[256];
    for (unsigned n = threadIdx.x; n < 256; n += blockDim.x) {
        unsigned c = n;
        for (int k = 0; k < 8; ++k)
            c = c & 1 ? 0xedb88320u ^ (c >> 1) : c >> 1;
        table[n] = c;
    }
    __syncthreads();
    const unsigned char *own = text + (blockIdx.x * blockDim.x + threadIdx.x) * each;
    unsigned crc = ~0u;
    while (each--)
        crc = table[(crc ^ *own++) & 0xff] ^ crc >> 8;
    out[blockIdx.x * blockDim.x + threadIdx.x] = ~crc;
}
