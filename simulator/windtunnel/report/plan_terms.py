"""The terms that a plan uses in its first lines, each defined in one clause."""

from __future__ import annotations

import re
from collections.abc import Iterator

from windtunnel.core.results.plan import PlanResult
from windtunnel.report.run_text import MEANINGS, METRICS

_VALUES = {
    "tensor": "tensor N: a replica of the model is divided over N devices, all of which work on each layer",
    "pipeline": "pipeline N: the layers of a replica are divided over N parts, which work one after the other",
    "attention_data": "attention_data N: N parts of a replica compute the attention of different requests",
    "tokens": "tokens N: one step of the engine has at most N tokens (prompts and outputs together)",
    "size": "size N: at most N requests are in a batch",
    "policy": "policy: the rule by which a request goes to a replica",
    "weights": "weights: the number format of the model's weights",
    "kv_dtype": "kv_dtype: the number format of the keys and values that the engine keeps of each request",
}
"""What stands beside a device in the text of a fleet, by the last part of its path in the scenario."""
NAMES = {
    "tensor": "tensor parallelism",
    "pipeline": "pipeline parallelism",
    "attention_data": "data parallelism of the attention",
    "expert": "expert parallelism",
    "tokens": "tokens in a step at most",
    "size": "requests in a batch at most",
    "weights": "number format of the weights",
    "kv_dtype": "number format of the KV cache",
    "engine": "serving engine",
    "name": "policy",
    "policy": "policy",
}
"""What the last part of a path in the scenario sets, in words."""
_PERCENTILE = re.compile(r"p(\d+(?:\.\d+)?)")


def terms(plan: PlanResult) -> str:
    """Return the definitions of the metrics of the targets, and of the words in the names of the listed fleets."""
    return ". ".join(text[0].upper() + text[1:] if text[:1] == "a" else text for text in _terms(plan)) + "."


def in_words(path: str, value: object) -> str:
    """Return the setting of a key of the scenario in words, with its path where the words alone do not name it."""
    name = NAMES.get(path.rpartition(".")[2])
    return f"{path} {value}" if name is None else f"{name}: {value}"


def _terms(plan: PlanResult) -> Iterator[str]:
    targets = plan.fleets[plan.recommended].targets
    for metric in dict.fromkeys(target.metric for target in targets):
        if metric in METRICS:
            yield f"{METRICS[metric]}: {MEANINGS[metric]}"
    for statistic in dict.fromkeys(target.statistic for target in targets):
        if statistic and (found := _PERCENTILE.fullmatch(statistic)):
            yield f"{statistic}: {found[1]}% of the values are at most this"
    yield "by value: the simulated value is within the limit"
    yield f"with {plan.confidence * 100:.3g}% confidence: its confidence interval (CI) is within the limit too"
    yield "headroom: the distance from the worse bound of that interval to the limit, as a share of the limit"
    if any(target.interval_source == "run" and target.interval_runs for target in targets):
        yield "more runs: those with other arrivals of the same kind, from which the interval comes"
    names = {
        word
        for fleet in (plan.fleets[i] for i in plan.listed)
        for word in fleet.text.replace(";", " ").replace(",", " ").split()
    }
    for key, meaning in _VALUES.items():
        if key in names:
            yield meaning
