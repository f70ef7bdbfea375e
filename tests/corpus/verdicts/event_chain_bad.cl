// check: --grid 2 --block 8 --arg in=random:64 --arg out=zeros:64
// verdict: DataRace
__kernel void c(__global const int *in, __global int *out) { __local int s[2][8]; int l = get_local_id(0), g = get_group_id(0); event_t r = async_work_group_copy(s[0], in + g * 32, 8, 0);
  for (int k = 0; k < 4; k++) { wait_group_events(1, &r); if (k < 3) r = async_work_group_copy(s[k & 1], in + g * 32 + (k + 1) * 8, 8, 0); out[g * 32 + k * 8 + l] = s[k & 1][7 - l]; barrier(CLK_LOCAL_MEM_FENCE); } if (0) barrier(0); }
