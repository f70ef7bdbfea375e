// check: --grid 2 --block 1 --arg f=zeros:1 --arg d=zeros:1 --arg o=zeros:1
// verdict: DataRace
__kernel void k(__global atomic_int *f, __global int *d, __global int *o) { if (get_global_id(0) == 0) { *d = 3; atomic_store_explicit(f, 1, memory_order_release, memory_scope_work_group); }
  else { while (atomic_load_explicit(f, memory_order_acquire, memory_scope_device) == 0); *o = *d; } }
