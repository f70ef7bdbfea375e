// check: --grid 1 --block 8 --arg o=zeros:8
// verdict: DataRace
__kernel void k(__global int *o) { __local int s[8]; int l = get_local_id(0); s[l] = l; barrier(0); o[l] = s[7 - l]; }
