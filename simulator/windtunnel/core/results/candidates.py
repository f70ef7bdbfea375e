"""What a plan states of its candidate entries: the errors of their models, and why fleets of one miss the targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from windtunnel.core.results.data import OPTIONAL, Result
from windtunnel.core.results.run import PowerError

PARTLY = "partly measured"


@dataclass(frozen=True)
class TimeError(Result):
    """The factor by which the time of ``op`` may exceed its model's (90%), and the ``basis`` of that model.

    The basis of a step of which some operations were measured on the device, and others not, is ``partly measured``.
    """

    factor: float
    op: str
    basis: str

    @property
    def unmeasured(self) -> str:
        """What was not measured on the device, as a clause; empty if everything was."""
        if self.basis == "measured":
            return ""
        return (
            "some of its operations were not measured on it" if self.basis == PARTLY else "nothing was measured on it"
        )


@dataclass(frozen=True)
class FirstTokenError(Result):
    """The error of an engine's time to the first token.

    90% of measured times are within ``factor`` of the modelled ones. ``median``: that of measured over modelled times;
    None where it was not measured.
    """

    factor: float
    median: float | None


@dataclass(frozen=True, kw_only=True)
class TargetLimit(Result):
    """A target that limits what is possible: by the model, its value is at least ``least``, in its unit.

    ``least`` is None where only the lower bound as a whole is known to exclude it.
    """

    text: str
    limit: float
    least: float | None


@dataclass(frozen=True, kw_only=True)
class EntryReason(Result):
    """Why there is no fleet of one entry alone that meets the targets by value; ``text`` is made from the rest.

    ``kind`` is one of

    - ``one_role``: its devices have the ``role`` prefill or decode, and a fleet needs both.
    - ``no_job``: its devices run none of the jobs. One offers ``memory_bytes``; a job needs ``needed_bytes`` or more.
    - ``some_jobs``: they run ``jobs`` of ``of_jobs`` jobs.
    - ``too_slow``: no number of them meets ``targets``, by the lower bound.
    - ``too_few``: by the lower bound it takes at least ``count``, and ``allowed`` are allowed (``max``).
    - ``over_rent``: by the lower bound it takes at least ``count``, whose rent (``least``, USD/h) exceeds ``targets``.
    - ``largest_fails``: ``count``, the most that ``allowed`` or ``targets`` (a limit on the rent) leaves, fail.
    - ``not_searched``: ``count`` fail, and the ``objective`` of one more is at least 1.5 times that of the best fleet.
    - ``not_better``: ``count`` fail, and one more is no better than the best fleet with other values of the search.
    - ``limit``: ``count`` fail, and then as many fleets as allowed were simulated.

    ``within_model_error``: the 90% factor of the error of the device's model could turn the reason.
    """

    kind: str
    text: str = ""
    count: int | None = field(default=None, metadata=OPTIONAL)
    allowed: int | None = field(default=None, metadata=OPTIONAL)
    jobs: int | None = field(default=None, metadata=OPTIONAL)
    of_jobs: int | None = field(default=None, metadata=OPTIONAL)
    role: str | None = field(default=None, metadata=OPTIONAL)
    memory_bytes: float | None = field(default=None, metadata=OPTIONAL)
    needed_bytes: float | None = field(default=None, metadata=OPTIONAL)
    objective: float | None = field(default=None, metadata=OPTIONAL)
    targets: Sequence[TargetLimit] = ()
    violations: Sequence[str] = ()
    within_model_error: bool = False


@dataclass(frozen=True, kw_only=True)
class Conflict(Result):
    """Why no fleet meets the targets: ``targets`` cannot be met together, and the same is not known of a part of them.

    ``kind`` is one of

    - ``bound``: no fleet meets ``targets``, by the lower bound. One target alone cannot be met; no target: the fleets
      that are allowed cannot do the work. ``by_counts``: more devices than ``max`` and ``max_entries`` allow might.
      A limit on rent or power is last, and its ``least`` holds for fleets that meet the others.
    - ``cheapest``: ``fleet`` is the cheapest that meets all but the last of ``targets``, which limits the rent;
      ``proof`` says what is known of cheaper ones.
    - ``simulated``: ``fleet``, which was simulated, misses the last of ``targets`` and meets all others.
    """

    kind: str
    text: str = ""
    targets: Sequence[TargetLimit]
    by_counts: bool = False
    fleet: str | None = field(default=None, metadata=OPTIONAL)
    entries: Mapping[str, int] | None = field(default=None, metadata=OPTIONAL)
    proof: str | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class CandidateEntry(Result):
    """A candidate entry. ``reason`` says why no fleet of it alone meets the targets by value, where none was found."""

    name: str
    device: str
    price_usd_per_h: float
    reason: EntryReason | None
    time_error: TimeError | None
    power_error: PowerError | None = None
    """None for an entry whose power is stated."""
    first_token_error: FirstTokenError | None = field(default=None, metadata=OPTIONAL)
    """None where no engine serves."""
