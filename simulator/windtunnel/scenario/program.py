"""The programs of jobs: a list of stages in a closed grammar, in which no expression is evaluated.

ops:
  - copy: {bytes: $Bytes, direction: h2d}          # an operation; $Name takes a value from the trace's column
  - repeat: {times: 5, ops: [...]}                  # the same stages several times
  - branch: {on: $Use, cases: {train: [...]}, default: [...]}
  - streams: [[...], [...]]                         # concurrently, as far as the device's hardware engines allow
  - generate: {model: seven, prompt: $ContextTokens, output: $GeneratedTokens}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from pydantic import ValidationError

from windtunnel.core.device import Device
from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.ops import OPERATIONS, Operation
from windtunnel.core.units import parse_quantity
from windtunnel.scenario.fields import Model
from windtunnel.scenario.lengths import Length, SharedPrefix
from windtunnel.scenario.located import located_part

Path = tuple[str | int, ...]


class Locate(Protocol):
    """Returns the location of the value at a path, or of its key."""

    def __call__(self, path: Path, *, key: bool = False) -> Location:
        """Return the location for an error."""


_MAX_STAGES = 10_000
_CONTROL = ("repeat", "branch", "streams", "generate")


@dataclass(frozen=True)
class ColumnRef:
    """``$Name``: the value in the job's row of a trace, in the column ``Name``."""

    name: str


Value = float | ColumnRef
TokenCount = Value | Length
"""A number, the value of a column, or a number that is drawn for each job."""


@dataclass(frozen=True)
class OpStage:
    """One operation. ``choices`` holds the values of choice columns, ``numbers`` numbers or columns of a trace.

    ``choices`` lacks ``dispatch`` if the operation is launched and the scenario does not state how: then it depends on
    the device.
    """

    op: type[Operation]
    choices: Mapping[str, str]
    numbers: Mapping[str, Value]
    path: Path

    def choices_on(self, device: Device) -> Mapping[str, str]:
        """Return the choices on ``device``, with the dispatch that a program pays there unless one is stated."""
        if "dispatch" in self.choices or not self.op.hardware:
            return self.choices
        other, words = self.op.follows.get("dispatch", ("", {}))
        return {**self.choices, "dispatch": words.get(self.choices.get(other, "")) or device.dispatch_in_job(self.op)}


@dataclass(frozen=True)
class Branch:
    """One of several programs, selected by the word in a column of the trace."""

    column: str
    cases: Mapping[str, tuple[Stage, ...]]
    default: tuple[Stage, ...] | None
    path: Path


@dataclass(frozen=True)
class Streams:
    """Programs that are executed concurrently."""

    bodies: tuple[tuple[Stage, ...], ...]
    path: Path


@dataclass(frozen=True)
class Generate:
    """The generation of ``output`` tokens from a prompt of ``prompt`` tokens by a decoder."""

    model: str
    prompt: TokenCount
    output: TokenCount
    path: Path
    shared_prefix: SharedPrefix | None = None
    adapter: Value | None = None
    """The number of the request's LoRA adapter, 0 for none; None if the popularity of the adapters decides."""
    prompt_factor: float = 1.0
    """A factor on the tokens of all prompts, with the prefixes and the tokens of sessions that are parts of them."""
    output_factor: float = 1.0
    """A factor on the tokens of all outputs."""


Stage = OpStage | Branch | Streams | Generate
PartOfProgram = TypeVar("PartOfProgram", bound=Model)


def parse_program(
    data: object, path: Path, locate: Locate, models: Sequence[str], gang: int | None = None
) -> tuple[Stage, ...]:
    """Return the program written as ``data`` at ``path``. ``locate`` returns locations, ``models`` are the decoders'
    names, and ``gang`` is the number of devices that a job occupies, if it is stated.

    Raises InputError with line, column, field and the nearest valid name.
    """
    return _Parser(locate, models, gang).body(data, path)


class _Parser:
    def __init__(self, locate: Locate, models: Sequence[str], gang: int | None) -> None:
        self.locate = locate
        self.models = models
        self.gang = gang

    def body(self, data: object, path: Path) -> tuple[Stage, ...]:
        if not isinstance(data, list) or not data:
            raise self.wrong("this is not a list of operations", path, "a list such as [{gemm: {...}}]")
        stages = tuple(stage for i, item in enumerate(data) for stage in self.stage(item, (*path, i)))
        if len(stages) > _MAX_STAGES:
            raise self.wrong(f"this program has {len(stages):,} stages", path, f"at most {_MAX_STAGES:,}")
        return stages

    # Long: one branch for each kind of stage.
    def stage(self, item: object, path: Path) -> Iterator[Stage]:
        if isinstance(item, str):
            item = {item: {}}
        if not isinstance(item, dict) or len(item) != 1:
            raise self.wrong("this is not one operation", path, "one key, the operation's name, and its values")
        name, values = next(iter(item.items()))
        here = (*path, name)
        if name == "repeat":
            fields = self.fields(values, here, ("times", "ops"))
            times = fields["times"]
            if not isinstance(times, int) or isinstance(times, bool) or times < 1:
                raise self.wrong(f"times is {times!r}", (*here, "times"), "a whole number, at least 1")
            body = self.body(fields["ops"], (*here, "ops"))
            if times * len(body) > _MAX_STAGES:
                raise self.wrong("this repeats to more than 10,000 stages", here, "fewer")
            for _ in range(times):
                yield from body
        elif name == "branch":
            fields = self.fields(values, here, ("on", "cases"), ("default",))
            on = self.value(fields["on"], (*here, "on"))
            if not isinstance(on, ColumnRef):
                raise self.wrong(f"on is {fields['on']!r}", (*here, "on"), "a column of the trace, such as $Use")
            cases = fields["cases"]
            if not isinstance(cases, dict) or not cases:
                raise self.wrong("cases is not a mapping", (*here, "cases"), "word: [operations]")
            bodies = {str(word): self.body(ops, (*here, "cases", word)) for word, ops in cases.items()}
            default = self.body(fields["default"], (*here, "default")) if "default" in fields else None
            yield Branch(on.name, bodies, default, here)
        elif name == "streams":
            if not isinstance(values, list) or len(values) < 2:
                raise self.wrong("this is not a list of streams", here, "two or more lists of operations")
            bodies_ = tuple(self.body(ops, (*here, i)) for i, ops in enumerate(values))
            if any(not isinstance(stage, OpStage) for body in bodies_ for stage in body):
                raise self.wrong("a stream holds more than operations", here, "operations and repeats only")
            yield Streams(bodies_, here)
        elif name == "generate":
            factors = ("prompt_factor", "output_factor")
            fields = self.fields(values, here, ("model", "prompt", "output"), ("shared_prefix", "adapter", *factors))
            model = fields["model"]
            if model not in self.models:
                raise InputError(
                    f"unknown model '{model}'",
                    where=self.locate((*here, "model")),
                    expected=list_choices(self.models) if self.models else "a model under `models:`",
                    nearest=nearest(str(model), self.models),
                )
            prompt = self.length(fields["prompt"], (*here, "prompt"))
            output = self.length(fields["output"], (*here, "output"))
            shared = None
            if "shared_prefix" in fields:
                shared = self.shared_prefix(fields["shared_prefix"], (*here, "shared_prefix"))
            named = fields.get("adapter")
            adapter = named if named is None else 0.0 if named == 0 else self.value(named, (*here, "adapter"))
            prompt_factor, output_factor = (self.factor(fields.get(key, 1), (*here, key)) for key in factors)
            yield Generate(str(model), prompt, output, here, shared, adapter, prompt_factor, output_factor)
        else:
            yield self.operation(str(name), values, here)

    def operation(self, name: str, values: object, path: Path) -> OpStage:
        if name not in OPERATIONS:
            names = [*OPERATIONS, *_CONTROL]
            raise InputError(
                f"unknown operation '{name}'",
                where=self.locate(path, key=True),
                expected=list_choices(names, 30),
                nearest=nearest(name, names),
            )
        op = OPERATIONS[name]
        if values is None:
            values = {}
        if not isinstance(values, dict):
            raise self.wrong(f"the values of {name} are not a mapping", path, "column: value")
        fixed: dict[str, object] = {}
        references: dict[str, ColumnRef] = {}
        for key, raw in values.items():
            here = (*path, key)
            try:
                column = op.column(str(key))
            except InputError as error:
                raise error.at(self.locate(here, key=True)) from None
            try:
                if isinstance(raw, str) and raw.startswith("$"):
                    if column.kind == "choice":
                        raise InputError(f"'{key}' cannot come from a column", expected=list_choices(column.choices))
                    references[column.name] = ColumnRef(raw[1:])
                    fixed[column.name] = max(column.minimum, 1.0)
                else:
                    fixed[column.name] = self.with_unit(column.unit, raw, column.parse(raw))
            except InputError as error:
                raise error.at(self.locate(here)) from None
        if self.gang is not None:
            self.add_workers(op, fixed, references, path)
        try:
            complete = op.complete(fixed)
        except InputError as error:
            raise error.at(self.locate(path)) from None
        numbers: dict[str, Value] = {k: v for k, v in complete.items() if not isinstance(v, str)}
        choices = {k: v for k, v in complete.items() if isinstance(v, str)}
        if op.launched and "dispatch" not in fixed:
            del choices["dispatch"]
        return OpStage(op, choices, numbers | references, path)

    def add_workers(
        self, op: type[Operation], fixed: dict[str, object], references: Mapping[str, ColumnRef], path: Path
    ) -> None:
        """Let the devices of a gang be the workers of an operation, unless it states fewer."""
        if all(column.name != "workers" for column in op.columns):
            return
        here, expected = (*path, "workers"), f"at most {self.gang}, the workload's gang, which is the default"
        if "workers" in references:
            raise self.wrong("the workers of a gang cannot come from a column", here, expected)
        workers = fixed.setdefault("workers", float(self.gang or 1))
        if isinstance(workers, float) and workers > float(self.gang or 1):
            raise self.wrong(f"{workers:g} workers in a gang of {self.gang}", here, expected)

    @staticmethod
    def with_unit(unit: str, raw: object, parsed: float | str) -> float | str:
        """Return the value of a column. A time needs its unit in a scenario; counts of bytes may omit it."""
        return parse_quantity(str(raw), "s") if unit == "s" else parsed

    def value(self, raw: object, path: Path) -> Value:
        if isinstance(raw, str) and raw.startswith("$") and len(raw) > 1:
            return ColumnRef(raw[1:])
        if isinstance(raw, int) and not isinstance(raw, bool) and 1 <= raw <= 10**9:
            return float(raw)
        expected = "a whole number from 1 to 10^9, or a column such as $Tokens"
        if path[-1] in ("prompt", "output"):
            expected += ", or {distribution: ...}"
        raise self.wrong(f"this is {str(raw)[:40]}", path, expected)

    def length(self, raw: object, path: Path) -> TokenCount:
        """Return a number of tokens: a number, a column, or a distribution."""
        return self.part(Length, raw, path) if isinstance(raw, dict) else self.value(raw, path)

    def factor(self, raw: object, path: Path) -> float:
        """Return a factor on lengths."""
        if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0.01 <= raw <= 100:
            raise self.wrong(
                f"{path[-1]} is {raw!r}", path, "a number from 0.01 to 100, such as 1.5 for half as much again"
            )
        return float(raw)

    def shared_prefix(self, raw: object, path: Path) -> SharedPrefix:
        """Return the tokens with which prompts begin alike: a number for all prompts, or a mapping."""
        if isinstance(raw, dict):
            return self.part(SharedPrefix, raw, path)
        tokens = self.value(raw, path)
        if isinstance(tokens, ColumnRef):
            raise self.wrong("this is a column", path, "one number of tokens for all prompts, or {tokens: ...}")
        return SharedPrefix(tokens=int(str(raw)))

    def part(self, model: type[PartOfProgram], raw: object, path: Path) -> PartOfProgram:
        """Return a mapping of the program as an instance of a model."""
        try:
            return model.model_validate(raw)
        except ValidationError as error:
            raise located_part(error, raw, path, self.locate, model) from None

    def fields(
        self, values: object, path: Path, required: Sequence[str], optional: Sequence[str] = ()
    ) -> dict[str, object]:
        allowed = [*required, *optional]
        if not isinstance(values, dict):
            raise self.wrong("this is not a mapping", path, list_choices(allowed))
        for key in values:
            if key not in allowed:
                raise InputError(
                    f"unknown key '{key}'",
                    where=self.locate((*path, key), key=True),
                    expected=list_choices(allowed),
                    nearest=nearest(str(key), allowed),
                )
        for key in required:
            if key not in values:
                raise self.wrong(f"'{key}' is missing", path, list_choices(allowed))
        return values

    def wrong(self, problem: str, path: Path, expected: str) -> InputError:
        return InputError(problem, where=self.locate(path), expected=expected)


def columns_used(program: Sequence[Stage]) -> Iterator[tuple[str, bool, Path]]:
    """Yield each trace column that a program reads: its name, whether it is a number (else a word), and its path."""
    for stage in program:
        if isinstance(stage, OpStage):
            for key, value in stage.numbers.items():
                if isinstance(value, ColumnRef):
                    yield value.name, True, (*stage.path, key)
        elif isinstance(stage, Generate):
            for key, tokens in (("prompt", stage.prompt), ("output", stage.output)):
                if isinstance(tokens, ColumnRef):
                    yield tokens.name, True, (*stage.path, key)
        elif isinstance(stage, Streams):
            for body in stage.bodies:
                yield from columns_used(body)
        else:
            yield stage.column, False, (*stage.path, "on")
            for body in [*stage.cases.values(), *([stage.default] if stage.default else [])]:
                yield from columns_used(body)


def with_lengths(program: Sequence[Stage], prompt: float, output: float) -> tuple[Stage, ...]:
    """Return a program whose prompts and outputs are longer by factors."""

    def longer(stage: Stage) -> Stage:
        if isinstance(stage, Generate):
            return replace(
                stage, prompt_factor=stage.prompt_factor * prompt, output_factor=stage.output_factor * output
            )
        if isinstance(stage, Branch):
            cases = {key: with_lengths(body, prompt, output) for key, body in stage.cases.items()}
            default = None if stage.default is None else with_lengths(stage.default, prompt, output)
            return replace(stage, cases=cases, default=default)
        return stage

    return tuple(longer(stage) for stage in program)


def flattened(program: Sequence[Stage]) -> Iterator[Stage]:
    """Yield the stages of a program, including those of all branches."""
    for stage in program:
        yield stage
        if isinstance(stage, Branch):
            for body in [*stage.cases.values(), stage.default or ()]:
                yield from flattened(body)


def operations_of(program: Sequence[Stage]) -> Iterator[str]:
    """Yield the names of a program's operations, including those of all branches."""
    for stage in program:
        if isinstance(stage, OpStage):
            yield stage.op.name
        elif isinstance(stage, Generate):
            yield "generate"
        elif isinstance(stage, Streams):
            for body in stage.bodies:
                yield from operations_of(body)
        elif isinstance(stage, Branch):
            for body in [*stage.cases.values(), stage.default or ()]:
                yield from operations_of(body)
