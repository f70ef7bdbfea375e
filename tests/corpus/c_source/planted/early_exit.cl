// Prefix sums within a group.
__kernel void early_exit(__global int *data, const int n)
{
    __local int s[2][32];
    const int i = get_global_id(0), t = get_local_id(0);
    if (i >= n)
        return;
    int now = 0;
    s[0][t] = data[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int d = 1; d < 32; d <<= 1, now = 1 - now) {
        s[1 - now][t] = s[now][t] + (t >= d ? s[now][t - d] : 0);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    data[i] = s[now][t];
}
