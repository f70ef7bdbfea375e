"""The modelled values of claims: one evaluator for each word under ``model:`` in claims.yaml.

``operation``  the operation's cost in the context its values state (device-side unless they say otherwise)
``waited``     the same, started through the API by a native program that waits for it: on a GPU the round trip of an
               empty kernel, with the kernel's own time instead of the empty one's
``copied``     copies of the operands from pinned memory, the operation, and a copy of its result, one after another
``naive``      a textbook triple loop on one core, in which each addition waits for the one before it
``rate``       work over time: FLOP/s of a GEMM, B/s of operations that move data
``power``      the device's average power while it runs the operation (W)
``parameter``  a number of the device's catalogue entry (``api.`` before the name: of its API)
``benchmark``  a row of the RTX Ada benchmark, run in the process engine
``ratio``      the ratio of the modelled values of two other claims
``example``    a program of ``windtunnel.examples``, run on emulated devices in its stated setting, and swept
``untested``   no program yet; the text says what would test it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from windtunnel.claims.benchmark import FACTS, Benchmark, Facts, Program
from windtunnel.claims.bounds import FRAMING_BYTES, Bound, power_bound, rate_bound, time_bound
from windtunnel.core.columns import Columns
from windtunnel.core.device import Cost, Device, Parameters
from windtunnel.core.errors import InputError, list_choices, nearest
from windtunnel.core.ops import OPERATIONS, Gemm, Packets, Rows, one_row
from windtunnel.core.provenance import Provenance, SourcedValue, assumed
from windtunnel.core.units import format_quantity as show
from windtunnel.examples import EXAMPLES

if TYPE_CHECKING:
    from windtunnel.examples.measure import Finding
    from windtunnel.runtime.accelerator import Accelerator

_FADD = assumed(
    3.0,
    3.0,
    4.0,
    "cycles from one scalar addition to the next that needs it: 3 on Zen 4 (AMD's optimisation guide), elsewhere 4",
)


ClaimModel = TypedDict(
    "ClaimModel",
    {
        "operation": str,
        "waited": str,
        "copied": str,
        "naive": str,
        "rate": str,
        "power": str,
        "parameter": str,
        "benchmark": str,
        "ratio": Sequence[str],
        "example": str,
        "untested": str,
        "values": Columns,
        "set": Mapping[str, float],
        "in": int,
        "out": int,
        "frame_bytes": int,
    },
    total=False,
)
"""What stands under ``model:``: the word of one evaluator, and its values. ``in`` and ``out`` are bytes to copy."""


@dataclass(frozen=True)
class Setting:
    """The inputs of evaluators: devices by name, the duration of one job (s), and emulated devices for programs."""

    device: Callable[[str], Device]
    run: Callable[[Device, Program], float]
    facts: Facts = FACTS
    emulate: Callable[[Device], Accelerator] | None = None
    """Opens an emulated device; all of them share one virtual clock."""


@dataclass(frozen=True)
class Modelled:
    """A modelled value (SI) with the physical bound, and the arithmetic of both as text.

    ``low`` and ``high`` are the model's 90% interval where it has one; ``used`` every number that entered.
    """

    value: float | None
    why: str
    bound: Bound | None = None
    low: float | None = None
    high: float | None = None
    used: Mapping[str, SourcedValue] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    swept: str = ""
    """What was swept, if ``low`` and ``high`` are the ends of a sweep instead of the model's interval."""
    holds: str = ""
    """The part of the sweep in which the claim holds."""

    circular: tuple[str, ...] = ()
    """Numbers that were assumed from these documents and affect the value, so that agreement proves nothing."""
    by_definition: bool = False
    """Whether the value is an entry of the catalogue, which no model computed."""


Evaluator = Callable[[Setting, str, ClaimModel], Modelled]


def _priced(device: Device, op: str, values: Columns) -> tuple[Rows, Cost]:
    rows = one_row(OPERATIONS.find(op), values)
    return rows, device.cost(rows)


def _spelt(op: str, values: Columns) -> str:
    return f"{op}({', '.join(f'{k}={v}' for k, v in values.items())})" if values else op


def _with(device: Device, values: Mapping[str, SourcedValue]) -> Device:
    return replace(device, values={**device.values, **values})


def _achieved(rows: Rows, seconds: float) -> str:
    """Return the work of ``rows`` over a time, as text."""
    if rows.op is Gemm:
        return f"{show(float(Gemm.flops(rows.choices, rows.numbers)[0]) / seconds, 'FLOP/s')}"
    size = _moved_bytes(rows)
    return f"{show(size / seconds, 'B/s')}" if size else ""


def _moved_bytes(rows: Rows) -> float:
    if "bytes" in rows.numbers:
        return float(rows.numbers["bytes"][0] * rows.numbers.get("count", np.ones(1))[0])
    return float(rows.footprint_bytes()[0])


def operation(setting: Setting, name: str, model: ClaimModel) -> Modelled:
    """Return the cost of the operation in its context; ``set`` replaces numbers of the device by the claim's own."""
    op, values = model["operation"], model.get("values", {})
    device = setting.device(name)
    stated = {
        k: SourcedValue(float(v), Provenance.DATASHEET, "the claim's own words")
        for k, v in model.get("set", {}).items()
    }
    if stated:
        device = _with(device, stated)
    rows, cost = _priced(device, op, values)
    seconds = float(cost.duration_s[0])
    notes = []
    if op == "launch":
        dispatch = Parameters(device).api_cost("dispatch_s")
        notes.append(f"enqueuing alone takes {show(dispatch, 's')}")
    elif op == "copy":
        larger_s = float(_priced(device, op, {**values, "bytes": float(values["bytes"]) + 100_000})[1].duration_s[0])
        notes.append(f"each further 100 kB costs {show(larger_s - seconds, 's')}")
    extra = f" with {', '.join(f'{k}={v}' for k, v in model['set'].items())}" if stated else ""
    return Modelled(
        seconds,
        f"{_spelt(op, values)} on {device.label}{extra} is {show(seconds, 's')}, bound by {cost.bound[0]}",
        time_bound(device, rows),
        float(cost.duration_low_s[0]),
        float(cost.duration_high_s[0]),
        device.sources(rows),
        tuple(notes),
    )


def waited(setting: Setting, name: str, model: ClaimModel) -> Modelled:
    """Evaluate the operation as a native program launches it and waits for it."""
    op, values = model["waited"], model["values"]
    device = setting.device(name)
    rows, cost = _priced(device, op, values)
    alone = float(cost.duration_s[0])
    used = device.sources(rows)
    if device.kind.name == "gpu":
        launch_rows, launch = _priced(device, "launch", {})
        # The round trip holds an empty kernel, which is nothing but its floor.
        around = max(float(launch.duration_s[0]) - (device.number("kernel_floor_s") or 0.0), 0.0)
        used |= device.sources(launch_rows)
    else:
        around = float(_priced(device, op, {**values, "dispatch": "eager"})[1].duration_s[0]) - alone
    seconds = alone + around
    notes = []
    if device.runs("copy") and not device.number("unified_memory"):
        inputs, outputs = _operands(rows)
        copies = sum(
            float(_priced(device, "copy", {"bytes": size, "direction": way, "memory": "pageable"})[1].duration_s[0])
            for size, way in ((inputs, "h2d"), (outputs, "d2h"))
        )
        notes.append(f"with pageable copies in and out {show(seconds + copies, 's')}")
    return Modelled(
        seconds,
        f"{_spelt(op, values)} on {device.label}: {show(alone, 's')} on the device and {show(around, 's')} around it "
        f"make {show(seconds, 's')} ({_achieved(rows, seconds)})",
        time_bound(device, rows),
        float(cost.duration_low_s[0]) + around,
        float(cost.duration_high_s[0]) + around,
        used,
        tuple(notes),
    )


def _operands(rows: Rows) -> tuple[int, int]:
    """Return the bytes of the operands and of the result of an operation."""
    n = rows.numbers
    if rows.op is Gemm:
        out = 4.0 * float((n["m"] * n["n"] * n["batch"])[0])
        return round(float(rows.footprint_bytes()[0]) - out), round(out)
    total = float(rows.footprint_bytes()[0])
    return round(total * 2 / 3), round(total / 3)


def copied(setting: Setting, name: str, model: ClaimModel) -> Modelled:
    """Evaluate the operation with the copies of its operands and its result, one after another."""
    op, values = model["copied"], model["values"]
    device = setting.device(name)
    rows, cost = _priced(device, op, values)
    alone = float(cost.duration_s[0])
    used = device.sources(rows)
    ways: list[float] = []
    for size, way in ((model["in"], "h2d"), (model["out"], "d2h")):
        copy_rows, copy = _priced(device, "copy", {"bytes": size, "direction": way, "memory": "pinned"})
        used |= device.sources(copy_rows)
        ways.append(float(copy.duration_s[0]))
    seconds = alone + sum(ways)
    return Modelled(
        seconds,
        f"{_spelt(op, values)} on {device.label}: {show(ways[0], 's')} in, {show(alone, 's')} there, "
        f"{show(ways[1], 's')} out, one after another",
        time_bound(device, rows, bytes_in=model["in"], bytes_out=model["out"]),
        used=used,
        notes=(f"in chunks that overlap wholly {show(max(*ways, alone), 's')}", f"resident {show(alone, 's')}"),
    )


def naive(setting: Setting, name: str, model: ClaimModel) -> Modelled:
    """Evaluate a triple loop on one core, limited by the latency of an addition."""
    op, values = model["naive"], model["values"]
    device = setting.device(name)
    single = SourcedValue(1.0, Provenance.DATASHEET, "the claim's own words: one thread")
    scalar = SourcedValue(32.0, Provenance.DATASHEET, "a plain loop: one 32-bit number an instruction")
    units = SourcedValue(1 / _FADD.value, Provenance.ASSUMED, "assumed", 1 / 4.0, 1 / 3.0, _FADD.reason)
    whole = SourcedValue(1.0, Provenance.DATASHEET, "nothing else is slower than the chain of additions")
    plain = {"threads": single, "simd_bits": scalar, "fma_units": units, "kernel_efficiency.gemm": whole}
    # Whatever was learned of products on this processor is of a library's, not of a plain loop's.
    loop = replace(_with(device, plain), residuals={})
    rows, cost = _priced(loop, op, values)
    seconds = float(cost.duration_s[0])
    clock = Parameters(device)("clock_hz", "boost")
    _, tuned = _priced(_with(device, {"threads": single}), op, values)
    return Modelled(
        seconds,
        f"{float(Gemm.flops(rows.choices, rows.numbers)[0]) / 2:,.0f} additions, each waiting {_FADD.value:g} cycles "
        f"for the last at {show(clock, 'Hz')}, take {show(seconds, 's')}",
        time_bound(_with(device, {"threads": single}), rows),
        float(cost.duration_low_s[0]),
        float(cost.duration_high_s[0]),
        loop.sources(rows),
        (f"a tuned library on one thread of it {show(float(tuned.duration_s[0]), 's')}",),
    )


def rate(setting: Setting, name: str, model: ClaimModel) -> Modelled:
    """Evaluate work over time: FLOP/s, or B/s (on the wire, for packets)."""
    op, values = model["rate"], model["values"]
    device = setting.device(name)
    rows, cost = _priced(device, op, values)
    seconds = float(cost.duration_s[0])
    flops = rows.op is Gemm
    amount, unit = (float(Gemm.flops(rows.choices, rows.numbers)[0]), "FLOP") if flops else (_moved_bytes(rows), "B")
    payload = amount / seconds
    if rows.op is Packets:
        amount += FRAMING_BYTES * float(rows.numbers["count"][0])
    return Modelled(
        amount / seconds,
        f"{_spelt(op, values)} on {device.label} takes {show(seconds, 's')}: {_in_bits(amount / seconds, unit)}",
        rate_bound(device, rows, amount, unit),
        amount / float(cost.duration_high_s[0]),
        amount / float(cost.duration_low_s[0]),
        device.sources(rows),
        (f"preambles and gaps included; frames alone {_in_bits(payload, unit)}",) if rows.op is Packets else (),
    )


def _in_bits(value: float, unit: str) -> str:
    return show(value * 8, "bit/s") if unit == "B" else show(value, "FLOP/s")


def power(setting: Setting, name: str, model: ClaimModel) -> Modelled:
    """Evaluate the average power of the operation (W)."""
    op, values = model["power"], model["values"]
    device = setting.device(name)
    rows, cost = _priced(device, op, values)
    watts = float(cost.power_w[0])
    return Modelled(
        watts,
        f"{_spelt(op, values)} on {device.label} draws {show(watts, 'W')} of {show(device.power_limit_w, 'W')}",
        power_bound(device),
        used=device.sources(rows),
        notes=(f"idle it draws {show(device.idle_power_w, 'W')}",),
    )


def parameter(setting: Setting, name: str, model: ClaimModel) -> Modelled:
    """Evaluate a number of the catalogue."""
    device = setting.device(name)
    path = model["parameter"]
    reader = Parameters(device)
    if path.startswith("api."):
        value = reader.api_cost(path.removeprefix("api."))
        owner = f"the API {device.api.name}"
    else:
        value = reader(*path.split(".", 1))
        owner = device.label
    (sourced,) = reader.used.values()
    shown = show(value, "s") if path.endswith("_s") else f"{value:.3g}"
    text = sourced.reason if sourced.provenance is Provenance.ASSUMED else sourced.source
    return Modelled(
        value,
        f"{owner} is entered with {path.removeprefix('api.')} = {shown} ({sourced.provenance.label}: {text})",
        low=sourced.low,
        high=sourced.high,
        used=dict(reader.used),
        by_definition=True,
    )


def benchmark(setting: Setting, name: str, model: ClaimModel) -> Modelled:
    """Evaluate a row of the RTX Ada benchmark."""
    row = model["benchmark"]
    device = setting.device(name)
    bench = Benchmark(device, setting.run, setting.facts)
    seconds = bench.seconds(row)
    low, high = bench.ends(row)
    return Modelled(
        seconds,
        f"{bench.words(row)} = {show(seconds, 's')} in the process engine",
        bench.bound(row),
        low,
        high,
        bench.used_by(row),
        bench.notes(row),
    )


def example(setting: Setting, name: str, model: ClaimModel) -> Modelled:
    """Evaluate a program of the examples in its stated setting; ``low`` and ``high`` are the ends of its sweep.

    ``frame_bytes`` of the claim are the bytes that each frame copies to the host, for a bound on the frame rate.
    """
    emulate = setting.emulate
    if emulate is None:
        raise InputError("this setting cannot open emulated devices", expected="a setting with `emulate`")
    if model["example"] not in EXAMPLES:
        raise InputError(
            f"no example is called '{model['example']}'",
            expected=list_choices(EXAMPLES),
            nearest=nearest(model["example"], EXAMPLES),
        )
    opened: dict[str, Device] = {}

    def opener(sku: str) -> Accelerator:
        opened.setdefault(sku, setting.device(sku))
        return emulate(opened[sku])

    finding: Finding = import_module(f"windtunnel.examples.{model['example']}").claim(opener)
    return Modelled(
        finding.value,
        finding.setting,
        _frames_bound(setting.device(name), model["frame_bytes"]) if "frame_bytes" in model else None,
        finding.low,
        finding.high,
        {key: sourced for device in opened.values() for key, sourced in _of_programs(device).items()},
        swept=finding.swept,
        holds=finding.claim_holds_for,
    )


def _frames_bound(device: Device, size: int) -> Bound | None:
    """Return the largest frame rate (1/s) if each frame copies ``size`` bytes to the host."""
    rows = one_row(OPERATIONS.find("copy"), {"bytes": size, "direction": "d2h"})
    least = time_bound(device, rows)
    if least is None:
        return None
    return Bound(1.0 / least.value, 1.0 / least.favourable, f"a frame's {least.why}")


def _of_programs(device: Device) -> dict[str, SourcedValue]:
    """Return every number that may affect the duration of a program on a device."""
    sources = {f"api.{key}": sourced for key, sourced in device.api.values.items() if "persistent" not in key}
    for op, values in _PROGRAM_OPS:
        if device.runs(op):
            sources |= device.sources(one_row(OPERATIONS.find(op), values))
    return sources


_PROGRAM_OPS: tuple[tuple[str, Columns], ...] = (
    ("launch", {}),
    ("kernel", {"threads": 1_000_000, "bytes": 1_000_000, "flops": 1e6}),
    ("gemm", {"m": 512, "n": 512, "k": 512, "dtype": "float32"}),
    ("copy", {"bytes": 1_000_000, "direction": "h2d", "memory": "pageable"}),
    ("copy", {"bytes": 1_000_000, "direction": "h2d", "memory": "pinned"}),
    ("copy", {"bytes": 1_000_000, "direction": "h2d", "memory": "unified"}),
)


def untested(_setting: Setting, _name: str, model: ClaimModel) -> Modelled:
    """Evaluate nothing: no program measures this claim yet."""
    return Modelled(None, f"not modelled yet; to be tested by {model['untested']}")


EVALUATORS: Mapping[str, Evaluator] = {
    f.__name__: f for f in (operation, waited, copied, naive, rate, power, parameter, benchmark, example, untested)
}
"""The evaluators by their word under ``model:``. ``evaluate.Report`` evaluates ``ratio``, which uses other claims."""


def evaluate(setting: Setting, device: str, model: ClaimModel) -> Modelled:
    """Return the modelled value of a claim that is not a ratio; raises InputError for an unknown evaluator."""
    for word, evaluator in EVALUATORS.items():
        if word in model:
            modelled = evaluator(setting, device, model)
            return replace(modelled, circular=tuple(_circular(evaluator, setting, device, model, modelled)))
    raise InputError(f"'{', '.join(model)}' is not a valid evaluator", expected=", ".join(EVALUATORS))


def _circular(
    evaluator: Evaluator, setting: Setting, device: str, model: ClaimModel, modelled: Modelled
) -> Iterator[str]:
    """Return the numbers from the documents whose change by a tenth changes the value by over a thousandth."""
    for name, sourced in modelled.used.items():
        if modelled.value is None or not sourced.reason or not any(word in sourced.reason for word in _OUR_WORDS):
            continue
        changed_value = SourcedValue(sourced.value * 1.1, Provenance.DATASHEET, "changed to find its effect")
        moved = evaluator(_moved(setting, name, changed_value), device, model).value
        if moved is not None and abs(moved / modelled.value - 1.0) > 1e-3:
            yield name.removeprefix("api.")


_OUR_WORDS = ("founding documents", "seeds")
"""The words with which the catalogue marks a number that was assumed from these documents."""


def _moved(setting: Setting, name: str, value: SourcedValue) -> Setting:
    """Return the setting with one number changed, by its name in ``Modelled.used``."""
    where, _, key = name.partition(".")
    if where == "benchmark":
        return replace(setting, facts=replace(setting.facts, **{key: value}))

    def changed(sku: str) -> Device:
        device = setting.device(sku)
        if where == "api":
            return replace(device, api=replace(device.api, values={**device.api.values, key: value}))
        return _with(device, {name: value})

    return replace(setting, device=changed)
