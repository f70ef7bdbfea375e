"""Compares steps of decoders on groups of devices with the time per output token of published serving campaigns.

    python benchmarks/accuracy/serving_steps.py ../shared/truth OUT.md

Nothing is fitted here: the steps are priced by the models of their operations. The measured times contain the engine
(its host time, its scheduling of prompts and its kernels), so the errors show what a profile of an engine has to
explain. The script needs the package's two source roots on the path.
"""

from __future__ import annotations

import csv
import gzip
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import windtunnel
from windtunnel.core.errors import InputError
from windtunnel.core.ops import one_row
from windtunnel.core.step_op import Step
from windtunnel.library.steps import StepPricing
from windtunnel_models.models import known_architecture

BUDGET = 8192.0
"""Tokens of a prompt in one step, a usual limit; the campaigns do not state it."""

LONGEST_TTFT_S = 20.0
"""Rows with a later first token are suspect (the source's README)."""

FORMATS = {"": "bfloat16", "int4_wo": "int4"}
GROUP = ("tensor", "pipeline", "attention_data", "expert")


@dataclass(frozen=True)
class Measured:
    """One configuration: the columns of its steps, and the measured and modelled time per output token (s)."""

    engine: str
    sku: str
    weights: str
    experts: bool
    devices: int
    users: float
    measured_s: float
    modelled_s: float

    @property
    def error(self) -> float:
        return self.modelled_s / self.measured_s - 1.0


def rows(path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of engines that decode and read prompts on the same devices, each once."""
    seen = set()
    with gzip.open(path, "rt") as file:
        for row in csv.DictReader(file):
            key = tuple(row.values())
            usable = row["mode"] == "agg" and row["users"] and row["tpot_s"]
            if usable and key not in seen and not float(row["ttft_s"] or 0.0) > LONGEST_TTFT_S:
                seen.add(key)
                yield row


def measured(row: dict[str, str], pricing: dict[str, StepPricing]) -> Measured:
    """Return a row with the modelled time per output token.

    In a closed loop of u users whose requests produce o tokens, u / o prompts start in each step on average. A prompt
    is read in chunks of at most ``BUDGET`` tokens, in steps in which all users decode. Raises InputError for
    configurations that the models refuse.
    """
    name = row["model"].rsplit("/", 1)[-1].lower()
    users, prompt, output = (float(row[key]) for key in ("users", "prompt_tokens", "output_tokens"))
    linear = FORMATS.get(row["gemm_dtype"], row["gemm_dtype"])
    experts = FORMATS.get(row["expert_dtype"], row["expert_dtype"]) if row["expert_dtype"] else linear
    group = {key: int(float(row[key] or 1) or 1) for key in GROUP}
    fixed = {
        "model": name,
        "weights": f"{linear}/{experts}",
        "engine": row["engine"],
        "decode": users,
        "context": prompt + output / 2.0,
        **group,
    }
    chunks = int(np.ceil(prompt / BUDGET))
    size = round(prompt / chunks)
    loads = [{}, *({"prefill": size, "prefill_context": size * place} for place in range(chunks))]
    if row["sku"] not in pricing:
        pricing[row["sku"]] = StepPricing(windtunnel.catalogue().device(row["sku"]))
    costs = pricing[row["sku"]].costs([one_row(Step, {**fixed, **load}) for load in loads], intervals=False)
    decode_s, *with_prompt_s = (float(cost.duration_s[0]) for cost in costs)
    modelled_s = decode_s + users / output * sum(seconds - decode_s for seconds in with_prompt_s)
    return Measured(
        engine=row["engine"],
        sku=row["sku"],
        weights=linear if linear == experts else f"{linear}/{experts}",
        experts=any(layers.experts is not None for layers in known_architecture(name).layers),
        devices=group["tensor"] * group["pipeline"] * group["attention_data"],
        users=users,
        measured_s=float(row["tpot_s"]),
        modelled_s=modelled_s,
    )


def lines(found: Sequence[Measured], keys: Iterable[str]) -> Iterator[str]:
    """Yield a line of a table for each combination of the fields ``keys``."""
    keys = tuple(keys)
    groups: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for row in found:
        groups[tuple(getattr(row, key) for key in keys)].append(row.error)
    for group, errors in sorted(groups.items(), key=lambda item: tuple(map(str, item[0]))):
        e = np.array(errors)
        cells = [*map(str, group), str(len(e)), f"**{np.abs(e).mean():.1%}**", f"{np.median(np.abs(e)):.1%}"]
        yield "| " + " | ".join([*cells, f"{e.mean():+.1%}", f"{np.median(e):+.1%}"]) + " |"


def table(found: Sequence[Measured], keys: Sequence[str]) -> list[str]:
    """Return a Markdown table of the errors by the fields ``keys``."""
    header = [*keys, "rows", "MAPE", "median", "bias", "median bias"]
    return ["| " + " | ".join(header) + " |", "|" + "---|" * len(header), *lines(found, keys)]


HEAD = """# Steps: decoders on groups of devices

Generated by `benchmarks/accuracy/serving_steps.py` from published serving campaigns
(ai-dynamo/aiconfigurator@095f58a, Apache-2.0). **Nothing was fitted to these rows.** The steps are priced by the
models of their operations, and the time per output token is that of steps in which all users decode, with the chunks
of their prompts. The measured times contain the engine: its host time, its scheduling, its kernels. Profiles of
engines are not modelled yet, except whose all-reduce is used and whether it also normalises.

The campaigns state neither the format of the KV cache (here 16 bits) nor the token budget (here 8,192), nor whether
prompts were in a prefix cache. Rows whose first token took more than 20 s are left out, and duplicates are counted
once. Two engines differ by 17% in the same configuration, and two versions of one engine by 11 to 18%.

`MAPE`, `median`: absolute percentage error. `bias`: modelled over measured, minus one.
"""


def main(truth: Path, out: Path) -> None:
    """Write the tables."""
    pricing: dict[str, StepPricing] = {}
    found, refused = [], defaultdict(int)
    for row in rows(truth / "serving.csv.gz"):
        try:
            found.append(measured(row, pricing))
        except InputError as error:
            refused[error.problem] += 1
    dense = [row for row in found if not row.experts and row.devices <= 8]
    mixed = [row for row in found if row.experts and row.devices <= 8]
    wide = [row for row in found if row.devices > 8]
    text = [HEAD, "## Dense models, one to eight devices", ""]
    text += table(dense, ("engine", "sku", "weights"))
    text += ["", "By the devices of a group:", "", *table(dense, ("sku", "devices"))]
    text += ["", "## Mixtures of experts, one to eight devices", "", *table(mixed, ("engine", "sku", "weights"))]
    text += ["", "## More than eight devices", "", "Collectives between nodes are those of one other system.", ""]
    text += [*table(wide, ("engine", "sku")), "", "## Refused", ""]
    text += [f"- {count} rows: {problem}" for problem, count in sorted(refused.items(), key=lambda item: -item[1])]
    out.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
