"""SKU files and API profiles, read and checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path

from windtunnel.core.device import Kind
from windtunnel.core.errors import InputError, list_choices, nearest
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel.core.spec import KERNEL_TYPES, ApiProfile, DeviceSpec, Lineage, Numbers, Parameter, SourcedText
from windtunnel_models.kinds import find_kind
from windtunnel_models.reader import FileReader

HERE = Path(__file__).parent

_MEMORY = r"(HBM|GDDR|LPDDR|DDR)\d"

API_PARAMETERS = (
    Parameter("dispatch_s", "s", "host time to enqueue one kernel, back to back"),
    Parameter("round_trip_s", "s", "launch of one empty kernel until its completion is seen"),
    Parameter("graph_node_s", "s", "device time between two nodes of a replayed graph or recorded command buffer"),
    Parameter("synchronize_s", "s", "host time to notice that work has finished"),
    Parameter("persistent_write_s", "s", "a command written to memory that a persistent kernel polls"),
    Parameter("persistent_poll_s", "s", "from the answer written to the host seeing it"),
    Parameter("copy_setup_s", "s", "fixed cost of one copy between host and device"),
    Parameter("pageable_fraction", "1", "rate of a pageable copy relative to a pinned one"),
    Parameter("unified_fraction", "1", "rate of on-demand migration relative to a pinned copy"),
    Parameter("compute_efficiency", "1", "attained fraction of the vector peak, relative to the native API"),
    Parameter("compile_s", "s", "compiling a small kernel at first use"),
    Parameter("context_s", "s", "opening a device: the driver's start and a context"),
    Parameter("allocate_s", "s", "host time to allocate a block of device memory from the driver"),
)

_NUMBER_WORDS = {"lacks": KERNEL_TYPES, "tf32": ("nearest-even", "nearest-away"), "subnormals": ("kept", "flushed")}


def api_names() -> list[str]:
    """Return the name of every API profile."""
    return sorted(path.stem for path in (HERE / "apis").glob("*.yaml"))


@cache
def api_profile(name: str) -> ApiProfile:
    """Return the API called ``name``; raises InputError with the nearest right name otherwise."""
    if name not in api_names():
        raise InputError(
            f"unknown API '{name}'", expected=list_choices(api_names()), nearest=nearest(name, api_names())
        )
    path = HERE / "apis" / f"{name}.yaml"
    reader = _SpecReader(path, {parameter.name: parameter for parameter in API_PARAMETERS}, "API profile")
    required = ("schema", "api", "doc", "kinds", "features", "sources", "values")
    top = reader.mapping((), required=required, optional=("numbers", "no_launch"))
    reader.check_name("api", name)
    return ApiProfile(
        name=name,
        doc=str(top["doc"]),
        kinds=tuple(reader.words(("kinds",))),
        features=frozenset(reader.words(("features",))),
        values=reader.values(),
        numbers=reader.numbers() if "numbers" in top else Numbers(),
        no_launch=str(top["no_launch"]) if "no_launch" in top else None,
    )


@lru_cache(maxsize=256)
def read_spec(path: Path) -> DeviceSpec:
    """Return what a SKU file states; raises InputError for anything that its kind does not allow."""
    reader = _SpecReader(path, {}, "SKU file")
    required = ("schema", "sku", "kind", "vendor", "name", "apis", "sources", "values")
    top = reader.mapping((), required=required, optional=("notes", "lineage"))
    reader.check_name("sku", path.stem)
    try:
        kind = find_kind(str(top["kind"]))
    except InputError as error:
        raise error.at(reader.document.where(("kind",))) from None
    reader.parameters = {parameter.name: parameter for parameter in kind.parameters}
    values = reader.values()
    reader.check_required(kind, values)
    if {"idle_power_w", "max_power_w"} <= set(values) and values["idle_power_w"].value > values["max_power_w"].value:
        raise reader.error(
            ("values", "idle_power_w"), "idle power is above the device's power limit", "idle_power_w <= max_power_w"
        )
    return DeviceSpec(
        sku=path.stem,
        kind=kind.name,
        vendor=str(top["vendor"]),
        name=str(top["name"]),
        apis=reader.apis(kind),
        values=values,
        notes=tuple(reader.words(("notes",))) if "notes" in top else (),
        lineage=reader.lineage() if "lineage" in top else Lineage(),
    )


class _SpecReader(FileReader):
    """The parts that only SKU files and API profiles have."""

    def check_required(self, kind: Kind, values: Mapping[str, SourcedValue]) -> None:
        """Raise InputError unless ``values`` has every parameter that the kind requires."""
        names = {path.partition(".")[0] for path in values}
        for parameter in kind.parameters:
            if parameter.required and parameter.name not in names:
                raise self.error(
                    ("values",),
                    f"a {kind.name} needs '{parameter.name}' ({parameter.doc})",
                    f"a value in {parameter.unit} with its source",
                )

    def apis(self, kind: Kind) -> tuple[str, ...]:
        """Return the APIs through which the SKU is reached, the usual one first."""
        apis = self.words(("apis",))
        if not apis:
            raise self.error(("apis",), "no API reaches this SKU", "at least one")
        for i, api in enumerate(apis):
            if api not in api_names():
                raise self.error(
                    ("apis", i), f"unknown API '{api}'", list_choices(api_names()), nearest(api, api_names())
                )
            if kind.name not in api_profile(api).kinds:
                reaching = [name for name in api_names() if kind.name in api_profile(name).kinds]
                expected = list_choices(reaching) if reaching else f"an API profile whose `kinds` name {kind.name}"
                raise self.error(("apis", i), f"the API '{api}' does not reach a {kind.name}", expected)
        return tuple(apis)

    def lineage(self) -> Lineage:
        """Return the SKU's lineage: ``{die, architecture, since, memory, process}``, each of them optional."""
        entry = self.mapping(("lineage",), optional=("die", "architecture", "since", "memory", "process"))
        for key, value in entry.items():
            here = ("lineage", key)
            wrong_type = not isinstance(value, int if key == "since" else str) or isinstance(value, bool)
            if not wrong_type and key == "memory" and not re.match(_MEMORY, str(value), re.IGNORECASE):
                raise self.error(
                    here,
                    f"'{value}' is not a valid memory technology",
                    "HBM, GDDR, LPDDR or DDR with its generation, such as HBM3e",
                    nearest(str(value).upper(), ("HBM2", "HBM2e", "HBM3", "HBM3e", "GDDR6", "GDDR7", "LPDDR5")),
                )
            if wrong_type or (key == "since" and not 1990 <= int(value) <= 2100):
                expected = "a year" if key == "since" else "a word, in quotes where YAML reads it otherwise"
                raise self.error(here, f"'{key}' is {value!r}", expected)
        return Lineage(**entry)

    def numbers(self) -> Numbers:
        """Return how kernels compute: ``{lacks, tf32, subnormals}``, each optional and with its source."""
        stated: dict[str, SourcedText] = {}
        for name in self.mapping(("numbers",), optional=tuple(_NUMBER_WORDS)):
            here = ("numbers", name)
            entry = self.mapping(here, required=("value",), optional=("source", "provenance", "reason"))
            words = self.words((*here, "value")) if name == "lacks" else [entry["value"]]
            for word in words:
                self.choice(word, _NUMBER_WORDS[name], (*here, "value"), f"value of '{name}'")
            source, provenance = "assumed", Provenance.ASSUMED
            if "source" in entry:
                source, provenance = self.source(entry["source"], (*here, "source"))
            elif not entry.get("reason") or entry.get("provenance") != "assumed":
                expected = "source: NAME, or provenance: assumed with a reason"
                raise self.error(here, f"'{name}' needs its source", expected)
            stated[name] = SourcedText(" ".join(words), provenance, source, entry.get("reason"))
        plain = {name: word.value for name, word in stated.items() if name != "lacks"}
        lacks = stated["lacks"].value.split() if "lacks" in stated else ()
        return Numbers(lacks=frozenset(lacks), stated=stated, **plain)
