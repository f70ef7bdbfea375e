// check: --grid 2 --block 32 --arg lock=zeros:1 --arg c=zeros:1
// verdict: clean
__global__ void l(int *lock, int *c) { for (bool done = false; !done;) { if (atomicCAS(lock, 0, 1) == 0) { __threadfence(); *c += 1; __threadfence(); atomicExch(lock, 0); done = true; } } }
