// check: --grid 1 --block 16 --arg o=zeros:32
// verdict: refused
#define WG 32
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void c(__global int *o) { o[get_global_id(0)] = 1; }
