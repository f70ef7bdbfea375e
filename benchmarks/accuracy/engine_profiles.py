"""Fits the profiles of serving engines to published serving campaigns, with whole configurations held back.

    python benchmarks/accuracy/engine_profiles.py ../shared/truth OUT.md

It writes the fitted numbers into the files of ``windtunnel_models.engines``, below the line ``FITTED``, and a report.
A configuration is one model on one group of one device with one engine and one format. The script needs the package's
two source roots on the path.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from serving_steps import FORMATS, GROUP, rows

import windtunnel
from windtunnel.core.errors import InputError
from windtunnel.core.group import Group
from windtunnel.core.step import EngineTimes
from windtunnel.library.closed_loop import ClosedLoop, LoopTimes, errors, loop_times
from windtunnel.library.steps import StepPricing
from windtunnel_models.campaigns import published_cache, published_formats
from windtunnel_models.engines import EXPERTS, FOLDER, OTHER
from windtunnel_models.engines.fit import EngineFit, fit_times

MARK = "  # FITTED by benchmarks/accuracy/engine_profiles.py; do not edit below this line.\n"
MOST_LOAD = 1.5
"""Rows whose prompts would keep the group busy for more than 1.5 times the whole time are suspect: their prompts were
in a prefix cache, or the rates are wrong (the source's README)."""
MOST_WAITING = 1.0
"""The formula has all users decode in every step. In rows where a request waits for its first token for longer than it
decodes, most of them do not."""
WIDER = 1.3
"""The exponent of the factor of the intervals: a simulation differs from the formula by some percent."""
LARGEST_GROUP = 8
"""Devices of the largest group; exchanges between nodes are those of one other system."""


@dataclass(frozen=True)
class Row:
    """A measured closed loop: its operations, and the measured time per output token (s)."""

    times: LoopTimes
    tpot_s: float
    experts: bool

    @property
    def engine(self) -> str:
        """The serving engine."""
        return self.times.loop.engine

    @property
    def key(self) -> str:
        """The key of its numbers in a profile."""
        return self.times.key


def loop_of(row: Mapping[str, str]) -> ClosedLoop:
    """Return the closed loop of a row."""
    name = row["model"].rsplit("/", 1)[-1].lower()
    linear = FORMATS.get(row["gemm_dtype"], row["gemm_dtype"])
    experts = FORMATS.get(row["expert_dtype"], row["expert_dtype"]) if row["expert_dtype"] else linear
    counts = [int(float(row[key] or 1) or 1) for key in GROUP]
    weights = published_formats(name, f"{linear}/{experts}")
    return ClosedLoop(
        row["engine"],
        name,
        row["sku"],
        Group(*counts),
        weights,
        published_cache(weights, ""),
        *(float(row[key]) for key in ("users", "prompt_tokens", "output_tokens")),
    )


def read(truth: Path) -> tuple[list[Row], dict[str, int]]:
    """Return the rows on at most eight devices, and the number of those left out by reason."""
    pricing: dict[str, StepPricing] = {}
    found, left = [], defaultdict(int)
    for row in rows(truth / "serving.csv.gz"):
        loop = loop_of(row)
        if loop.group.devices > LARGEST_GROUP:
            left["more than eight devices"] += 1
            continue
        if loop.sku not in pricing:
            pricing[loop.sku] = StepPricing(windtunnel.catalogue().device(loop.sku))
        try:
            (times,) = loop_times([loop], pricing[loop.sku])
        except InputError as error:
            left[error.problem] += 1
            continue
        tpot_s = float(row["tpot_s"])
        first_s, decoding_s = float(row["ttft_s"] or 0.0), tpot_s * (loop.output - 1.0)
        e2e_s = first_s + decoding_s
        if first_s > MOST_WAITING * decoding_s:
            left["users that mostly wait for a first token"] += 1
            continue
        if loop.users / e2e_s * sum(times.prompts_s) > MOST_LOAD:
            left["more prompts than the group can read"] += 1
            continue
        found.append(Row(times, tpot_s, times.key == EXPERTS))
    return found, left


def log_errors(members: Sequence[Row], times: EngineTimes) -> np.ndarray:
    """Return the logarithms of modelled over measured times; shape (rows,)."""
    return errors([row.times for row in members], [row.tpot_s for row in members], times)


def fit(members: Sequence[Row]) -> EngineFit:
    """Return the numbers of an engine that explain rows best."""
    return fit_times(lambda times: log_errors(members, times), EngineTimes(), np.ones(len(members)))


def held_out(members: Sequence[Row], fitted: bool = True, *, by_sku: bool = False) -> np.ndarray:
    """Return the errors of each row, as logarithms, by a fit to the other configurations, or to the other SKUs."""
    out = np.empty(len(members))
    groups = defaultdict(list)
    for place, row in enumerate(members):
        groups[row.times.loop.sku if by_sku else row.times.loop.configuration].append(place)
    for places in groups.values():
        others = [row for place, row in enumerate(members) if place not in set(places)]
        times = fit(others).times if fitted and others else EngineTimes()
        out[places] = log_errors([members[place] for place in places], times)
    return out


def mape(logs: np.ndarray) -> float:
    """Return the mean absolute relative error."""
    return float(np.abs(np.exp(logs) - 1.0).mean())


@dataclass(frozen=True)
class Result:
    """The fit of one engine and key: its rows, the errors before and held out, and whether the fit is used."""

    engine: str
    key: str
    members: list[Row]
    before: np.ndarray
    after: np.ndarray

    @property
    def used(self) -> bool:
        """Whether the fit helped on configurations that it had not seen; otherwise factors of 1 and no host time."""
        return mape(self.after) < mape(self.before)

    @property
    def held_out(self) -> np.ndarray:
        """The errors of configurations held back, with the numbers that are used."""
        return self.after if self.used else self.before


def results(rows_: Sequence[Row]) -> list[Result]:
    """Return the fits of every engine and key."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows_:
        groups[row.engine, row.key].append(row)
        if not row.experts:
            groups[row.engine, OTHER].append(row)
    found = []
    for (engine, key), members in sorted(groups.items()):
        # The numbers for other dies are judged on a die that their fit has not seen.
        by_sku = key == OTHER and len({row.times.loop.sku for row in members}) > 1
        found.append(Result(engine, key, members, held_out(members, fitted=False), held_out(members, by_sku=by_sku)))
    return found


def across(found: Sequence[Row], experts: bool) -> list[tuple[str, str, str, np.ndarray, np.ndarray]]:
    """Return what fits to the rows of one SKU predict for another: engine, SKUs, errors before and after."""
    out = []
    members = [row for row in found if row.experts == experts]
    for engine in sorted({row.engine for row in members}):
        skus = sorted({row.times.loop.sku for row in members if row.engine == engine})
        for a in skus:
            for b in skus:
                if a == b:
                    continue
                train, test = (
                    [row for row in members if row.engine == engine and row.times.loop.sku == sku] for sku in (a, b)
                )
                out.append((engine, a, b, log_errors(test, EngineTimes()), log_errors(test, fit(train).times)))
    return out


def quantile(logs: np.ndarray) -> float:
    """Return the factor within which 90% of errors lie."""
    return float(np.exp(np.quantile(np.abs(logs), 0.9)))


def yaml_block(
    engine: str, found: Sequence[Result], unseen: Callable[[bool], float], pooled: Callable[[bool], float]
) -> str:
    """Return the fitted numbers of an engine as the end of its file."""
    mine = [result for result in found if result.engine == engine]
    tables: dict[str, list[str]] = defaultdict(list)
    for result in mine:
        fitted = fit(result.members) if result.used else fit_times(lambda _: np.zeros(0), EngineTimes(), np.ones(0))
        rows_of = f"{len(result.members)} rows"
        for name, number in fitted.numbers.items():
            unit = " s" if name.endswith("_s") else ""
            value = 0.0 if unit and number.value < 1e-7 else number.value
            low, high = min(number.low, value), max(number.high, value)
            if result.used:
                text = f"{{value: {value:.4g}{unit}, source: campaigns, low: {low:.4g}{unit}, high: {high:.4g}{unit}}}"
            else:
                text = (
                    f"{{value: {value:.4g}{unit}, provenance: assumed, low: {low:.4g}{unit}, high: {high:.4g}{unit}, "
                    f'reason: "a fit to {rows_of} did not lower the error of configurations held back"}}'
                )
            tables[name].append(f"    {result.key}: {text}")
        experts = result.key == EXPERTS
        several = len({row.times.loop.configuration for row in result.members}) > 2
        own = (quantile(result.held_out) if several else pooled(experts)) ** WIDER
        wide = max(unseen(experts), own)
        tables["error"].append(f"    {result.key}: {{value: {max(own, 1.05):.3f}, source: held_back}}")
        tables["unseen_error"].append(f"    {result.key}: {{value: {wide:.3f}, source: held_back}}")
    lines = [MARK]
    for name, entries in tables.items():
        lines.append(f"  {name}:\n" + "\n".join(entries) + "\n")
    skus = {
        result.key: sorted({row.times.loop.sku for row in result.members}) for result in mine if result.key != OTHER
    }
    lines.append("fitted: {" + ", ".join(f"{key}: [{', '.join(names)}]" for key, names in skus.items()) + "}\n")
    return "".join(lines)


HEAD = """# Profiles of serving engines

Generated by `benchmarks/accuracy/engine_profiles.py` from published serving campaigns
(ai-dynamo/aiconfigurator@095f58a, Apache-2.0) on H100 and B200. The profile of an engine has five numbers for each die,
and five for all mixtures of experts: factors on the time of operations in steps that decode and in steps that read
prompts, the least time of a layer in a step with a prompt, and time of the host in a step and for a sequence. The
factors are regularised towards 1 and the times towards 0.

`before` is the error without a profile: the operations alone. `held back` is that of a fit to all other configurations
of the same engine and die, and for `other`, which serves further dies, to the other die. A configuration is one model
in one format on one group of one device. A fit that does not lower that error is not used; then the profile has factors
of 1 and no time. Time per output token is that of a closed loop: all users decode in every step with the mean context,
and prompts are spread over the time, or for SGLang are read in steps of their own. Lengths, and formats of KV caches
that the campaigns do not tell, are those of `windtunnel_models/campaigns.py`.

One campaign has rows with speculative decoding that nothing tells apart in this table: the 17 rows of TensorRT-LLM
1.2.0rc6.post3 with DeepSeek-R1 on up to eight B200 take half the time of version rc6.post2 with few users, and its
scripts use that version for multi-token prediction alone. They are part of all figures here.
"""


def coverage(found: Sequence[Result]) -> float:
    """Return the share of rows whose error lies within the factor that the engine's other keys, or others, have."""
    inside = total = 0
    for result in found:
        if result.key == OTHER:
            continue
        configurations = [row.times.loop.configuration for row in result.members]
        for configuration in set(configurations):
            mine = np.array([c == configuration for c in configurations])
            rest = result.held_out[~mine]
            bound = np.quantile(np.abs(rest), 0.9) if rest.size else np.log(1.4)
            inside += int((np.abs(result.held_out[mine]) <= bound).sum())
            total += int(mine.sum())
    return inside / total


def report(found: Sequence[Result], every: Sequence[Row], left: Mapping[str, int]) -> str:
    """Return the report."""
    text = [HEAD, "| engine | key | rows | configurations | before | held back | used |"]
    text.append("|---|---|---|---|---|---|---|")
    for result in found:
        count = len({row.times.loop.configuration for row in result.members})
        text.append(
            f"| {result.engine} | {result.key} | {len(result.members)} | {count} | {mape(result.before):.1%} | "
            f"{mape(result.after):.1%} | {'yes' if result.used else 'no'} |"
        )
    for title, experts in (("Dense", False), ("Mixtures of experts", True)):
        some = [r for r in found if (r.key == EXPERTS) == experts and r.key != OTHER]
        before, after = (np.concatenate([getattr(r, name) for r in some]) for name in ("before", "held_out"))
        text += ["", f"**{title}**: {mape(before):.1%} before, **{mape(after):.1%}** held back ({len(after)} rows)."]
    text += [
        "",
        "The 90% interval of the other configurations of an engine and die holds "
        f"{coverage(found):.0%} of the rows held back.",
        "Profiles have its factor to the power of 1.3, because a simulation differs from the formula.",
        "",
    ]
    text += ["## By SKU and format, held back", "", "| engine | SKU | weights | rows | before | held back |"]
    text.append("|---|---|---|---|---|---|")
    cells: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for result in found:
        if result.key == OTHER:
            continue
        for row, before, after in zip(result.members, result.before, result.held_out, strict=True):
            loop = row.times.loop
            kind = ("experts " if row.experts else "") + (loop.weights or "own")
            cells[loop.engine, loop.sku, kind].append((before, after))
    for (engine, sku, kind), pairs in sorted(cells.items()):
        both = np.array(pairs)
        text.append(f"| {engine} | {sku} | {kind} | {len(both)} | {mape(both[:, 0]):.1%} | {mape(both[:, 1]):.1%} |")
    text += ["", "## From one die to another", "", "A fit to one SKU predicts another.", ""]
    text += ["| engine | decoders | fitted to | predicts | rows | before | after |", "|---|---|---|---|---|---|---|"]
    for experts in (False, True):
        for engine, a, b, before, after in across(every, experts):
            kind = "experts" if experts else "dense"
            text.append(f"| {engine} | {kind} | {a} | {b} | {len(after)} | {mape(before):.1%} | {mape(after):.1%} |")
    text += ["", "So a profile does not move to another die, and other dies have a wider interval.", ""]
    text += ["## Left out", ""]
    text += [f"- {count} rows: {reason}" for reason, count in sorted(left.items(), key=lambda item: -item[1])]
    return "\n".join(text) + "\n"


def main(truth: Path, out: Path) -> None:
    """Fit, and write the profiles and the report."""
    every, left = read(truth)
    found = results(every)

    def unseen(experts: bool) -> float:
        logs = [after for *_, after in across(every, experts)]
        return quantile(np.concatenate(logs))

    def pooled(experts: bool) -> float:
        return quantile(np.concatenate([r.held_out for r in found if (r.key == EXPERTS) == experts]))

    for engine in sorted({result.engine for result in found}):
        path = FOLDER / f"{engine}.yaml"
        fixed = path.read_text().partition(MARK)[0]
        path.write_text(fixed + yaml_block(engine, found, unseen, pooled))
    out.write_text(report(found, every, left))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
