// check: --grid 1 --block 15 --arg a=random:64 --arg o=zeros:64
// verdict: MisalignedAccess
__kernel void k(__global const float *a, __global float4 *o) { int i = get_global_id(0); o[i] = *(__global const float4 *)(a + 4 * i + 1); }
