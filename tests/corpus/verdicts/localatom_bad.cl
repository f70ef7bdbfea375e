// check: --grid 2 --block 32 --arg d=random:64 --arg o=zeros:2
// verdict: DataRace
__kernel void k(__global const uint *d, __global uint *o) { __local uint m; if (get_local_id(0) == 0) m = 0; barrier(CLK_LOCAL_MEM_FENCE); atomic_max(&m, d[get_global_id(0)]); if (get_local_id(0) == 0) o[get_group_id(0)] = m; }
