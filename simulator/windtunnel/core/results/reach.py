"""What no number of devices can mend, as a part of the result of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from windtunnel.core.results.data import OPTIONAL, Result


@dataclass(frozen=True)
class EntryReach(Result):
    """The least value of a target, in its unit, that any number of devices of an entry alone can have."""

    entry: str
    """The entry, with the values of the search that a whole fleet shares."""
    device: str
    least: float


@dataclass(frozen=True, kw_only=True)
class TargetReach(Result):
    """The least value of a target on a time that any fleet can have, because a request alone takes as long.

    ``least`` is that of any fleet with any of the searched values; ``entries`` has those of each alone, least first.
    """

    text: str
    limit: float
    unit: str
    least: float
    entries: Sequence[EntryReach]
    first_token_error: float | None = field(default=None, metadata=OPTIONAL)
    """Of a target on the first token: the factor within which 90% of measured ones are of the models'. The least values
    are the models', without this error."""
    sentence: str = ""
