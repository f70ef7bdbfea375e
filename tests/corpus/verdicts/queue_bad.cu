// check: --grid 2 --block 64 --arg work=random:192 --arg head=zeros:1 --arg out=zeros:192
// verdict: DataRace
__global__ void q(const int *work, int *head, int *out) {
  __shared__ int mine;
  for (;;) {
    if (threadIdx.x == 0) mine = atomicAdd(head, 1);
    __syncthreads();
    int w = mine;
    if (w >= 3) return;
    out[w * 64 + threadIdx.x] = work[w * 64 + threadIdx.x] * 2;
  }
}
