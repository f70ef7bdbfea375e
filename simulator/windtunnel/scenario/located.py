"""Pydantic's errors in our own words, each with its place in the file and the nearest right name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from windtunnel.core.errors import InputError, Where, nearest, one_of
from windtunnel.core.renamed import renamed_error
from windtunnel.core.yamlfile import Document, Path, spell


def located(error: ValidationError, document: Document, schema: dict[str, Any]) -> InputError:
    """The first of pydantic's errors in our own words, with its place in the file; ``schema`` names the keys."""
    details = error.errors(include_url=False)
    # Unknown keys first: a misspelt key is also reported as the right one missing. Last that a mapping is no text,
    # which is said of every mapping that could have been a name instead, whatever is wrong inside it.
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
            expected=one_of(allowed) if allowed else None,
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
"""How keys are written that are often written otherwise."""


def _in_our_words(detail: ErrorDetails, path: Path, document: Document, schema: dict[str, Any]) -> InputError:
    context = detail.get("ctx") or {}
    where = document.where(path)
    if detail["type"] == "windtunnel":
        return InputError(
            str(context.get("problem")),
            where=where,
            expected=context.get("expected"),
            nearest=context.get("nearest"),
        )
    if detail["type"] == "missing":
        return InputError(
            f"'{path[-1]}' is missing",
            where=Where(document.file, document.where(path[:-1]).line, document.where(path[:-1]).column, spell(path)),
            expected=_missing(path, document.data, schema),
        )
    found = detail.get("input")
    shown = f"this is {found!r}" if isinstance(found, (str, int, float, bool)) else f"this is {_KINDS[type(found)]}"
    if detail["type"] == "union_tag_invalid":
        path = (*path, str(context.get("discriminator", "")).strip("'"))
        where = document.where(path)
    if detail["type"] in ("literal_error", "union_tag_invalid"):
        choices = str(context.get("expected") or context.get("expected_tags") or "")
        names = [part.strip(" '") for part in choices.replace(" or ", ", ").split(",") if part.strip(" '")]
        tag = str(context.get("tag", found))
        if path and (renamed := renamed_error(str(path[-1]), tag, where)) is not None:
            return renamed
        return InputError(
            f"'{tag}' is not known here", where=where, expected=one_of(names), nearest=nearest(tag, names)
        )
    if detail["type"] == "union_tag_not_found":
        key = str(context.get("discriminator", "")).strip("'")
        return InputError(f"'{key}' is missing", where=where, expected=f"the key '{key}'")
    if detail["type"] in ("too_short", "too_long") and isinstance(found, (list, dict)):
        shown = f"this has {len(found)}"
    expected = _expected(detail["type"], context, detail["msg"])
    if detail["type"] in ("model_type", "model_attributes_type", "dict_type", "list_type"):
        expected += _shape(path, document.data, schema)
    return InputError(shown, where=where, expected=expected)


_KINDS: Mapping[type, str] = defaultdict(lambda: "not right", {dict: "a mapping", list: "a list", type(None): "empty"})


def _missing(path: Path, data: Any, schema: dict[str, Any]) -> str:
    """What to write for a key that is not there: an example of it, or what it is."""
    key = str(path[-1])
    if key in _EXAMPLES:
        return _EXAMPLES[key]
    found = [node.get("properties", {}).get(key, {}).get("description") for node in _nodes(path[:-1], schema, data)]
    meaning = next((text for text in found if text), None)
    return f"'{key}: ...'" + (f", {meaning}" if meaning else "")


def _shape(path: Path, data: Any, schema: dict[str, Any]) -> str:
    """What a mapping or list holds: an example where there is one, else the mapping's keys."""
    if path and path[-1] in _EXAMPLES:
        return f", such as {_EXAMPLES[str(path[-1])]}"
    keys = _allowed_keys(path, schema, data)
    return f" with keys such as {', '.join(keys[:6])}" if keys else ""


def _expected(kind: str, context: Mapping[str, Any], otherwise: str) -> str:
    """What was expected, in words for people who do not know pydantic."""
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
        # 0.0 is 0 to whoever wrote the file.
        return words[kind].format(**{key: _plain(value) for key, value in context.items()})
    return otherwise.removeprefix("Input should be ").lower()


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _real_path(loc: tuple[int | str, ...], data: Any, *, missing: bool) -> Path:
    """Pydantic's path without the tags of unions, which are no part of the file; nor is a key that is missing."""
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


def _allowed_keys(path: Path, schema: dict[str, Any], data: Any) -> list[str]:
    """The keys of the mapping at ``path`` of ``data``, from the schema."""
    names: list[str] = []
    for node in _nodes(path, schema, data):
        names += [name for name in node.get("properties", {}) if name not in names]
    return names


def _classes(path: Path, schema: dict[str, Any], data: Any) -> list[str]:
    """The classes of the schema that the mapping at ``path`` of ``data`` may be."""
    return [str(node.get("title")) for node in _nodes(path, schema, data)]


def _nodes(path: Path, schema: dict[str, Any], data: Any) -> list[dict[str, Any]]:
    """The schema's nodes for the value at ``path`` of ``data``."""
    nodes: list[dict[str, Any]] = [schema]
    for part in path:
        nodes = [child for node in _resolve(nodes, schema, data) for child in _children(node, part)]
        data = data[part]
    return _resolve(nodes, schema, data)


def _children(node: dict[str, Any], part: str | int) -> list[dict[str, Any]]:
    if isinstance(part, int):
        return [node["items"]] if "items" in node else []
    properties = node.get("properties", {})
    if part in properties:
        return [properties[part]]
    extra = node.get("additionalProperties")
    return [extra] if isinstance(extra, dict) else []


def _resolve(nodes: Sequence[dict[str, Any]], schema: dict[str, Any], data: Any) -> list[dict[str, Any]]:
    """The nodes with references followed; of alternatives, the one that ``data`` names, or all."""
    found: list[dict[str, Any]] = []
    for node in nodes:
        if "$ref" in node:
            found += _resolve([schema["$defs"][node["$ref"].rsplit("/", 1)[1]]], schema, data)
        elif "anyOf" in node or "oneOf" in node:
            choice = node.get("discriminator", {})
            named = data.get(choice.get("propertyName")) if isinstance(data, dict) else None
            chosen = choice.get("mapping", {}).get(named) if isinstance(named, str) else None
            nodes_here = [{"$ref": chosen}] if chosen else node.get("anyOf") or node["oneOf"]
            found += _resolve(nodes_here, schema, data)
        else:
            found.append(node)
    return found
