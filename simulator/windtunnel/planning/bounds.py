"""Lower bounds for the planner: a linear relaxation of the minimum work of the jobs, solved by SciPy's HiGHS.

A fleet is a number of devices of each class. Every row of the program is a necessary condition of a fleet that keeps
up and meets the targets, so the optimum of the program costs no more than the cheapest fleet. docs/planning.md lists
the rows and derives each of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from windtunnel.core.ticks import FloatArray
from windtunnel.engine.prepare.demand import Demand
from windtunnel.planning.lateness import PERCENTILES, LatenessLimit, lateness_limits, until_of
from windtunnel.planning.linear_program import SHRINK, LinearProgram
from windtunnel.scenario.target import Target

Counts = tuple[int, ...]

_QUANTILES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
_RATIOS = 4
_WINDOWS = 8

READ = ("latency", "ttft", "itl", "tpot", "e2e", "throughput", "power")
"""Metrics of the targets that give rows."""


def keep_up_s(span_s: float, targets: Sequence[Target], longest_s: float) -> float:
    """Return the time after the last arrival within which a fleet that keeps up completes all jobs (s).

    It is the largest of a tenth of the time in which jobs arrive, the largest limit of a target on time, and twice the
    longest job on its own, with the loads of its designs.
    """
    limits = [t.limit for t in targets if t.unit == "s"]
    return max([0.1 * span_s, 2 * longest_s, *limits])


@dataclass
class _Bins:
    """Groups of similar jobs that are distributed together; work is in units of a job's time on its first class.

    ``ratio``: the minimum time of a unit of work on each resource; shape (resources, bins). ``classes``: whether the
    class runs the bin's jobs; shape (classes, bins).
    """

    of_job: np.ndarray
    count: int
    size: FloatArray
    ratio: FloatArray
    classes: np.ndarray


def _binned(demand: Demand, until: str) -> _Bins:
    jobs, classes = len(demand), demand.classes
    needs = [r.whole_s if until == "whole" else r.first_s for r in demand.resources]
    on_class = np.zeros((classes, jobs))
    for resource, need in zip(demand.resources, needs, strict=True):
        on_class[resource.class_number] += need
    first = np.argmax(demand.eligible, axis=0)
    size = on_class[first, np.arange(jobs)]
    size = np.where(size > 0, size, 1.0)
    last = classes - 1 - np.argmax(demand.eligible[::-1], axis=0)
    slant = on_class[last, np.arange(jobs)] / size
    signature = demand.eligible.T @ (1 << np.arange(classes, dtype=np.int64)) if classes < 62 else first
    of_job = np.zeros(jobs, dtype=np.int64)
    count = 0
    judged = demand.judged
    for kind in np.unique(np.stack([demand.workload, signature, judged]), axis=1).T:
        mine = np.flatnonzero((demand.workload == kind[0]) & (signature == kind[1]) & (judged == kind[2]))
        edges = np.unique(np.quantile(size[mine], _QUANTILES))
        coarse = np.searchsorted(edges, size[mine], side="right")
        fine = np.zeros(len(mine), dtype=np.int64)
        if np.ptp(slant[mine]) > 1e-9 * np.abs(slant[mine]).max():
            cuts = np.quantile(slant[mine], np.arange(1, _RATIOS) / _RATIOS)
            fine = np.searchsorted(cuts, slant[mine], side="right")
        _, place = np.unique(coarse * (_RATIOS + 1) + fine, return_inverse=True)
        of_job[mine] = count + place
        count += int(place.max()) + 1
    ratio = np.full((len(needs), count), np.inf)
    for i, need in enumerate(needs):
        np.minimum.at(ratio[i], of_job, need / size)
    able = np.zeros((classes, count), dtype=bool)
    for c in range(classes):
        able[c] = np.bincount(of_job, weights=demand.eligible[c], minlength=count) > 0
    return _Bins(of_job, count, size, np.where(np.isfinite(ratio), ratio, 0.0), able)


@dataclass(frozen=True)
class Bound:
    """A lower bound and the counts at which the relaxation attains it; ``value`` is infinite if it is infeasible."""

    value: float
    counts: Counts | None


class Bounds:
    """The lower bounds of one run: ``demand`` under ``targets``, for fleets of the demand's classes.

    If no fleet can meet the targets, the bound is infinite.
    """

    def __init__(self, demand: Demand, targets: Sequence[Target], slack_s: float = 0.0) -> None:
        self.demand = demand
        self.targets = list(targets)
        start, last = float(demand.arrival_s[0]), float(demand.arrival_s[-1])
        self.slack_s = max(keep_up_s(last - start, targets, demand.longest_s), slack_s)
        end = last + self.slack_s if demand.end_s is None else demand.end_s
        if demand.closed and demand.end_s is None:
            # A fleet of any speed serves a closed loop in the end.
            end = math.inf
        # Jobs that arrive in the last `slack` of a run with a stop time need not be completed.
        self.counted = np.ones(len(demand), dtype=bool)
        if demand.end_s is not None:
            self.counted = demand.arrival_s <= demand.end_s - self.slack_s
        # Times may exclude a warm-up, whose late jobs do not count.
        self.judged = self.counted & demand.judged
        self.latest_s = end
        """The end of the longest run, whatever its throughput (s)."""
        for target in targets:
            if target.metric == "throughput" and target.comparison == ">=" and demand.end_s is None and target.limit:
                end = min(end, max(len(demand) / target.limit, last))
        self.start_s, self.end_s = start, end
        self.length_s = max(end - start, 1e-12)
        self.run_s = end
        self._rows = LinearProgram(demand.classes)
        self._work_w = (np.zeros(0, dtype=np.int64), np.zeros(0))
        self._build(demand)
        if demand.decoding is not None:
            self._build(demand.decoding)

    # Construction of the rows.

    def _build(self, demand: Demand) -> None:
        """Add the rows of a demand. Of reading prompts and of decoding, each has rows of its own."""
        bins = _binned(demand, "whole")
        moves = self.demand.decoding is not None
        if not demand.complete:
            self._presence_rows(
                demand, bins, self._block(demand, bins, np.ones(len(demand), dtype=bool), math.inf, None)
            )
            self._submitted_rows(demand, bins)
            return
        shares = self._block(demand, bins, self.counted, self.length_s, None)
        if demand.closed or max(demand.gang) > 1 or moves:
            self._presence_rows(demand, bins, shares)
        lates = lateness_limits(demand, self.targets)
        if shares is not None:
            self._class_rows(demand, bins, shares, lates)
            self._power_rows(demand, bins, shares)
        for until in ("whole", "first"):
            mine = [late for late in lates if late.until == until]
            if not mine:
                continue
            bins = bins if until == "whole" else _binned(demand, "first")
            for late in mine:
                for chosen, length in self._windows(demand, late, bins):
                    self._block(demand, bins, chosen, length, late.most)

    def _presence_rows(self, demand: Demand, bins: _Bins, shares: np.ndarray | None) -> None:
        """Add rows that require the devices of a job on each class that has a share of its bin, however little work."""
        if shares is None:
            return
        gang = np.ones(bins.count)
        np.maximum.at(gang, bins.of_job, np.asarray(demand.gang, dtype=np.float64)[demand.workload])
        for c, b in zip(*np.nonzero(shares >= 0), strict=True):
            self._rows.at_most(shares[c, b : b + 1], gang[b : b + 1], 0.0, int(c), 1.0)

    def _submitted_rows(self, demand: Demand, bins: _Bins) -> None:
        """Add rows for users in a run of a given time, from the targets on throughput.

        With N users, at most N of the jobs that were submitted are not completed at the end T of the run. So a
        throughput of X requires that all but N of the first X T + N jobs are completed.
        """
        if not demand.closed or demand.end_s is None:
            return
        for target in self.targets:
            if target.metric == "throughput" and target.comparison == ">=":
                first = np.arange(len(demand)) < math.floor(target.limit * demand.end_s) + demand.users
                self._block(demand, bins, first, demand.end_s, float(demand.users))

    def _totals(self, bins: _Bins, chosen: np.ndarray) -> tuple[FloatArray, FloatArray, FloatArray]:
        total = np.bincount(bins.of_job[chosen], weights=bins.size[chosen], minlength=bins.count).astype(np.float64)
        number = np.bincount(bins.of_job[chosen], minlength=bins.count).astype(np.float64)
        largest = np.zeros(bins.count)
        np.maximum.at(largest, bins.of_job[chosen], bins.size[chosen])
        return total, number, largest

    def _block(
        self, demand: Demand, bins: _Bins, chosen: np.ndarray, length_s: float, most_late: float | None
    ) -> np.ndarray | None:
        """Add the rows that distribute the jobs ``chosen`` over the classes, within ``length_s`` of every device.

        Returns the columns of the shares, -1 where there is none; shape (classes, bins).
        """
        rows = self._rows
        total, number, largest = self._totals(bins, chosen)
        kept = np.flatnonzero(number)
        if not len(kept):
            return None
        columns = np.full((demand.classes, bins.count), -1, dtype=np.int64)
        for c in range(demand.classes):
            here = kept[bins.classes[c, kept]]
            columns[c, here] = rows.columns(len(here), 1.0, c)
        late = rows.columns(len(kept), number[kept]) if most_late is not None else None
        for i, b in enumerate(kept.tolist()):
            mine = columns[:, b]
            mine = mine[mine >= 0]
            values = np.full(len(mine), -1.0)
            if late is not None:
                mine, values = np.append(mine, late[i]), np.append(values, -largest[b] / total[b])
            rows.at_most(mine, values, -1.0)
        if late is not None and most_late is not None:
            rows.at_most(late, np.ones(len(late)), most_late)
        for i, resource in enumerate(demand.resources):
            mine = columns[resource.class_number]
            here = np.flatnonzero(mine >= 0)
            values = bins.ratio[i, here] * total[here] / length_s * SHRINK
            if len(here) and values.any():
                rows.at_most(mine[here], values, 0.0, resource.class_number, resource.capacity)
        return columns

    def _class_rows(self, demand: Demand, bins: _Bins, shares: np.ndarray, lates: Sequence[LatenessLimit]) -> None:
        """Add rows that count jobs (and tokens) as late on a class that is too slow for them even when it is idle."""
        rows = self._rows
        for late in lates:
            mine = self.judged & late.mine
            inside, _, largest_inside = self._totals(bins, mine)
            alone = demand.alone_s if late.until == "whole" else demand.alone_first_s
            weight = np.where(largest_inside > 0, inside / np.maximum(largest_inside, 1e-300), 0.0)
            self._late_row(demand, bins, shares, weight, alone > late.limit_s, mine, late.most)
        for target in self.targets:
            until = until_of(target, demand)
            if until is None or target.statistic != "mean":
                continue
            if target.comparison != "<=" or target.workload is not None or demand.end_s is not None:
                continue
            alone = demand.alone_s if until == "whole" else demand.alone_first_s
            total = self._totals(bins, self.judged)[0]
            columns, values = [], []
            for c in range(demand.classes):
                least = np.full(bins.count, np.inf)
                np.minimum.at(least, bins.of_job, alone[c] / bins.size)
                here = np.flatnonzero(shares[c] >= 0)
                columns += shares[c, here].tolist()
                values += (least[here] * total[here] / len(demand) * SHRINK).tolist()
            rows.at_most(np.array(columns), np.array(values), target.limit)
        for target in self.targets:
            if target.metric in ("itl", "tpot") and target.statistic in PERCENTILES and target.comparison == "<=":
                self._gap_row(demand, target, bins, shares)

    def _gap_row(self, demand: Demand, target: Target, bins: _Bins, shares: np.ndarray) -> None:
        """Add a row that counts tokens (for TPOT requests) as late on a class whose gaps are too long."""
        total, _, largest = self._totals(bins, self.counted)
        slow = (demand.gap_s if target.metric == "itl" else demand.token_s) > target.limit
        mine = self.judged & (demand.following > 0)
        if target.workload is not None:
            mine &= demand.workload == list(demand.workloads).index(target.workload)
        if not slow.any() or not mine.any():
            return
        # Each job counts with the fewest tokens of its bin, relative to the tokens of all jobs; for TPOT, the mean gap
        # of each request, it counts once.
        following = demand.following if target.metric == "itl" else np.minimum(demand.following, 1.0)
        tokens = np.full(bins.count, np.inf)
        np.minimum.at(tokens, bins.of_job[mine], following[mine])
        tokens = np.where(np.isfinite(tokens), tokens, 0.0)
        weight = np.where(largest > 0, total / np.maximum(largest, 1e-300), 0.0) * tokens
        # A percentile between two order statistics leaves at most one more beyond it.
        allowed = (1 - PERCENTILES[target.statistic or ""]) * float(following.sum()) + (target.metric == "tpot")
        self._late_row(demand, bins, shares, weight, slow, mine, allowed)

    def _late_row(
        self,
        demand: Demand,
        bins: _Bins,
        shares: np.ndarray,
        weight: FloatArray,
        slow: np.ndarray,
        mine: np.ndarray,
        most: float,
    ) -> None:
        columns: list[int] = []
        values: list[float] = []
        outside = np.bincount(bins.of_job[self.counted & ~mine], minlength=bins.count) > 0
        for c in range(demand.classes):
            quick = np.bincount(bins.of_job[mine & ~slow[c]], minlength=bins.count) > 0
            here = np.flatnonzero((shares[c] >= 0) & ~quick & ~outside & (weight > 0))
            columns += shares[c, here].tolist()
            values += (weight[here] * SHRINK).tolist()
        if columns:
            self._rows.at_most(np.array(columns), np.array(values), most)

    def _power_rows(self, demand: Demand, bins: _Bins, shares: np.ndarray) -> None:
        """Compute the average power above idle of the work, over the longest possible run."""
        total, _, _ = self._totals(bins, self.counted)
        columns: list[int] = []
        values: list[float] = []
        for c in range(demand.classes):
            least = np.full(bins.count, np.inf)
            np.minimum.at(least, bins.of_job, demand.energy_j[c] / bins.size)
            here = np.flatnonzero(shares[c] >= 0)
            columns += shares[c, here].tolist()
            values += (least[here] * total[here] / self.run_s * SHRINK).tolist()
        before, watts = self._work_w
        self._work_w = (np.append(before, np.array(columns, dtype=np.int64)), np.append(watts, np.array(values)))

    def _windows(self, demand: Demand, late: LatenessLimit, bins: _Bins) -> list[tuple[np.ndarray, float]]:
        """Return the busiest windows of several lengths; their timely jobs complete in the window plus the limit."""
        mine = np.flatnonzero(self.judged & late.mine)
        if len(mine) < 2 or demand.closed:
            return []
        times = demand.arrival_s[mine]
        work = np.concatenate([[0.0], np.cumsum(bins.size[mine])])
        span = float(times[-1] - times[0])
        windows: list[tuple[np.ndarray, float]] = []
        seen: set[tuple[int, int]] = set()
        length = span
        while length > 0.25 * late.limit_s and len(windows) < _WINDOWS and length > 0:
            stop = np.searchsorted(times, times + length, side="right")
            start = int(np.argmax(work[stop] - work[np.arange(len(times))]))
            end = int(stop[start])
            if (start, end) not in seen:
                seen.add((start, end))
                chosen = np.zeros(len(demand), dtype=bool)
                chosen[mine[start:end]] = True
                windows.append((chosen, float(times[end - 1] - times[start]) + late.limit_s))
            length /= 2.5
        return windows

    # Solving.

    def lower_bound(
        self, weights: FloatArray, most: Sequence[int], kinds: int, *, work_w: float = 0.0, whole: bool = True
    ) -> Bound:
        """Return the minimum of ``weights`` times counts, plus ``work_w`` for each watt of the work above idle.

        At most ``kinds`` classes are used, with at most ``most`` devices of each. ``whole``: counts are integers.
        """
        from scipy.optimize import Bounds as Limits
        from scipy.optimize import LinearConstraint, milp
        from scipy.sparse import coo_matrix, hstack, vstack

        rows, classes = self._rows, self.demand.classes
        free = len(rows.upper)
        matrix = hstack([rows.matrix(), coo_matrix((len(rows.limit), classes))])
        objective = np.zeros(free + 2 * classes)
        objective[free : free + classes] = weights
        columns, values = self._work_w
        np.add.at(objective, columns, values * work_w)
        extra: list[tuple[np.ndarray, np.ndarray, float]] = [
            (np.array([free + c, free + classes + c]), np.array([1.0, -float(most[c])]), 0.0) for c in range(classes)
        ]
        extra.append((np.arange(free + classes, free + 2 * classes), np.ones(classes), float(kinds)))
        extra.append((np.arange(free, free + classes), -np.ones(classes), -1.0))
        idle = self.demand.idle_w
        for target in self.targets:
            if target.metric == "power" and target.comparison == "<=":
                where = np.concatenate([np.arange(free, free + classes), columns])
                extra.append((where, np.concatenate([idle, values]), target.limit))
        table = coo_matrix(
            (
                np.concatenate([v for _, v, _ in extra]),
                (
                    np.repeat(np.arange(len(extra)), [len(w) for w, _, _ in extra]),
                    np.concatenate([w for w, _, _ in extra]),
                ),
            ),
            shape=(len(extra), free + 2 * classes),
        )
        limits = np.array(rows.limit + [limit for _, _, limit in extra])
        integral = np.zeros(free + 2 * classes)
        if whole:
            integral[free:] = 1
        answer = milp(
            objective,
            constraints=LinearConstraint(vstack([matrix, table]).tocsr(), -np.inf, limits),
            bounds=Limits(
                np.zeros(free + 2 * classes),
                np.concatenate([rows.upper, np.asarray(most, dtype=np.float64), np.ones(classes)]),
            ),
            integrality=integral,
            # The limit is on nodes, not on seconds, so that the result does not depend on the machine.
            options={"mip_rel_gap": 1e-6, "node_limit": 2000},
        )
        if answer.status == 2:
            return Bound(math.inf, None)
        value = answer.mip_dual_bound if whole and answer.mip_dual_bound is not None else answer.fun
        if value is None or not math.isfinite(value):
            return Bound(0.0, None)
        counts = None if answer.x is None else tuple(int(n) for n in np.ceil(answer.x[free : free + classes] - 1e-6))
        return Bound(max(float(value) * SHRINK, 0.0), counts)

    def load(self, counts: Sequence[int]) -> tuple[float, FloatArray]:
        """Return the minimum load of a fleet, and the weights of a bound on others; see ``LinearProgram.load``."""
        return self._rows.load(counts)


class Replicated:
    """The lower bounds of a search whose fleets are judged by the mean over several replications.

    If a mean is within a limit, at least one replication is within it, but it is not known which. So the bound of each
    target is the smallest over its replications, and the bound of the fleet is the largest over the targets.
    """

    def __init__(self, demands: Sequence[Demand], targets: Sequence[Target], slack_s: float = 0.0) -> None:
        alone = [list(targets)]
        if len(demands) > 1:
            # A target without rows does not increase the bound.
            alone = [[target] for target in targets if target.metric in READ] or [[]]
        slack_s = max(slack_s, 0.0 if len(demands) == 1 else Bounds(demands[0], targets).slack_s)
        self.groups = [[Bounds(demand, subset, slack_s) for demand in demands] for subset in alone]
        self.demands = demands
        self.demand = demands[0]
        self.runs = self.groups[0]
        self.first = self.runs[0]
        self._loads: dict[Counts, tuple[float, DualCut]] = {}

    def lower_bound(
        self, weights: FloatArray, most: Sequence[int], kinds: int, *, work_w: float = 0.0, whole: bool = True
    ) -> Bound:
        """Return the lower bound over all targets; see ``Bounds.lower_bound``."""
        bounds = [
            min(
                (b.lower_bound(weights, most, kinds, work_w=work_w, whole=whole) for b in group),
                key=lambda bound: bound.value,
            )
            for group in self.groups
        ]
        return max(bounds, key=lambda bound: bound.value)

    def fits(self, counts: Sequence[int]) -> bool:
        """Return whether a fleet has a valid set of entries, and finds room for jobs that occupy several devices."""
        return self.demand.sets.work(_present(counts)) and self.demand.fits(counts)

    def load(self, counts: Sequence[int]) -> tuple[float, DualCut]:
        """Return the minimum load of a fleet, and the cut that it gives for other fleets; results are cached."""
        key = tuple(int(n) for n in counts)
        if key not in self._loads:
            self._loads[key] = self._load(key)
        return self._loads[key]

    def _load(self, counts: Counts) -> tuple[float, DualCut]:
        worst, cut = -1.0, DualCut(np.zeros((1, self.demand.classes)), np.zeros(1))
        if not self.demand.sets.work(_present(counts)):
            return math.inf, cut
        for group in self.groups:
            loads = [bounds.load(counts) for bounds in group]
            least = min(load for load, _ in loads)
            if least > worst:
                worst = least
                cut = DualCut(np.stack([w for _, w in loads]), np.array([load for load, _ in loads]))
        if worst <= 1 and not self.demand.fits(counts):
            return math.inf, DualCut(np.zeros((1, self.demand.classes)), np.zeros(1))
        return worst, cut


def _present(counts: Sequence[int]) -> list[int]:
    """Return the classes of which a fleet has devices."""
    return [c for c, n in enumerate(counts) if n]


@dataclass(frozen=True)
class DualCut:
    """A bound from one fleet on all others: the load of m is at least the minimum of ``loads`` / (``weights`` m)."""

    weights: FloatArray
    loads: FloatArray

    def min_load(self, fleets: np.ndarray) -> FloatArray:
        """Return the minimum load of each row of counts."""
        offered = np.asarray(fleets, dtype=np.float64) @ self.weights.T
        with np.errstate(divide="ignore", invalid="ignore"):
            loads = np.where(offered > 0, self.loads / np.where(offered > 0, offered, 1.0), 0.0)
        # An infinite load rules out only the fleet itself, which the caller already knows.
        loads = np.where(np.isfinite(loads), loads, 0.0)
        least: FloatArray = loads.min(axis=1)
        return least
