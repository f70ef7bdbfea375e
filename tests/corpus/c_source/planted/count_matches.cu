// Counts the numbers that equal a key.
__global__ void count_matches(const int *values, int n, int key, int *matches)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && values[i] == key)
        *matches += 1;
}
