// check: --grid 1 --block 32 --arg d=random:32
// verdict: DataRace
__kernel void f(__global int *d) {
  int t = get_local_id(0);
  int v = d[t] * 2; d[t] = v; barrier(CLK_LOCAL_MEM_FENCE); int w = d[31 - t]; barrier(CLK_GLOBAL_MEM_FENCE); d[t] = w;
}
