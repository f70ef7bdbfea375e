// check: --grid 2 --block 16 --arg in=random:32 --arg out=zeros:32
// verdict: clean
__kernel void c(__global const int *in, __global int *out) {
  __local int s[16];
  event_t e = async_work_group_copy(s, in + get_group_id(0) * 16, 16, 0);
  wait_group_events(1, &e);
  out[get_global_id(0)] = s[15 - get_local_id(0)];
}
