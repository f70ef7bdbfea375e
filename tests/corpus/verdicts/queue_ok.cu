// check: --grid 2 --block 32 --arg work=random:96 --arg head=zeros:1 --arg out=zeros:96
// verdict: clean
__global__ void q(const int *work, int *head, int *out) {
  __shared__ int mine;
  for (;;) {
    if (threadIdx.x == 0) mine = atomicAdd(head, 1);
    __syncthreads();
    int w = mine; __syncthreads();
    if (w >= 3) return;
    out[w * 32 + threadIdx.x] = work[w * 32 + threadIdx.x] * 2;
  }
}
