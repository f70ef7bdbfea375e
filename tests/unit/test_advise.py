"""Launch for each command or keep a kernel running: both sides from the device model, and the documents' guide."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from click.testing import CliRunner

import windtunnel
from windtunnel.app.advise import CommandWorkload
from windtunnel.claims.benchmark import STEPS, Benchmark
from windtunnel.cli.main import cli
from windtunnel.core.errors import InputError
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel.core.results.data import result_json
from windtunnel.planning.launch_or_persist import (
    BARRIER,
    LAUNCH,
    MOST_STEPS,
    PERSISTENT,
    WORTH,
    Choice,
    advise,
    crossover_rate,
    crossover_steps,
    primitives,
)
from windtunnel.simulation.run import one_job_s
from windtunnel_models.catalogue import device_model

KNOWN = windtunnel.catalogue()
ADA = device_model("rtx-6000-ada", KNOWN)
PARTS = primitives(ADA)

# The documents' decision guide, each row as a rate of commands and their size.
GUIDE = [
    ("run 10,000 simulation steps", 0.1, 10_000, LAUNCH),
    ("run 10,000 simulation steps", 1.0, 10_000, LAUNCH),
    ("real-time GUI at 60 FPS", 60.0, 1, PERSISTENT),
    ("real-time GUI at 60 FPS", 60.0, 5, PERSISTENT),
    ("interactive parameter tuning", 1.0, 1, PERSISTENT),
    ("interactive parameter tuning", 1000.0, 1, PERSISTENT),
    ("batch matrix operations", 1.0, 1_000, LAUNCH),
    ("game physics with user input", 60.0, 10, PERSISTENT),
    ("game physics with user input", 144.0, 4, PERSISTENT),
]


@pytest.mark.parametrize(("use", "rate", "steps", "recommended"), GUIDE, ids=str)
@pytest.mark.parametrize("sku", ["rtx-6000-ada", "rtx-4090", "h100-sxm-80gb", "mi300x"])
def test_it_agrees_with_the_decision_guide(use: str, rate: float, steps: int, recommended: str, sku: str) -> None:
    assert advise(device_model(sku, KNOWN), rate, steps).recommended == recommended, use


@pytest.mark.parametrize("rate", [0.01, 1.0, 60.0, 1000.0])
def test_the_recommendation_turns_at_the_crossover_in_steps(rate: float) -> None:
    steps = crossover_steps(PARTS, rate)
    assert steps is not None
    assert steps > 1
    assert Choice(PARTS, rate, steps - 1).recommended == PERSISTENT
    assert Choice(PARTS, rate, steps).recommended == LAUNCH
    assert Choice(PARTS, rate, steps - 1).saving >= WORTH > Choice(PARTS, rate, steps).saving


@pytest.mark.parametrize("steps", [400, 1_000, 10_000])
def test_the_recommendation_turns_at_the_crossover_in_rate(steps: int) -> None:
    rate = crossover_rate(PARTS, steps)
    assert rate is not None
    assert 0 < rate < Choice(PARTS, rate, steps).launch.capacity_per_s
    assert Choice(PARTS, rate * 0.999, steps).recommended == LAUNCH
    assert Choice(PARTS, rate * 1.0001, steps).recommended == PERSISTENT


def test_a_persistent_kernel_draws_its_polling_power_all_the_time_and_launches_what_they_do() -> None:
    assert PARTS.spin_w is not None and PARTS.spin_w == ADA.idle_power_w + ADA.spin_power_w(1.0)
    rare, often = (Choice(PARTS, rate, 10) for rate in (1e-6, 1000.0))
    assert rare.persistent is not None and often.persistent is not None
    assert rare.launch.power_w == pytest.approx(ADA.idle_power_w)
    assert rare.persistent.power_w == pytest.approx(PARTS.spin_w)
    assert often.launch.power_w > rare.launch.power_w
    assert often.persistent.power_w >= rare.persistent.power_w > often.launch.power_w
    text = CliRunner().invoke(cli, ["advise", "--commands-per-s", "60", "--steps-per-command", "1"]).output
    assert "mean power" in text and "while it polls is 0.2 (0.05 to 0.35)" in text


def test_the_power_of_a_kernel_with_a_stated_time_is_not_known_and_shown_as_such() -> None:
    args = ["advise", "--commands-per-s", "60", "--kernel-us", "5", "--upload-bytes", "4096", "--format", "json"]
    told = json.loads(CliRunner().invoke(cli, args).output)
    assert told["launch"]["power_w"] is None and told["persistent"]["power_w"] is None
    assert told["primitives"]["step_w"] is None and told["primitives"]["spin_w"] > told["primitives"]["idle_w"]


def test_small_commands_are_worth_persisting_for_at_every_rate() -> None:
    assert crossover_rate(PARTS, 1) == 0.0
    assert all(Choice(PARTS, rate, 1).recommended == PERSISTENT for rate in (1e-6, 1.0, 1e3, 1e6))


def test_the_crossover_is_where_a_tenth_of_an_unhurried_command_is_overhead() -> None:
    """With no queue: fixed = WORTH x (fixed + steps x step), less what persisting itself takes."""
    assert PARTS.write_s is not None and PARTS.poll_s is not None
    fixed = PARTS.copy_in_s + PARTS.start_s
    expected = ((1 - WORTH) * fixed - PARTS.write_s - PARTS.poll_s) / (WORTH * PARTS.step_s)
    assert crossover_steps(PARTS, 1e-9) == math.ceil(expected)


def test_a_launched_command_takes_what_the_process_engine_takes() -> None:
    """One repetition of the benchmark's mixed workload, on the catalogue's own numbers, is one command of five steps."""
    bench = Benchmark(ADA, one_job_s)
    facts = replace(
        bench.facts,
        pageable_bytes_per_s=_fact(2 * 4 * 64**3 / (PARTS.copy_in_s - 2 * bench.copy_setup_s)),
        cells_per_s=_fact((64**3 + 6 * 64**2) / (PARTS.step_s - 2 * bench.floor_s)),
    )
    engine_s = Benchmark(ADA, one_job_s, facts).seconds("mixed-launch") / 100 - bench.synchronize_s
    assert Choice(PARTS, 1.0, STEPS).launch.latency_s == pytest.approx(engine_s, rel=0.02)


def _fact(value: float) -> SourcedValue:
    return SourcedValue(max(value, 1e-12), Provenance.MEASURED, "this test")


def test_the_response_holds_the_wait_of_an_m_d_1_queue() -> None:
    alone = Choice(PARTS, 1.0, 100).launch.latency_s
    half = Choice(PARTS, 0.5 / alone, 100).launch
    assert half.response_s == pytest.approx(alone * (1 + 0.5 / (2 * 0.5)))
    assert Choice(PARTS, 1.001 / alone, 100).launch.response_s is None


def test_a_kernel_that_stays_holds_the_device_whether_commands_come_or_not() -> None:
    rare = Choice(PARTS, 0.001, 5)
    assert rare.persistent is not None
    assert rare.persistent.device_held == 1.0
    assert rare.launch.device_held == rare.launch.device_busy < 1e-6
    assert rare.persistent.host_busy < rare.launch.host_busy


def test_slower_enqueues_gate_a_launched_command() -> None:
    slow = replace(PARTS, enqueue_s=10 * PARTS.step_s)
    extra = Choice(slow, 1.0, 100).launch.latency_s - Choice(PARTS, 1.0, 100).launch.latency_s
    assert extra == pytest.approx(100 * 9 * PARTS.step_s)


def test_the_assumed_barrier_moves_the_crossover_and_its_range_is_told() -> None:
    told = advise(ADA, 60, 5)
    late = primitives(ADA, BARRIER.low or 0.0)
    early = primitives(ADA, BARRIER.high or 0.0)
    assert told.crossover_steps_ends == [crossover_steps(early, 60), crossover_steps(late, 60)]
    assert told.crossover_steps_ends[0] < told.crossover_steps_per_command
    assert any("arXiv:2004.05371" in text for text in told.assumed)


def test_an_api_that_keeps_no_kernel_running_is_launched_on() -> None:
    told = advise(device_model("apple-m1", KNOWN), 60, 1)
    assert told.recommended == LAUNCH
    assert told.persistent is None
    assert told.crossover_steps_per_command is None
    assert "'metal' has no 'persistent'" in told.why


def test_where_neither_keeps_up_the_one_that_serves_more_is_named() -> None:
    told = advise(ADA, 1e6, 5)
    assert told.recommended == PERSISTENT
    assert "neither form keeps up" in told.why
    assert told.launch.response_s is None
    assert told.persistent.response_s is None
    assert advise(ADA, 1e6, 10_000).recommended == LAUNCH


def test_the_command_prints_both_forms() -> None:
    runner = CliRunner()
    arguments = ["advise", "--commands-per-s", "60", "--steps-per-command", "5"]
    text = runner.invoke(cli, arguments, catch_exceptions=False)
    assert text.exit_code == 0
    assert "recommended: persistent kernel" in text.stdout
    assert "crossover at 60 commands/s: a launch per command is better from " in text.stdout
    told = json.loads(runner.invoke(cli, [*arguments, "--format", "json"], catch_exceptions=False).stdout)
    assert told == json.loads(result_json(advise(ADA, 60.0, 5)))
    other = runner.invoke(cli, [*arguments, "--device", "h100-sxm-80gb"], catch_exceptions=False)
    assert other.stdout.startswith("h100-sxm-80gb: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected --for USE, or --commands-per-s X and --steps-per-command Y"),
        (["--commands-per-s", "5"], "expected --for USE, or --commands-per-s X and --steps-per-command Y"),
        (["--commands-per-s", "0", "--steps-per-command", "5"], "expected more than zero"),
        (["--commands-per-s", "nan", "--steps-per-command", "5"], "expected more than zero"),
        (["--commands-per-s", "inf", "--steps-per-command", "5"], "expected more than zero"),
        (["--commands-per-s", "5", "--steps-per-command", "-1"], "expected more than zero"),
        (["--commands-per-s", "5", "--steps-per-command", str(MOST_STEPS + 1)], "at most 10,000,000"),
        (["--commands-per-s", "5", "--steps-per-command", "5", "--device", "rtx-6000-add"], "'rtx-6000-ada'"),
        (["--commands-per-s", "5", "--steps-per-command", "5", "--device", "qat-8970"], "does not run stencil"),
        (["--for", "ml training", "--commands-per-s", "5"], "expected --for USE alone"),
        (["--for", "ml training", "--kernel-us", "5"], "a workload cannot be combined with --for"),
        (["--commands-per-s", "5", "--upload-bytes", "5"], "expected --kernel-us TIME, or --op OP"),
        (["--commands-per-s", "5", "--op", "gemm", "m=1", "n=1", "k=1", "--kernel-us", "1"], "states its kernel once"),
        (["--commands-per-s", "5", "--kernel-us", "0"], "expected more than zero"),
        (["--commands-per-s", "5", "--kernel-us", "5", "--upload-bytes", "-1"], "expected zero or more"),
        (["--commands-per-s", "5", "--op", "gem", "m=1"], "did you mean 'gemm'"),
        (["--commands-per-s", "5", "--op", "gemm", "m=1", "n=1"], "k"),
    ],
    ids=str,
)
def test_wrong_input_is_told_what_was_expected(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        CliRunner().invoke(cli, ["advise", *arguments], catch_exceptions=False, standalone_mode=False)
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_stated_workload_costs_what_its_parts_cost() -> None:
    """With as many kernels as the benchmark's step, the same bytes and memory, only the copies of both forms differ."""
    kernel_us = PARTS.step_s / 2 * 1e6
    own = CommandWorkload(upload_bytes=2 * 4 * 64**3, kernel_us=kernel_us, memory="pageable").workload()
    parts = primitives(ADA, workload=own)
    setup_s = ADA.api.values["copy_setup_s"].value
    assert parts.copy_in_s == pytest.approx(PARTS.copy_in_s - setup_s), "one copy instead of two"
    assert parts.mapped_copies_s == pytest.approx(parts.copy_in_s - setup_s, rel=1e-3)
    assert (parts.step_s, parts.enqueue_s) == pytest.approx((PARTS.step_s / 2, PARTS.enqueue_s / 2))
    choice = Choice(parts, 1e-6, 10)
    assert choice.persistent is not None
    assert choice.persistent.latency_s == pytest.approx(
        PARTS.write_s + PARTS.poll_s + parts.mapped_copies_s + 10 * parts.step_s
    )


def test_most_of_the_benchmarks_saving_is_that_only_launches_copy() -> None:
    told = advise(ADA, 60.0, 5)
    assert told.saving_like_for_like is not None
    assert told.saving > 0.5
    assert 0.2 > told.saving_like_for_like > 0
    text = CliRunner().invoke(cli, ["advise", "--commands-per-s", "60", "--steps-per-command", "5"]).stdout
    assert "only the launches copy in this workload: with the same copies a persistent kernel saves" in text


def test_bytes_that_both_forms_copy_lower_the_share_that_a_persistent_kernel_saves() -> None:
    small, large = (
        advise(ADA, 60.0, 1, CommandWorkload(upload_bytes=size, kernel_us=5.0).workload()) for size in (0, 10_000_000)
    )
    assert small.saving > large.saving
    assert small.saving_like_for_like == pytest.approx(small.saving)
    assert (small.recommended, large.recommended) == (PERSISTENT, LAUNCH)


def test_an_operation_is_a_kernel_with_the_time_that_predict_gives() -> None:
    values = {"m": 512, "n": 512, "k": 512, "dtype": "float16"}
    parts = primitives(ADA, workload=CommandWorkload(op="gemm", values=values).workload())
    assert parts.step_s == pytest.approx(windtunnel.predict("gemm", "rtx-6000-ada", values).duration_s)
