// Reads a count that follows a header of three bytes in a stream of records.
__global__ void records_in_bytes(const unsigned char *stream, unsigned *counts, int size)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned char *record = stream + i * size;
    counts[i] = *(const unsigned *)(record + 3);
}
