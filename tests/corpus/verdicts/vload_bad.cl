// check: --grid 1 --block 16 --arg a=random:64 --arg o=zeros:64
// verdict: OutOfBounds
__kernel void k(__global const float *a, __global float *o) { int i = get_global_id(0); float4 v = vload4(i, a + 1); vstore4(v, i, o); }
