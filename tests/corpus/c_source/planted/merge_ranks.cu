// Merges two sorted lists by ranks; equal numbers of both lists must get different places.
__device__ int rank_of(const int *list, int n, int key)
{
    int rank = 0;
    while (rank < n && list[rank] < key)
        rank++;
    return rank;
}

__global__ void merge_ranks(const int *a, const int *b, int *out, int n, int base)
{
    int t = threadIdx.x;
    if (blockIdx.x == 0)
        out[t + rank_of(b, n, a[t])] = a[t] + base;
    else
        out[t + rank_of(a, n, b[t])] = b[t];
}
