// The second block waits for a word of the first.
__global__ void volatile_flag(int *data, volatile int *flag, int *out)
{
    if (threadIdx.x != 0)
        return;
    if (blockIdx.x == 0) {
        *data = 42;
        *flag = 1;
    } else {
        if (*flag == 1) {
            __threadfence();
            out[0] = *data;
        }
        out[1] = 2;
    }
}
