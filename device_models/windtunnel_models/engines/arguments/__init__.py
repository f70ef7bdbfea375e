"""The documented arguments of serving engines: one YAML file for each engine, with the versions that they stand in.

A file has every flag, every key of the file of options (TensorRT-LLM) and every environment variable that Windtunnel
may write for the engine, each with the page or the source that documents it and the key of the scenario that it
expresses. ``fields`` are the keys of a flag's JSON value. ``choices`` are the documented values of which we use some,
and ``values`` translates our words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from windtunnel_models.reader import FileReader

FOLDER = Path(__file__).parent
ENGINES = ("vllm", "sglang", "trtllm")
"""The engines whose arguments are known."""


@dataclass(frozen=True)
class Documented:
    """One argument of an engine.

    Args:
        name: The flag, the path of a key with dots, or the environment variable.
        source: The page or the source that documents it.
        key: The key of the scenario that it expresses; None for arguments of the server alone.
        choices: The documented values; empty where any is valid.
        values: Their values by our words.
        fields: The keys of its JSON value.
    """

    name: str
    source: str
    key: str | None = None
    choices: Sequence[object] = ()
    values: Mapping[str, str] = field(default_factory=dict, hash=False)
    fields: Sequence[str] = ()


@dataclass(frozen=True)
class EngineArguments:
    """The documented arguments of one engine.

    Args:
        engine: Its name in scenarios.
        title: Its own name.
        program: The command, before the model and the arguments.
        image: The container image of the first of ``checked``, or of the release nearest to it.
        port: The port on which it listens.
        checked: The versions in which each argument was found.
        flags: The flags of its command line by name; fields of JSON values as ``--flag.field``.
        options: The keys of its file of options by path.
        environment: Its environment variables by name.
    """

    engine: str
    title: str
    program: Sequence[str]
    image: str
    port: int
    checked: Sequence[str]
    flags: Mapping[str, Documented]
    options: Mapping[str, Documented]
    environment: Mapping[str, Documented]


@cache
def engine_arguments(engine: str) -> EngineArguments:
    """Return the documented arguments of an engine, one of ``ENGINES``."""
    file = FileReader(FOLDER / f"{engine}.yaml", {}, "list of arguments")
    top = file.mapping(
        (),
        required=("schema", "engine", "title", "program", "image", "port", "checked", "sources", "flags"),
        optional=("options", "environment"),
    )
    file.check_name("engine", engine)
    image = file.mapping(("image",), required=("name", "tag"))
    found = {kind: _documented(file, kind) if kind in top else {} for kind in ("flags", "options", "environment")}
    return EngineArguments(
        engine=engine,
        title=str(top["title"]),
        program=file.words(("program",)),
        image=f"{image['name']}:{image['tag']}",
        port=int(top["port"]),
        checked=file.words(("checked",)),
        flags=found["flags"],
        options=found["options"],
        environment=found["environment"],
    )


def _documented(file: FileReader, kind: str) -> dict[str, Documented]:
    found = {}
    for name in file.at((kind,)):
        path = (kind, name)
        entry = file.mapping(path, required=("source",), optional=("key", "choices", "values", "fields"))
        source = file.choice(entry["source"], file.at(("sources",)), (*path, "source"), "source")
        choices, values = entry.get("choices", ()), entry.get("values", {})
        for word, value in values.items():
            file.choice(value, choices, (*path, "values", word), f"value of {name}")
        found[name] = Documented(
            name, str(file.at(("sources", source))), entry.get("key"), choices, values, entry.get("fields", ())
        )
    return found
