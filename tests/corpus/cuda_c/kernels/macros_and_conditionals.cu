// launch: grid=1 block=32 out=zeros:32:int32
// truth: clean
#define STEPS 3
#define SQUARE(x) ((x) * (x))
#if STEPS > 2
#define CHOSEN 10
#else
#define CHOSEN 20
#endif
#ifdef __CUDA_ARCH__
#define ON_DEVICE 1000
#else
#define ON_DEVICE 0
#endif
__global__ void macros(int *out) { out[threadIdx.x] = SQUARE(threadIdx.x + 1) + CHOSEN + ON_DEVICE; }
