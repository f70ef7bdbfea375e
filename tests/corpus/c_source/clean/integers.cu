// Integers as in C: promotion, wrap-around, shifts, division towards zero, bits.
#include <stdint.h>

__global__ void integers(const uint32_t *in, int64_t *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    uint32_t v = in[i] * 2654435761u + i;
    int32_t s = (int32_t)v;
    int8_t b = (int8_t)v;
    uint16_t h = (uint16_t)(v >> 7);
    int64_t *o = out + 10 * i;
    o[0] = s / 1000 + s % 1000;
    o[1] = b * h - (b >> 1);
    o[2] = (uint8_t)~b + (h << 3);
    o[3] = __popc(v) * 10000 + __clz(v) * 100 + __ffs(v);
    o[4] = (int64_t)s * s % 1000003;
    o[5] = (uint64_t)v << 31 >> 13;
    o[6] = __brev(v) ^ (v & -v);
    o[7] = s < (int64_t)v ? -1 : s > b;
    o[8] = -v + (unsigned char)200 * 100000000u;
    o[9] = (v >> (i & 31)) | (v << (-i & 31));
}
