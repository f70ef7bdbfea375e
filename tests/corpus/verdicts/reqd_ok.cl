// check: --grid 2 --block 16 --arg o=zeros:32
// verdict: clean
__attribute__((reqd_work_group_size(16, 1, 1))) __kernel void c(__global int *o) { o[get_global_id(0)] = 1; }
