"""What a plan chooses beside the numbers of devices: the values of ``plan.search``, and the scenarios they give.

A value of one fleet entry makes an alternative of that entry, so that a fleet may have several of them. All other
values are shared by a whole fleet: each combination of them is a choice of its own, with its own search.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeVar

from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.yamlfile import Document, format_path
from windtunnel.planning.simulate import entry_name, leaves_route_without_use
from windtunnel.scenario.changes import NodePath, copied, differences, parse_path, put_value
from windtunnel.scenario.read import check_scenario
from windtunnel.scenario.scenario import Scenario

MOST = 1000
"""The largest number of choices, and of alternatives of the entries, in one plan."""
SEARCHED = ("fleet", "models", "policy", "network", "power_budget", "autoscale", "with")
"""The keys of a scenario under which a plan may choose. The others state what is asked."""
_EVERY = "*"
_Place = TypeVar("_Place")


@dataclass(frozen=True)
class Alternative:
    """An entry of the scenario's fleet with one combination of the values that are searched for it."""

    entry: int
    name: str
    base: str
    """The name of the entry before its values were chosen."""
    values: Mapping[str, object]
    """The chosen values by path."""


@dataclass(frozen=True)
class _Axis:
    """A searched key: its path as stated, the place that it sets, and its values with their locations."""

    text: str
    path: NodePath
    values: Sequence[tuple[object, Location]]
    where: Location


_Assignment = tuple[tuple[_Axis, int], ...]


@dataclass(frozen=True)
class Choice:
    """A scenario with one combination of the searched values that a whole fleet shares, and its fleet's entries."""

    scenario: Scenario
    values: Mapping[str, object]
    alternatives: Sequence[Alternative]
    """One for each entry of ``scenario.fleet``."""
    assignment: tuple[_Assignment, Sequence[tuple[int, _Assignment]]]
    """The shared values, and those of each alternative, as ``Choices.build`` takes them."""

    @property
    def text(self) -> str:
        """The shared values as text, such as ``tokens 2048``; empty if there are none."""
        return values_text(self.values)

    def settings(self, number: int) -> dict[str, object]:
        """Return the chosen values that hold for an alternative, without the shared values of other entries."""
        alternative = self.alternatives[number]
        paths = {text: parse_path(text)[:2] for text in self.values}
        own = ("fleet", alternative.entry)
        shared = {text: self.values[text] for text, path in paths.items() if path[0] != "fleet" or path == own}
        return {**shared, **alternative.values}


class Choices:
    """The choices of a scenario's plan.

    Raises:
        InputError: A path or a value of ``plan.search`` is not valid.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._names = [entry_name(scenario, i) for i in range(len(scenario.fleet))]
        axes = list(self._axes())
        referenced = self._referenced()

        def is_own(axis: _Axis) -> bool:
            return axis.path[0] == "fleet" and axis.path[1] not in referenced

        self._own = [a for a in axes if is_own(a)]
        # Shared values of several entries under one path, such as fleet[*].engine, are told apart by the entry.
        self._shared = [
            a if a.path[0] != "fleet" else replace(a, text=format_path(a.path)) for a in axes if not is_own(a)
        ]
        self._check_size()

    def __iter__(self) -> Iterator[Choice]:
        """Yield each choice; without ``plan.search`` the scenario itself is the only one."""
        for shared in _assignments(self._shared):
            yield self.build(shared, self._alternatives())

    def _axes(self) -> Iterator[_Axis]:
        """Yield the searched keys; ``fleet[*]`` stands for each entry."""
        plan, document = self.scenario.plan, self.scenario.document
        seen: dict[NodePath, str] = {}
        for text, values in (plan.search if plan is not None else {}).items():
            place: NodePath = ("plan", "search", text)
            where = document.where(place, key=True)
            path = parse_path(text)
            _check_path(path, text, len(self.scenario.fleet), where)
            if not values:
                raise InputError("there are no values to choose among", where=where, expected="a list of values")
            if len({json.dumps(v, sort_keys=True, default=str) for v in values}) < len(values):
                raise InputError("a value is given twice", where=where, expected="each value once")
            for entry in range(len(self.scenario.fleet)) if path[:2] == ("fleet", _EVERY) else [None]:
                own = path if entry is None else ("fleet", entry, *path[2:])
                for other, stated in seen.items():
                    shorter = min(len(own), len(other))
                    if own[:shorter] == other[:shorter]:
                        raise InputError(
                            f"'{text}' and '{stated}' set the same value",
                            where=where,
                            expected="each value searched under one path",
                        )
                seen[own] = text
                yield _Axis(text, own, [(v, document.where((*place, i))) for i, v in enumerate(values)], where)

    def _referenced(self) -> set[int]:
        """Return the entries that other keys name. Their values are shared, because alternatives have other names."""
        rules = [rule.entry for rule in self.scenario.autoscale]
        return {i for name in rules for i in self.scenario.entries_named(name)}

    def _check_size(self) -> None:
        own = [math.prod(len(a.values) for a in self._own if a.path[1] == i) for i in range(len(self.scenario.fleet))]
        for number, what in (
            (math.prod(len(a.values) for a in self._shared), "combinations of values that a fleet shares"),
            (sum(own), "alternatives of the entries"),
        ):
            if number > MOST:
                raise InputError(
                    f"plan.search has {number:,} {what}",
                    where=self.scenario.where("plan", "search"),
                    expected=f"at most {MOST:,}",
                )

    def _alternatives(self) -> list[tuple[int, _Assignment]]:
        return [
            (i, own)
            for i in range(len(self.scenario.fleet))
            for own in _assignments([a for a in self._own if a.path[1] == i])
        ]

    def build(self, shared: _Assignment, entries: Sequence[tuple[int, _Assignment]]) -> Choice:
        """Return the choice with these shared values and alternatives of entries; raises InputError if invalid."""
        values, assignment = {a.text: a.values[n][0] for a, n in shared}, (shared, entries)
        if not self._shared and not self._own:
            names = enumerate(self._names)
            return Choice(self.scenario, {}, [Alternative(i, name, name, {}) for i, name in names], assignment)
        document = copied(self.scenario.document)
        for axis, n in shared:
            put_value(document, axis.path, *axis.values[n])
        alternatives = _expand(document, entries, self._names)
        try:
            scenario = check_scenario(document)
        except InputError as error:
            raise self._of_search(error) from None
        # The plan may have an objective that the document does not state (`--objective`).
        return Choice(scenario.changed(plan=self.scenario.plan), values, alternatives, assignment)

    def _of_search(self, error: InputError) -> InputError:
        """Return an error about a key that only ``plan.search`` states as one at the place where that states it."""
        field = parse_path(error.where.field or "")
        for axis in (*self._shared, *self._own) if error.problem.startswith("unknown key") else ():
            place = axis.path[: len(field)]
            # An alternative has another number than its entry.
            alike = place == field or (field[:1] == ("fleet",) and (place[:1], place[2:]) == (field[:1], field[2:]))
            if alike and not _has(self.scenario.document.data, place):
                return InputError(error.problem, where=axis.where, expected=error.expected, nearest=error.nearest)
        return error

    def without(self, choice: Choice, number: int) -> Choice:
        """Return a choice without one of its alternatives."""
        shared, entries = choice.assignment
        return self.build(shared, [entry for i, entry in enumerate(entries) if i != number])


def recommended_changes(scenario: Scenario, choice: Choice, counts: Sequence[int]) -> list[str]:
    """Return the changes (``PATH=VALUE``) with which ``run`` simulates a fleet of a choice, in groups by entry."""
    document, entries = copied(choice.scenario.document), choice.scenario.fleet
    rules, stated = document.data.get("autoscale") or [], document.data["fleet"]
    scaled = {i: rule for rule in rules for i in choice.scenario.entries_named(str(rule["entry"]))}
    fleet = []
    for i, (entry, n) in enumerate(zip(entries, counts, strict=True)):
        count = n * entry.group_size
        if count and i in scaled:
            rule = next(r for r in choice.scenario.autoscale if i in choice.scenario.entries_named(r.entry))
            scaled[i].update(min=min(rule.min, count), max=count)
            count = min(max(entry.count, rule.min), count)
        if count:
            fleet.append({**stated[i], "count": count})
    document.data["fleet"] = fleet
    policy = document.data.get("policy")
    if isinstance(policy, dict) and "decode_route" in policy and leaves_route_without_use(choice.scenario, counts):
        document.data["policy"] = {key: value for key, value in policy.items() if key != "decode_route"}
    if rules:
        document.data["autoscale"] = [rule for rule in rules if any(rule is scaled[i] and counts[i] for i in scaled)]
    return differences(scenario.document, document)


def _has(data: object, path: NodePath) -> bool:
    """Return whether the data of a document has a value at ``path``."""
    for part in path:
        inner: dict[Any, object] = dict(enumerate(data)) if isinstance(data, list) else {}
        if isinstance(data, dict):
            inner = data
        if part not in inner:
            return False
        data = inner[part]
    return True


def _check_path(path: NodePath, text: str, entries: int, where: Location) -> None:
    if not path or path[0] not in SEARCHED:
        raise InputError(
            f"a plan cannot choose '{text}'",
            where=where,
            expected=f"the path of a key under {list_choices(SEARCHED)}",
            nearest=nearest(str(path[0]), SEARCHED) if path else None,
        )
    if path[0] != "fleet":
        return
    if len(path) < 3 or not (path[1] == _EVERY or isinstance(path[1], int)):
        raise InputError(
            f"'{text}' is no key of an entry", where=where, expected="a path such as fleet[0].group.tensor"
        )
    if isinstance(path[1], int) and path[1] >= entries:
        raise InputError(
            f"there is no '{format_path(path[:2])}' in the scenario",
            where=where,
            expected=f"fleet[0] to [{entries - 1}]",
        )
    if path[2] in ("count", "name"):
        raise InputError(
            f"a plan does not search '{text}'",
            where=where,
            expected="plan.max for the largest number of devices" if path[2] == "count" else "another key of the entry",
        )


def _assignments(axes: Sequence[_Axis]) -> Iterator[_Assignment]:
    """Yield each combination of the axes' values; the last axis changes fastest."""
    for numbers in product(*(range(len(a.values)) for a in axes)):
        yield tuple(zip(axes, numbers, strict=True))


def _expand(document: Document, entries: Sequence[tuple[int, _Assignment]], names: Sequence[str]) -> list[Alternative]:
    """Replace the fleet of a document by alternatives of its entries; return them."""
    fleet, alternatives = document.data["fleet"], []
    whole = copied(document)
    for places in (document.marks, document.key_marks, document.changes):
        for path in [path for path in places if path[:1] == ("fleet",) and len(path) > 1]:
            del places[path]
    document.data["fleet"] = []
    for number, (entry, own) in enumerate(entries):
        document.data["fleet"].append(copy.deepcopy(fleet[entry]))
        _move(whole.marks, document.marks, entry, number)
        _move(whole.key_marks, document.key_marks, entry, number)
        _move(whole.changes, document.changes, entry, number)
        for axis, n in own:
            put_value(document, ("fleet", number, *axis.path[2:]), *axis.values[n])
        values = {a.text: a.values[n][0] for a, n in own}
        alternatives.append(
            Alternative(entry, _name(document.data["fleet"][-1], names[entry], own), names[entry], values)
        )
        if own:
            document.data["fleet"][-1]["name"] = alternatives[-1].name
    return alternatives


def _move(source: Mapping[NodePath, _Place], target: dict[NodePath, _Place], entry: int, number: int) -> None:
    """Give the alternative ``number`` the places of the entry from which it was made."""
    for path, place in source.items():
        if path[:2] == ("fleet", entry):
            target["fleet", number, *path[2:]] = place


def _name(entry: Mapping[str, Any], base: str, own: _Assignment) -> str:
    """Return the name of an alternative: that of its entry, or its device if that is chosen, and its other values."""
    chosen = {a.text: a.values[n][0] for a, n in own}
    devices = [a.text for a, _ in own if a.path[2:] == ("device",)]
    if devices and "name" not in entry:
        base = str(chosen.pop(devices[0]))
    return " ".join(filter(None, [base, values_text(chosen)]))


def values_text(values: Mapping[str, object]) -> str:
    """Return chosen values as text, such as ``tensor 2, tokens 2048``; paths are as short as tells them apart."""
    # `policy.name` names the policy itself.
    parts = {
        text: [p for p in parse_path(text) if isinstance(p, str) and p not in ("fleet", _EVERY, "name")]
        for text in values
    }
    shown = []
    for text, value in values.items():
        alike = [other for other in values if parts[other] == parts[text]]
        if any(values[other] != value for other in alike):
            # The same key of several entries, with other values.
            shown.append(f"{text} {_value_text(value)}")
            continue
        length = 1
        while length < len(parts[text]) and any(
            parts[other][-length:] == parts[text][-length:] for other in values if other not in alike
        ):
            length += 1
        shown.append(f"{'.'.join(parts[text][-length:])} {_value_text(value)}")
    return ", ".join(dict.fromkeys(shown))


def _value_text(value: object) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {_value_text(inner)}" for key, inner in value.items())
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return str(value)
