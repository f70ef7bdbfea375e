// check: --grid 2 --block 16 --arg in=random:32 --arg out=zeros:32
// verdict: DataRace
__kernel void c(__global const int *in, __global int *out) {
  __local int s[16]; event_t e = async_work_group_copy(s, in + get_group_id(0) * 16, 16, 0); wait_group_events(1, &e);
  if (s[0] >= 0) { e = async_work_group_copy(out + get_group_id(0) * 16, s, 16, 0); return; } wait_group_events(1, &e);
}
