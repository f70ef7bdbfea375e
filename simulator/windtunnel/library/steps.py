"""The cost of steps of a decoder on a group of devices, for tables of the columns of ``core.step_op.Step``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.core.architecture import Architecture, LatentAttention
from windtunnel.core.decoder_memory import Beside, DecoderMemory, LargestStep, check_fits
from windtunnel.core.device import Cost, Device, ModelAccuracy
from windtunnel.core.errors import InputError, Location, UnsupportedOperationError
from windtunnel.core.group import Group
from windtunnel.core.ops import CONTEXT, OPERATIONS, Rows
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel.core.results.catalogue import StepPart, StepPrediction
from windtunnel.core.serving_engine import ServingEngine, divided_decoder
from windtunnel.core.speculation import HEADS, Speculation, decoder_draft, draft_of
from windtunnel.core.step import DividedDecoder
from windtunnel.core.step_cost import IntArray, StepCost, StepLoad, StepTable, step_costs
from windtunnel.core.step_op import parse_kv_dtype, parse_weights
from windtunnel_models.engines import serving_engine
from windtunnel_models.models import find_architecture

GROUP = ("tensor", "pipeline", "attention_data", "expert", "expert_tensor")
EXTRAS = ("query_tokens", "draft_tensor", "rank")
AMOUNTS = ("decode", "context", "prefill", "prefill_context", "adapters")
_SMALLEST = LargestStep(tokens=1, sequences=1)
"""What an engine reserves memory for at least; a step states no other."""


@dataclass
class StepPricing:
    """Prices rows of ``Step`` on groups of one device; it has the part of ``Device`` that tables need."""

    device: Device
    engines: Mapping[str, ServingEngine] = field(default_factory=dict)
    """Profiles of serving engines that replace the shipped ones, by name."""
    _decoders: dict[tuple[str, str, str], Architecture] = field(default_factory=dict)
    _held: dict[DividedDecoder, Beside] = field(default_factory=dict)
    """What devices hold beside each divided decoder."""

    def cost(self, rows: Rows, *, intervals: bool = True) -> Cost:
        """Return the cost of every row; see ``Device.cost``.

        Raises:
            InputError: if a row states no work, a model or format that is unknown, a group that does not divide the
                model or does not hold it, or a context longer than the model's maximum. It names the column.
        """
        return self.costs([rows], intervals=intervals)[0]

    def costs(self, several: Sequence[Rows], *, intervals: bool = True) -> list[Cost]:
        """Return the cost of every row of several tables, which take less time together. Raises as ``cost``."""
        found = [self._tables(rows) for rows in several]
        steps = iter(step_costs(self.device, [t for tables in found for _, t in tables], intervals=intervals))
        return [
            _gathered(rows, [(members, next(steps)) for members, _ in tables])
            for rows, tables in zip(several, found, strict=True)
        ]

    def _tables(self, rows: Rows) -> list[tuple[IntArray, StepTable]]:
        """Return the steps of each group of devices: the indices of their rows, and the steps."""
        choices = rows.choices
        model = self.decoder(choices["model"], choices["weights"], choices["kv_dtype"])
        numbers = {name: np.broadcast_to(values, rows.shape) for name, values in rows.numbers.items()}
        load = StepLoad(*(numbers[name] for name in AMOUNTS))
        _check_load(load, model)
        context = {column.name: choices[column.name] for column in CONTEXT}
        names = (*GROUP, *EXTRAS)
        groups, which = np.unique(np.stack([numbers[name] for name in names]), axis=1, return_inverse=True)
        tables = []
        for place, counts in enumerate(groups.T.tolist()):
            stated = dict(zip(names, map(int, counts), strict=True))
            divided = self._divided(model, stated, choices["engine"], choices["draft"])
            members = np.flatnonzero(which.reshape(-1) == place)
            part = StepLoad(*(getattr(load, name)[members] for name in AMOUNTS))
            tables.append((members, StepTable(divided, part, context)))
        return tables

    def accuracy_of(self, op: str) -> ModelAccuracy:
        """Return the basis of the predictions: steps themselves are not fitted to measurements."""
        return ModelAccuracy(op, "formula", "the sum of the operations of a step, each with a basis of its own")

    @property
    def power_error(self) -> SourcedValue:
        """The factor within which nine tenths of measured powers of steps are of the model's: that of the device."""
        return self.device.power_error

    def one(self, rows: Rows) -> StepPrediction:
        """Return the cost of a single row with its parts, without those that the step does not run.

        With pipeline stages, which work at the same time, the times of the parts are scaled so that they add up to the
        duration. Bytes and FLOPs are those of one device, of all microbatches and the mean over the stages.
        """
        ((_, table),) = self._tables(rows)
        (cost,) = step_costs(self.device, [table])
        through_s = sum(float(part.duration_s[0]) for part in cost.parts)
        host_s = float(cost.host_s[0])
        scale = (float(cost.duration_s[0]) - host_s) / through_s
        times = float(cost.microbatches[0]) / table.divided.group.pipeline
        parts = [
            StepPart(
                part=part.name,
                op=part.op,
                duration_s=scale * float(part.duration_s[0]),
                bytes=times * float(part.bytes[0]),
                flops=times * float(part.flops[0]),
                bound=str(part.bound[0]),
            )
            for part in cost.parts
            if part.duration_s[0] > 0
        ]
        if host_s:
            parts.append(StepPart(part="host time", op="host", duration_s=host_s, bytes=0.0, flops=0.0, bound="host"))
        return StepPrediction(
            duration_s=float(cost.duration_s[0]),
            duration_low_s=float(cost.duration_low_s[0]),
            duration_high_s=float(cost.duration_high_s[0]),
            power_w=float(cost.power_w[0]),
            energy_j=float(cost.energy_j[0]),
            bound=str(cost.bound[0]),
            provenance=Provenance(cost.provenance).label,
            devices=cost.devices,
            parts=parts,
        )

    def exceeds_memory(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return which rows attend to more tokens than their group has memory for beside the weights."""
        out = np.zeros(rows.shape, dtype=bool)
        for members, table in self._tables(rows):
            load = table.load
            tokens = load.decode * load.context + load.prefill + load.prefill_context
            memory = self._memory(table.divided)
            out[members] = tokens > memory.kv_capacity_tokens
        return out

    def _divided(self, model: Architecture, counts: dict[str, int], engine: str, draft: str) -> DividedDecoder:
        group = Group(**{name: counts[name] or 1 for name in GROUP[:-1]}, expert_tensor=counts["expert_tensor"] or None)
        group.check(model)
        profile = self.engines.get(engine) or serving_engine(engine)
        speculation = self._speculation(model, draft, counts)
        divided = divided_decoder(self.device, model, group, profile, speculation=speculation)
        divided = replace(divided, query_tokens=counts["query_tokens"], adapter_rank=counts["rank"])
        missing = sorted({part.op.name for part in divided.every_part() if not self.device.runs(part.op.name)})
        if missing:
            raise UnsupportedOperationError(
                f"{self.device.label} is a {self.device.kind.name}, which does not execute {missing[0]}, as "
                f"{model.name} does"
            )
        self._held[divided] = Beside(speculation)
        self._memory(divided)
        return divided

    def _speculation(self, model: Architecture, draft: str, counts: dict[str, int]) -> Speculation | None:
        """Return what drafts; raises InputError with the column if there is no such draft, or nothing to draft."""
        tokens = counts["query_tokens"] - 1
        if not draft:
            return None
        if not tokens:
            raise InputError(
                f"nothing is drafted by '{draft}'",
                where=Location(field="query_tokens"),
                expected="at least 2: the last token, and the drafted ones",
            )
        try:
            found = draft_of(draft, model) if draft in HEADS else decoder_draft(draft, find_architecture(draft), model)
        except InputError as error:
            raise error.at(Location(field="draft")) from None
        return Speculation(found, tokens, tensor=counts["draft_tensor"] or None)

    def _memory(self, divided: DividedDecoder) -> DecoderMemory:
        """Return the memory of a group; raises InputError if it does not hold the model and its draft."""
        held = self._held[divided]
        try:
            return check_fits(divided.model, divided.group, self.device, _SMALLEST, memory_share=1.0, beside=held)
        except InputError as error:
            raise error.at(Location(field="tensor")) from None

    def decoder(self, name: str, weights: str, kv_dtype: str) -> Architecture:
        """Return a decoder with formats as columns of ``Step`` state them; raises InputError with the column."""
        key = name, weights, kv_dtype
        if key not in self._decoders:
            try:
                found = find_architecture(name)
            except InputError as error:
                raise error.at(Location(field="model")) from None
            formats = parse_weights(weights, found.weights)
            decoder = replace(found, weights=formats, kv_dtype=parse_kv_dtype(kv_dtype, found.kv_dtype))
            _check_formats(decoder)
            self._decoders[key] = decoder
        return self._decoders[key]


def _check_formats(model: Architecture) -> None:
    """Raise InputError for a format that experts or latent attention do not have."""
    for layers in model.layers:
        pairs = [("moe", "dtype", model.weights.experts, "weights")] if layers.experts is not None else []
        if isinstance(layers.attention, LatentAttention):
            pairs.append(("latent_attention", "kv_dtype", model.kv_dtype, "kv_dtype"))
        for op, column, stored, field_ in pairs:
            try:
                OPERATIONS[op].column(column).parse(stored)
            except InputError as error:
                raise error.at(Location(field=field_)) from None


def _gathered(rows: Rows, costs: Sequence[tuple[IntArray, StepCost]]) -> Cost:
    """Return the costs of groups of rows as one, in the order of the rows."""
    order = np.argsort(np.concatenate([members for members, _ in costs]))

    def joined(name: str) -> npt.NDArray[Any]:
        return np.concatenate([np.broadcast_to(getattr(cost, name), members.shape) for members, cost in costs])[order]

    return Cost(**{name: joined(name) for name in Cost.COLUMNS})


def _check_load(load: StepLoad, model: Architecture) -> None:
    if np.any(load.decode + load.prefill <= 0):
        raise InputError(
            "the step has neither sequences that decode nor tokens of a prompt",
            where=Location(field="decode"),
            expected="decode or prefill above 0",
        )
    longest = model.max_context
    if longest is None:
        return
    for name, tokens in (("context", load.context), ("prefill", load.prefill + load.prefill_context)):
        most = float(tokens.max())
        if most > longest:
            raise InputError(
                f"{most:,.0f} tokens of context are more than {model.name} supports",
                where=Location(field=name),
                expected=f"at most {longest:,}",
            )
