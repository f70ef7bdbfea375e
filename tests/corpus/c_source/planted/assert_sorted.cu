// A search in a table that has to be in order.
#include <assert.h>

__global__ void assert_sorted(const int *table, int size, const int *keys, int *at)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int low = 0, high = size;
    while (low < high) {
        int middle = (low + high) / 2;
        assert(middle > low || table[low] < keys[i]);
        if (table[middle] < keys[i])
            low = middle + 1;
        else
            high = middle;
    }
    at[i] = low;
}
