"""Converts Pydantic's errors to InputError, with the place in the file and the nearest right name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import ErrorDetails

from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.renamed import renamed_error
from windtunnel.core.yamlfile import Path


@cache
def _schema_of(model: type[BaseModel]) -> JsonSchemaValue:
    return model.model_json_schema(by_alias=True)


class Placed(Protocol):
    """Data and the places of its values: a document, or a part of one."""

    @property
    def data(self) -> Any:
        """The plain data."""

    @property
    def file(self) -> str:
        """The name of the file."""

    def where(self, path: Path, *, key: bool = False) -> Location:
        """Return the place of the value, or of its key, at ``path``."""


@dataclass(frozen=True)
class _Part:
    data: Any
    path: Path
    locate: Callable[..., Location]

    @property
    def file(self) -> str:
        return self.locate(self.path).file or ""

    def where(self, path: Path, *, key: bool = False) -> Location:
        return self.locate((*self.path, *path), key=key)


def located_part(
    error: ValidationError, data: object, path: Path, locate: Callable[..., Location], model: type[BaseModel]
) -> InputError:
    """Return the first of the errors of ``model`` in ``data``, which is at ``path`` of a document, with its place."""
    return located(error, _Part(data, path, locate), model)


def located(error: ValidationError, document: Placed, model: type[BaseModel]) -> InputError:
    """Return the first of the errors of ``model`` with its place in the file."""
    schema = _schema_of(model)
    details = error.errors(include_url=False)
    # Unknown keys come first, because a misspelt key also makes the right key missing. "Not text" for a mapping comes
    # last, because it is reported for every mapping that could be a name instead, whatever is wrong inside it.
    first = min(
        details,
        key=lambda d: (
            d["type"] not in ("extra_forbidden", "windtunnel"),
            d["type"] == "string_type" and isinstance(d.get("input"), dict),
        ),
    )
    path = _real_path(first["loc"], document.data, missing=first["type"] == "missing")
    if first["type"] == "extra_forbidden":
        where = document.where(path, key=True)
        allowed = _allowed_keys(path[:-1], schema, document.data)
        for place in _classes(path[:-1], schema, document.data):
            if (renamed := renamed_error(place, str(path[-1]), where)) is not None:
                return renamed
        return InputError(
            f"unknown key '{path[-1]}'",
            where=where,
            expected=list_choices(allowed) if allowed else None,
            nearest=nearest(str(path[-1]), allowed),
        )
    return _in_our_words(first, path, document, schema)


_EXAMPLES: Mapping[str, str] = {
    "stop": "stop: {jobs: 2000}",
    "arrivals": "arrivals: {process: poisson, rate: 100 /s}",
    "power": "power: {idle: 60 W, max: 300 W}",
    "fleet": "fleet: [{device: l4, count: 2}]",
    "ops": "ops: [{gemm: {m: 256, n: 4096, k: 4096, dtype: bfloat16}}]",
    "targets": "targets: [latency p99 <= 20 ms]",
}
"""Examples of keys that are often written wrongly."""


def _in_our_words(detail: ErrorDetails, path: Path, document: Placed, schema: JsonSchemaValue) -> InputError:
    context = detail.get("ctx") or {}
    where = document.where(path)
    if detail["type"] == "windtunnel":
        return InputError(
            str(context.get("problem")), where=where, expected=context.get("expected"), nearest=context.get("nearest")
        )
    if detail["type"] == "missing":
        return InputError(
            f"'{path[-1]}' is missing",
            where=Location(
                document.file,
                document.where(path[:-1]).line,
                document.where(path[:-1]).column,
                document.where(path).field,
            ),
            expected=_missing(path, document.data, schema),
        )
    value = detail.get("input")
    shown = f"this is {value!r}" if isinstance(value, (str, int, float, bool)) else f"this is {_KINDS[type(value)]}"
    if detail["type"] == "union_tag_invalid":
        path = (*path, str(context.get("discriminator", "")).strip("'"))
        where = document.where(path)
    if detail["type"] in ("literal_error", "union_tag_invalid"):
        choices = str(context.get("expected") or context.get("expected_tags") or "")
        names = [part.strip(" '") for part in choices.replace(" or ", ", ").split(",") if part.strip(" '")]
        tag = str(context.get("tag", value))
        if path and (renamed := renamed_error(str(path[-1]), tag, where)) is not None:
            return renamed
        return InputError(
            f"'{tag}' is not a valid value", where=where, expected=list_choices(names), nearest=nearest(tag, names)
        )
    if detail["type"] == "union_tag_not_found":
        key = str(context.get("discriminator", "")).strip("'")
        return InputError(f"'{key}' is missing", where=where, expected=f"the key '{key}'")
    if detail["type"] in ("too_short", "too_long") and isinstance(value, (list, dict)):
        shown = f"this has {len(value)}"
    expected = _expected(detail["type"], context, detail["msg"])
    if detail["type"] in ("model_type", "model_attributes_type", "dict_type", "list_type"):
        expected += _shape(path, document.data, schema)
    return InputError(shown, where=where, expected=expected)


_KINDS: Mapping[type, str] = defaultdict(lambda: "not right", {dict: "a mapping", list: "a list", type(None): "empty"})


def _missing(path: Path, data: Any, schema: JsonSchemaValue) -> str:
    """Return what to write for a missing key: an example, or its description."""
    key = str(path[-1])
    if key in _EXAMPLES:
        return _EXAMPLES[key]
    nodes = _nodes(path[:-1], schema, data)
    descriptions = [node.get("properties", {}).get(key, {}).get("description") for node in nodes]
    meaning = next((text for text in descriptions if text), None)
    return f"'{key}: ...'" + (f", {meaning}" if meaning else "")


def _shape(path: Path, data: Any, schema: JsonSchemaValue) -> str:
    """Return the content of a mapping or list: an example if there is one, otherwise the mapping's keys."""
    if path and path[-1] in _EXAMPLES:
        return f", such as {_EXAMPLES[str(path[-1])]}"
    keys = _allowed_keys(path, schema, data)
    return f" with keys such as {', '.join(keys[:6])}" if keys else ""


def _expected(kind: str, context: Mapping[str, object], otherwise: str) -> str:
    """Return what was expected, in words that do not require knowledge of Pydantic."""
    words = {
        "string_type": "text",
        "list_type": "a list",
        "dict_type": "a mapping",
        "model_type": "a mapping",
        "model_attributes_type": "a mapping",
        "float_type": "a number",
        "float_parsing": "a number",
        "bool_type": "true or false",
        "bool_parsing": "true or false",
        "finite_number": "a finite number",
        "greater_than_equal": "at least {ge}",
        "greater_than": "more than {gt}",
        "less_than_equal": "at most {le}",
        "less_than": "less than {lt}",
        "too_short": "at least {min_length} of them",
        "too_long": "at most {max_length} of them",
        "string_too_short": "some text",
        "string_too_long": "at most {max_length} characters",
    }
    if kind in words:
        # Limits are floats: 0.0 is shown as 0.
        return words[kind].format(**{key: _plain(value) for key, value in context.items()})
    return otherwise.removeprefix("Input should be ").lower()


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _real_path(loc: tuple[int | str, ...], data: Any, *, missing: bool) -> Path:
    """Return Pydantic's path without the tags of unions, which are not part of the file. A missing key is kept."""
    path: list[str | int] = []
    for i, part in enumerate(loc):
        if (isinstance(data, dict) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        ):
            data = data[part]  # type: ignore[index]  # str into dict, int into list: just checked
            path.append(part)
        elif missing and i == len(loc) - 1:
            path.append(part)
    return tuple(path)


def _allowed_keys(path: Path, schema: JsonSchemaValue, data: Any) -> list[str]:
    """Return the keys of the mapping at ``path`` of ``data``, from the schema."""
    names: list[str] = []
    for node in _nodes(path, schema, data):
        names += [name for name in node.get("properties", {}) if name not in names]
    return names


def _classes(path: Path, schema: JsonSchemaValue, data: Any) -> list[str]:
    """Return the classes of the schema that the mapping at ``path`` of ``data`` may have."""
    return [str(node.get("title")) for node in _nodes(path, schema, data)]


def _nodes(path: Path, schema: JsonSchemaValue, data: Any) -> list[JsonSchemaValue]:
    """Return the schema's nodes for the value at ``path`` of ``data``."""
    nodes: list[JsonSchemaValue] = [schema]
    for part in path:
        nodes = [child for node in _resolve(nodes, schema, data) for child in _children(node, part)]
        data = data[part]
    return _resolve(nodes, schema, data)


def _children(node: JsonSchemaValue, part: str | int) -> list[JsonSchemaValue]:
    if isinstance(part, int):
        return [node["items"]] if "items" in node else []
    properties = node.get("properties", {})
    if part in properties:
        return [properties[part]]
    extra = node.get("additionalProperties")
    return [extra] if isinstance(extra, dict) else []


def _resolve(nodes: Sequence[JsonSchemaValue], schema: JsonSchemaValue, data: Any) -> list[JsonSchemaValue]:
    """Return the nodes with references followed; of alternatives, the one that ``data`` names, or all."""
    resolved: list[JsonSchemaValue] = []
    for node in nodes:
        if "$ref" in node:
            resolved += _resolve([schema["$defs"][node["$ref"].rsplit("/", 1)[1]]], schema, data)
        elif "anyOf" in node or "oneOf" in node:
            choice = node.get("discriminator", {})
            named = data.get(choice.get("propertyName")) if isinstance(data, dict) else None
            chosen = choice.get("mapping", {}).get(named) if isinstance(named, str) else None
            nodes_here = [{"$ref": chosen}] if chosen else node.get("anyOf") or node["oneOf"]
            resolved += _resolve(nodes_here, schema, data)
        else:
            resolved.append(node)
    return resolved
