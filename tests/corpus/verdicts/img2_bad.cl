// check: --grid 2,2 --block 16,4
// verdict: DataRace
void put(write_only image2d_t a, int2 at, float4 v) { write_imagef(a, at, v); }
__kernel void k(write_only image2d_t im) { int2 p = (int2)(get_global_id(0), get_global_id(1)); put(im, (int2)(p.x, 0), (float4)(p.y)); }
