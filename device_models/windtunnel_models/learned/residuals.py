"""Residuals bound to a device: from points, from a compact array file, and carried over from relatives."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.core.device import Correction, Device, ModelAccuracy, Parameters, Residual
from windtunnel.core.errors import InputError, Where
from windtunnel.core.ops import CONTEXT, OPERATIONS, FloatArray, Operation, Rows
from windtunnel.core.provenance import Provenance, Sourced
from windtunnel_models.learned.law import Law
from windtunnel_models.learned.overlay import LearnedEntry
from windtunnel_models.learned.process import Process, Scales

STAND_IN = {"float16": "bfloat16", "bfloat16": "float16", "int8": "fp8", "fp8": "int8", "tf32": "bfloat16"}
"""Number formats whose kernels stand in for each other where only one was measured: same width, same libraries."""

LOG_RATIO, NOISE = "log_ratio", "noise_factor"
"""Columns of a residual's points beside the operation's own."""

_FREE = tuple(column.name for column in CONTEXT if column.name == "dispatch")
"""Context that a residual of the device's own time does not depend on."""


def coordinates(device: Device, rows: Rows) -> FloatArray:
    """Where rows lie for a residual (n x d): the kind's own measure, or the logarithms of the columns."""
    own = device.kind.coordinates.get(rows.op.name)
    if own is not None:
        return own(Parameters(device), rows)
    columns = [np.broadcast_to(rows.numbers[c.name], rows.shape) for c in rows.op.columns if c.kind != "choice"]
    return np.stack([np.log2(np.maximum(column, 1e-12)) / 3.0 for column in columns], 1)


def choice_key(rows: Rows) -> tuple[str, ...]:
    """The choices that tell one residual from another: all but how the operation was dispatched."""
    return tuple(word for name, word in rows.choices.items() if name not in _FREE)


@dataclass(frozen=True)
class _Asked:
    """A process over points of ``choices``; with ``law``, over what that leaves and not the formula."""

    process: Process
    choices: Mapping[str, str]
    law: Law | None

    def ask(self, frozen: Device, rows: Rows, relatives: Residual | None) -> tuple[FloatArray, FloatArray]:
        """Logarithm of the time over the formula's, and its 90% half-width."""
        if self.law is None:
            return self.process(coordinates(frozen, rows), relatives_of(relatives, rows))
        # Other choices that it answers for differ from its own as the formula says.
        rows = replace(rows, choices=self.choices)
        z = coordinates(frozen, rows)
        return self.law.over(*self.process(z, np.zeros(len(z))), frozen, rows, self.process.calibration)


class PointsResidual:
    """A Gaussian process for every combination of choices, over points that a file lists.

    ``device``: frozen as it was fitted; ``beneath``: what relatives say, which the processes mix in.
    """

    def __init__(
        self, entry: LearnedEntry, device: Device, op: str, beneath: Residual | None, path: Path | None = None
    ) -> None:
        self._entry, self._device, self._beneath, self._path = entry, device, beneath, path
        self._op: type[Operation] = OPERATIONS.find(op)

    @property
    def origin(self) -> Sourced:
        """How many measurements, from where, and what stands in place of the formula."""
        source = self._entry.source
        said = [source.source, *(f"{key}: {law.words()}" for key, law in self._entry.laws.items())]
        return replace(source, source="; ".join(said))

    def __call__(self, rows: Rows) -> Correction | None:
        """The process's answer for the rows' choices, or for those that stand in for them."""
        key = choice_key(rows)
        found = self._processes.get(key) or self._stand_in(rows)
        if found is None:
            return None if self._beneath is None else self._beneath(rows)
        mean, spread = found.ask(self._device, rows, self._beneath)
        return Correction(mean.reshape(rows.shape), spread.reshape(rows.shape))

    def _stand_in(self, rows: Rows) -> _Asked | None:
        """The process of another clock, cache or number format, in that order; None for another phase or operator."""
        context = [column.name for column in CONTEXT]
        for held in self._processes:
            names = [name for name in rows.choices if name not in _FREE]
            differ = [name for name, word in zip(names, held, strict=True) if rows.choices[name] != word]
            if all(name in context or STAND_IN.get(rows.choices[name]) == held[names.index(name)] for name in differ):
                return self._processes[held]
        return None

    @cached_property
    def _processes(self) -> Mapping[tuple[str, ...], _Asked]:
        try:
            return self._read()
        except (KeyError, IndexError, ValueError, TypeError, StopIteration, np.linalg.LinAlgError) as error:
            raise InputError(
                f"the points of {self._op.name} cannot be read ({type(error).__name__}: {error})",
                where=Where(str(self._path or "overlay"), field=f"learned.{self._op.name}.points"),
                expected=f"what `windtunnel calibrate {self._op.name}` wrote: a header, points, scales",
            ) from None

    def _read(self) -> Mapping[tuple[str, ...], _Asked]:
        found = {}
        for rows, residual, noise in read_points(self._op, str(self._entry.data["points"])):
            key = choice_key(rows)
            name = "/".join(key)
            stated = self._entry.data["scales"][name]
            scales = Scales(*(_within(stated, part, 10.0) for part in ("wide", "narrow", "noise", "mix")))
            z = coordinates(self._device, rows)
            law = self._entry.laws.get(name)
            beneath = relatives_of(self._beneath, rows) if law is None else np.zeros(len(z))
            process = Process(z, residual, beneath, noise, scales, _within(stated, "calibration", 1000.0))
            found[key] = _Asked(process, rows.choices, law and law.doubted(rows, noise, scales))
        unread = set(self._entry.laws) - {"/".join(key) for key in found}
        if unread:
            raise ValueError(f"a law of {', '.join(sorted(unread))}, of which there are no points")
        return found


def _within(stated: Mapping[str, Any], name: str, most: float) -> float:
    """A scale as an overlay states it; ValueError unless it is between nothing and ``most``."""
    value = float(stated[name])
    if not 0.0 <= value <= most or (value == 0.0 and name not in ("wide", "narrow", "mix")):
        raise ValueError(f"{name} is {value:g}, where 0 to {most:g} makes sense")
    return value


def relatives_of(beneath: Residual | None, rows: Rows) -> FloatArray:
    """What relatives say of the rows; zero where they say nothing."""
    correction = None if beneath is None else beneath(rows)
    if correction is None:
        return np.zeros(rows.shape)
    return np.asarray(np.broadcast_to(correction.log_factor, rows.shape), dtype=np.float64)


def read_points(op: type[Operation], text: str) -> Sequence[tuple[Rows, FloatArray, FloatArray]]:
    """A residual's points from their text (a header and a line each), grouped by choices: rows, log ratios, noise."""
    reader = csv.reader(io.StringIO(text))
    header = next(reader)
    lines = [line for line in reader if line]
    columns = {name: [line[i] for line in lines] for i, name in enumerate(header)}
    words = [c.name for c in op.all_columns() if c.kind == "choice" and c.name not in _FREE]
    groups: dict[tuple[str, ...], list[int]] = {}
    for i, key in enumerate(zip(*(columns[name] for name in words), strict=True)):
        groups.setdefault(key, []).append(i)
    found = []
    for key, places in groups.items():
        choices = dict(zip(words, key, strict=True))
        for column in op.all_columns():
            if column.name in _FREE:
                choices[column.name] = str(column.default)
        numbers = {
            c.name: np.array([float(c.parse(columns[c.name][i])) for i in places])
            for c in op.all_columns()
            if c.kind != "choice"
        }
        ordered = {c.name: choices[c.name] for c in op.all_columns() if c.kind == "choice"}
        ratio = np.array([float(columns[LOG_RATIO][i]) for i in places])
        noise = np.array([float(columns[NOISE][i]) for i in places])
        if not (np.isfinite(ratio).all() and np.isfinite(noise).all() and (noise > 0.0).all()):
            raise ValueError(f"{LOG_RATIO} and {NOISE} are numbers, the latter above zero")
        found.append((Rows(op, ordered, numbers), ratio, noise))
    return found


class ArraysResidual:
    """A residual that the kind evaluates from a compact array file, read when first asked.

    ``beneath`` (what relatives say) answers for choices that were not measured on this device.
    """

    def __init__(self, entry: LearnedEntry, device: Device, op: str, path: Path, beneath: Residual | None) -> None:
        self._entry, self._device, self._op, self._path, self._beneath = entry, device, op, path, beneath

    @property
    def origin(self) -> Sourced:
        """How many measurements, from where."""
        return self._entry.source

    def __call__(self, rows: Rows) -> Correction | None:
        """The kind's answer from the arrays, with the device as it was fitted."""
        found = self._device.kind.learned[self._op](self._arrays, Parameters(self._device), rows)
        return found if found is not None or self._beneath is None else self._beneath(rows)

    @cached_property
    def _arrays(self) -> Mapping[str, Any]:
        try:
            with np.load(self._path, allow_pickle=False) as file:
                prefix = f"{self._op}."
                return {name.removeprefix(prefix): file[name] for name in file.files if name.startswith(prefix)}
        except (OSError, ValueError) as error:
            raise InputError(
                f"the array file cannot be read: {error}", where=Where(str(self._path)), expected="an .npz file"
            ) from None


@dataclass(frozen=True)
class Member:
    """A relative: its weight, the share of its residual that is believed, and the residual."""

    weight: float
    share: float
    residual: Residual


class Transferred:
    """What relatives' residuals say together: their weighted mean, with the error that such answers were seen to have.

    ``relation``: that of the nearest. ``spread``: factor that held 90% of rows when whole devices were left out.
    ``names``: the relatives', for people.
    """

    def __init__(self, members: Sequence[Member], relation: str, spread: Sourced, names: str) -> None:
        self._members, self._spread, self._relation, self._names = members, spread, relation, names

    @property
    def origin(self) -> Sourced:
        """How many measurements of other devices."""
        count = sum(member.residual.origin.value for member in self._members)
        if self._relation == "die":
            return Sourced(count, Provenance.PUBLISHED, f"measurements of {self._names}, the same die")
        reason = f"carried over from {self._names}; {self._spread.source}"
        return Sourced(count, Provenance.ASSUMED, "other devices' measurements", count, count, reason)

    def accuracy(self, op: str) -> ModelAccuracy:
        """How well ``op`` is known from relatives alone."""
        kin = {
            "die": "the same die",
            "generation": "a like design",
            "class": "other classes of device",
            "maker": "other makers",
        }[self._relation]
        guessed = self._spread.provenance is Provenance.ASSUMED
        why = (
            f"the spread is assumed: {self._spread.reason}"
            if guessed
            else f"the spread is that of {self._spread.source}"
        )
        text = f"carried over from {self._names} ({kin}); {why}"
        return ModelAccuracy(op, "transfer", text, int(self.origin.value), error_factor=self._spread.value)

    def __call__(self, rows: Rows) -> Correction | None:
        """The weighted mean over the relatives that know the rows' choices."""
        if self._relation != "die" and "clock" in rows.choices:
            # What the power cap does to a loop is the board's own; only the kernels are alike.
            rows = replace(rows, choices={**rows.choices, "clock": "burst"})
        total, mean = 0.0, np.zeros(rows.shape)
        for member in self._members:
            found = member.residual(rows)
            if found is not None:
                mean = mean + member.weight * member.share * found.log_factor
                total += member.weight
        if not total:
            return None
        return Correction(mean / total, np.full(rows.shape, np.log(self._spread.value)))


def bind(entry: LearnedEntry, device: Device, op: str, path: Path | None, beneath: Residual | None) -> Residual:
    """The residual that ``entry`` states, over ``device`` as it was fitted; ``path`` is the overlay's file."""
    if entry.form == "arrays":
        return ArraysResidual(entry, device, op, (path or Path()).parent / str(entry.data["file"]), beneath)
    return PointsResidual(entry, device, op, beneath, path)
