// Splits a block's numbers by a bit: zeros first, in their order.
__global__ void radix_split(unsigned *data, int bit)
{
    __shared__ unsigned s[64];
    __shared__ int before[65];
    int t = threadIdx.x;
    unsigned v = data[blockIdx.x * 64 + t];
    int zero = !(v >> bit & 1);
    before[t + 1] = zero;
    if (t == 0)
        before[0] = 0;
    __syncthreads();
    for (int d = 1; d < 64; d *= 2) {
        int add = t + 1 >= d ? before[t + 1 - d] : 0;
        __syncthreads();
        before[t + 1] += add;
        __syncthreads();
    }
    int zeros = before[64];
    int place = zero ? before[t] : zeros - 1 + t - before[t];
    s[place] = v;
    __syncthreads();
    data[blockIdx.x * 64 + t] = s[t];
}
