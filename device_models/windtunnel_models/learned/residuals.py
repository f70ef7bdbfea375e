"""Residuals bound to a device: from points, from a compact array file, and transferred from relatives."""

from __future__ import annotations

import csv
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.core.device import Arrays, Correction, Device, Learned, ModelAccuracy, Parameters, Residual
from windtunnel.core.errors import InputError, Location
from windtunnel.core.files import ARRAY_BYTES, read_bytes
from windtunnel.core.ops import CONTEXT, OPERATIONS, FloatArray, Operation, Rows
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel_models.learned.linear_model import LinearCostModel
from windtunnel_models.learned.overlay import LearnedEntry
from windtunnel_models.learned.process import Process, Scales

STAND_IN = {"float16": "bfloat16", "bfloat16": "float16", "int8": "fp8", "fp8": "int8", "tf32": "bfloat16"}
"""The number format whose residual is used if a format was not measured: same width, same libraries."""

LOG_RATIO, NOISE = "log_ratio", "noise_factor"
"""Columns of a residual's points in addition to the operation's own."""

FREE = ("dispatch", "activations", "routing")
"""Choices on which a residual does not depend: it concerns the device's own time, and of products and experts what was
measured, which is their defaults."""


def coordinates(device: Device, rows: Rows) -> FloatArray:
    """Return the coordinates of rows for a residual (n x d): the kind's own, or the logarithms of the columns."""
    own = device.kind.coordinates.get(rows.op.name)
    if own is not None:
        return own(Parameters(device), rows)
    columns = [np.broadcast_to(rows.numbers[c.name], rows.shape) for c in rows.op.columns if c.kind != "choice"]
    return np.stack([np.log2(np.maximum(column, 1e-12)) / 3.0 for column in columns], 1)


def choice_key(rows: Rows) -> tuple[str, ...]:
    """Return the choices that identify a residual: all except ``FREE``."""
    return tuple(word for name, word in rows.choices.items() if name not in FREE)


@dataclass(frozen=True)
class _ChoiceResidual:
    """The process for one combination of choices, relative to the formula or to a linear model if there is one."""

    process: Process
    choices: Mapping[str, str]
    linear_model: LinearCostModel | None

    def log_ratio(self, frozen: Device, rows: Rows, relatives: Residual | None) -> tuple[FloatArray, FloatArray]:
        """Return the logarithm of the time over the formula's, and its 90% half-width."""
        if self.linear_model is None:
            return self.process(coordinates(frozen, rows), relatives_of(relatives, rows))
        # Other choices for which this process is used differ from its own by the formula.
        rows = replace(rows, choices=self.choices)
        z = coordinates(frozen, rows)
        return self.linear_model.log_ratio(*self.process(z, np.zeros(len(z))), frozen, rows, self.process.calibration)


class PointsResidual:
    """A Gaussian process for every combination of choices, over points that a file lists.

    Args:
        entry: The residual as the file states it.
        device: The device with its parameters as they were at the fit.
        op: The operation.
        base: The residual transferred from relatives, which the processes mix in.
        path: The file, for error messages.
    """

    def __init__(
        self, entry: LearnedEntry, device: Device, op: str, base: Residual | None, path: Path | None = None
    ) -> None:
        self._entry, self._device, self._base, self._path = entry, device, base, path
        self._op: type[Operation] = OPERATIONS.find(op)

    @property
    def origin(self) -> SourcedValue:
        """The number of measurements, their origin, and the linear models that replace the formula."""
        source = self._entry.source
        parts = [source.source, *(f"{key}: {model.describe()}" for key, model in self._entry.linear_models.items())]
        return replace(source, source="; ".join(parts))

    def __call__(self, rows: Rows) -> Correction | None:
        """Return the correction from the process of the rows' choices, or of a substitute for them."""
        key = choice_key(rows)
        residual = self._processes.get(key) or self._stand_in(rows)
        if residual is None:
            return None if self._base is None else self._base(rows)
        mean, spread = residual.log_ratio(self._device, rows, self._base)
        return Correction(mean.reshape(rows.shape), spread.reshape(rows.shape))

    def _stand_in(self, rows: Rows) -> _ChoiceResidual | None:
        """Return the process of another clock, cache or number format, in that order, or None."""
        context = [column.name for column in CONTEXT]
        for measured in self._processes:
            names = [name for name in rows.choices if name not in FREE]
            differ = [name for name, word in zip(names, measured, strict=True) if rows.choices[name] != word]
            if all(
                name in context or STAND_IN.get(rows.choices[name]) == measured[names.index(name)] for name in differ
            ):
                return self._processes[measured]
        return None

    @cached_property
    def _processes(self) -> Mapping[tuple[str, ...], _ChoiceResidual]:
        try:
            return self._read()
        except (KeyError, IndexError, ValueError, TypeError, StopIteration, np.linalg.LinAlgError) as error:
            raise InputError(
                f"the points of {self._op.name} cannot be read ({type(error).__name__}: {error})",
                where=Location(str(self._path or "overlay"), field=f"learned.{self._op.name}.points"),
                expected=f"what `windtunnel calibrate {self._op.name}` wrote: a header, points, scales",
            ) from None

    def _read(self) -> Mapping[tuple[str, ...], _ChoiceResidual]:
        processes = {}
        for rows, residual, noise in read_points(self._op, self._entry.points):
            key = choice_key(rows)
            name = "/".join(key)
            stated = self._entry.scales[name]
            scales = Scales(*(_within(stated, part, 10.0) for part in ("wide", "narrow", "noise", "mix")))
            z = coordinates(self._device, rows)
            model = self._entry.linear_models.get(name)
            base = relatives_of(self._base, rows) if model is None else np.zeros(len(z))
            process = Process(z, residual, base, noise, scales, _within(stated, "calibration", 1000.0))
            processes[key] = _ChoiceResidual(
                process, rows.choices, model and model.with_covariance(rows, noise, scales)
            )
        unread = set(self._entry.linear_models) - {"/".join(key) for key in processes}
        if unread:
            raise ValueError(f"a linear model of {', '.join(sorted(unread))}, which has no points")
        return processes


def _within(stated: Mapping[str, float], name: str, largest: float) -> float:
    """Return a scale from an overlay; raises ValueError unless it is between zero and ``largest``."""
    value = float(stated[name])
    if not 0.0 <= value <= largest or (value == 0.0 and name not in ("wide", "narrow", "mix")):
        raise ValueError(f"{name} is {value:g}, expected 0 to {largest:g}")
    return value


def relatives_of(base: Residual | None, rows: Rows) -> FloatArray:
    """Return the log factor that relatives predict for the rows, or zero if they predict none."""
    correction = None if base is None else base(rows)
    if correction is None:
        return np.zeros(rows.shape)
    return np.asarray(np.broadcast_to(correction.log_factor, rows.shape), dtype=np.float64)


def read_points(op: type[Operation], text: str) -> Sequence[tuple[Rows, FloatArray, FloatArray]]:
    """Return the points of a residual grouped by choices: rows, log ratios and noise factors.

    Args:
        op: The operation.
        text: A header, and one line for each point.
    """
    reader = csv.reader(io.StringIO(text))
    header = next(reader)
    lines = [line for line in reader if line]
    columns = {name: [line[i] for line in lines] for i, name in enumerate(header)}
    words = [c.name for c in op.all_columns() if c.kind == "choice" and c.name not in FREE]
    groups: dict[tuple[str, ...], list[int]] = {}
    for i, key in enumerate(zip(*(columns[name] for name in words), strict=True)):
        groups.setdefault(key, []).append(i)
    return [_group(op, columns, dict(zip(words, key, strict=True)), places) for key, places in groups.items()]


def _group(
    op: type[Operation], columns: Mapping[str, Sequence[str]], choices: dict[str, str], places: Sequence[int]
) -> tuple[Rows, FloatArray, FloatArray]:
    """Return the rows at ``places``, which have these choices, with their log ratios and noise factors."""
    columns_of_op = op.all_columns()
    choices |= {column.name: str(column.default) for column in columns_of_op if column.name in FREE}
    numbers = {
        column.name: np.array([float(column.parse(columns[column.name][i])) for i in places])
        for column in columns_of_op
        if column.kind != "choice"
    }
    ratio, noise = (np.array([float(columns[name][i]) for i in places]) for name in (LOG_RATIO, NOISE))
    if not (np.isfinite(ratio).all() and np.isfinite(noise).all() and (noise > 0.0).all()):
        raise ValueError(f"{LOG_RATIO} and {NOISE} must be numbers, the latter above zero")
    ordered = {column.name: choices[column.name] for column in columns_of_op if column.kind == "choice"}
    return Rows(op, ordered, numbers), ratio, noise


class ArraysResidual:
    """A residual that the kind evaluates from a compact array file, read on first use.

    ``base``, the residual of relatives, is used for choices that were not measured on this device.
    """

    def __init__(self, entry: LearnedEntry, device: Device, op: str, path: Path, base: Residual | None) -> None:
        self._entry, self._device, self._op, self._path, self._base = entry, device, op, path, base

    @property
    def origin(self) -> SourcedValue:
        """The number of measurements, and their origin."""
        return self._entry.source

    def __call__(self, rows: Rows) -> Correction | None:
        """Return the kind's correction from the arrays, for the device as it was fitted."""
        correction = self._evaluate(Parameters(self._device), rows)
        return correction if correction is not None or self._base is None else self._base(rows)

    @cached_property
    def _evaluate(self) -> Learned:
        try:
            state = self._path.stat()
            learned = self._device.kind.learned[self._op]
            return _evaluator(learned, self._op, self._path, state.st_mtime_ns, state.st_size)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise _unreadable(self._path, error) from None


@lru_cache(maxsize=64)
def _evaluator(learned: Callable[[Arrays], Learned], op: str, path: Path, _mtime_ns: int, _size: int) -> Learned:
    """Return the evaluator of an array file. Catalogues share it as long as the file does not change."""
    content = io.BytesIO(read_bytes(path, "array file", ARRAY_BYTES))
    with zipfile.ZipFile(content) as archive:
        if sum(member.file_size for member in archive.infolist()) > ARRAY_BYTES:
            raise ValueError(f"its arrays have more than {ARRAY_BYTES // 2**20} MiB")
    return learned(_ArrayFile(np.load(content, allow_pickle=False), f"{op}.", path))


class _ArrayFile(Mapping[str, npt.NDArray[Any]]):
    """The arrays of an operation in an array file; each is decoded at its first use, because few are used.

    Raises:
        InputError: at the first use of an array that cannot be decoded.
    """

    def __init__(self, file: Mapping[str, npt.NDArray[Any]], prefix: str, path: Path) -> None:
        self._file, self._prefix, self._path = file, prefix, path
        self._names = [name.removeprefix(prefix) for name in file if name.startswith(prefix)]
        self._decoded: dict[str, npt.NDArray[Any]] = {}

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name not in self._decoded:
            if name not in self._names:
                raise KeyError(name)
            try:
                found = self._file[self._prefix + name]
                if not isinstance(found, np.ndarray):
                    raise ValueError(f"'{self._prefix}{name}' is not an array")
                self._decoded[name] = found
            except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
                raise _unreadable(self._path, error) from None
        return self._decoded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _unreadable(path: Path, error: Exception) -> InputError:
    """Return the error of an array file that cannot be read."""
    return InputError(f"the array file cannot be read: {error}", where=Location(str(path)), expected="an .npz file")


@dataclass(frozen=True)
class TransferSource:
    """A relative: its weight, the share of its residual that is used, and the residual."""

    weight: float
    share: float
    residual: Residual


class TransferredResidual:
    """The weighted mean of the residuals of relatives.

    Args:
        sources: The relatives.
        relation: The relation of the nearest of them.
        spread: The factor that contained 90% of the rows in cross-validation by whole devices.
        names: The names of the relatives, for messages.
        adds_spread: Whether the spreads of the relatives' residuals add to ``spread``, or are part of it.

    Relatives of another maker do not tell how that maker's frameworks launch: measurements of Arc Pro B60, which were
    made without graphs, contain 27 us of the host. So the launch is unknown, unless the measurements of the relatives
    themselves depend on it (``adds_spread``).
    """

    def __init__(
        self,
        sources: Sequence[TransferSource],
        relation: str,
        spread: SourcedValue,
        names: str,
        *,
        adds_spread: bool = False,
    ) -> None:
        self._sources, self._spread, self.relation, self._names = sources, spread, relation, names
        self._adds_spread = adds_spread

    @property
    def origin(self) -> SourcedValue:
        """The number of measurements of other devices, and their origin."""
        count = sum(source.residual.origin.value for source in self._sources)
        if self.relation == "die":
            return SourcedValue(count, Provenance.PUBLISHED, f"measurements of {self._names}, the same die")
        reason = f"transferred from {self._names}; {self._spread.source}"
        return SourcedValue(count, Provenance.ASSUMED, "other devices' measurements", count, count, reason)

    def accuracy(self, op: str) -> ModelAccuracy:
        """Return the accuracy of ``op`` as predicted from relatives alone."""
        relation = {
            "die": "the same die",
            "board": "the same die on another board",
            "generation": "a similar design",
            "class": "other classes of device",
            "maker": "other vendors",
        }[self.relation]
        is_assumed = self._spread.provenance is Provenance.ASSUMED
        reason = (
            f"its 90% interval is assumed: {self._spread.reason}"
            if is_assumed
            else f"its 90% interval is {self._spread.source}"
        )
        if self.relation == "maker" and not self._adds_spread:
            reason += "; upwards also the host's launch, which such measurements may contain"
        text = f"no measurements of this SKU; transferred from {self._names} ({relation}); {reason}"
        return ModelAccuracy(op, "transfer", text, int(self.origin.value), error_factor=self._spread.value)

    def __call__(self, rows: Rows) -> Correction | None:
        """Return the weighted mean over the relatives that have a residual for the rows' choices."""
        if self.relation != "die" and "clock" in rows.choices:
            # The effect of the power cap differs between boards; only the kernels are similar.
            rows = replace(rows, choices={**rows.choices, "clock": "burst"})
        total, mean, own = 0.0, np.zeros(rows.shape), np.zeros(rows.shape)
        for source in self._sources:
            correction = source.residual(rows)
            if correction is not None:
                mean = mean + source.weight * source.share * correction.log_factor
                own = own + source.weight * correction.spread
                total += source.weight
        if not total:
            return None
        spread = np.full(rows.shape, np.log(self._spread.value))
        if self._adds_spread:
            return Correction(mean / total, np.hypot(spread, own / total))
        return Correction(mean / total, spread, launch_unknown=self.relation == "maker")


def bind(entry: LearnedEntry, device: Device, op: str, path: Path | None, base: Residual | None) -> Residual:
    """Return the residual that ``entry`` states, for ``device`` as it was fitted; ``path`` is the overlay's file."""
    if entry.form == "arrays":
        return ArraysResidual(entry, device, op, (path or Path()).parent / entry.file, base)
    return PointsResidual(entry, device, op, base, path)
