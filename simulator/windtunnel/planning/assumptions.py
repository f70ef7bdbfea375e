"""The assumed inputs of a plan's answer, ranked by how far they move the time of a step.

A fleet rests on many assumed inputs of device models, and most of them hardly matter. Each is moved through its stated
range on a representative step, which takes milliseconds. Those that move it most are then simulated at both ends. The
value of a target at an end is that of one run, where a slightly longer step also changes which requests share one, so
small differences between these values are chance and do not rank the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel.core.results.plan import AssumedInput, Assumptions
from windtunnel.core.results.target import JudgedTarget
from windtunnel.core.step_cost import StepLoad, step_cost
from windtunnel.core.units import to_unit
from windtunnel.engine.prepare.decoding import DecoderCosts
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.planning import evaluation as evaluating
from windtunnel.planning.candidates import Candidates
from windtunnel.planning.evaluation import Evaluation
from windtunnel.planning.simulate import Case

SIMULATED = 5
"""The number of inputs that are simulated, each at both ends of its range."""
_OPERATIONS = {
    "gemm": "matrix products: ", "attention": "attention: ", "latent": "latent attention: ", "moe": "experts: ",
}  # fmt: skip
"""The operation that the first word of a parameter's name stands for."""
_LEAST = 1e-4
"""The relative change of a step below which an input is not simulated."""


@dataclass(frozen=True)
class Screened:
    """An input with its ends, and the relative changes of the time of a representative step there."""

    device: Device
    path: str
    sourced: SourcedValue
    low: float
    high: float

    @property
    def most(self) -> float:
        """The largest relative change."""
        return max(abs(self.low), abs(self.high))


def screen(candidates: Candidates, prepared: PreparedRun, best: Evaluation) -> list[Screened]:
    """Return the assumed inputs of the fleet ``best``, those first that move a representative step most.

    It is empty without decoders, ranges or a binding target. ``prepared`` is the run of the candidates.
    """
    binding = _binding(best)
    if binding is None or binding.value is None:
        return []
    return sorted(_screened(candidates, prepared, best), key=lambda s: (-s.most, s.device.label, s.path))


def cases(best: Evaluation, screened: Sequence[Screened]) -> list[Case]:
    """Return the fleet ``best`` at both ends of the range of each input that is simulated."""
    return [
        Case(best.counts, values=((s.device.label, s.path, float(end)),), intervals=False)
        for s in _chosen(screened)
        for end in (s.sourced.low, s.sourced.high)
        if end is not None
    ]


def assumptions(candidates: Candidates, screened: Sequence[Screened], best: Evaluation) -> Assumptions | None:
    """Return the assumed inputs of the fleet ``best``, ranked; None where none was screened."""
    binding = _binding(best)
    if binding is None or binding.value is None or not screened:
        return None
    chosen = _chosen(screened)
    evaluations = candidates.judge(cases(best, screened))
    rows = [_row(s, binding.text, *evaluations[2 * i : 2 * i + 2]) for i, s in enumerate(chosen)]
    rest = screened[len(chosen) :]
    return Assumptions(
        target=binding.text,
        value=binding.value,
        low=binding.low,
        high=binding.high,
        unit=binding.unit,
        inputs=rows,
        others=len(rest),
        others_step=max((s.most for s in rest), default=0.0),
        simulations=sum(evaluation.runs for evaluation in evaluations),
    )


def _row(screened: Screened, target: str, low: Evaluation, high: Evaluation) -> AssumedInput:
    device, sourced = screened.device, screened.sourced
    name, _, key = screened.path.partition(".")
    parameter = device.kind.parameter(name)
    unit, of = parameter.unit, _OPERATIONS.get(name.partition("_")[0], "")
    return AssumedInput(
        device=device.label,
        parameter=screened.path,
        meaning=f"{of}{parameter.doc}{f' (here: {key})' if key else ''}",
        value=to_unit(sourced.value, unit),
        low=to_unit(sourced.low or 0.0, unit),
        high=to_unit(sourced.high or 0.0, unit),
        unit=unit,
        reason=sourced.reason,
        step_low=screened.low,
        step_high=screened.high,
        value_low=low.target(target).value,
        value_high=high.target(target).value,
        meets=low.meets.value and high.meets.value,
    )


def _binding(best: Evaluation) -> JudgedTarget | None:
    return evaluating.binding(best) or evaluating.binding_time(best)


def _chosen(screened: Sequence[Screened]) -> Sequence[Screened]:
    """Return the inputs that are simulated."""
    return [s for s in screened[:SIMULATED] if s.most >= _LEAST]


def _screened(candidates: Candidates, prepared: PreparedRun, best: Evaluation) -> Iterator[Screened]:
    """Yield each assumed input of the devices of ``best`` that generate tokens."""
    done: set[tuple[str, str]] = set()
    for (number, _), program in sorted(prepared.compiled.items()):
        costs = program.decoder
        if not best.counts[number] or costs is None:
            continue
        device, load = candidates.devices[number], _representative(costs, program.prompts, program.outputs)
        usual = _duration_s(costs, device, load)
        for path, sourced in sorted(costs.sources.items()):
            if (device.label, path) in done or not _varies(device, path, sourced):
                continue
            done.add((device.label, path))
            low, high = (
                _duration_s(costs, replace(device, values={**device.values, path: sourced.at(end)}), load) / usual - 1
                for end in (sourced.low, sourced.high)
                if end is not None
            )
            yield Screened(device, path, sourced, low, high)


def _varies(device: Device, path: str, sourced: SourcedValue) -> bool:
    """Return whether an input is assumed, and has a range that can be varied."""
    if sourced.provenance is not Provenance.ASSUMED or sourced.low is None or sourced.high is None:
        return False
    return path in device.values and sourced.low < sourced.high


def _representative(costs: DecoderCosts, prompts: np.ndarray | None, outputs: np.ndarray | None) -> StepLoad:
    """Return two steps: one that decodes at the mean context, and one that also has the tokens of a prompt."""
    prompt = 512.0 if prompts is None else float(prompts.mean())
    output = 64.0 if outputs is None else float(outputs.mean())
    sequences = max(1.0, float(min(32, costs.largest.sequences)))
    chunk = float(min(prompt, costs.largest.tokens - sequences if costs.largest.tokens > sequences else 1.0))
    decode, context = np.full(2, sequences), np.full(2, prompt + output / 2)
    return StepLoad(decode, context, np.array([0.0, max(chunk, 1.0)]), np.zeros(2))


def _duration_s(costs: DecoderCosts, device: Device, load: StepLoad) -> float:
    cost = step_cost(device, costs.divided, load, costs.context, intervals=False)
    return float(cost.duration_s.sum())
