// check: --grid 1 --block 16 --arg in=random:16 --arg out=zeros:16
// verdict: BarrierDivergence or DataRace
__kernel void c(__global const int *in, __global int *out) { __local int s[16]; int l = get_local_id(0);
  event_t e = async_work_group_copy(s, in, 16, 0); if (l < 8) wait_group_events(1, &e); out[l] = s[l]; }
