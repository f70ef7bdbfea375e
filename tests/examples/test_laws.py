"""What has to be true of the examples, whatever their numbers: nothing is saved where there is nothing to save."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel.claims.benchmark import Benchmark
from windtunnel.emulator.device.context import EmulatedContext
from windtunnel.examples import (
    async_pipeline,
    compute_graph,
    device_pool,
    five_stage,
    hot_reload,
    launch_or_persist,
    measure,
    particles,
    unified_memory,
)
from windtunnel.examples.kernels import grade, graded_twice
from windtunnel.examples.measure import ResultsDiffer, devices, saving, usage_of
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.pool import DevicePool
from windtunnel.simulation.run import one_job_s


@pytest.fixture(scope="module")
def opener() -> measure.Opener:
    return devices()


# What the examples share.


def test_devices_of_one_program_share_its_clock(opener: measure.Opener) -> None:
    one, other = opener("rtx-4090"), opener("l4")
    one.sleep(3.0)
    assert other.clock_s == one.clock_s
    assert devices()("l4").clock_s < 1.0


def test_forms_that_differ_in_one_bit_raise() -> None:
    zeros = np.zeros(3)
    with pytest.raises(ResultsDiffer, match="'other' gives other numbers"):
        measure.same(zeros, np.array([0.0, 0.0, 5e-324]), "other")


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.5, "2.50 s"), (0.0123, "12.3 ms"), (4.56e-4, "456 us"), (-1.5e-6, "-1.50 us"), (0.0, "0.00 us")],
)
def test_times_are_shown_with_three_digits(value: float, text: str) -> None:
    assert measure.seconds(value) == text


def test_a_tone_curve_of_terms_is_what_horners_rule_gives_each_sample() -> None:
    samples, out = np.arange(256, dtype=np.uint8).reshape(2, 128), np.empty((2, 128), np.uint8)
    grade(samples, out, 7)
    for sample in (0, 100, 255):
        x, y = np.float32(sample) / np.float32(255), np.float32(0)
        for _ in range(7):
            y = y * x * np.float32(0.5) + np.float32(0.5)
        assert out.reshape(-1)[sample] == np.round(255 * np.clip(2 * y - 1, 0, 1))
    again, once = np.empty_like(samples), np.empty_like(samples)
    grade(out, again, 7)
    graded_twice(7)(samples, once)
    assert (again == once).all()


# Unified memory.


def test_a_frame_takes_the_same_whichever_it_is(opener: measure.Opener) -> None:
    device = opener("rtx-4090")
    two, five = (unified_memory.scene(1000, frames, 1000) for frames in (2, 5))
    for form in (
        lambda scene: unified_memory.copied(device, scene, 10, pinned=False),
        lambda scene: unified_memory.copied(device, scene, 10, pinned=True),
        lambda scene: unified_memory.unified(device, scene, 10),
    ):
        assert form(two)[1] == pytest.approx(form(five)[1], rel=1e-9)


@pytest.mark.parametrize("name", ["rtx-4090", "apple-m2-ultra"])
def test_what_saves_copies_saves_nothing_where_the_frame_has_nearly_none(opener: measure.Opener, name: str) -> None:
    row = unified_memory.compare(opener(name), unified_memory.scene(100, pixels=1_000_000), 2_000_000)
    assert row.copies < 2e-3
    assert abs(row.saved_by_pinned) < 2e-3 and abs(row.saved_by_unified) < 3e-3


@pytest.mark.parametrize("terms", [0, 10_000])
def test_no_form_saves_more_than_what_is_no_work(opener: measure.Opener, terms: int) -> None:
    for name in ("rtx-4090", "apple-m2-ultra"):
        row = unified_memory.compare(opener(name), unified_memory.scene(20_000), terms)
        assert max(row.saved_by_pinned, row.saved_by_unified) <= row.copies + 1e-9


def test_memory_that_both_share_moves_nothing(opener: measure.Opener) -> None:
    row = unified_memory.compare(opener("apple-m2-ultra"), unified_memory.scene(100_000), 0)
    assert row.unified_s == pytest.approx(row.working_s, rel=1e-9)


# A pool.


@pytest.mark.parametrize(("count", "size"), [(3, 3), (8, 4), (10, 1)])
def test_a_pool_saves_the_openings_it_spares(opener: measure.Opener, count: int, size: int) -> None:
    row = device_pool.compare(opener, count, size=size)
    opening_s = windtunnel.catalogue().device("rtx-4090").api.values["context_s"].value
    assert row.plain_s == pytest.approx(count * opening_s, rel=1e-3)
    assert row.saved == pytest.approx(1 - size / count, abs=1e-3)


def test_where_opening_takes_no_time_there_is_nothing_to_save(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing stands between a program and its processor.
    monkeypatch.setattr(device_pool, "CARD", "epyc-9654")
    row = device_pool.compare(measure.devices(), 3)
    assert row.plain_s == pytest.approx(0.0, abs=1e-4)
    assert device_pool.Row(3, False, 0.0, 0.0).saved is None


# Pipelines.


@pytest.mark.parametrize("terms", [0, 600, 3_000])
def test_three_engines_are_never_more_than_all_busy(terms: int) -> None:
    """So overlap never gains more than three: what all three did, over the time that it took, on any streams."""
    frames = async_pipeline.film(6, 200_000)
    device = windtunnel.device("rtx-4090")
    row = async_pipeline.compare(device, frames, terms, tuple(async_pipeline.FORMS))
    work = sum(row.engines.values())
    for form, spent in row.seconds.items():
        if form != async_pipeline.PAGEABLE:
            assert work / spent <= 3.0, form
            assert spent >= max(row.engines.values()), form


def test_a_frame_alone_gains_nothing_by_streams() -> None:
    row = async_pipeline.compare(windtunnel.device("rtx-4090"), async_pipeline.film(1), 600, ("one stream, one wait",))
    three = async_pipeline.compare(windtunnel.device("rtx-4090"), async_pipeline.film(1), 600, ("three streams",))
    assert row.gain("one stream, one wait") == pytest.approx(1.0, rel=1e-9)
    assert three.gain("three streams") == pytest.approx(1.0, rel=1e-9)


def test_more_streams_never_take_longer_and_one_copy_engine_gains_less_than_two() -> None:
    device, frames = windtunnel.device("rtx-4090"), async_pipeline.film(8, 400_000)
    row = async_pipeline.compare(device, frames, 600, tuple(async_pipeline.FORMS))
    one, two, three = (row.seconds[form] for form in ("one stream, one wait", "two streams", "three streams"))
    assert three <= two <= one <= row.seconds[async_pipeline.PLAIN]
    assert row.gain("two streams, one copy engine") < row.gain("two streams")


def test_copies_of_one_engine_are_never_side_by_side() -> None:
    device = windtunnel.device("rtx-4090")
    spans = device.start_trace()
    async_pipeline.one_copy_engine(device, async_pipeline.film(5, 100_000), 49)
    copies = sorted((span.start, span.end) for span in spans if span.engine.startswith("copy"))
    assert len(copies) == 10
    assert all(end <= start for (_, end), (start, _) in zip(copies, copies[1:], strict=False))


# Graphs.


def test_what_a_graph_saves_grows_with_its_kernels_and_is_no_more_than_a_fixed_time_each() -> None:
    device = windtunnel.device("rtx-4090")
    rows = [compute_graph.compare(device, 64, layers, requests=3) for layers in (1, 4, 16)]
    saved = [row.launched_s - row.replayed_s for row in rows]
    assert saved == sorted(saved)
    api, floor = device.context.device.api.values, 2.3e-6  # type: ignore[attr-defined]
    copies = 2 * 1e-5
    for row, spared in zip(rows, saved, strict=True):
        assert spared <= row.kernels * (floor - api["graph_node_s"].value) + copies


def test_a_graph_of_one_kernel_saves_no_more_than_that_fixed_time() -> None:
    device = windtunnel.device("rtx-4090")
    a, b = device.to_device(np.arange(256, dtype=np.uint8)), device.empty(256, np.uint8)

    def launched() -> None:
        device.launch(grade, 1, 256, a, b, 49)
        device.synchronize()

    with device.capture() as graph:
        device.launch(grade, 1, 256, a, b, 49)
    compiled = graph.compile()

    def replayed() -> None:
        compiled.replay()
        device.synchronize()

    spared = usage_of(device, launched).seconds - usage_of(device, replayed).seconds
    assert 0.0 <= spared <= 2.3e-6 - 0.94e-6 + 1e-12


def test_wide_layers_leave_a_graph_hardly_anything_to_save() -> None:
    device = windtunnel.device("rtx-4090")
    small, wide = compute_graph.compare(device, 64), compute_graph.compare(device, 4096, 2)
    assert wide.saved < 0.15 < small.saved


# Five stages.


@pytest.fixture(scope="module")
def staged(opener: measure.Opener) -> five_stage.Result:
    return five_stage.compare(opener, 4)


def test_the_stages_add_up_to_the_whole(staged: five_stage.Result) -> None:
    assert tuple(staged.stages) == five_stage.STAGES
    assert sum(staged.stages.values()) == pytest.approx(staged.total_s, rel=1e-9)


def test_each_stage_takes_what_predict_says_and_the_wait_for_it(staged: five_stage.Result) -> None:
    moved = 4 * five_stage.PATCHES
    gemm = {"m": five_stage.PATCHES, "n": five_stage.WIDTH, "k": five_stage.VALUES, "dtype": "float32"}
    expected: dict[str, tuple[str, str, dict[str, Any]]] = {
        "transfer": (five_stage.GPU, "copy", {"bytes": moved * five_stage.VALUES, "direction": "h2d"}),
        "compute": (five_stage.GPU, "gemm", gemm),
        "transfer back": (five_stage.GPU, "copy", {"bytes": moved * five_stage.WIDTH, "direction": "d2h"}),
    }
    for stage, (device, op, values) in expected.items():
        predicted = windtunnel.predict(op, device, values).duration_s
        assert predicted <= staged.stages[stage] / staged.batches <= predicted + 10e-6, stage


def test_a_pipeline_is_as_quick_as_its_slowest_engine_lets_it(staged: five_stage.Result) -> None:
    slowest = max(staged.busy_s.values())
    assert slowest <= staged.pipelined_s <= staged.total_s
    # Filling and draining it take less than a batch from one end to the other.
    assert staged.pipelined_s <= slowest + staged.total_s / staged.batches


# Particles.


def test_particles_stay_between_the_walls_and_fall() -> None:
    start = particles.world(1000, frames=20)
    device = windtunnel.device("rtx-4090")
    with particles.FORMS[particles.ARTICLE](device, start) as (state, frame):
        for wind in start.wind:
            frame(wind)
        assert state.seen.min() >= 0.0 and state.seen.max() <= 1.0
        assert state.seen[2].mean() < start.position[2].mean()


def test_every_form_gives_the_numbers_of_plain_numpy() -> None:
    start = particles.world(500, frames=3)
    position, velocity = start.position.copy(), start.velocity.copy()
    for wind in start.wind:
        particles.accelerate(velocity, wind)
        particles.move(position, velocity)
        particles.bounce(position, velocity)
    pool = DevicePool(lambda: windtunnel.device("rtx-4090"), 2)
    for form in particles.FORMS:
        assert np.array_equal(particles.measure(pool, start, form)[0], position), form
    assert pool.opened == 1


def test_a_paced_frame_takes_more_energy_than_a_quick_one_by_what_idling_takes() -> None:
    device = windtunnel.device("rtx-4090")
    pool = DevicePool(lambda: device, 1)
    _, row = particles.measure(pool, particles.world(10_000, frames=1), particles.PLAIN)
    idle_w = device.context.device.idle_power_w  # type: ignore[attr-defined]
    assert row.paced_j - row.frame_j == pytest.approx(idle_w * (1 / 60 - row.frame_s), rel=1e-3)
    assert row.margin == pytest.approx(row.frames_per_s / 60)


def test_work_grows_with_the_particles() -> None:
    pool = DevicePool(lambda: windtunnel.device("rtx-4090"), 1)
    for form in particles.FORMS:
        small, large = (
            particles.measure(pool, particles.world(size, frames=1), form)[1].frame_s for size in (500_000, 1_000_000)
        )
        assert 1.8 < large / small < 2.1, form


def test_the_savings_are_of_the_plain_form() -> None:
    assert saving(2.0, 1.0) == 0.5 and saving(1.0, 1.0) == 0.0 and saving(1.0, 3.0) == -2.0


def test_an_accelerator_is_all_that_an_example_needs(opener: measure.Opener) -> None:
    assert isinstance(opener("l4"), Accelerator)


# Launch or persist, and hot reload.


def test_the_benchmark_on_the_runtime_takes_what_it_takes_in_the_process_engine() -> None:
    """Two engines that share the device model alone: the runtime's virtual clock, and the scheduler's simulation."""
    benchmark = Benchmark(windtunnel.catalogue().device(launch_or_persist.DEVICE), one_job_s)
    plain, stated = benchmark.plain, benchmark.device
    # Copies and kernels at the benchmark's stated rates; launches at the API's, which both sides have.
    costs = {**plain.kind.costs, "stencil": stated.kind.costs["stencil"]}
    kind = replace(plain.kind, costs=costs)
    device = replace(plain, values=stated.values, kind=kind, residuals=stated.residuals)
    host = windtunnel.Host()
    launched, persistent = launch_or_persist.benchmark(lambda _: Accelerator(EmulatedContext(device, host)))
    assert launched.step_s == pytest.approx(benchmark.seconds("step-launch"), rel=0.01)
    assert launched.inject_s == pytest.approx(benchmark.seconds("inject-launch"), rel=0.01)
    assert persistent.inject_s == pytest.approx(benchmark.seconds("inject-persistent"), rel=0.01)
    # The runtime's look at the control block takes its time, 2.5 us beside 155; the other side's does not.
    assert persistent.step_s == pytest.approx(benchmark.seconds("step-persistent"), rel=0.03)
    assert persistent.mixed_s == pytest.approx(benchmark.seconds("mixed-persistent"), rel=0.03)


def test_persisting_saves_a_smaller_share_of_longer_commands() -> None:
    found = launch_or_persist.like_for_like(devices(), side=16, steps=(1, 4, 16), commands=2)
    saved = [saving(c.launched_s, c.persistent_s) for c in found]
    assert saved == sorted(saved, reverse=True)


def test_a_reload_takes_the_compiler_and_a_restart_the_device_as_well() -> None:
    row = hot_reload.compare(devices())
    values = windtunnel.catalogue().device(hot_reload.CARD).api.values
    assert row.reloaded_s == pytest.approx(values["compile_s"].value, rel=0.05)
    assert row.restarted_s - row.reloaded_s == pytest.approx(values["context_s"].value, rel=0.05)
