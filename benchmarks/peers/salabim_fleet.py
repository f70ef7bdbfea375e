"""salabim: one component per job, which requests the resource of its device."""

import time

import salabim
from common import PER_CLASS, SPEEDS, ShortestExpectedCompletion, jobs, report

salabim.yieldless(False)
gaps, sizes, count = jobs()
began = time.process_time()
env = salabim.Environment(trace=False)
total = PER_CLASS * len(SPEEDS)
slowness = [1.0 / SPEEDS[device // PER_CLASS] for device in range(total)]
latencies, busy_s = [0.0] * count, [0.0] * total
devices = [salabim.Resource(f"device.{device}", capacity=1) for device in range(total)]
policy = ShortestExpectedCompletion()


class Job(salabim.Component):
    def setup(self, number):
        self.number = number

    def process(self):
        arrived = env.now()
        device = policy.choose()
        yield self.request(devices[device])
        duration_s = sizes[self.number] * slowness[device]
        busy_s[device] += duration_s
        yield self.hold(duration_s)
        self.release(devices[device])
        policy.done(device)
        latencies[self.number] = env.now() - arrived


class Source(salabim.Component):
    def process(self):
        for number in range(count):
            yield self.hold(gaps[number])
            Job(number=number)


Source()
env.run()
report("salabim", count, began, latencies, busy_s, env.now())
