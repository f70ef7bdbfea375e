// A set of numbers as bits; the number 0 is always a member.
__global__ void bit_set(unsigned *bits, const int *members, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0)
        bits[0] |= 1u;
    else if (i < n)
        atomicOr(&bits[members[i] / 32], 1u << (members[i] % 32));
}
