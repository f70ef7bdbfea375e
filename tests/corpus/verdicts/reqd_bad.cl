// check: --grid 1 --block 32 --arg o=zeros:32
// verdict: refused
__attribute__((reqd_work_group_size(16, 1, 1))) __kernel void c(__global int *o) { o[get_global_id(0)] = 1; }
