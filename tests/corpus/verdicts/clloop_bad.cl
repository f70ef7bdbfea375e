// check: --grid 1 --block 16 --arg d=random:16
// verdict: BarrierDivergence
__kernel void k(__global int *d) { int l = get_local_id(0); __local int s[16]; for (int i = 0; i < (l & 3) + 2; i++) { s[l] = d[l]; barrier(CLK_LOCAL_MEM_FENCE); d[l] = s[l] + i; } }
