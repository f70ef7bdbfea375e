// check: --grid 1 --block 16 --arg in=random:16 --arg out=zeros:16
// verdict: DataRace
__kernel void c(__global const int *in, __global int *out) {
  __local int s[16]; s[get_local_id(0)] = in[get_local_id(0)]; barrier(CLK_LOCAL_MEM_FENCE);
  async_work_group_copy(out, s, 16, 0);
}
