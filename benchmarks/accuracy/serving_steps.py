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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import windtunnel
from windtunnel.core.errors import InputError
from windtunnel.core.ops import one_row
from windtunnel.core.serving_engine import ENGINE_NAMES
from windtunnel.core.step_op import Step
from windtunnel.library.steps import StepPricing
from windtunnel_models.engines import serving_engine
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
    spread_s: float
    waves_s: float

    def error(self, field: str) -> float:
        """Return the signed relative error of one of the two modelled times."""
        return float(getattr(self, field)) / self.measured_s - 1.0


def rows(path: Path, mode: str = "agg") -> Iterator[dict[str, str]]:
    """Yield the rows of engines that decode and read prompts on the same devices, or on others (disagg), each once."""
    seen = set()
    with gzip.open(path, "rt") as file:
        for row in csv.DictReader(file):
            key = tuple(row.values())
            usable = row["mode"] == mode and row["users"] and row["tpot_s"]
            if usable and key not in seen and not float(row["ttft_s"] or 0.0) > LONGEST_TTFT_S:
                seen.add(key)
                yield row


def measured(row: dict[str, str], pricing: dict[str, StepPricing]) -> Measured:
    """Return a row with the modelled times per output token.

    In a closed loop of u users whose requests produce o tokens, u / o prompts start in each step on average. A prompt
    is read in chunks of at most ``BUDGET`` tokens. If the prompts are spread over the time, a chunk delays all users,
    who decode in the same steps. If all users begin at once and stay together, as equal requests do, a user waits for
    half of the other prompts after the own first token. Raises InputError for configurations that the models refuse.
    """
    name = row["model"].rsplit("/", 1)[-1].lower()
    users, prompt, output = (float(row[key]) for key in ("users", "prompt_tokens", "output_tokens"))
    linear = FORMATS.get(row["gemm_dtype"], row["gemm_dtype"])
    experts = FORMATS.get(row["expert_dtype"], row["expert_dtype"]) if row["expert_dtype"] else linear
    own = known_architecture(name).weights
    if own.experts == "mxfp4":
        # The source calls every 4-bit float nvfp4. Of gpt-oss only a checkpoint in MXFP4 is published.
        linear, experts = own.linear, own.experts
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
    prompts = [{"prefill": size, "prefill_context": size * place} for place in range(chunks)]
    loads = [{}, *prompts, *({**prompt, "decode": 0, "context": 0} for prompt in prompts)]
    if row["sku"] not in pricing:
        bare = {name: replace(serving_engine(name), values={}) for name in ENGINE_NAMES}
        pricing[row["sku"]] = StepPricing(windtunnel.catalogue().device(row["sku"]), bare)
    costs = pricing[row["sku"]].costs([one_row(Step, {**fixed, **load}) for load in loads], intervals=False)
    decode_s, *others_s = (float(cost.duration_s[0]) for cost in costs)
    spread_s = decode_s + users / output * sum(seconds - decode_s for seconds in others_s[:chunks])
    waves_s = decode_s + 0.5 * users / output * sum(others_s[chunks:])
    return Measured(
        engine=row["engine"],
        sku=row["sku"],
        weights=linear if linear == experts else f"{linear}/{experts}",
        experts=any(layers.experts is not None for layers in known_architecture(name).layers),
        devices=group["tensor"] * group["pipeline"] * group["attention_data"],
        users=users,
        measured_s=float(row["tpot_s"]),
        spread_s=spread_s,
        waves_s=waves_s,
    )


def lines(found: Sequence[Measured], keys: Sequence[str]) -> Iterator[str]:
    """Yield a line of a table for each combination of the fields ``keys``."""
    groups: dict[tuple[str, ...], list[Measured]] = defaultdict(list)
    for row in found:
        groups[tuple(str(getattr(row, key)) for key in keys)].append(row)
    for group, members in sorted(groups.items()):
        cells = [*group, str(len(members))]
        for field in ("spread_s", "waves_s"):
            e = np.array([row.error(field) for row in members])
            cells += [f"**{np.abs(e).mean():.1%}**", f"{e.mean():+.1%}", f"{np.median(e):+.1%}"]
        yield "| " + " | ".join(cells) + " |"


def table(found: Sequence[Measured], keys: Sequence[str]) -> list[str]:
    """Return a Markdown table of the errors by the fields ``keys``."""
    kinds = [f"{kind}: {of}" for kind in ("spread", "waves") for of in ("MAPE", "bias", "median")]
    header = [*keys, "rows", *kinds]
    return ["| " + " | ".join(header) + " |", "|" + "---|" * len(header), *lines(found, keys)]


HEAD = """# Steps: decoders on groups of devices

Generated by `benchmarks/accuracy/serving_steps.py` from published serving campaigns
(ai-dynamo/aiconfigurator@095f58a, Apache-2.0). **Nothing was fitted to these rows.** The steps are priced by the
models of their operations, and the time per output token is that of steps in which all users decode, with the chunks
of their prompts. The measured times contain the engine: its host time, its scheduling, its kernels. Of the profiles of
engines only is used whose all-reduce it is and whether it also normalises; engine_profiles.md has the errors with them.

The campaigns state neither the format of the KV cache (here 16 bits) nor the token budget (here 8,192), nor whether
prompts were in a prefix cache. Rows whose first token took more than 20 s are left out, and duplicates are counted
once. Two engines differ by 17% in the same configuration, and two versions of one engine by 11 to 18%.
Rows of gpt-oss, whose format the source calls nvfp4, are priced in its only published format, MXFP4 experts.

`spread` is the time of an output token if prompts are spread over the time, so that each chunk delays all users.
`waves` is the time if all users begin together and requests of one length keep them together: then a user waits for
half of the others' prompts. The campaigns have fixed numbers of users and one length of prompts, so both occur, by
the engine's scheduling: the dense rows of SGLang agree with waves, those of vLLM and TensorRT-LLM on H100 with spread
prompts.

`MAPE`: mean absolute percentage error. `bias`: mean of modelled over measured, minus one. `median`: its median.
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
    text += table(wide, ("engine", "sku"))
    text += ["", "## Refused", ""] if refused else []
    text += [f"- {count} rows: {problem}" for problem, count in sorted(refused.items(), key=lambda item: -item[1])]
    out.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
