// check: --grid 1 --block 8 --arg o=zeros:8
// verdict: UninitializedRead
struct S { char c; int i; };
__kernel void k(__global struct S *o) { int l = get_global_id(0); struct S s; s.c = l; o[l] = s; }
