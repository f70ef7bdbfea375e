// How many of the first 24 lanes of each warp have an even number.
__global__ void vote_of_a_part(const int *in, int *out)
{
    int lane = threadIdx.x % 32, v = in[blockIdx.x * 32 + lane];
    if (lane < 24) {
        unsigned even = __ballot_sync(0x0000ffffu, v % 2 == 0);
        if (lane == 0)
            out[blockIdx.x] = __popc(even);
    }
}
