// launch: grid=1 block=4 a=zeros:64:uint8
// truth: misaligned
__global__ void misaligned(unsigned char *a) { *reinterpret_cast<int *>(a + 1 + 4 * threadIdx.x) = 1; }
