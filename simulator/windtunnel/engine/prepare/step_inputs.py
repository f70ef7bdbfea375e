"""What steps of a decoder on a replica consist of, what their costs depend on, and how accurate their times are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from windtunnel.core.decoder_memory import LargestStep
from windtunnel.core.device import Device, ModelAccuracy
from windtunnel.core.provenance import SourcedValue
from windtunnel.core.serving_engine import ServingEngine, divided_decoder
from windtunnel.core.step import DividedDecoder, Part
from windtunnel.core.step_cost import StepLoad, step_cost
from windtunnel.engine.prepare.replica import Replica
from windtunnel.scenario.decoder import ServedModel


@dataclass
class Described:
    """What is known about the tables of a decoder besides the tables; None until it is asked for.

    Attributes:
        sources: Every number on which the costs depend, by name.
        accuracy: The accuracy of the time of a step.
    """

    sources: Mapping[str, SourcedValue] | None = None
    accuracy: ModelAccuracy | None = None


def step_engine(replica: Replica, model: ServedModel) -> ServingEngine | None:
    """Return the engine whose measurements the steps are priced with; None for the time of the device alone.

    Kernels of engines were measured launched one by one or in a graph, and the host is no part of device time.
    """
    return replica.engine if model.dispatch != "device" else None


def step_context(model: ServedModel) -> dict[str, str]:
    """Return the context of the operations of steps."""
    return {"dispatch": model.dispatch, "clock": model.clock}


def divided_on(replica: Replica, model: ServedModel) -> DividedDecoder:
    """Return a decoder as the devices of a replica divide it."""
    engine = step_engine(replica, model)
    divided = divided_decoder(
        replica.device, model.architecture, replica.group, engine, replica.devices_per_node, model.speculation
    )
    return divided if model.adapters is None else replace(divided, adapter_rank=model.adapters.rank)


def step_sources(device: Device, parts: Iterable[Part], context: Mapping[str, str]) -> Mapping[str, SourcedValue]:
    """Return every number on which the costs of ``parts`` depend, by name."""
    sources: dict[str, SourcedValue] = {}
    for part in parts:
        has_context = any(column.name == "kv_tokens" for column in part.op.columns)
        more = {"kv_tokens": np.ones(1)} if has_context else None
        sources.update(device.sources(part.rows(np.ones(1), context, more)))
    return sources


def step_accuracy(replica: Replica, model: ServedModel, step: LargestStep, mean_context: float) -> ModelAccuracy:
    """Return the accuracy of the time of a step: the widest interval of three steps with a few and many sequences.

    ``mean_context`` is that of the sequences (tokens).
    """
    device, divided = replica.device, divided_on(replica, model)
    most = step.sequences * divided.query_tokens
    sequences = np.unique([1, -(-most // 2), most]).astype(np.float64)
    none = np.zeros(sequences.shape)
    load = StepLoad(sequences, np.full(sequences.shape, mean_context), none, none)
    cost = step_cost(device, divided, load, step_context(model))
    ratios = np.maximum(cost.duration_high_s / cost.duration_s, cost.duration_s / cost.duration_low_s)
    bases = {device.accuracy_of(part.op.name).basis for part in divided.every_part()}
    basis = next(word for word in ("formula", "transfer", "measured") if word in bases)
    text = "the intervals of its parts: errors of one operation add, those of different operations are independent"
    return ModelAccuracy("step", basis, text, error_factor=float(ratios.max()))
