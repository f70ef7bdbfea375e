// Votes, and shuffles within parts of a warp.
__global__ void warp_votes_and_widths(const int *in, unsigned *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    int v = in[i];
    unsigned odd = __ballot_sync(0xffffffffu, v & 1);
    int place = __popc(odd & ((1u << lane) - 1));
    int first = __shfl_sync(0xffffffffu, v, 0, 8);
    int down = __shfl_down_sync(0xffffffffu, v, 3, 16);
    int cross = __shfl_xor_sync(0xffffffffu, v, 5);
    bool any = __any_sync(0xffffffffu, v > 60), all = __all_sync(0xffffffffu, v >= 0);
    out[i] = place * 1000 + first + down * 3 + cross * 7 + any * 100000 + all * 200000;
}
