"""The figures of the founding documents, compared with the models and with physical bounds.

Each claim of ``claims.yaml`` becomes a row: the stated figure, the modelled one, the physical bound, a verdict, and the
arithmetic. No number of a model is fitted to a claim.

Verdicts:

``impossible``  the stated figure exceeds the bound, which is computed from datasheet numbers alone, even if each of
                them is at the end of its range that favours the claim. A ratio is impossible if it exceeds its own
                document's baseline over the bound of the faster side.
``reproduced``  a single figure: the modelled value is within the row's tolerance of it, 10%, or 25% where the document
                writes it with "~" (the three workload tables and the ratios between them). A range ("1-10 us", "<1 us",
                "20+ TFLOPS", also where only the order of magnitude is meant): the modelled value lies in it, or within
                10% of its nearer end. A ratio must also be, within 5%, the quotient of its document's own two figures,
                and one of these two must itself be reproduced: two wrong figures may have the right ratio by chance.
``off``         any other claim that could be modelled; ``why`` gives the factor and the likeliest reason.
``untested``    no program or device measures it yet; ``why`` says what would test it.

The documents state techniques of programs ("unified memory saves 30% of frame time") without size, device or baseline.
A program of ``windtunnel.examples`` runs each technique in a setting that the program states: the document's own if it
has one, else usual sizes, fixed before the result was known. The verdict refers to that setting. ``modelled_low`` and
``modelled_high`` are the ends of a sweep over what the document does not state, and ``why`` says where in it the claim
holds. A setting in which a figure is attained does not reproduce it, because most sweeps cover nearly all values.

``independent`` is false if a number that affects the modelled value was assumed from these documents, or if the value
is an entry of the catalogue (``by definition``), which no model computed. Agreement then proves little, and ``why``
names the number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from windtunnel.claims.bounds import Bound
from windtunnel.claims.models import ClaimModel, Modelled, Setting, evaluate
from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.results.claims import ClaimVerdict
from windtunnel.core.units import format_quantity as show
from windtunnel.core.units import parse_quantity, to_unit
from windtunnel.core.yamlfile import parse, read_text

FILE = Path(__file__).with_name("claims.yaml")
VERDICTS = ("reproduced", "off", "impossible", "untested")
_WIDENED = 1.10
_QUOTIENT = 0.05
_PLAIN = {"x": "1", "cycles": "1"}
"""Units of this report that are pure numbers elsewhere."""


@dataclass(frozen=True)
class StatedFigure:
    """A figure of a document (SI): a single one if ``low`` equals ``high``, else a range, open where infinite."""

    low: float
    high: float

    @property
    def single(self) -> bool:
        """Whether it is a single figure."""
        return self.low == self.high

    @property
    def shown(self) -> float:
        """The figure for the column ``stated``: the upper end of a range, or the lower one if the range is open."""
        return self.high if math.isfinite(self.high) else self.low


class StatedBound(TypedDict):
    """A bound that a claim states itself, in its unit, and why."""

    value: float
    why: str


@dataclass(frozen=True)
class Claim:
    """One claim of claims.yaml."""

    id: str
    group: str
    claim: str
    document: str
    device: str | None
    stated: StatedFigure
    unit: str
    sense: str
    model: ClaimModel
    reason: str | None = None
    tolerance: float = 0.10
    at_most: StatedBound | None = None

    def shown(self, value: float | None) -> float | None:
        """Return an SI value in the claim's unit."""
        return None if value is None else to_unit(value, _PLAIN.get(self.unit, self.unit))

    def words(self, value: float) -> str:
        """Return an SI value as text in the claim's unit."""
        if self.unit == "x":
            return _times(value)
        if self.unit in ("cycles", "h", "%"):
            return f"{self.shown(value):,.3g} {self.unit}"
        return (
            f"{self.shown(value):.3g} {self.unit}"
            if self.unit in ("Gbit/s", "TOP/s")
            else show(value, _base(self.unit))
        )


def _base(unit: str) -> str:
    """Return the unit without its prefix, as quantities are shown."""
    return next((base for base in ("FLOP/s", "bit/s") if unit.endswith(base)), "/s" if unit == "/s" else unit[-1])


def read_claims(path: Path = FILE) -> list[Claim]:
    """Return every claim of the file; raises InputError with its line for an invalid one."""
    document = parse(read_text(path, "list of claims"), str(path))
    titles = document.data["documents"]
    claims: list[Claim] = []
    for i, entry in enumerate(document.data["claims"]):
        where = document.where(("claims", i))
        try:
            if entry["document"] not in titles:
                raise InputError(
                    f"unknown document '{entry['document']}'",
                    expected=list_choices(titles),
                    nearest=nearest(entry["document"], titles),
                )
            unit = _PLAIN.get(entry["unit"], entry["unit"])
            fields = {**entry, "stated": _stated(entry["stated"], unit), "document": titles[entry["document"]]}
            claims.append(Claim(**{"device": None, **fields}))
        except InputError as error:
            raise error.at(where) from None
        except (KeyError, TypeError) as error:
            raise InputError(f"this claim is not valid: {error}", where=where) from None
    ids = [claim.id for claim in claims]
    if len(set(ids)) != len(ids):
        raise InputError("an id is given twice", where=Location(str(path)), expected="each id once")
    return claims


def _stated(data: Any, unit: str) -> StatedFigure:
    if not isinstance(data, dict):
        value = parse_quantity(str(data), unit)
        return StatedFigure(value, value)
    ends = {key: parse_quantity(str(text), unit) for key, text in data.items()}
    if set(ends) == {"low", "high"}:
        return StatedFigure(ends["low"], ends["high"])
    if set(ends) == {"below"}:
        return StatedFigure(0.0, ends["below"])
    if set(ends) == {"at_least"}:
        return StatedFigure(ends["at_least"], math.inf)
    raise InputError(
        f"a stated figure has {list_choices(data)}", expected="a quantity, low and high, below, or at_least"
    )


def choose(claims: Sequence[Claim], only: str | None) -> list[Claim]:
    """Return the claims of the group ``only``, or all claims; raises InputError for an unknown group."""
    groups = list(dict.fromkeys(claim.group for claim in claims))
    if only is not None and only not in groups:
        raise InputError(
            f"'{only}' is not a valid group of claims",
            where=Location(field="--only"),
            expected=list_choices(groups),
            nearest=nearest(only, groups),
        )
    return [claim for claim in claims if only in (None, claim.group)]


class Report:
    """The evaluation of claims; a ratio uses the values of its two claims."""

    def __init__(self, setting: Setting, claims: Sequence[Claim]) -> None:
        self._setting = setting
        self._claims = {claim.id: claim for claim in claims}
        self._modelled: dict[str, Modelled] = {}

    def modelled(self, claim: Claim) -> Modelled:
        """Return the modelled value of a claim, computed once."""
        if claim.id not in self._modelled:
            if "ratio" in claim.model:
                self._modelled[claim.id] = self._ratio(claim)
            else:
                self._modelled[claim.id] = evaluate(self._setting, claim.device or "", claim.model)
        return self._modelled[claim.id]

    def _ratio(self, claim: Claim) -> Modelled:
        slow, fast = (self._claims[name] for name in claim.model["ratio"])
        slower, faster = self.modelled(slow), self.modelled(fast)
        assert slower.value is not None and faster.value is not None  # noqa: S101  a ratio has two modelled claims
        bound = None
        if faster.bound is not None:
            least, best = faster.bound.value, faster.bound.favourable
            bound = Bound(
                slow.stated.low / least,
                slow.stated.low / best if best else math.inf,
                f"{slow.words(slow.stated.low)} over {fast.words(least)} is {_times(slow.stated.low / least)}, for "
                f"{faster.bound.why}",
            )
        ratio = slower.value / faster.value
        return Modelled(
            ratio,
            f"{slow.words(slower.value)} / {fast.words(faster.value)} = {_times(ratio)}",
            bound,
            notes=(f"the document's own figures make {_times(self._quotient(claim))}",),
            circular=tuple(dict.fromkeys([*slower.circular, *faster.circular])),
        )

    def _quotient(self, claim: Claim) -> float:
        slow, fast = (self._claims[name] for name in claim.model["ratio"])
        return slow.stated.low / fast.stated.low

    def row(self, claim: Claim) -> ClaimVerdict:
        """Return the verdict on one claim."""
        modelled = self.modelled(claim)
        if claim.at_most is not None:
            value = float(claim.at_most["value"])
            modelled = replace(modelled, bound=Bound(value, value, claim.at_most["why"]))
        verdict, reason = self.judge(claim, modelled)
        return ClaimVerdict(
            claim=claim.claim,
            device=claim.device,
            stated=_number(claim.shown(claim.stated.shown)),
            modelled=_number(claim.shown(modelled.value)),
            bound=None if modelled.bound is None else _number(claim.shown(modelled.bound.value)),
            unit=claim.unit,
            verdict=verdict,
            why=reason,
            group=claim.group,
            document=claim.document,
            stated_low=_number(claim.shown(claim.stated.low)),
            stated_high=_number(claim.shown(claim.stated.high)),
            modelled_low=_number(claim.shown(modelled.low)),
            modelled_high=_number(claim.shown(modelled.high)),
            independent=None if modelled.value is None else not (modelled.circular or modelled.by_definition),
        )

    def judge(self, claim: Claim, modelled: Modelled) -> tuple[str, str]:
        """Return the verdict and its reason; the module's docstring has the rules."""
        parts = [modelled.why]
        if modelled.notes:
            parts.append("; ".join(modelled.notes))
        if modelled.value is None:
            if modelled.bound is not None:
                parts.append(modelled.bound.why)
            return "untested", _sentences(parts)
        if modelled.by_definition:
            parts.append("by definition: this is the catalogue's own entry, and no model computes it")
        if modelled.circular:
            parts.append(f"not independent: depends on numbers from the same documents: {', '.join(modelled.circular)}")
        broken = _breaks(claim, modelled.bound)
        if broken is not None and modelled.bound is not None:
            parts.insert(
                0, f"{modelled.bound.why}; the claim of {_range(claim)} is {broken:.3g} times {_beyond(claim)}"
            )
            return "impossible", _sentences([*parts, *_reason(claim)])
        if modelled.bound is not None:
            parts.append(f"bound: {modelled.bound.why}")
        if modelled.swept and modelled.low is not None and modelled.high is not None:
            ends = f"{claim.words(modelled.low)} to {claim.words(modelled.high)}"
            parts.append(f"swept over {modelled.swept}: {ends}; the claim holds {modelled.holds}")
        distance = _distance(claim, modelled.value)
        agrees = distance <= (claim.tolerance if claim.stated.single else _WIDENED - 1.0)
        if "ratio" in claim.model:
            own = self._quotient(claim)
            if abs(claim.stated.low / own - 1.0) > _QUOTIENT:
                parts.insert(0, f"its own document's figures make {_times(own)}, not {_times(claim.stated.low)}")
                return "off", _sentences([*parts, *_reason(claim)])
            if agrees and not any(self._verdict(name) == "reproduced" for name in claim.model["ratio"]):
                parts.insert(0, "neither of its two figures is reproduced, and their errors happen to cancel")
                return "off", _sentences([*parts, *self._parts(claim)])
        if agrees:
            parts.insert(0, _agreement(claim, distance))
            return "reproduced", _sentences(parts)
        return "off", _sentences([*_deviation(claim, modelled, parts), *(_reason(claim) or self._parts(claim))])

    def _verdict(self, name: str) -> str:
        claim = self._claims[name]
        return self.judge(claim, self.modelled(claim))[0]

    def _parts(self, claim: Claim) -> list[str]:
        """Return why a ratio is off: the deviation of each of its two claims."""
        if "ratio" not in claim.model:
            return []
        sides = []
        for name in claim.model["ratio"]:
            side = self._claims[name]
            value = self.modelled(side).value or math.nan
            sides.append(
                f"{side.words(side.stated.low)} is {_times(side.stated.low / value)} the model's {side.words(value)}"
            )
        return [f"likeliest: its two figures, of which {' and '.join(sides)}"]


def _agreement(claim: Claim, distance: float) -> str:
    if claim.stated.single:
        return f"the model is {distance:.1%} away"
    if distance == 0.0:
        return "the model lies in the range"
    return f"the model is {distance:.1%} outside the range, and {_WIDENED - 1.0:.0%} are allowed"


def _deviation(claim: Claim, modelled: Modelled, parts: Sequence[str]) -> list[str]:
    """Return ``parts`` after the deviation of the model from the claim, and whether its interval contains the claim."""
    assert modelled.value is not None  # noqa: S101  the caller has checked
    higher = modelled.value > claim.stated.high
    edge = claim.stated.high if higher else claim.stated.low
    word = "more" if higher else "less"
    if claim.unit == "%":
        # Savings can be zero or negative, so a factor is meaningless.
        first = f"off by {abs(modelled.value - edge) * 100:.0f} points: the model predicts {word}"
    else:
        factor = modelled.value / edge if higher else edge / modelled.value
        first = f"off by a factor of {factor:.3g}: the model predicts {word}"
    low, high = modelled.low, modelled.high
    if not modelled.swept and low is not None and high is not None and low <= edge <= high:
        return [first, *parts, f"inside the model's interval of {claim.words(low)} to {claim.words(high)}"]
    return [first, *parts]


def _times(value: float) -> str:
    return f"{value:,.0f}x" if value >= 1000 else f"{value:.3g}x"


def _sentences(parts: Sequence[str]) -> str:
    return "; ".join(parts)


def _reason(claim: Claim) -> list[str]:
    return [] if claim.reason is None else [f"likeliest: {claim.reason}"]


def _range(claim: Claim) -> str:
    s = claim.stated
    if s.single:
        return claim.words(s.low)
    if math.isinf(s.high):
        return f"{claim.words(s.low)} and more"
    return f"{claim.words(s.low)} to {claim.words(s.high)}" if s.low else f"less than {claim.words(s.high)}"


def _beyond(claim: Claim) -> str:
    return "faster than that" if claim.sense == "time" else "more than that"


def _breaks(claim: Claim, bound: Bound | None) -> float | None:
    """Return the factor by which the claim exceeds the most favourable bound, or None if it does not."""
    if bound is None:
        return None
    if claim.sense == "time" and claim.stated.high < bound.favourable:
        return bound.value / claim.stated.high
    if claim.sense == "rate" and claim.stated.low > bound.favourable * (1.0 + 1e-9):
        return claim.stated.low / bound.value
    return None


def _distance(claim: Claim, value: float) -> float:
    """Return the relative distance of ``value`` from the stated figure, or from the nearer end of the range."""
    s = claim.stated
    if s.low <= value <= s.high:
        return 0.0
    return value / s.high - 1.0 if value > s.high else (s.low / value - 1.0 if not s.single else 1.0 - value / s.low)


def _number(value: float | None) -> float | None:
    """Return a number with six significant digits, which hides rounding errors."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def report(setting: Setting, only: str | None = None) -> list[ClaimVerdict]:
    """Return the verdict on every claim, or for the claims of the group ``only``."""
    claims = read_claims()
    chosen = choose(claims, only)
    judged = Report(setting, claims)
    return [judged.row(claim) for claim in chosen]
