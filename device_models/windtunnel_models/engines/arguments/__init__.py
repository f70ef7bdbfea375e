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

from windtunnel.core.spec import DeviceSpec
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
class Image:
    """The container image of an engine for the devices of one maker.

    Args:
        name: Its name without the tag.
        tags: The tag by SKU or architecture; ``ANY`` where one image is for all devices of the maker.
        source: The page or the source that documents it.
    """

    name: str
    tags: Mapping[str, str] = field(hash=False)
    source: str

    def on(self, spec: DeviceSpec) -> str | None:
        """Return the image with its tag for a device; None if none is documented."""
        of = (spec.base or spec.sku, spec.lineage.architecture, ANY)
        tag = next((self.tags[key] for key in of if key is not None and key in self.tags), None)
        return None if tag is None else f"{self.name}:{tag}"


ANY = "any"


@dataclass(frozen=True)
class EngineArguments:
    """The documented arguments of one engine.

    Args:
        engine: Its name in scenarios.
        title: Its own name.
        program: The command, before the model and the arguments.
        images: The container images of the first of ``checked``, or of the release nearest to it, by maker.
        port: The port on which it listens.
        checked: The versions in which each argument was found.
        flags: The flags of its command line by name; fields of JSON values as ``--flag.field``.
        options: The keys of its file of options by path.
        environment: Its environment variables by name.
    """

    engine: str
    title: str
    program: Sequence[str]
    images: Mapping[str, Image]
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
        required=("schema", "engine", "title", "program", "images", "port", "checked", "sources", "flags"),
        optional=("options", "environment"),
    )
    file.check_name("engine", engine)
    found = {kind: _documented(file, kind) if kind in top else {} for kind in ("flags", "options", "environment")}
    return EngineArguments(
        engine=engine,
        title=str(top["title"]),
        program=file.words(("program",)),
        images={maker: _image(file, maker) for maker in file.at(("images",))},
        port=int(top["port"]),
        checked=file.words(("checked",)),
        flags=found["flags"],
        options=found["options"],
        environment=found["environment"],
    )


def _image(file: FileReader, maker: str) -> Image:
    path = ("images", maker)
    entry = file.mapping(path, required=("name", "source"), optional=("tag", "on", "tags"))
    source = file.choice(entry["source"], file.at(("sources",)), (*path, "source"), "source")
    tags = entry["tags"] if "tags" in entry else dict.fromkeys(entry.get("on", (ANY,)), str(entry["tag"]))
    return Image(str(entry["name"]), tags, str(file.at(("sources", source))))


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
