"""Code that all programs share: jobs from one file, policy and statistics.

The file has n interarrival times and n sizes (seconds at speed 1) as float64. The fleet has 1,000 devices, 250 of each
of four speeds. The policy is shortest expected completion: the smallest (jobs present + 1) / speed, with ties to the
faster class, then to the lowest device number. The time includes model, run and statistics, but not the start of the
process and reading the file.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

SPEEDS = (8.0, 4.0, 2.0, 1.0)
PER_CLASS = 250
IDLE_W, BUSY_W = 60.0, 300.0


def jobs():
    """(interarrival times, sizes) of the file named on the command line, and the number of jobs to use."""
    data = np.fromfile(sys.argv[1])
    count = int(sys.argv[2])
    half = len(data) // 2
    return data[:count].tolist(), data[half : half + count].tolist(), count


def high_water_mb():
    """Peak memory of this process (getrusage would include the process that started it)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return float("nan")


def report(name, count, began, latencies, busy_s, end_s):
    latencies = np.asarray(latencies)
    mean, p50, p99 = float(latencies.mean()), *map(float, np.quantile(latencies, (0.5, 0.99)))
    energy_j = IDLE_W * len(SPEEDS) * PER_CLASS * end_s + (BUSY_W - IDLE_W) * float(sum(busy_s))
    cpu_s = time.process_time() - began
    peak_mb = high_water_mb()
    answer = {"peer": name, "jobs": count, "cpu_s": cpu_s, "peak_mb": peak_mb}
    print(json.dumps({**answer, "mean_s": mean, "p50_s": p50, "p99_s": p99, "energy_j": energy_j}))


class ShortestExpectedCompletion:
    """Devices of a class by their number of jobs: one bit mask for each number. A decision reads one mask per class."""

    def __init__(self):
        self.masks = [[(1 << PER_CLASS) - 1, 0] for _ in SPEEDS]
        self.least = [0] * len(SPEEDS)
        self.present = [0] * (PER_CLASS * len(SPEEDS))
        self.slowness = [1.0 / speed for speed in SPEEDS]

    def choose(self):
        best, chosen = 1e300, 0
        for cls, slowness in enumerate(self.slowness):
            expected = (self.least[cls] + 1) * slowness
            if expected < best:
                best, chosen = expected, cls
        count = self.least[chosen]
        masks = self.masks[chosen]
        lowest = masks[count] & -masks[count]
        masks[count] ^= lowest
        if count + 1 == len(masks):
            masks.append(0)
        masks[count + 1] |= lowest
        if not masks[count]:
            self.least[chosen] = count + 1
        device = chosen * PER_CLASS + lowest.bit_length() - 1
        self.present[device] = count + 1
        return device

    def done(self, device):
        cls, place = divmod(device, PER_CLASS)
        bit, count, masks = 1 << place, self.present[device], self.masks[cls]
        masks[count] ^= bit
        masks[count - 1] |= bit
        self.present[device] = count - 1
        self.least[cls] = min(self.least[cls], count - 1)
