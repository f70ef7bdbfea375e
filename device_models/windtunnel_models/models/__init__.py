"""Decoders that are known by name: one YAML file for each, with the fields of its Hugging Face configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from windtunnel.core.architecture import Architecture, Weights
from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.yamlfile import read_text
from windtunnel_models.models.hugging_face import architecture
from windtunnel_models.reader import FileReader

FOLDER = Path(__file__).parent
_SUFFIXES = ("-instruct", "-chat", "-it")
_FP8 = "-fp8"


def model_names() -> list[str]:
    """Return the names of all known decoders, in alphabetical order."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def known_architecture(name: str) -> Architecture:
    """Return the architecture of a known decoder.

    Names are those of the files, in any case; ``-instruct`` at the end means the same architecture, and ``-fp8`` the
    same with FP8 weights.

    Raises:
        InputError: if no such decoder is known.
    """
    wanted = name.lower().rsplit("/", 1)[-1]
    plain = wanted.removesuffix(_FP8)
    for suffix in _SUFFIXES:
        plain = plain.removesuffix(suffix)
    names = model_names()
    if plain not in names:
        raise InputError(
            f"no model is known as '{name}'", expected=list_choices(names, 40), nearest=nearest(plain, names)
        )
    found = _read(FOLDER / f"{plain}.yaml")
    if wanted.endswith(_FP8) and not found.weights.linear.startswith("fp8"):
        weights = Weights("fp8", "fp8", found.weights.other)
        return replace(found, name=wanted, weights=weights)
    return replace(found, name=wanted)


def known_architectures() -> Iterator[Architecture]:
    """Yield the architecture of every known decoder."""
    for name in model_names():
        yield known_architecture(name)


def read_config(path: Path) -> Architecture:
    """Return the architecture that a Hugging Face ``config.json`` describes, named after the file.

    Raises:
        InputError: The file cannot be read, or a field is missing, wrong, or unknown although it may change the cost.
    """
    try:
        data = json.loads(read_text(path, "configuration"))
    except json.JSONDecodeError as error:
        where = Location(str(path), error.lineno, error.colno)
        raise InputError(f"this is not JSON: {error.msg}", where=where, expected="a config.json") from None
    where = Location(str(path))
    if not isinstance(data, dict):
        raise InputError("a configuration is a mapping", where=where, expected="the fields of a config.json")
    return architecture(path.stem, data, where, str(path))


@cache
def _read(path: Path) -> Architecture:
    file = FileReader(path, {}, "model file")
    data = file.mapping((), required=("schema", "model", "source", "config"))
    file.check_name("model", path.stem)
    if not isinstance(data["config"], dict):
        raise file.error(("config",), "this is not a mapping", "the fields of a config.json")
    return architecture(path.stem, data["config"], file.document.where(("config",)), str(data["source"]))
