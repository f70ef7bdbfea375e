// check: --grid 1 --block 16
// verdict: DataRace
__kernel void k(read_write image2d_t im) { int2 p = (int2)(get_global_id(0), 0); float4 v = read_imagef(im, p + (int2)(1, 0)); write_imagef(im, p, v); }
