// check: --grid 2,2 --block 16,4
// verdict: clean
const sampler_t smp = CLK_NORMALIZED_COORDS_FALSE | CLK_FILTER_NEAREST;
void put(write_only image2d_t a, int2 at, float4 v) { write_imagef(a, at, v); }
__kernel void k(read_only image2d_t in, write_only image2d_t im) { int2 p = (int2)(get_global_id(0), get_global_id(1)); put(im, p, read_imagef(in, smp, p) + read_imagef(in, smp, p + 1)); }
