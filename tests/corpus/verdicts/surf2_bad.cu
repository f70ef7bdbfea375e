// check: --grid 1 --block 32
// verdict: DataRace
surface<void, 2> s;
__global__ void k() { surf2Dwrite(threadIdx.x, s, 4 * (threadIdx.x & 7), 0); }
