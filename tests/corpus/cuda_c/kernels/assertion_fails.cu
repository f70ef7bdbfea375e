// launch: grid=1 block=4 a=arange:4:int32
// truth: AssertionFailed
#include <cassert>
__global__ void asserts(int *a) {
    assert(a[threadIdx.x] < 3);
    a[threadIdx.x] = 9;
}
