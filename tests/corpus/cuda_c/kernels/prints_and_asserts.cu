// launch: grid=1 block=4 out=zeros:4:int32
// truth: clean
#include <cassert>
#include <cstdio>
__global__ void prints(int *out) {
    assert(blockDim.x == 4);
    if (threadIdx.x == 2) printf("thread %d of %d: %5.2f %s\n", threadIdx.x, blockDim.x, 1.5, "done");
    out[threadIdx.x] = threadIdx.x;
}
