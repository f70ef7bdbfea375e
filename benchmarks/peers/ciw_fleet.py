"""Ciw: one node without service time that routes each customer, and one node per device."""

import time

import ciw
from common import PER_CLASS, SPEEDS, ShortestExpectedCompletion, jobs, report

gaps, sizes, count = jobs()
began = time.process_time()
policy = ShortestExpectedCompletion()
total = PER_CLASS * len(SPEEDS)


class Dispatch(ciw.routing.NodeRouting):
    def next_node(self, ind):
        return self.simulation.nodes[policy.choose() + 2]


class Leave(ciw.routing.NodeRouting):
    def next_node(self, ind):
        policy.done(self.node.id_number - 2)
        return self.simulation.nodes[-1]


class Work(ciw.dists.Distribution):
    def __init__(self, slowness):
        self.slowness = slowness

    def sample(self, t=None, ind=None):
        return sizes[ind.id_number - 1] * self.slowness


network = ciw.create_network(
    arrival_distributions=[ciw.dists.Sequential([*gaps, 1e9])] + [None] * total,
    service_distributions=[ciw.dists.Deterministic(0.0)]
    + [Work(1.0 / SPEEDS[device // PER_CLASS]) for device in range(total)],
    number_of_servers=[float("inf")] + [1] * total,
    routing=ciw.routing.NetworkRouting(routers=[Dispatch()] + [Leave() for _ in range(total)]),
)
simulation = ciw.Simulation(network)
simulation.simulate_until_max_customers(count, method="Finish")
latencies, busy_s, end_s = [0.0] * count, [0.0] * total, 0.0
for record in simulation.get_all_records():
    if record.node > 1 and record.id_number <= count:
        latencies[record.id_number - 1] = record.exit_date - record.arrival_date
        busy_s[record.node - 2] += record.service_time
        end_s = max(end_s, record.exit_date)
report("Ciw", count, began, latencies, busy_s, end_s)
