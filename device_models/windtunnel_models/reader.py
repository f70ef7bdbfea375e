"""Reading the YAML files of the device models: errors name file, line, column, field and the nearest right name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.core.errors import InputError, list_choices, nearest
from windtunnel.core.provenance import PROVENANCES, Provenance, SourcedValue
from windtunnel.core.spec import Parameter
from windtunnel.core.units import is_dimensionless, parse_quantity
from windtunnel.core.yamlfile import parse, read_text

Path_ = tuple[str | int, ...]
"""The keys and indices that lead to a value within a document."""


class FileReader:
    """One document of schema 1, with methods that check and convert its parts.

    Args:
        path: The file.
        parameters: The parameters that ``values`` may contain, by name.
        noun: What error messages call the file, such as "SKU file".

    Raises:
        InputError: if the file is missing, is not YAML, is not a mapping, or has another schema.
    """

    def __init__(self, path: Path, parameters: Mapping[str, Parameter], noun: str) -> None:
        self.document = parse(read_text(path, noun), str(path))
        self.parameters = parameters
        if not isinstance(self.document.data, dict):
            raise InputError(f"this {noun} is not a mapping", where=self.document.where(()), expected="keys and values")
        schema = self.document.data.get("schema")
        if schema != 1 or schema is True:
            raise InputError(
                f"this {noun} has schema {schema!r}", where=self.document.where(("schema",)), expected="schema: 1"
            )

    def at(self, path: Path_) -> Any:
        """Return the value at ``path``."""
        data: Any = self.document.data
        for part in path:
            data = data[part]
        return data

    def error(
        self, path: Path_, problem: str, expected: str | None = None, near: str | None = None, *, key: bool = False
    ) -> InputError:
        """Return an error about the value (or the ``key``) at ``path``."""
        return InputError(problem, where=self.document.where(path, key=key), expected=expected, nearest=near)

    def choice(self, value: object, choices: Iterable[str], path: Path_, noun: str, *, key: bool = False) -> str:
        """Return ``value`` if it is one of ``choices``, else raise InputError with the nearest of them.

        ``key``: the value is a key of a mapping, so the error refers to the position of the key.
        """
        names = list(choices)
        if not isinstance(value, str) or value not in names:
            problem = f"unknown {noun} '{value}'" if key else f"'{value}' is not a valid {noun}"
            raise self.error(path, problem, list_choices(names, 40), nearest(str(value), names), key=key)
        return value

    def mapping(self, path: Path_, *, required: Sequence[str] = (), optional: Sequence[str] = ()) -> dict[str, Any]:
        """Return the mapping at ``path``, after checking that it has all required keys and no unknown one."""
        data = self.at(path)
        allowed = [*required, *optional]
        if not isinstance(data, dict):
            raise self.error(path, "this is not a mapping", list_choices(allowed))
        for key in data:
            self.choice(key, allowed, (*path, key), "key", key=True)
        for key in required:
            if key not in data:
                raise self.error(path, f"'{key}' is missing", list_choices(required))
        return data

    def check_name(self, key: str, expected: str) -> None:
        """Raise InputError unless the name in the file is the file's own name."""
        if self.at((key,)) != expected:
            raise self.error((key,), f"'{self.at((key,))}' differs from the file's name", expected)

    def words(self, path: Path_) -> list[str]:
        """Return the list of words at ``path``."""
        data = self.at(path)
        if not isinstance(data, list) or not all(isinstance(item, str) for item in data):
            raise self.error(path, "this is not a list of words", "[word, ...]")
        return list(data)

    def values(self, path: Path_ = ("values",)) -> dict[str, SourcedValue]:
        """Return the parameters at ``path`` in SI units, by ``name``, or by ``name.key`` for a table."""
        data = self.at(path)
        if not isinstance(data, dict):
            raise self.error(path, "this is not a mapping", "parameters")
        values: dict[str, SourcedValue] = {}
        for name, entry in data.items():
            here = (*path, name)
            parameter = self.parameters[self.choice(name, self.parameters, here, "parameter", key=True)]
            if not parameter.keys:
                values[name] = self.sourced(here, parameter)
                continue
            if not isinstance(entry, dict) or "value" in entry:
                raise self.error(here, f"'{name}' is a table", list_choices(parameter.keys, 20))
            for key in entry:
                self.choice(key, parameter.keys, (*here, key), f"key of {name}", key=True)
                values[f"{name}.{key}"] = self.sourced((*here, key), parameter)
        return values

    def sourced(self, path: Path_, parameter: Parameter) -> SourcedValue:
        """Return one value with its source.

        The entry is ``{value, source}`` or ``{value, provenance: assumed, low, high, reason}``.
        """
        if not isinstance(self.at(path), dict):
            raise self.error(path, "a number needs its source", "{value: ..., source: ...}")
        entry = self.mapping(path, required=("value",), optional=("source", "provenance", "low", "high", "reason"))
        source, provenance = "assumed", Provenance.ASSUMED
        if "source" in entry:
            source, provenance = self.source(entry["source"], (*path, "source"))
        if "provenance" in entry:
            provenance = self.provenance((*path, "provenance"))
        return self.with_range(path, parameter, provenance, source, entry.get("reason"))

    def with_range(
        self, path: Path_, parameter: Parameter, provenance: Provenance, source: str, reason: str | None
    ) -> SourcedValue:
        """Return ``value``, ``low`` and ``high`` of the entry at ``path`` as one sourced number in SI units."""
        entry = self.at(path)
        value, low, high = (
            self.number((*path, name), parameter) if name in entry else None for name in ("value", "low", "high")
        )
        try:
            return SourcedValue(value or 0.0, provenance, source, low, high, reason)
        except ValueError as error:
            raise self.error(path, str(error), "low <= value <= high, and a reason") from None

    def number(self, path: Path_, parameter: Parameter) -> float:
        """Return the quantity at ``path`` in the SI unit of the parameter's dimension."""
        data = self.at(path)
        try:
            if isinstance(data, (int, float)) and not isinstance(data, bool) and is_dimensionless(parameter.unit):
                number = float(data)
            else:
                number = parse_quantity(str(data), parameter.unit)
            # A time, a power or a count may be zero. A rate or a size of zero is a typing error.
            may_be_zero = parameter.unit in ("1", "s", "W", "J", "USD/h")
            if not 0 <= number < math.inf or (number == 0 and not may_be_zero):
                raise InputError(f"this is {data}", expected="zero or more" if may_be_zero else "more than zero")
            return number
        except OverflowError:
            raise self.error(path, "this is too large", "a number") from None
        except InputError as error:
            raise error.at(self.document.where(path)) from None

    def source(self, key: Any, path: Path_) -> tuple[str, Provenance]:
        """Return text and provenance of a source that the file names under ``sources``."""
        sources = self.at(("sources",))
        if not isinstance(sources, dict):
            raise self.error(("sources",), "this is not a mapping", "name: {...}")
        if not isinstance(key, str) or key not in sources:
            expected = list_choices(sources) if sources else "a source under `sources:`"
            raise self.error(path, f"unknown source '{key}'", expected, nearest(str(key), sources))
        entry = self.mapping(("sources", key), required=("text", "provenance"))
        return str(entry["text"]), self.provenance(("sources", key, "provenance"))

    def provenance(self, path: Path_) -> Provenance:
        """Return the provenance that the word at ``path`` names."""
        return Provenance.from_label(self.choice(self.at(path), PROVENANCES, path, "provenance"))
