// A step of a bitonic sort on groups of 32 keys, with their values.
typedef struct {
    uint key;
    float value;
} item;

inline bool out_of_order(item a, item b, bool up) { return (a.key > b.key) == up; }

__kernel void sort_step(__global item *data)
{
    __local item s[32];
    const uint t = get_local_id(0), first = get_group_id(0) * 32;
    s[t] = data[first + t];
    for (uint k = 2; k <= 32; k *= 2)
        for (uint j = k / 2; j > 0; j /= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            uint other = t ^ j;
            if (out_of_order(s[t], s[other], (t & k) == 0)) {
                item swap = s[t];
                s[t] = s[other];
                s[other] = swap;
            }
        }
    barrier(CLK_LOCAL_MEM_FENCE);
    data[first + t] = s[t];
}
