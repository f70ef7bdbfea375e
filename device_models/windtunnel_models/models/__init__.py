"""Decoders that are known by name, one YAML file for each, and those of a Hugging Face ``config.json``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from windtunnel.core.architecture import Architecture, Weights
from windtunnel.core.errors import InputError, Location, nearest
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
            f"no model is known as '{name}'",
            expected=f"one of the {len(names)} models that `windtunnel models` lists",
            nearest=nearest(plain, names),
        )
    found = _read(FOLDER / f"{plain}.yaml")
    if wanted.endswith(_FP8) and not found.weights.linear.startswith("fp8"):
        weights = Weights("fp8", "fp8", found.weights.other)
        return replace(found, name=wanted, weights=weights)
    return replace(found, name=wanted)


def read_architecture(path: Path) -> Architecture:
    """Return the architecture that a ``config.json`` describes; its name is that of the file, or else of its folder.

    Raises:
        InputError: if the file is missing, is not a JSON object, or has a field that changes the cost and is unknown.
    """
    try:
        config = json.loads(read_text(path, "model file"))
    except json.JSONDecodeError as error:
        where = Location(str(path), error.lineno, error.colno)
        raise InputError(f"this is no JSON: {error.msg}", where=where, expected="a config.json") from None
    if not isinstance(config, dict):
        raise InputError("this is not a JSON object", where=Location(str(path)), expected="the fields of a config.json")
    name = path.resolve().parent.name if path.stem == "config" else path.stem
    return architecture(name, config, Location(str(path)), str(path))


def find_architecture(text: str) -> Architecture:
    """Return the architecture of a known decoder, or of a ``config.json`` if ``text`` is a path that ends in .json.

    Raises:
        InputError: if no such decoder is known, or the file cannot be read as one.
    """
    return read_architecture(Path(text)) if text.endswith(".json") else known_architecture(text)


def known_architectures() -> Iterator[Architecture]:
    """Yield the architecture of every known decoder."""
    for name in model_names():
        yield known_architecture(name)


@cache
def _read(path: Path) -> Architecture:
    file = FileReader(path, {}, "model file")
    data = file.mapping((), required=("schema", "model", "source", "config"))
    file.check_name("model", path.stem)
    if not isinstance(data["config"], dict):
        raise file.error(("config",), "this is not a mapping", "the fields of a config.json")
    return architecture(path.stem, data["config"], file.document.where(("config",)), str(data["source"]))
