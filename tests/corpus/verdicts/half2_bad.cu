// check: --grid 1 --block 31 --arg a=random:64 --arg o=zeros:62
// verdict: MisalignedAccess
#include <cuda_fp16.h>
__global__ void k(const half *a, half *o) { half2 v = *(const half2 *)(a + 2 * threadIdx.x + 1); ((half2 *)o)[threadIdx.x] = v; }
