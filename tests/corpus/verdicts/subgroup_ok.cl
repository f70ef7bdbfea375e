// check: --grid 1 --block 64 --arg d=random:64 --arg o=zeros:64
// verdict: clean
__kernel void k(__global const int *d, __global int *o) { int i = get_global_id(0); int v = sub_group_reduce_add(i % 2 ? d[i] : 0); o[i] = v; }
