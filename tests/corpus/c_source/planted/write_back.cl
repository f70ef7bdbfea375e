// A group's results go back by an asynchronous copy while the next ones are computed.
__kernel void write_back(__global float *out, const int rounds)
{
    __local float row[16];
    const int t = get_local_id(0);
    event_t done = 0;
    for (int r = 0; r < rounds; ++r) {
        row[t] = (float)(r * 16 + t) * 0.5f;
        barrier(CLK_LOCAL_MEM_FENCE);
        done = async_work_group_copy(out + (get_group_id(0) * rounds + r) * 16, row, 16, 0);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    wait_group_events(1, &done);
}
