// check: --grid 2 --block 16
// verdict: clean
__kernel void k(write_only image2d_t im) { int i = get_global_id(0); write_imagef(im, (int2)(i, 0), (float4)(i, 0, 0, 1)); }
