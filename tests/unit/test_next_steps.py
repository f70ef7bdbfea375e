"""What a run suggests follows from its own numbers, in at most two sentences, and stands directly after the verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.test_summary import RESULT, device, target, times

import windtunnel
from windtunnel.core.results.run import CostPerMillion, RunResult, Serving
from windtunnel.core.results.target import TargetVerdict
from windtunnel.core.results.use import EntryUse
from windtunnel.report import run_page
from windtunnel.report.next_steps import next_steps
from windtunnel.report.summary import summary
from windtunnel.scenario.read import scenario_from_data

SCENARIO: dict[str, Any] = {
    "fleet": [{"device": "l4", "batch": None}, {"device": "h100-sxm-80gb", "batch": {"tokens": 512, "size": None}}],
    "models": {"chat": {"weights": None, "kv_dtype": None}},
    "policy": {"batch": {"size": 64, "tokens": 2048, "memory": 0.9}},
}
TTFT, ITL = target("ttft p99 <= 1 s", 2.0, 1.0, False), target("itl p99 <= 10 ms", 30.0, 10.0, False, "ms")


def use(entry: str, sequences: float = 5.0, peak: float = 0.5, mean: float = 0.3) -> EntryUse:
    return EntryUse(entry, 0.9, sequences, mean, peak)


def served(*targets: TargetVerdict, waiting_s: float = 0.01, uses: Any = (), **serving: Any) -> RunResult:
    """A run with TTFT p99 of 3 s and a gap of 20 ms whose p99 is 60 ms, on an L4 and an H100."""
    named = [replace(t, statistic=t.text.split()[1] if t.text.split()[1].startswith("p") else None) for t in targets]
    return replace(
        RESULT,
        scenario=SCENARIO,
        targets=named,
        waiting_s=times(waiting_s),
        devices=[device("a", "l4", 0.5), device("b", "h100-sxm-80gb", 0.9)],
        serving=Serving(
            **{
                "ttft_s": times(1.0),
                "itl_s": times(0.02),
                "input_tokens_per_s": 6661.0,
                "entries": list(uses) or [use("l4", peak=0.2), use("h100-sxm-80gb")],
                "cost_per_million_usd": CostPerMillion(1.0, 2.5, 0.5),
                **serving,
            }
        ),
    )


def test_waiting_for_a_full_kv_cache_names_memory_format_and_number() -> None:
    full = [use("l4", peak=1.0), use("h100-sxm-80gb")]
    (why, plan) = next_steps(served(TTFT, waiting_s=0.9, uses=full, preemptions=3))
    assert "90.0% of it is waiting" in why and "the KV cache of l4 is full (100% at its peak, 3 preemptions)" in why
    assert "fleet[0].count, models.chat.kv_dtype=fp8, policy.batch.memory" in why
    assert plan == "`windtunnel plan` finds the cheapest fleet that meets the targets"


def test_waiting_for_full_batches_names_their_size() -> None:
    (why, _) = next_steps(served(TTFT, waiting_s=0.9, uses=[use("h100-sxm-80gb", sequences=63.0)]))
    assert "the batches of h100-sxm-80gb are full (64 sequences): policy.batch.size or fleet[1].count" in why


def test_waiting_with_room_in_batches_and_cache_is_for_the_tokens_of_a_step() -> None:
    (why, _) = next_steps(served(TTFT, waiting_s=0.9))
    # The entry's own limit is the one that holds.
    assert "prompts wait for room in the steps of h100-sxm-80gb: fleet[1].batch.tokens or fleet[1].count" in why


def test_waiting_without_continuous_batches_names_them() -> None:
    alone = replace(served(TTFT, waiting_s=0.9, uses=[EntryUse("l4", 0.9, 0.9, None, None)]))
    (why, _) = next_steps(replace(alone, scenario={**SCENARIO, "policy": "fifo"}))
    assert "one request at a time: policy.batch={kind: continuous} or fleet[0].count" in why


def test_a_first_token_that_hardly_waits_is_bound_by_the_prompt() -> None:
    (why, _) = next_steps(served(TTFT))
    assert "prompts of 1,000 tokens on average take several steps of 512: fleet[1].batch.tokens" in why
    (why, _) = next_steps(served(TTFT, input_tokens_per_s=666.1))
    assert "reading the prompt takes it, not the queue: fleet[1].group.tensor or models.chat.weights=fp8" in why


def test_gaps_far_above_their_median_are_steps_that_read_prompts() -> None:
    (why, _) = next_steps(served(ITL))
    assert "take 3.75 times as long as most: less than 512 tokens in a step (fleet[1].batch.tokens)" in why
    even = times(0.02)
    even = replace(even, p99=replace(even.p50, value=1.2 * (even.p50.value or 0.0)))
    (why, _) = next_steps(served(ITL, itl_s=even))
    assert "most steps take this long" in why and "policy.batch.size" not in why
    (why, _) = next_steps(served(ITL, itl_s=even, uses=[use("l4", sequences=50.0)]))
    assert "fewer sequences in a step (policy.batch.size) or fleet[0].group.tensor" in why


def test_attainment_is_explained_by_the_target_that_most_requests_miss() -> None:
    share = target("slo_attainment >= 95 %", 0.5, 0.95, False, "1", ">=")
    met = target("tpot p99 <= 1 s", 0.06, 1.0, True)
    (why, _) = next_steps(served(share, TTFT, met, waiting_s=0.9, tpot_s=times(0.02)))
    assert why.startswith("slo_attainment ≥ 95 %: most requests that fail it miss ttft p99 ≤ 1 s")


def test_a_load_above_the_capacity_says_how_much_the_fleet_takes() -> None:
    overloaded = replace(RESULT.statistics, offered_load=1.25, steady_state="unstable", steady_state_reason="x")
    (why, plan) = next_steps(replace(served(TTFT), statistics=overloaded))
    assert "the load is 125% of what the fleet can do: reduce it to at most 80.0%, or have" in why
    assert "1.25 times as many devices (fleet[1].count)" in why and "plan" in plan
    grows = replace(RESULT.statistics, steady_state="unstable", steady_state_reason="x")
    (why, _) = next_steps(replace(served(TTFT), statistics=grows))
    assert "the fleet completes 6.66 jobs/s and more arrive" in why


def test_jobs_without_tokens_are_told_apart_by_their_waiting_too() -> None:
    late = replace(target("latency p99 <= 10 ms", 0.015, 0.01, False), statistic="p99")
    (why, _) = next_steps(replace(RESULT, scenario=SCENARIO, targets=[late]))
    assert "the work itself takes it, not the queue: a faster device (fleet[1].device)" in why
    (why, _) = next_steps(replace(RESULT, scenario=SCENARIO, targets=[late], waiting_s=times(0.004)))
    assert "80.0% of it is waiting" in why and "devices are busy 99.5% of the time: add some (fleet[1].count)" in why


def test_a_target_that_says_nothing_of_its_cause_gets_the_plan_alone() -> None:
    power = target("average_power <= 100 W", 200.0, 100.0, False, "W")
    assert next_steps(served(power)) == [
        "`windtunnel plan --objective power` finds the fleet with the least power that meets the targets"
    ]
    # A plan needs prices.
    assert next_steps(replace(served(power), cost_usd=None)) == []


def test_met_far_within_every_limit_suggests_a_plan_and_met_narrowly_nothing() -> None:
    far, near = target("ttft p99 <= 1 s", 0.3, 1.0, True), target("itl p99 <= 1 s", 0.9, 1.0, True)
    assert next_steps(served(far)) == [
        "every value is within half of its limit: `windtunnel plan` may find a cheaper fleet"
    ]
    assert next_steps(served(far, near)) == []
    assert next_steps(replace(served(far), cost_usd=None)) == []
    assert next_steps(served()) == []
    # What a plan would find again: one replica, one of each role, or as few as the load allows.
    one = device("a", "l4", 0.5)
    roles = {**SCENARIO, "fleet": [{"device": "l4", "role": "prefill"}, {"device": "h100-sxm-80gb", "role": "decode"}]}
    assert next_steps(replace(served(far), devices=[one])) == []
    assert next_steps(replace(served(far), scenario=roles)) == []
    for load, said in ((0.7, 0), (0.6, 1)):
        busy = replace(RESULT.statistics, offered_load=load)
        three = [replace(one, name=name) for name in "abc"]
        assert len(next_steps(replace(served(far), devices=three, statistics=busy))) == said


def test_an_inconclusive_target_asks_for_replications() -> None:
    unsure = replace(target("ttft p99 <= 1 s", 0.9, 1.0, True), confidence="inconclusive", low=0.8, high=1.2)
    (text,) = next_steps(served(unsure))
    assert text == "ttft p99 ≤ 1 s: `--replications 10`, or a longer run, narrows the confidence interval"
    (text,) = next_steps(replace(served(replace(unsure, confidence="no interval")), replications=5))
    assert text == "ttft p99 ≤ 1 s: `--replications 20`, or a longer run, gives a confidence interval"


def test_a_scaled_entry_has_its_number_from_the_autoscaler() -> None:
    class Rule:
        entry = "h100-sxm-80gb"

    result = served(TTFT, waiting_s=0.9, uses=[use("h100-sxm-80gb", sequences=63.0)])
    assert "autoscale[0].max" in next_steps(replace(result, autoscale=[Rule()]))[0]  # type: ignore[list-item]


def test_the_cost_of_tokens_and_the_next_step_follow_the_verdict() -> None:
    lines = summary(served(TTFT, waiting_s=0.9)).splitlines()
    assert lines[0] == "The target is missed"
    assert (
        lines[2] == "cost           2.50 USD per million output tokens (0.5 USD per million of all), 25.00 USD per hour"
    )
    assert lines[3].startswith("next           ttft p99 ≤ 1 s: 90.0% of it is waiting")
    assert "USD per million output tokens" not in "\n".join(lines[6:])
    met = summary(replace(RESULT, targets=[])).splitlines()
    assert met[:2] == ["No targets were set", ""]


def scenario(rate: str, tokens: int, target_text: str) -> Any:
    return scenario_from_data(
        {
            "schema": 1,
            "name": "small <b>run</b>",
            "models": {"chat": {"catalogue": "llama-3.2-1b"}},
            "fleet": [{"device": "l4", "price": "0.7 USD/h", "engine": "vllm"}],
            "workload": [
                {
                    "name": "chat",
                    "arrivals": {"process": "poisson", "rate": rate},
                    "ops": [{"generate": {"model": "chat", "prompt": 400, "output": 20}}],
                }
            ],
            "policy": {"name": "least-loaded", "batch": {"kind": "continuous", "size": 8, "tokens": tokens}},
            "stop": {"jobs": 120},
            "targets": [target_text],
        }
    )


@pytest.mark.parametrize(
    ("rate", "tokens", "target_text", "words", "key"),
    [
        ("200 /s", 512, "ttft p99 <= 100 ms", "the batches of l4 are full", "policy.batch.size"),
        ("0.5 /s", 64, "ttft p99 <= 10 ms", "prompts of 400 tokens on average take several steps of 64", "tokens"),
        ("0.5 /s", 512, "tpot p99 <= 1 ms", "most steps take this long", "group.tensor"),
    ],
)
def test_a_simulated_run_names_what_was_made_to_bind(
    rate: str, tokens: int, target_text: str, words: str, key: str
) -> None:
    run = windtunnel.run(scenario(rate, tokens, target_text), engine="process")
    steps = next_steps(run.result)
    assert len(steps) == 2 and words in steps[0] and key in steps[0]
    page = run_page.render(run.result, run.recording)
    head = page[: page.index('id="figures"')]
    assert "<b>Next</b>" in head and "<b>Cost</b>" in head and words in head
