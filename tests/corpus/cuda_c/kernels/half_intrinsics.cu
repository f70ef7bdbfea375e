// launch: grid=1 block=32 in=arange:32:float32 out=zeros:128:float32
// truth: clean
#include <cuda_fp16.h>
#include <cuda_bf16.h>
__global__ void halves(const float *in, float *out) {
    int i = threadIdx.x;
    half h = __float2half(in[i] * 0.37f), two = __float2half(2.0f);
    half2 pair = __halves2half2(h, two);
    pair = __hmul2(pair, pair);
    __nv_bfloat16 b = __float2bfloat16(in[i] * 0.37f);
    out[i] = __half2float(__hadd(h, two));
    out[32 + i] = __half2float(__hfma(h, h, two));
    out[64 + i] = __half2float(__low2half(pair));
    out[96 + i] = __bfloat162float(__hmul(b, b));
}
