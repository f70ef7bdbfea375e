"""SimPy in the style of its documentation: one process per job and one resource per device."""

import time

import simpy
from common import PER_CLASS, SPEEDS, ShortestExpectedCompletion, jobs, report


def job(env, number, size_s, devices, policy, slowness, latencies, busy_s):
    arrived = env.now
    device = policy.choose()
    with devices[device].request() as turn:
        yield turn
        duration_s = size_s * slowness[device]
        busy_s[device] += duration_s
        yield env.timeout(duration_s)
    policy.done(device)
    latencies[number] = env.now - arrived


def source(env, gaps, sizes, *rest):
    for number, (gap_s, size_s) in enumerate(zip(gaps, sizes, strict=True)):
        yield env.timeout(gap_s)
        env.process(job(env, number, size_s, *rest))


gaps, sizes, count = jobs()
began = time.process_time()
env = simpy.Environment()
total = PER_CLASS * len(SPEEDS)
devices = [simpy.Resource(env, 1) for _ in range(total)]
slowness = [1.0 / SPEEDS[device // PER_CLASS] for device in range(total)]
latencies, busy_s = [0.0] * count, [0.0] * total
env.process(source(env, gaps, sizes, devices, ShortestExpectedCompletion(), slowness, latencies, busy_s))
env.run()
report("SimPy, one process per job", count, began, latencies, busy_s, env.now)
