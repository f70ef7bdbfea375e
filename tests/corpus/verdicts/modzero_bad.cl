// check: --grid 1 --block 16 --arg d=arange:16 --arg o=zeros:16
// verdict: DivisionByZero
__kernel void k(__global const uint *d, __global uint *o) { int i = get_global_id(0); o[i] = 7 % d[i]; }
