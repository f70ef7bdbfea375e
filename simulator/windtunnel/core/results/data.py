"""Writes results as JSON: the names of the fields are the keys, in the same order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

OPTIONAL: Mapping[str, str] = {"json": "optional"}
"""``field(metadata=OPTIONAL)``: the key is left out where the value is None."""
INLINE: Mapping[str, str] = {"json": "inline"}
"""``field(metadata=INLINE)``: the keys of the value stand in place of the field's own key."""
HIDDEN: Mapping[str, str] = {"json": "hidden"}
"""``field(metadata=HIDDEN)``: the field is for the program only and is not written."""


class Result:
    """The base class of all results that are written as JSON."""

    def _keys(self) -> Sequence[str]:
        """Return the names of the fields in the order in which they are written."""
        return [field.name for field in fields(self)] if is_dataclass(self) else []

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data, as result.json (plan.json, sweep.json) holds it."""
        data: dict[str, object] = {}
        kinds: dict[str, str | None] = {}
        if is_dataclass(self):
            kinds = {field.name: field.metadata.get("json") for field in fields(self)}
        for name in self._keys():
            value = getattr(self, name)
            if kinds[name] == "inline":
                data |= to_data(value)
            elif kinds[name] != "hidden" and (value is not None or kinds[name] != "optional"):
                data[name] = to_data(value)
        return data


def to_data(value: object) -> Any:
    """Return ``value`` as plain data: results and mappings as dictionaries, sequences as lists."""
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: to_data(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_data(inner) for inner in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_data(getattr(value, field.name)) for field in fields(value)}
    return value


def result_json(result: object) -> str:
    """Return ``result`` as the text of result.json: the same bytes for the same run."""
    return json.dumps(to_data(result), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
