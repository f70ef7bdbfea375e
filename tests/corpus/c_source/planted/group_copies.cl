// Two rows come by asynchronous copies; the sum needs both.
__kernel void group_copies(__global const float *a, __global const float *b, __global float *out)
{
    __local float left[32], right[32];
    size_t first = get_group_id(0) * 32, t = get_local_id(0);
    event_t events[2];
    events[0] = async_work_group_copy(left, a + first, 32, 0);
    events[1] = async_work_group_copy(right, b + first, 32, 0);
    wait_group_events(1, events);
    out[first + t] = left[t] + right[31 - t];
}
