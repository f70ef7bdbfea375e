// launch: grid=1 block=32 in=arange:64:int32 out=zeros:64:int32
// truth: clean
__global__ void pointers(const int *in, int *out) {
    const int *end = in + 64, *at = in + threadIdx.x;
    int *to = out;
    to += threadIdx.x;
    for (; at < end; at += 32, to += 32) *to = *at + int(end - at);
}
