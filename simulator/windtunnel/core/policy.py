"""Scheduling policies and their three parts: route, order and batch.

Each part is a function of numbers, so that the same source runs interpreted and compiled. A route does not scan the
fleet: the devices of a class differ only in their load, so the engine keeps for each class the device that is best by
the route's index (``rank_by``), and the route scores one candidate for each class. Devices with continuous batching
differ in more, so routes with ``rank_by`` each score all of them.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from windtunnel.core.errors import InputError, Location
from windtunnel.core.registry import Registry


class Candidate(NamedTuple):
    """The best device of one class, as a route sees it when a job arrives. Times are in seconds.

    The fields from ``prompt_tokens`` on are those of devices with continuous batching, and 0 for other ones.
    """

    jobs: int
    """Jobs queued at or running on the device."""
    backlog_s: float
    """Expected time until the device has completed all its jobs."""
    estimate_s: float
    """Expected time of this job on the device (for a request that generates tokens: until its first token)."""
    mean_s: float
    """Mean of this time over the job's workload."""
    cost_usd: float
    """Rent of the device while it executes this job, including ``load_s``; 0 if no price is known."""
    energy_j: float
    """Energy of this job on the device, including the device's idle power and ``load_s``."""
    slack_s: float
    """Time left until the job's deadline; infinite without one."""
    last_chosen: int
    """When the device was last selected: the number of that selection (only for routes with rank_by last_chosen)."""
    preference: float
    """Rank of the class in the recommendation matrix for the job's use case: 0 primary, 1 alternative, 2 fallback."""
    load_s: float
    """Expected time to load the designs that this job needs and the device will not hold after its present jobs; 0 for
    devices that are not reconfigured. ``estimate_s`` and ``mean_s`` do not include it, and ``backlog_s`` includes that
    of the present jobs."""
    prompt_tokens: int = 0
    """The tokens of this request's prompt."""
    hit_tokens: int = 0
    """How many of them, from the first on, the prefix cache of the device has now."""
    kv_tokens: int = 0
    """The tokens for which the sequences in the device's batch hold KV memory; blocks that they share count once."""
    kv_capacity_tokens: int = 0
    """The tokens for which the device has KV memory."""
    running: int = 0
    """The sequences in its batch."""
    turns_from_home: int = 0
    """How many devices of the fleet follow the home of the request's conversation up to this one; 0 at home."""
    has_adapter: int = 0
    """1 if a slot of the device has the request's adapter, or it needs none; else 0."""


class JobKey(NamedTuple):
    """A waiting job, as an order sees it."""

    arrival: int
    """Tick of arrival."""
    priority: int
    """The workload's priority; larger goes first."""
    deadline: int
    """Tick at which it is due; a very large number without a deadline."""
    size_s: float
    """Expected time on the first class that can run it."""


@dataclass(frozen=True)
class OwnFunction:
    """A user's function, as the process engine calls it: its result is checked, and its errors name file and line.

    ``numbers`` is how many numbers it returns. ``pair``: the caller expects two; a missing second one is 0. The
    compiled engine compiles ``function`` itself.
    """

    function: Callable[..., Any]
    text: str
    file: str
    numbers: int
    pair: bool

    def __call__(self, example: Candidate | JobKey) -> Any:
        """Return the number or the pair; raises InputError with the line where the function fails or returns NaN."""
        try:
            answer = self.function(example)
            numbers = tuple(float(part) for part in (answer if self.numbers == 2 else (answer,)))
        except (Exception, SystemExit) as error:
            raise InputError(
                f"'{self.text}' fails on {_shown(example)}: {type(error).__name__}: {error}", where=self._place(error)
            ) from error
        if len(numbers) != self.numbers or not all(part == part for part in numbers):  # noqa: PLR0124  NaN has no order
            raise InputError(
                f"'{self.text}' gives {answer!r} for {_shown(example)}",
                where=Location(self.file, self.function.__code__.co_firstlineno),
                expected="a number" if self.numbers == 1 else "two numbers",
            )
        if not self.pair:
            return numbers[0]
        return numbers if self.numbers == 2 else (numbers[0], 0.0)

    def _place(self, error: BaseException) -> Location:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == self.file]
        return Location(self.file, lines[-1] if lines else self.function.__code__.co_firstlineno)


def _shown(example: Candidate | JobKey) -> str:
    values = ", ".join(f"{name}={value:.6g}" for name, value in zip(example._fields, example, strict=True))
    return f"{type(example).__name__}({values})"


Score = Callable[[Candidate], tuple[float, float]]
OrderKey = Callable[[JobKey], float]
Index = Literal["jobs", "backlog", "last_chosen", "each"]


@dataclass(frozen=True)
class Route:
    """Selects the queue of an arriving job: that of the device with the smallest ``score``, or one central queue.

    ``score`` None: one central queue, from which a free device takes the first job it can run, the device of
    lowest index first. Ties between classes go to the class that is faster for the job, then to the lowest index.
    ``requires``: what every class or job must state for the score to have a meaning (``price``, ``deadline``,
    ``use_case``). Routes with ``rank_by`` each require continuous batching.
    """

    name: str
    doc: str
    score: Score | None = None
    rank_by: Index = "jobs"
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class Order:
    """Selects the next job of a queue: the smallest key, ties in order of arrival. ``key`` None: order of arrival."""

    name: str
    doc: str
    key: OrderKey | None = None
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class CacheTier:
    """Memory below that of the devices, which keeps blocks of prompts for each replica.

    ``bytes_per_s``: the rate at which a replica loads from it; None: that of the host links of its devices.
    """

    name: Literal["host", "disk"]
    size_bytes: float
    bytes_per_s: float | None = None


@dataclass(frozen=True)
class PrefixCache:
    """Blocks of prompts that a device has read are kept for later requests.

    ``blocks``: as many blocks as this, beside the key-value memory of the sequences; None: in that memory. ``tiers``
    are below it, the one nearest to the device first.
    """

    blocks: int | None = None
    tiers: tuple[CacheTier, ...] = ()


@dataclass(frozen=True)
class Batch:
    """How many jobs a device executes together.

    ``none``: one. ``request``: up to ``size`` jobs of one workload, waiting at most ``wait_s`` for more; all
    finish together. ``continuous``: generating jobs join and leave at every step, up to ``size`` sequences,
    ``tokens`` tokens a step, and as much key-value cache as fits in the share ``memory`` of a device's memory; each
    is 0 if the serving engine of a device decides.

    ``coarseness``: steps are priced for numbers of tokens and sequences that are apart by this share of them, and
    between these times are interpolated; 0: for every number. A first look at a scenario takes coarse tables.
    """

    kind: Literal["none", "request", "continuous"] = "none"
    size: int = 1
    wait_s: float = 0.0
    tokens: int = 8192
    memory: float = 1.0
    prefix_cache: PrefixCache | None = None
    coarseness: float = 0.0


@dataclass(frozen=True)
class FairShares:
    """Of the tenants with waiting requests, the one that was served the fewest tokens for its weight is next.

    ``weights``: by tenant, 1 for others. ``prompt``, ``output``: what a token of a prompt that is read, and a generated
    one, count.
    """

    weights: Mapping[str, float]
    prompt: float
    output: float


@dataclass(frozen=True)
class Policy:
    """A route, an order and a batch."""

    name: str
    route: Route
    order: Order
    batch: Batch = Batch()
    preemption: Literal["none", "resume", "restart"] = "none"
    """Whether a waiting job may interrupt one that comes after it in the order, and where the latter continues."""
    decode_route: Route | None = None
    """Which device gets a request whose prompt was read by a device that does not decode; None: ``least-loaded``."""
    backfill: bool = False
    """Whether later jobs may start on devices for which a job of several devices waits."""
    fair: FairShares | None = None

    @property
    def requires(self) -> frozenset[str]:
        """What every class and job must state for this policy."""
        return frozenset(self.route.requires + self.order.requires)


ROUTES: Registry[Route] = Registry("route")
ORDERS: Registry[Order] = Registry("order")
POLICIES: Registry[tuple[str, str]] = Registry("policy")
"""Named policies: a route's name and an order's."""


def route(name: str, *, rank_by: Index = "jobs", requires: tuple[str, ...] = ()) -> Callable[[Score], Score]:
    """Return a decorator that registers a score as the route ``name``, and as the policy of that name."""

    def add(score: Score) -> Score:
        ROUTES.add(name, Route(name, (score.__doc__ or "").strip(), score, rank_by, requires))
        POLICIES.add(name, (name, "arrival"))
        return score

    return add


def order(name: str, *, policy: str | None = None, requires: tuple[str, ...] = ()) -> Callable[[OrderKey], OrderKey]:
    """Return a decorator that registers a key as the order ``name``, and as ``policy`` on the central queue."""

    def add(key: OrderKey) -> OrderKey:
        ORDERS.add(name, Order(name, (key.__doc__ or "").strip(), key, requires))
        if policy is not None:
            POLICIES.add(policy, ("central", name))
        return key

    return add
