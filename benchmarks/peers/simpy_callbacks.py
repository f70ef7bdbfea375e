"""The fastest form of SimPy: events with callbacks and plain queues, without processes and resources."""

import time
from collections import deque

import simpy
from common import PER_CLASS, SPEEDS, ShortestExpectedCompletion, jobs, report
from simpy.events import Timeout

gaps, sizes, count = jobs()
began = time.process_time()
env = simpy.Environment()
total = PER_CLASS * len(SPEEDS)
slowness = [1.0 / SPEEDS[device // PER_CLASS] for device in range(total)]
latencies, busy_s = [0.0] * count, [0.0] * total
queues = [deque() for _ in range(total)]
policy = ShortestExpectedCompletion()
following = iter(range(count))


def depart(event):
    device, number, arrived = event._value
    latencies[number] = env._now - arrived
    policy.done(device)
    queue = queues[device]
    queue.popleft()
    if queue:
        number, arrived, duration_s = queue[0]
        Timeout(env, duration_s, (device, number, arrived)).callbacks.append(depart)


def arrive(event):
    number = event._value
    device = policy.choose()
    duration_s = sizes[number] * slowness[device]
    busy_s[device] += duration_s
    queue = queues[device]
    queue.append((number, env._now, duration_s))
    if len(queue) == 1:
        Timeout(env, duration_s, (device, number, env._now)).callbacks.append(depart)
    if number + 1 < count:
        Timeout(env, gaps[number + 1], number + 1).callbacks.append(arrive)


Timeout(env, gaps[0], 0).callbacks.append(arrive)
env.run()
report("SimPy, callbacks", count, began, latencies, busy_s, env.now)
