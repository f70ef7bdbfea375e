"""Queueing formulas: steady-state waiting and sojourn times of single stations.

Rates are per second and times are seconds; a service of mean ``1 / mu`` is called ``service_s``. Every function raises
ValueError where there is no steady state (offered load at or above capacity). Sources are named at each; [K1], [K2]
are Kleinrock, Queueing Systems, volumes I (1975) and II (1976).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def erlang_c(servers: int, offered: float) -> float:
    """The probability that an arrival waits in M/M/c with ``offered`` = lambda / mu erlangs ([K1] 3.40).

    By the recursion of Erlang's loss formula, which does not overflow however many servers.
    """
    if not 0.0 <= offered < servers:
        raise ValueError(f"{offered:g} erlangs on {servers} servers have no steady state")
    blocked = 1.0
    for k in range(1, servers + 1):
        blocked = offered * blocked / (k + offered * blocked)
    load = offered / servers
    return blocked / (1.0 - load * (1.0 - blocked))


@dataclass(frozen=True)
class MMc:
    """M/M/c, first come first served: ``servers`` with exponential times of mean ``service_s``.

    The wait is 0 with probability 1 - C and else exponential with rate c mu - lambda ([K1] 3.40 and section 5.4's FCFS
    argument; Adan and Resing, Queueing Systems, 2015, section 5.3).
    """

    rate_per_s: float
    service_s: float
    servers: int = 1

    @property
    def load(self) -> float:
        """Offered work over capacity."""
        return self.rate_per_s * self.service_s / self.servers

    @property
    def waits(self) -> float:
        """The probability of waiting."""
        return erlang_c(self.servers, self.rate_per_s * self.service_s)

    @property
    def drain_per_s(self) -> float:
        """The rate, c mu - lambda, at which a wait, once there, ends."""
        return self.servers / self.service_s - self.rate_per_s

    def mean_wait_s(self) -> float:
        """C / (c mu - lambda)."""
        return self.waits / self.drain_per_s

    def wait_s(self, fraction: float) -> float:
        """The ``fraction`` quantile of the wait; 0 where that many do not wait."""
        waits = self.waits
        return math.log(waits / (1.0 - fraction)) / self.drain_per_s if waits > 1.0 - fraction else 0.0

    def mean_sojourn_s(self) -> float:
        """Wait and service."""
        return self.mean_wait_s() + self.service_s

    def sojourn_beyond(self, time_s: float) -> float:
        """The probability that wait and service together exceed ``time_s``."""
        mu, theta, waits = 1.0 / self.service_s, self.drain_per_s, self.waits
        alone = math.exp(-mu * time_s)
        if abs(theta - mu) < 1e-9 * mu:
            return (1.0 - waits) * alone + waits * (1.0 + mu * time_s) * alone
        return (1.0 - waits) * alone + waits * (theta * alone - mu * math.exp(-theta * time_s)) / (theta - mu)

    def sojourn_s(self, fraction: float) -> float:
        """The ``fraction`` quantile of wait and service together, by bisection."""
        low, high = 0.0, self.service_s
        while self.sojourn_beyond(high) > 1.0 - fraction:
            high *= 2.0
        for _ in range(200):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.sojourn_beyond(middle) > 1.0 - fraction else (low, middle)
        return 0.5 * (low + high)


def mg1_mean_wait_s(rate_per_s: float, service_s: float, cv: float) -> float:
    """M/G/1: Pollaczek and Khinchine ([K1] 5.69); ``cv`` is the service's standard deviation over its mean."""
    load = _stable(rate_per_s * service_s)
    return load * service_s * (1.0 + cv**2) / (2.0 * (1.0 - load))


def md1_wait_within(rate_per_s: float, service_s: float, time_s: float) -> float:
    """M/D/1: the probability of a wait of at most ``time_s`` (Franx, Operations Research Letters 29, 2001).

    Franx' sum over the number waiting has positive terms only; Erlang's alternate and are ruined at high load.
    """
    load = _stable(rate_per_s * service_s)
    if time_s < 0.0:
        return 0.0
    k = math.floor(time_s / service_s)
    # P(W <= t) = exp(-lambda u) * sum_{j<=k} Q_{k-j} (lambda u)^j / j!, u = (k+1) D - t, Q_i = P(at most i wait).
    below = np.cumsum(_md1_numbers(load, k + 2))[1:]
    argument = rate_per_s * ((k + 1) * service_s - time_s)
    terms = np.exp(
        np.arange(k + 1) * math.log(argument) - np.array([math.lgamma(j + 1.0) for j in range(k + 1)]) - argument
    )
    return min(float(terms @ below[k::-1]), 1.0)


def md1_wait_s(rate_per_s: float, service_s: float, fraction: float) -> float:
    """M/D/1: the ``fraction`` quantile of the wait, by bisection; 0 where that many do not wait."""
    if md1_wait_within(rate_per_s, service_s, 0.0) >= fraction:
        return 0.0
    low, high = 0.0, service_s
    while md1_wait_within(rate_per_s, service_s, high) < fraction:
        high *= 2.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if md1_wait_within(rate_per_s, service_s, middle) < fraction else (low, middle)
    return 0.5 * (low + high)


def _md1_numbers(load: float, count: int) -> np.ndarray:
    """P(N = n) for n < ``count``, N the number in an M/D/1 system ([K1] section 5.3, the embedded chain)."""
    arrivals = np.empty(count + 1)
    arrivals[0] = math.exp(-load)
    for j in range(1, count + 1):
        arrivals[j] = arrivals[j - 1] * load / j
    tail = 1.0 - np.cumsum(arrivals)
    numbers = np.empty(count)
    numbers[0] = 1.0 - load
    for n in range(1, count):
        # Up-crossings of level n are as many as down-crossings: all terms are positive.
        up = numbers[0] * tail[n - 1] + float(numbers[1:n] @ tail[n - 1 : 0 : -1])
        numbers[n] = up / arrivals[0]
    return numbers


def mmc_priority_mean_waits_s(rates_per_s: Sequence[float], service_s: float, servers: int = 1) -> list[float]:
    """M/M/c with non-preemptive priorities, the first class highest, all with the same exponential service.

    Cobham (Operations Research 2, 1954): W_k = W_0 / ((1 - s_{k-1}) (1 - s_k)), with s_k the load of classes 1 to k and
    W_0 = C / (c mu), the mean time until a server is free for one who must wait.
    """
    total = sum(rates_per_s)
    until_free = erlang_c(servers, total * service_s) * service_s / servers
    waits, before = [], 0.0
    for rate in rates_per_s:
        upto = before + rate * service_s / servers
        waits.append(until_free / ((1.0 - before) * (1.0 - upto)))
        before = upto
    return waits


def mg1_priority_mean_waits_s(
    rates_per_s: Sequence[float], services_s: Sequence[float], cvs: Sequence[float]
) -> list[float]:
    """M/G/1 with non-preemptive priorities, the first class highest (Cobham, 1954; [K2] 3.31)."""
    classes = list(zip(rates_per_s, services_s, cvs, strict=True))
    _stable(sum(rate * service for rate, service, _ in classes))
    residual = sum(rate * service**2 * (1.0 + cv**2) for rate, service, cv in classes) / 2.0
    waits, before = [], 0.0
    for rate, service, _ in classes:
        upto = before + rate * service
        waits.append(residual / ((1.0 - before) * (1.0 - upto)))
        before = upto
    return waits


def mg1_ps_mean_sojourn_s(rate_per_s: float, service_s: float, alone_s: float | None = None) -> float:
    """M/G/1 under egalitarian processor sharing: ``alone_s`` / (1 - load), whatever the distribution ([K2] 4.17).

    ``alone_s``: the time of the job in question if it were alone; the mean over all jobs unless given.
    """
    return (service_s if alone_s is None else alone_s) / (1.0 - _stable(rate_per_s * service_s))


def _stable(load: float) -> float:
    if not 0.0 <= load < 1.0:
        raise ValueError(f"a load of {load:g} has no steady state")
    return load


@dataclass(frozen=True)
class MachineRepairman:
    """M/M/c//N, the machine-repairman or interactive model.

    ``users`` think for an exponential time of mean ``think_s``, then ask one of ``servers`` for an exponential service
    of mean ``service_s`` and wait for its end. A birth-death process of the number n at the servers: up at (N - n) / Z,
    down at min(n, c) / S ([K1] section 3.8; Allen, Probability, Statistics and Queueing Theory, 1990, section 5.2.8).
    Of the think time its mean alone counts, however it is distributed, as the network is of product form (Baskett,
    Chandy, Muntz, Palacios, Journal of the ACM 22, 1975).
    """

    users: int
    think_s: float
    service_s: float
    servers: int = 1

    def numbers(self) -> np.ndarray:
        """P(n at the servers), n = 0 ... users."""
        n = np.arange(1, self.users + 1)
        ratios = (self.users - n + 1) / self.think_s * self.service_s / np.minimum(n, self.servers)
        logs = np.concatenate([[0.0], np.cumsum(np.log(ratios))])
        weights = np.exp(logs - logs.max())
        return np.asarray(weights / weights.sum())

    def utilisation(self) -> float:
        """The mean share of the servers that work."""
        busy = np.minimum(np.arange(self.users + 1), self.servers)
        return float(self.numbers() @ busy) / self.servers

    def throughput_per_s(self) -> float:
        """Jobs done a second: servers that work over a mean service."""
        return self.utilisation() * self.servers / self.service_s

    def mean_response_s(self) -> float:
        """From submission to end, by the interactive response time law."""
        return response_time_s(self.users, self.throughput_per_s(), self.think_s)


def response_time_s(users: int, throughput_per_s: float, think_s: float) -> float:
    """The interactive response time law R = N / X - Z: Little's law of users, who think or wait.

    Denning and Buzen, ACM Computing Surveys 10, 1978; Lazowska et al., Quantitative System Performance, 1984, sec. 3.5.
    """
    return users / throughput_per_s - think_s


def asymptotic_throughput_per_s(users: int, think_s: float, service_s: float, servers: int = 1) -> float:
    """The most that ``users`` can get done a second: min(N / (Z + S), c / S) (Lazowska et al., 1984, section 5.2)."""
    return min(users / (think_s + service_s), servers / service_s)
