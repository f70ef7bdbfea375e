"""What a device does with its jobs: streams, memory, power limits, batches - against times worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import memory_of

import windtunnel
from windtunnel.core.decoder_memory import LargestStep
from windtunnel.core.errors import Location
from windtunnel.core.ops import OPERATIONS, one_row
from windtunnel.core.results.run import JobCounts
from windtunnel.core.ticks import TICKS_PER_SECOND
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import Run
from windtunnel_models.catalogue import Catalogue

COPY = {"bytes": 100_000_000, "direction": "h2d", "memory": "pinned"}
GEMM = {"m": 8192, "n": 8192, "k": 8192, "dtype": "bfloat16"}
SWEEP = {
    "op": "add",
    "rows": 40_000,
    "width": 20_000,
}  # bound by memory, so that a copy beside it stays under the limit


def at_once(count: int, ops: list[Any], **entry: Any) -> dict[str, Any]:
    """``count`` jobs that all but coincide (a nanosecond apart) on one H100."""
    return {
        "schema": 1,
        "name": "station",
        "fleet": [{"device": "h100-sxm-80gb"} | entry],
        "workload": [{"name": "w", "arrivals": {"process": "deterministic", "rate": "1e9 /s"}, "ops": ops}],
        "stop": {"jobs": count},
    }


def run(data: dict[str, Any]) -> Run:
    return windtunnel.run(scenario_from_data(data))


def ticks(op: str, values: dict[str, Any]) -> int:
    """The ticks of an operation in the context of a job, which includes its launch."""
    device = Catalogue().device("h100-sxm-80gb")
    in_job = {"dispatch": device.dispatch_in_job(OPERATIONS[op])}
    return round(float(device.cost(one_row(OPERATIONS[op], in_job | values)).duration_s[0]) * 1e12)


def test_one_stream_adds_up() -> None:
    jobs = run(at_once(3, [{"copy": COPY}, {"gemm": GEMM}])).recording.jobs
    each = ticks("copy", COPY) + ticks("gemm", GEMM)
    assert jobs.finish.tolist() == [int(jobs.arrival[0]) + each * k for k in (1, 2, 3)]


def test_on_two_streams_copies_overlap_with_compute() -> None:
    jobs = run(at_once(3, [{"copy": COPY}, {"elementwise": SWEEP}], streams=3)).recording.jobs
    copy, sweep = ticks("copy", COPY), ticks("elementwise", SWEEP)
    begin = int(jobs.arrival[0])
    # Copies queue on the copy engine, sweeps on the compute engine: a two-stage pipeline (Johnson, 1954).
    first = begin + copy + sweep
    second = max(begin + 2 * copy, first) + sweep
    third = max(begin + 3 * copy, second) + sweep
    assert jobs.finish.tolist() == [first, second, third]
    assert third - begin < 3 * (copy + sweep)


def test_streams_inside_a_job_run_side_by_side_and_the_job_waits_for_the_longest() -> None:
    jobs = run(
        at_once(1, [{"streams": [[{"copy": COPY}], [{"elementwise": SWEEP}]]}, {"elementwise": SWEEP}])
    ).recording.jobs
    copy, sweep = ticks("copy", COPY), ticks("elementwise", SWEEP)
    assert int(jobs.finish[0] - jobs.start[0]) == max(copy, sweep) + sweep


def test_equal_streams_that_want_the_same_engine_do_not_overlap() -> None:
    jobs = run(at_once(4, [{"gemm": GEMM}], streams=4)).recording.jobs
    assert int(jobs.finish.max() - jobs.start.min()) == pytest.approx(4 * ticks("gemm", GEMM), abs=4)


def test_a_job_that_does_not_fit_beside_another_waits_for_its_memory() -> None:
    big = {"m": 100_000, "n": 1000, "k": 100_000, "dtype": "float16"}  # 20.4 GB of operands
    free = run(at_once(2, [{"copy": COPY}, {"gemm": big}], streams=2)).recording.jobs
    tight = run(at_once(2, [{"copy": COPY}, {"gemm": big}], streams=2, memory="30 GB")).recording.jobs
    assert free.start[1] < free.finish[0]
    assert tight.start[1] == tight.finish[0]


def test_requests_side_by_side_go_as_fast_as_the_engines_and_no_faster() -> None:
    """A QAT card signs 2,310 times a second one at a time; the engine serves as many side by side as saturate it."""

    def rate(streams: int) -> float:
        data = at_once(2000, [{"sign": {"scheme": "rsa2048"}}], streams=streams) | {"seed": 1}
        data["fleet"][0]["device"] = "qat-8970"
        return float(run(data).result.throughput_per_s)

    alone, eight, full, more = rate(1), rate(8), rate(64), rate(512)
    assert eight == pytest.approx(8 * alone, rel=0.01)
    assert full > 30 * alone
    assert more <= 110_000


def test_power_overlaps_add_up_on_one_base() -> None:
    recording = run(at_once(2, [{"streams": [[{"copy": COPY}], [{"gemm": GEMM}]]}], streams=2)).recording
    device = Catalogue().device("h100-sxm-80gb")
    watts = {
        op: float(device.cost(one_row(OPERATIONS[op], values)).power_w[0])
        for op, values in (("copy", COPY), ("gemm", GEMM))
    }
    # Copy and product together would exceed the board's limit, and are held at it.
    both = watts["copy"] + watts["gemm"] - device.idle_power_w - device.active_power_w
    assert recording.power.values.max() == pytest.approx(min(both, device.power_limit_w), rel=1e-6)


def test_a_capped_device_is_slower_and_spends_the_same_energy_above_idle() -> None:
    ops = [{"repeat": {"times": 20, "ops": [{"gemm": GEMM}]}}]
    free, capped = (run(at_once(1, ops, power=power)).recording for power in ({}, {"max": "250 W"}))
    assert capped.power.values.max() <= 250.0 + 2**-18
    assert capped.end > 2 * free.end
    assert capped.jobs.energy_j[0] == pytest.approx(free.jobs.energy_j[0], rel=1e-6)


def test_engines_that_together_would_exceed_the_limit_slow_in_proportion() -> None:
    body = [[{"copy": COPY | {"bytes": 2_000_000_000}}], [{"repeat": {"times": 20, "ops": [{"gemm": GEMM}]}}]]
    apart = run(at_once(1, [*body[0], *body[1]])).recording
    together = run(at_once(1, [{"streams": body}])).recording
    limit = Catalogue().device("h100-sxm-80gb").power_limit_w
    assert together.power.values.max() <= limit + 2**-18
    # Side by side they are done sooner than one after another, and later than the longer alone would be.
    alone = max(20 * ticks("gemm", GEMM), ticks("copy", COPY | {"bytes": 2_000_000_000}))
    assert alone < together.end - int(together.jobs.start[0]) < apart.end
    # While both run at the limit, the draw is the limit itself, to the grain of two shares.
    assert together.power.values.max() == pytest.approx(limit, abs=2**-17)


def test_a_batch_goes_when_it_is_full_or_when_its_first_job_has_waited() -> None:
    data = at_once(5, [{"gemm": {"m": 256, "n": 1024, "k": 1024, "dtype": "bfloat16"}}])
    data["workload"][0]["arrivals"] = {"process": "deterministic", "rate": "1000 /s"}
    data["policy"] = {"name": "fifo", "batch": {"kind": "request", "size": 2, "wait": "1500 us"}}
    jobs = run(data).recording.jobs
    # Arrivals at 1, 2, 3, 4, 5 ms: two full batches at 2 and 4 ms, and the fifth goes alone after 1.5 ms.
    assert (jobs.start // 10**6).tolist() == [2000, 2000, 4000, 4000, 6500]
    pair = ticks("gemm", {"m": 512, "n": 1024, "k": 1024, "dtype": "bfloat16"})
    assert int(jobs.finish[0] - jobs.start[0]) == pair
    assert int(jobs.finish[4] - jobs.start[4]) == ticks("gemm", {"m": 256, "n": 1024, "k": 1024, "dtype": "bfloat16"})


def test_stopping_at_a_time_counts_what_runs_and_what_waits() -> None:
    data = at_once(1, [{"service": {"distribution": "deterministic", "mean": "10 ms"}}])
    data["workload"][0]["arrivals"] = {"process": "deterministic", "rate": "1000 /s"}
    data["stop"] = {"time": "25.5 ms"}
    result = run(data).result
    assert result.jobs == JobCounts(arrived=25, completed=2, dropped=0, failed=0, running=1, queued=22)
    assert result.simulated_s == 0.0255


def test_a_job_that_would_arrive_when_the_run_stops_does_not_arrive() -> None:
    data = at_once(1, [{"service": {"distribution": "deterministic", "mean": "1 us"}}])
    data["workload"][0]["arrivals"] = {"process": "deterministic", "rate": "100 /s"}
    data["stop"] = {"time": "5 s"}
    found = run(data)
    assert found.result.jobs.arrived == found.result.jobs.completed == 499
    assert found.recording.jobs.arrival.tolist() == [10**10 * k for k in range(1, 500)]


def test_a_batch_timer_nobody_needs_any_more_does_not_lengthen_the_run() -> None:
    data = at_once(8, [{"gemm": {"m": 256, "n": 1024, "k": 1024, "dtype": "bfloat16"}}])
    data["policy"] = {"name": "fifo", "batch": {"kind": "request", "size": 4, "wait": "10 s"}}
    finished = run(data)
    assert finished.recording.end == int(finished.recording.jobs.finish.max())
    assert finished.result.simulated_s < 1e-3


def test_speed_makes_work_cheaper_and_not_the_device_dearer() -> None:
    data = at_once(2, [{"gemm": GEMM}], speed=2.0, price="1 USD/h")
    assert run(data).result.cost_usd_per_h == pytest.approx(1.0)
    device = Catalogue().device("h100-sxm-80gb")
    from windtunnel.simulation.fleet import configure

    assert not configure(device, speed=2.0).is_rate("price_usd_per_h")
    assert configure(device, speed=2.0).is_rate("memory_bandwidth_bytes_per_s")


def test_jobs_of_no_length_at_the_very_end_are_accounted_for() -> None:
    data = at_once(10, [{"service": {"distribution": "weibull", "mean": "1 s", "cv": 500}}])
    data["fleet"] = [{"device": "server"}]
    data["workload"][0]["arrivals"] = {"process": "poisson", "rate": "1 /s"}
    assert run(data).result.jobs.completed == 10


def test_a_full_batch_does_not_wait_behind_a_partial_one() -> None:
    data = at_once(1, [{"gemm": {"m": 64, "n": 64, "k": 64, "dtype": "bfloat16"}}])
    (first,) = data["workload"]
    data["workload"] = [
        first | {"name": "a", "arrivals": {"process": "deterministic", "rate": "0.01 /s"}},
        first | {"name": "b", "arrivals": {"process": "deterministic", "rate": "0.1 /s"}},
    ]
    data["policy"] = {"name": "fifo", "batch": {"kind": "request", "size": 4, "wait": "1000 s"}}
    data["stop"] = {"time": "150 s"}
    jobs = run(data).recording.jobs
    # `a` has one job at 100 s, which waits; the batches of `b` go as soon as they are four.
    of_b = jobs.start[(jobs.workload == 1) & (jobs.start >= 0)] // 10**12
    assert sorted(set(of_b.tolist())) == [40, 80, 120]


def test_rates_far_below_one_a_second_are_rates_too() -> None:
    data = at_once(5, [{"launch": {}}])
    data["workload"][0]["arrivals"] = {"process": "poisson", "rate": "10 /h"}
    assert run(data).result.jobs.completed == 5


# Continuous batching.

MODEL = {"layers": 4, "width": 1024, "heads": 8, "feed_forward": 2816, "vocabulary": 32000}


def serving(count: int, prompt: int, output: int, rate: str, batch: dict[str, Any], **entry: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "name": "serving",
        "fleet": [{"device": "l4"} | entry],
        "models": {"tiny": MODEL},
        "workload": [
            {
                "name": "chat",
                "arrivals": {"process": "poisson", "rate": rate},
                "ops": [{"generate": {"model": "tiny", "prompt": prompt, "output": output}}],
            }
        ],
        "policy": {"name": "fifo", "batch": batch},
        "stop": {"jobs": count},
    }


CONTINUOUS = {"kind": "continuous", "size": 32}


def test_a_lone_request_takes_the_same_time_batched_and_alone() -> None:
    batched = run(serving(1, 500, 40, "1 /s", CONTINUOUS)).recording.jobs
    data = serving(1, 500, 40, "1 /s", CONTINUOUS)
    data["policy"] = "fifo"
    alone = run(data).recording.jobs
    assert batched.first[0] == pytest.approx(alone.first[0], abs=2)
    assert batched.finish[0] == pytest.approx(alone.finish[0], rel=1e-3)


def test_every_token_is_made_and_every_gap_counted() -> None:
    recording = run(serving(200, 300, 25, "200 /s", CONTINUOUS)).recording
    assert int(recording.token_gaps.weights.sum()) == 200 * 24
    jobs = recording.jobs
    # A request's gaps lie end to end between its first token and its last.
    assert (jobs.first > jobs.start).all()
    assert (jobs.finish > jobs.first).all()


def test_continuous_batching_serves_more_than_request_level_batching() -> None:
    continuous = run(serving(300, 300, 60, "2000 /s", CONTINUOUS)).result
    static = run(serving(300, 300, 60, "2000 /s", {"kind": "request", "size": 32, "wait": "5 ms"})).result
    alone = serving(300, 300, 60, "2000 /s", CONTINUOUS)
    alone["policy"] = "fifo"
    assert continuous.throughput_per_s > static.throughput_per_s > 3 * run(alone).result.throughput_per_s
    assert continuous.serving.ttft_s.mean.value < static.serving.ttft_s.mean.value


def test_when_memory_for_keys_and_values_runs_out_sequences_are_put_off_and_still_finish() -> None:
    # Room for some 2,000 tokens beside the weights: prompts of 200 are admitted and then grow to 500.
    memory = memory_of(MODEL, 2000, size=32)
    finished = run(serving(40, 200, 300, "1e4 /s", CONTINUOUS, memory=memory))
    assert finished.result.jobs.completed == 40
    (note,) = [n for n in finished.result.notes if "KV cache was full" in n]
    assert "preempted" in note
    assert int(finished.recording.token_gaps.weights.sum()) == 40 * 299
    roomy = run(serving(40, 200, 300, "1e4 /s", CONTINUOUS))
    assert not any("KV cache" in note for note in roomy.result.notes)
    assert roomy.result.throughput_per_s > finished.result.throughput_per_s


def test_a_model_that_does_not_fit_is_refused() -> None:
    from windtunnel.core.errors import InputError

    with pytest.raises(InputError, match=r"tiny does not fit: .* needs .* of weights.* and l4 has 100 MB"):
        run(serving(1, 200, 300, "1 /s", CONTINUOUS, memory="100 MB"))


def test_prompts_are_read_in_chunks_of_a_step() -> None:
    chunked = run(serving(1, 4000, 2, "1 /s", CONTINUOUS | {"tokens": 512})).recording
    whole = run(serving(1, 4000, 2, "1 /s", CONTINUOUS | {"tokens": 8192})).recording
    assert len(chunked.intervals.start) == 8 + 1
    assert len(whole.intervals.start) == 1 + 1
    assert chunked.jobs.first[0] - chunked.jobs.start[0] > whole.jobs.first[0] - whole.jobs.start[0]


def test_a_serving_run_that_stops_in_the_middle_of_a_step_accounts_for_it() -> None:
    data = serving(100, 300, 200, "500 /s", CONTINUOUS)
    data["stop"] = {"time": "200 ms"}
    finished = run(data)  # the invariants are checked inside
    assert finished.result.jobs.running > 0
    assert finished.recording.token_gaps.end.max() <= finished.recording.end


def test_jobs_of_a_batch_share_its_energy_exactly() -> None:
    recording = run(serving(100, 300, 25, "500 /s", CONTINUOUS)).recording
    table = recording.intervals
    above_idle = float((table.watts * (table.end - table.start) / 1e12).sum())
    assert float(np.sum(recording.jobs.energy_j)) == pytest.approx(above_idle, rel=1e-9)


def tight() -> dict[str, Any]:
    return serving(30, 200, 300, "1e4 /s", CONTINUOUS, memory=memory_of(MODEL, 1500, size=32))


def test_keys_and_values_never_take_more_memory_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from windtunnel.engine.transitions import events, servers

    fills: list[float] = []
    original = events.end_step

    def watched(w: Any, device: int) -> None:
        v = w.servers[device]
        held, slot = 0, v.decoding
        while slot >= 0:
            held += w.sequences[slot].prompt + 1 + v.steps - w.sequences[slot].born
            slot = w.slots[slot].next
        slot = v.reading
        while slot >= 0:
            held += w.sequences[slot].prompt
            slot = w.slots[slot].next
        assert held == v.cached
        fills.append((v.cached + v.decoding_count) / w.classes[w.devices[device].cls].capacity)
        original(w, device)

    monkeypatch.setattr(events, "end_step", watched)
    assert servers.end_step is original
    assert windtunnel.run(scenario_from_data(tight()), engine="process").result.jobs.completed == 30
    assert max(fills) <= 1.0
    assert max(fills) > 0.9


def test_the_youngest_is_put_off_so_that_equals_end_in_the_order_they_came() -> None:
    jobs = run(tight()).recording.jobs
    assert (np.diff(jobs.finish) >= 0).all()


def test_a_prompt_in_chunks_costs_at_least_the_attention_of_the_whole() -> None:
    from windtunnel.engine.prepare.decoding import DecoderCosts
    from windtunnel.engine.prepare.replica import Replica
    from windtunnel.scenario.decoder import DecoderModel, ServedModel

    model = DecoderModel(layers=4, width=1024, heads=8, feed_forward=2816).architecture("m", Path(), Location())
    served = ServedModel(model, "graph", "sustained")
    costs = DecoderCosts(Replica(Catalogue().device("l4")), served, LargestStep(64, 4), 5000)
    whole = costs.prompt_attention(0, 4000)
    parts = [costs.prompt_attention(start, 500) for start in range(0, 4000, 500)]
    assert whole[0] <= sum(seconds for seconds, _ in parts) < 1.5 * whole[0]
    assert float(costs.least_prefill(np.array([4000.0]))[0]) <= whole[0]
    # A later chunk has more before it to attend to.
    assert parts[-1][0] > parts[1][0]


def test_bursts_come_at_their_rates() -> None:
    data = at_once(1, [{"launch": {"mode": "graph"}}])
    burst = {"process": "burst", "rate": "200 /s", "burst_rate": "5000 /s", "every": "100 ms", "duration": "20 ms"}
    data["workload"][0]["arrivals"] = burst
    data["stop"] = {"time": "20 s"}
    arrival_s = run(data).recording.jobs.arrival / 1e12
    within = arrival_s % 0.1 < 0.02
    for found, expected in ((within.sum(), 5000 * 0.02 * 200), ((~within).sum(), 200 * 0.08 * 200)):
        assert abs(found - expected) < 5 * expected**0.5


def test_work_on_streams_counts_up_to_the_stated_end_of_the_run() -> None:
    job = {"service": {"distribution": "deterministic", "mean": "100 s"}}
    scenario = scenario_from_data(
        {
            "schema": 1,
            "name": "streams",
            "fleet": [{"device": "server", "streams": 2, "power": {"idle": "10 W", "max": "60 W"}}],
            "workload": [{"name": "w", "arrivals": {"process": "deterministic", "rate": "0.2 /s"}, "ops": [job]}],
            "stop": {"time": "9 s"},
        }
    )
    finished = windtunnel.run(scenario, engine="process")
    busy_s = 9.0 - finished.recording.jobs.start.min() / TICKS_PER_SECOND
    assert busy_s > 0.0
    assert finished.result.utilisation == pytest.approx(busy_s / 9.0)
