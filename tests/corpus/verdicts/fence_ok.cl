// check: --grid 1 --block 32 --arg d=random:32
// verdict: clean
__kernel void f(__global int *d) {
  __local int s[32]; int t = get_local_id(0);
  s[t] = d[t]; barrier(CLK_LOCAL_MEM_FENCE); d[t] = s[31 - t];
}
