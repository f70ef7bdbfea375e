// check: --grid 1 --block 16 --arg d=zeros:64 --arg o=zeros:64
// verdict: DivisionByZero
__kernel void k(__global const int4 *d, __global int4 *o) { int i = get_global_id(0); o[i] = (int4)(7) / d[i]; }
