"""What the page lets a user vary: the controls of a scenario, each with its values.

A control is named after the path of what it sets, such as ``fleet[0].group.tensor``; `design` sets it. What a control
offers comes from the scenario, the catalogue of devices and the known models. Whether a value fits the others is
checked by `look`, in the background.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from windtunnel.core.policy import POLICIES, ROUTES
from windtunnel.core.serving_engine import ENGINE_NAMES
from windtunnel.core.step_op import KV_FORMATS
from windtunnel.core.yamlfile import format_path
from windtunnel.report.numbers import exact_quantity, share
from windtunnel.scenario.arrivals import Closed
from windtunnel.scenario.fleet import FleetEntry
from windtunnel.scenario.policy import ContinuousBatch, PolicyParts, RequestBatch
from windtunnel.scenario.program import Generate, flattened
from windtunnel.scenario.scenario import Scenario
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.models import model_names

Value = str | int | float | None
"""The value of a control; None: what the serving engine or the model itself has."""

WEIGHT_FORMATS = ("bfloat16", "fp8", "fp8_block", "nvfp4", "mxfp4", "int8", "int4")
_RANKS = (1, 2, 4, 8, 16, 32)
LENGTHS = {"prompt_length": "prompt_factor", "output_length": "output_factor"}
"""The key of `generate` that a control of lengths sets."""
_FACTORS = [round(10.0 ** (k / 40.0), 3) for k in range(-40, 29)]
"""From a tenth to five times the load or the lengths, in steps of 6%."""
_LIMITS = [10.0 ** (k / 24.0) for k in range(-24, 25)]


@dataclass(frozen=True)
class Option:
    """A value of a control, its text, and the heading below which a list shows it."""

    value: Value
    text: str
    heading: str = ""


@dataclass(frozen=True)
class Control:
    """A control of the page.

    ``kind``: a slider over ordered values, a list of names, or text that is typed. A slider that is ``typed`` also
    takes text. ``value`` is what the scenario states. ``more`` controls are folded away.
    """

    name: str
    section: str
    label: str
    kind: Literal["slider", "list", "text"]
    value: Value
    options: Sequence[Option] = ()
    typed: bool = False
    percent: bool = False
    """Whether it is a factor, which is shown as a percentage."""
    checked: bool = False
    """Whether some of its values may not fit the other controls."""
    hint: str = ""
    more: bool = False


def controls(scenario: Scenario, catalogue: Catalogue) -> list[Control]:
    """Return the controls of a scenario, in the order of the page."""
    return [
        *_load(scenario),
        *_models(scenario),
        *(c for number, entry in enumerate(scenario.fleet) for c in _entry(scenario, number, entry, catalogue)),
        *_policy(scenario),
        *_targets(scenario),
    ]


def serves(scenario: Scenario) -> bool:
    """Return whether any job of the scenario generates tokens."""
    return any(isinstance(stage, Generate) for program in scenario.programs for stage in flattened(program))


def _load(scenario: Scenario) -> Iterator[Control]:
    closed = all(isinstance(w.arrivals, Closed) for w in scenario.workload)
    hint = "100% is the scenario's" + (" number of users" if closed else "; all rates of arrival are multiplied")
    yield _factor("load", "Users" if closed else "Load", hint)
    if serves(scenario):
        hint = "100% is the scenario's; the {} of all requests are multiplied"
        yield _factor("prompt_length", "Prompt length", hint.format("prompts"))
        yield _factor("output_length", "Output length", hint.format("outputs"))


def _factor(name: str, label: str, hint: str) -> Control:
    options = [Option(value, f"{100 * value:.3g}%") for value in _FACTORS]
    return Control(name, "Load", label, "slider", 1.0, options, typed=True, hint=hint, percent=True)


def _models(scenario: Scenario) -> Iterator[Control]:
    for name, model in scenario.models.items():
        section, path = f"Model {name}", f"models.{name}"
        own = model.catalogue if model.catalogue is not None else None
        known = [Option(known, known) for known in model_names()]
        if own not in [option.value for option in known]:
            known.insert(0, Option(own, own or "as the scenario describes it"))
        yield Control(f"{path}.catalogue", section, "Model", "list", own, known, checked=True)
        if model.weights is None or isinstance(model.weights, str):
            stated = model.weights or model.dtype
            yield Control(
                f"{path}.weights", section, "Weights", "list", stated, _formats(stated, WEIGHT_FORMATS), checked=True
            )
        yield Control(
            f"{path}.kv_dtype", section, "KV cache", "list", model.kv_dtype, _formats(model.kv_dtype, KV_FORMATS),
            checked=True, more=True,
        )  # fmt: skip
        if model.speculation is not None:
            tokens = model.speculation.tokens
            yield Control(
                f"{path}.speculation.tokens", section, "Drafted tokens", "slider", tokens, _whole(range(9), tokens)
            )


def _formats(stated: str | None, formats: Sequence[str]) -> list[Option]:
    names = [*formats, *([stated] if stated is not None and stated not in formats else [])]
    return [Option(None, "the model's own"), *(Option(name, name) for name in names)]


def _entry(scenario: Scenario, number: int, entry: FleetEntry, catalogue: Catalogue) -> Iterator[Control]:
    path = f"fleet[{number}]"
    section = "Fleet" if len(scenario.fleet) == 1 else f"Fleet: {entry.name or entry.device}"
    serving = serves(scenario)
    yield Control(f"{path}.device", section, "Device", "list", entry.device, _devices(entry, catalogue), checked=True)
    if not any(rule.entry in (entry.name, entry.device) for rule in scenario.autoscale):
        counts = _counts(entry.replicas, with_none=len(scenario.fleet) > 1)
        label = "Replicas" if serving else "Devices"
        yield Control(f"{path}.replicas", section, label, "slider", entry.replicas, counts, typed=True)
    if serving:
        group = entry.group
        experts = any(served.architecture.active_parameters < served.architecture.parameters
                      for served in scenario.served_models.values())  # fmt: skip
        keys = {"tensor": "Tensor parallel", "pipeline": "Pipeline stages", "attention_data": "Attention copies"}
        if experts:
            keys["expert"] = "Expert parallel"
        for key, label in keys.items():
            stated = 1 if group is None else int(getattr(group, key))
            yield Control(
                f"{path}.group.{key}", section, label, "list", stated, _whole(_RANKS, stated),
                checked=True, more=key != "tensor" and stated == 1,
            )  # fmt: skip
        engines = [Option(name, name) for name in ENGINE_NAMES]
        yield Control(f"{path}.engine", section, "Engine", "list", entry.engine, engines, checked=True, more=True)
    price = None if entry.price is None else exact_quantity(entry.price, "USD/h")
    yield Control(f"{path}.price", section, "Price of a device", "text", price, hint="such as 2.99 USD/h")


def _devices(entry: FleetEntry, catalogue: Catalogue) -> list[Option]:
    skus = [sku for sku in catalogue.skus() if sku != "host"]
    options = [Option(sku, sku, catalogue.spec(sku).kind) for sku in skus]
    if entry.device not in skus:
        options.insert(0, Option(entry.device, entry.device, "of the scenario"))
    return options


def _counts(stated: int, *, with_none: bool) -> list[Option]:
    most = max(4 * stated, 16)
    values = {1, stated, *(min(most, round(2.0 ** (k / 8.0))) for k in range(int(8 * math.log2(most)) + 1))}
    return _whole(sorted(values | ({0} if with_none else set())), stated)


def _whole(values: Sequence[int] | range, stated: int) -> list[Option]:
    return [Option(value, f"{value:,}") for value in sorted({*values, stated})]


def _policy(scenario: Scenario) -> Iterator[Control]:
    policy = scenario.policy
    if isinstance(policy, str):
        yield Control("policy", "Policy", "Policy", "list", policy, _names(policy, list(POLICIES)), checked=True)
        return
    yield from _batch(policy)
    if policy.name is not None:
        names = _names(policy.name, list(POLICIES))
        yield Control("policy.name", "Policy", "Policy", "list", policy.name, names, checked=True)
    elif isinstance(policy.route, str):
        names = _names(policy.route, list(ROUTES))
        yield Control("policy.route", "Policy", "Route", "list", policy.route, names, checked=True)


def _names(stated: str, names: Sequence[str]) -> list[Option]:
    return [Option(name, name) for name in ([] if stated in names else [stated]) + list(names)]


def _batch(policy: PolicyParts) -> Iterator[Control]:
    batch, section = policy.batch, "Batch"
    if isinstance(batch, RequestBatch):
        sizes = _whole([2**k for k in range(11)], batch.size)
        yield Control("policy.batch.size", section, "Requests in a batch", "slider", batch.size, sizes, typed=True)
    if not isinstance(batch, ContinuousBatch):
        return
    own = [Option(None, "the engine's own")]
    tokens = [*own, *_whole([2**k for k in range(8, 16)], batch.tokens or 8192)]
    yield Control("policy.batch.tokens", section, "Tokens of a step", "slider", batch.tokens, tokens, typed=True)
    sizes = [*own, *_whole([2**k for k in range(3, 12)], batch.size or 256)]
    yield Control("policy.batch.size", section, "Sequences of a step", "slider", batch.size, sizes, typed=True)
    shares = sorted({round(0.5 + 0.05 * k, 2) for k in range(10)} | ({batch.memory} if batch.memory else set()))
    memory = [*own, *(Option(value, share(value)) for value in shares)]
    yield Control("policy.batch.memory", section, "Memory share", "slider", batch.memory, memory, more=True)


def _targets(scenario: Scenario) -> Iterator[Control]:
    for number, target in enumerate(scenario.parsed_targets()):
        unit = "%" if target.unit == "1" else target.unit
        what = " ".join(filter(None, [target.metric.replace("_", " "), target.statistic]))
        of = f" of {target.workload}" if target.workload else ""
        stated = exact_quantity(target.limit, unit)
        if unit == "%":
            values = sorted({*(round(k / 100, 2) for k in range(50, 100)), 0.995, 0.999, 1.0, target.limit})
            texts = [exact_quantity(value, unit) for value in values]
        else:
            texts = [stated if k == 24 else exact_quantity(target.limit * f, unit) for k, f in enumerate(_LIMITS)]
        sign = "at most" if target.comparison == "<=" else "at least"
        options = [Option(text, text) for text in texts]
        yield Control(
            format_path(("targets", number)), "Targets", f"{what}{of} {sign}", "slider", stated, options, typed=True
        )


def data_of(control: Control) -> dict[str, Any]:
    """Return a control as the page reads it."""
    return {
        "name": control.name,
        "section": control.section,
        "label": control.label,
        "kind": control.kind,
        "value": control.value,
        "options": [[option.value, option.text, option.heading] for option in control.options],
        "typed": control.typed,
        "hint": control.hint,
        "percent": control.percent,
        "more": control.more,
    }
