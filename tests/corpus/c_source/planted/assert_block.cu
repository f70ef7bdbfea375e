// Needs blocks of whole warps.
#include <cassert>

__global__ void assert_block(int *votes, const int *in)
{
    assert(blockDim.x % warpSize == 1);
    unsigned ballot = __ballot_sync(~0u, in[threadIdx.x] & 1);
    if (threadIdx.x % warpSize == 0)
        votes[threadIdx.x / warpSize] = __popc(ballot);
}
