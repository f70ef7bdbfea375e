// check: --grid 1 --block 16 --arg in=random:32 --arg out=zeros:16
// verdict: clean
__kernel void c(__global const int *in, __global int *out) { __local int s[16], t[16]; int l = get_local_id(0); event_t e[2];
  e[0] = async_work_group_copy(s, in, 16, 0); e[1] = async_work_group_copy(t, in + 16, 16, 0); wait_group_events(2, e); out[l] = s[l] + t[15 - l]; }
