"""Every figure of the founding documents is a claim, and every verdict follows from models and datasheets."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import windtunnel
from windtunnel.app import claims as claims_command
from windtunnel.claims import evaluate as judged
from windtunnel.claims.benchmark import FACTS, ROWS, Benchmark, Facts, host
from windtunnel.claims.bounds import time_bound
from windtunnel.claims.models import Modelled, Setting
from windtunnel.cli.main import cli
from windtunnel.core.device import Correction, Device
from windtunnel.core.errors import InputError
from windtunnel.core.ops import OPERATIONS, Rows, one_row
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel.core.results.claims import ClaimVerdict
from windtunnel.examples import EXAMPLES, unified_memory
from windtunnel.library.devices import emulator
from windtunnel.simulation.run import one_job_s
from windtunnel_models.catalogue import device_model

KNOWN = windtunnel.catalogue()

# What the documents state, as they state it, with its unit: the RTX table first.
FIGURES = [
    *[("RTX Ada, inject", v, "us") for v in (317.0, 0.03)],
    *[("RTX Ada, single step", v, "us") for v in (3.2, 163.0)],
    *[("RTX Ada, mixed 300 operations", v, "ms") for v in (40.5, 15.3)],
    *[("RTX Ada", v, "x") for v in (11327.0, 51.0, 2.7)],
    ("60 FPS", 2.7, "x"),
    *[("vector addition, 1M", v, "ms") for v in (2.0, 0.05, 0.08, 0.06, 0.10, 0.12)],
    *[("matrix multiply 1024x1024", v, "ms") for v in (800.0, 1.5, 0.8, 2.0, 3.0)],
    *[("AES-256, 1 GB", v, "ms") for v in (500.0, 10.0, 50.0)],
    *[("vector addition", v, "x") for v in (40.0, 25.0, 33.0, 20.0, 16.0)],
    *[("matrix multiply", v, "x") for v in (533.0, 1000.0, 400.0, 266.0)],
    *[("AES-256", v, "x") for v in (50.0, 10.0)],
    ("launch per command: copy in", 50.0, "us"),
    ("launch per command: launch", 30.0, "us"),
    ("launch per command: synchronize", 20.0, "us"),
    ("launch per command: copy out", 50.0, "us"),
    ("persistent: write", 50.0, "ns"),
    ("persistent: poll", 5.0, "us"),
    *[(f"{name}: latency", 10.0, "us") for name in ("CUDA", "ROCm", "Vulkan", "wgpu", "OpenCL")],
    *[(f"{name}: latency", 5.0, "us") for name in ("Metal", "TPU")],
    *[(f"{name}: latency", 1.0, "us") for name in ("FPGA", "QAT", "DPU")],
    ("CUDA", 20.0, "TFLOP/s"),
    ("ROCm", 15.0, "TFLOP/s"),
    ("Metal", 10.0, "TFLOP/s"),
    ("TPU", 100.0, "TOP/s"),
    ("QAT", 100.0, "Gbit/s"),
    ("DPU", 200.0, "Gbit/s"),
    *[
        (name, v, "W")
        for name, v in (
            ("CUDA", 250),
            ("ROCm", 300),
            ("Metal", 50),
            ("FPGA", 75),
            ("TPU", 250),
            ("QAT", 20),
            ("DPU", 25),
        )
    ],
    ("unified memory", 30.0, "%"),
    ("device pool", 70.0, "%"),
    ("pipelines", 3.0, "x"),
    ("compute graphs", 40.0, "%"),
    ("changed kernel", 500.0, "ms"),
    ("500,000 particles", 60.0, "/s"),
    ("runtime issues", 90.0, "%"),
]
RANGES = {
    "CUDA: latency": (1, 10),
    "Metal: latency": (1, 5),
    "Metal: 20-50 W": (20, 50),
    "FPGA: 25-75 W": (25, 75),
    "TPU: 75-250 W": (75, 250),
    "launch per command: copy in": (20, 50),
    "launch per command: launch": (10, 30),
    "launch per command: synchronize": (5, 20),
    "launch per command: copy out": (20, 50),
    "persistent: write": (10, 50),
    "persistent: poll": (1, 5),
}


@pytest.fixture(scope="module")
def rows() -> list[ClaimVerdict]:
    return claims_command.claims(catalogue=KNOWN)


def find(rows: list[ClaimVerdict], text: str) -> ClaimVerdict:
    (row,) = [row for row in rows if text in row.claim]
    return row


def setting(device: Callable[[str], Device] = lambda name: device_model(name, KNOWN), facts: Facts = FACTS) -> Setting:
    return Setting(device, one_job_s, facts, emulator())


def bench(facts: Facts = FACTS, **values: float) -> Benchmark:
    """The benchmark with some numbers of its device or its API changed (SI)."""
    device = device_model("rtx-6000-ada", KNOWN)
    moved = {name: SourcedValue(value, Provenance.MEASURED, "this test") for name, value in values.items()}
    api = {name: value for name, value in moved.items() if name in device.api.values}
    own = {name: value for name, value in moved.items() if name not in api}
    device = replace(
        device, values={**device.values, **own}, api=replace(device.api, values={**device.api.values, **api})
    )
    return Benchmark(device, one_job_s, facts)


def stating(**values: float) -> Facts:
    return replace(FACTS, **{k: SourcedValue(v, Provenance.MEASURED, "this test") for k, v in values.items()})


@pytest.mark.parametrize(("text", "value", "unit"), FIGURES, ids=str)
def test_every_figure_of_the_documents_is_a_row(rows: list[ClaimVerdict], text: str, value: float, unit: str) -> None:
    assert [r for r in rows if text in r.claim and r.stated == value and r.unit == unit], f"{text} {value}"


@pytest.mark.parametrize(("text", "ends"), RANGES.items(), ids=str)
def test_a_stated_range_keeps_both_its_ends(rows: list[ClaimVerdict], text: str, ends: tuple[float, float]) -> None:
    row = find(rows, text)
    assert (row.stated_low, row.stated_high) == ends
    assert row.stated == ends[1]


def test_rows_hold_what_scripts_rely_on(rows: list[ClaimVerdict]) -> None:
    for row in rows:
        assert list(row.to_dict())[:8] == ["claim", "device", "stated", "modelled", "bound", "unit", "verdict", "why"]
        assert row.verdict in ("reproduced", "off", "impossible", "untested")
        assert isinstance(row.stated, float)
        assert all(value is None or isinstance(value, float) for value in (row.modelled, row.bound))
        assert row.device is None or device_model(row.device, KNOWN)
        assert (row.modelled is None) == (row.verdict == "untested"), row.claim
        assert len(row.why) > 30
    assert len({row.claim for row in rows}) == len(rows)


def test_what_is_untested_says_what_will_test_it(rows: list[ClaimVerdict]) -> None:
    waiting = [row for row in rows if row.verdict == "untested"]
    assert [row.claim.split()[0] for row in waiting] == ["error"]
    for row in waiting:
        assert (row.group, row.modelled, row.independent) == ("runtime", None, None)
        assert "to be tested by" in row.why
    assert all(row.modelled is not None for row in rows if row not in waiting)


def test_a_technique_is_judged_in_its_stated_setting_and_swept(rows: list[ClaimVerdict]) -> None:
    programs = [claim for claim in judged.read_claims() if "example" in claim.model]
    assert {claim.model["example"] for claim in programs} == set(EXAMPLES) - {"five_stage", "launch_or_persist"}
    for claim in programs:
        row = find(rows, claim.claim)
        assert row.modelled_low <= row.modelled <= row.modelled_high
        assert "swept over" in row.why and "the claim holds" in row.why
        assert row.independent is True


def test_a_figure_that_some_setting_gives_is_not_reproduced_by_that() -> None:
    claim = next(claim for claim in judged.read_claims() if claim.id == "compute-graph")
    inside = Modelled(0.2, "in the stated setting", low=0.0, high=0.9, swept="sizes", holds="for small ones")
    verdict, why = judged.Report(setting(), [claim]).judge(claim, inside)
    assert verdict == "off"
    assert why.startswith("off by 20 points: the model predicts less")
    assert "swept over sizes: 0 % to 90 %; the claim holds for small ones" in why


def test_a_program_reads_the_devices_that_its_setting_has() -> None:
    """Twice the time to open a device, and the seconds in the row are twice as many; its saving is the same."""
    claim = next(claim for claim in judged.read_claims() if claim.id == "device-pool")

    def slower(name: str) -> Device:
        device = device_model(name, KNOWN)
        more = replace(device.api.values["context_s"], value=0.4, low=0.1, high=1.0)
        return replace(device, api=replace(device.api, values={**device.api.values, "context_s": more}))

    usual, moved = (judged.Report(setting(of), [claim]).row(claim) for of in (setting().device, slower))
    assert "20.0 s of initialisation" in usual.why and "40.0 s of initialisation" in moved.why
    assert moved.modelled == pytest.approx(usual.modelled, abs=0.1)


def test_unified_memory_saves_nothing_on_the_card_at_either_end_of_what_is_assumed_of_it() -> None:
    emulate = emulator()
    scene = unified_memory.scene()
    for fraction, sign in ((0.1, -1), (0.9, -1), (1.0, -1), (3.0, 1)):
        device = device_model(unified_memory.CARD, KNOWN)
        stated = replace(device.api.values["unified_fraction"], value=fraction, low=0.05, high=4.0)
        moved = replace(device, api=replace(device.api, values={**device.api.values, "unified_fraction": stated}))
        row = unified_memory.compare(emulate(moved), scene, 0)
        assert np.sign(row.saved_by_unified) == sign, fraction


def test_an_example_that_is_none_is_told_the_nearest() -> None:
    claim = next(claim for claim in judged.read_claims() if claim.id == "particles")
    wrong = replace(claim, model={"example": "partciles"})
    with pytest.raises(InputError, match="did you mean 'particles'"):
        judged.Report(setting(), [wrong]).row(wrong)
    with pytest.raises(InputError, match="cannot open emulated devices"):
        judged.Report(replace(setting(), emulate=None), [claim]).row(claim)


@pytest.mark.parametrize("row", list(ROWS))
def test_the_rtx_table_comes_out_within_a_tenth_but_for_mixed_launches(rows: list[ClaimVerdict], row: str) -> None:
    (claim,) = [c for c in judged.read_claims() if c.model.get("benchmark") == row]
    found = find(rows, claim.claim)
    near = abs(found.modelled / found.stated - 1) <= 0.10
    assert near == (row != "mixed-launch")
    assert found.verdict == ("reproduced" if near else "off")
    assert found.modelled_low <= found.modelled <= found.modelled_high


def test_a_row_is_the_catalogues_and_a_note_says_what_the_documents_phases_give(rows: list[ClaimVerdict]) -> None:
    found = find(rows, "mixed 300 operations: launch per command")
    assert found.modelled == pytest.approx(bench().seconds("mixed-launch") * 1e3, rel=1e-5)
    stated = bench(copy_setup_s=20e-6, synchronize_s=5e-6, round_trip_s=10e-6 + bench().floor_s)
    assert stated.seconds("mixed-launch") == pytest.approx(37.2e-3, rel=2e-3)
    assert "in place of the catalogue's values, it would be 37.2 ms" in found.why


def test_rows_with_sleeps_say_which_part_is_assumed(rows: list[ClaimVerdict]) -> None:
    for name in ("single step: persistent", "mixed 300 operations: persistent 15.3"):
        why = find(rows, name).why
        assert "35% of each sleep, 50.0 µs of timer slack and 5.00 µs to wake, are assumed" in why
    least = bench(stating(timer_slack_s=1e-6, wake_s=1e-6)).seconds("step-persistent")
    assert f"the row would be {least * 1e6:.0f} µs" in find(rows, "single step: persistent").why


def test_the_latency_of_an_fpga_includes_the_start_of_a_command(rows: list[ClaimVerdict]) -> None:
    found = find(rows, "FPGA: latency")
    device = device_model("alveo-u50", KNOWN)
    values = {"n": 64, "dispatch": "eager"}
    assert found.modelled == pytest.approx(device.cost(one_row(OPERATIONS["vector_add"], values)).duration_s[0] * 1e6)
    assert found.verdict == "off"


def test_two_figures_that_are_off_do_not_make_a_ratio_that_is_reproduced(rows: list[ClaimVerdict]) -> None:
    found = find(rows, "vector addition: CUDA 40x")
    assert abs(found.modelled / found.stated - 1) < 0.25
    assert found.verdict == "off"
    assert found.why.startswith("neither of its two figures is reproduced, and their errors happen to cancel")
    by_id = {claim.id: claim for claim in judged.read_claims()}
    for claim in by_id.values():
        if "ratio" in claim.model and find(rows, claim.claim).verdict == "reproduced":
            assert any(find(rows, by_id[name].claim).verdict == "reproduced" for name in claim.model["ratio"])


def test_what_lies_beside_a_range_is_not_said_to_lie_in_it(rows: list[ClaimVerdict]) -> None:
    for row in rows:
        if row.verdict == "reproduced" and row.stated_low != row.stated_high:
            inside = row.stated_low <= row.modelled <= (math.inf if row.stated_high is None else row.stated_high)
            assert ("the model lies in the range" in row.why) == inside, row.claim
    assert "outside the range, and 10% are allowed" in find(rows, "DPU: latency").why


def test_entries_of_the_catalogue_are_by_definition_and_not_independent(rows: list[ClaimVerdict]) -> None:
    entries = [claim for claim in judged.read_claims() if "parameter" in claim.model]
    assert {"FPGA: initiation interval 1", "FPGA: reconfiguration takes seconds"} <= {c.claim for c in entries}
    for claim in entries:
        row = find(rows, claim.claim)
        assert "by definition: " in row.why and row.independent is False


def test_the_summary_counts_independent_verdicts(rows: list[ClaimVerdict]) -> None:
    counted = sum(1 for row in rows if row.verdict == "reproduced" and row.independent)
    reproduced = sum(1 for row in rows if row.verdict == "reproduced")
    assert 0 < counted < reproduced
    last = claims_command.claims_text(rows).splitlines()[-1]
    assert f"{reproduced} reproduced ({counted} independent)" in last


@pytest.mark.parametrize(
    ("row", "changed", "factor"),
    [
        ("inject-launch", stating(pageable_bytes_per_s=3.8e9), 1.958),
        ("step-persistent", stating(sleep_s=200e-6), 1.645),
        ("step-persistent", stating(timer_slack_s=1e-6), 0.684),
        ("mixed-persistent", stating(wake_s=25e-6), 1.129),
    ],
    ids=str,
)
def test_a_fact_moves_the_rows_it_enters(row: str, changed: Facts, factor: float) -> None:
    assert bench(changed).seconds(row) / bench().seconds(row) == pytest.approx(factor, rel=0.01)


def test_a_primitive_of_the_device_moves_the_rows_it_enters() -> None:
    assert bench(dispatch_s=5e-6).seconds("step-launch") == pytest.approx(10e-6)
    assert bench(persistent_write_s=50e-9).seconds("inject-persistent") == pytest.approx(50e-9)
    added = bench(copy_setup_s=20e-6).seconds("inject-launch") - bench().seconds("inject-launch")
    assert added == pytest.approx(2 * (20e-6 - bench().copy_setup_s))
    for name in ("round_trip_s", "synchronize_s"):
        now = bench().device.api.values[name].value
        added = bench(**{name: now + 10e-6}).seconds("mixed-launch") - bench().seconds("mixed-launch")
        assert added == pytest.approx(100 * 10e-6, rel=0.01), name
    slower = bench(kernel_floor_s=12.3e-6)
    # What the floor of an empty kernel takes of its round trip is not the launch's.
    added = 100 * 10 * (slower.floor_s - bench().floor_s) - 100 * (bench().launch_latency_s - slower.launch_latency_s)
    assert slower.seconds("mixed-launch") - bench().seconds("mixed-launch") == pytest.approx(added, rel=0.01)


def test_enqueuing_and_execution_overlap_and_the_longer_gates() -> None:
    """With enqueues far slower than kernels the ten enqueues are what a repetition of the mixed workload takes."""
    slow = bench(dispatch_s=100e-6)
    expected = 100 * (slow.seconds("inject-launch") + 10 * 100e-6 + slow.synchronize_s)
    assert slow.seconds("mixed-launch") == pytest.approx(expected, rel=1e-6)


def test_the_mixed_rows_follow_from_the_single_ones() -> None:
    b = bench()
    assert b.seconds("mixed-persistent") == pytest.approx(
        100 * (b.seconds("inject-persistent") + b.seconds("step-persistent")), rel=1e-6
    )
    rest = b.seconds("mixed-launch") / 100 - b.seconds("inject-launch")
    assert rest > 5 * b.seconds("step-launch"), "execution shows once something waits for it"


def test_a_command_that_outlasts_a_sleep_is_seen_one_look_later() -> None:
    short = bench(stating(sleep_s=10e-6, timer_slack_s=0.0, wake_s=0.0))
    assert short.looks(5) == 3
    assert short.seconds("step-persistent") == pytest.approx(10e-6, rel=0.01)
    assert short.acknowledged(5)[1]["streams"][0] == [host(10e-6)] * 3


def test_the_catalogue_is_not_changed_by_the_benchmark() -> None:
    before = device_model("rtx-6000-ada", KNOWN)
    bench().seconds("mixed-launch")
    after = windtunnel.catalogue().device("rtx-6000-ada")
    assert (before.values, before.api.values) == (after.values, after.api.values)


class Doubled:
    """A residual that says everything takes twice as long."""

    origin = SourcedValue(1.0, Provenance.MEASURED, "this test")

    def __call__(self, rows: Rows) -> Correction:
        return Correction(np.full(rows.shape, np.log(2.0)), np.full(rows.shape, 0.1))


def test_what_was_learned_of_a_device_does_not_enter_what_the_benchmark_states() -> None:
    plain = device_model("rtx-6000-ada", KNOWN)
    corrected = replace(plain, residuals=dict.fromkeys(("stencil", "copy", "launch"), Doubled()))
    copy = one_row(OPERATIONS["copy"], {"bytes": 4096, "direction": "h2d"})
    assert corrected.cost(copy).duration_s[0] == pytest.approx(2 * plain.cost(copy).duration_s[0])
    assert Benchmark(corrected, one_job_s).seconds("mixed-launch") == bench().seconds("mixed-launch")


def test_aes_of_a_gigabyte_on_qat_is_impossible_by_its_own_datasheet(rows: list[ClaimVerdict]) -> None:
    """1 GB is 8 Gbit; at 100 Gbit/s that takes 80 ms, and 10 ms would be 800 Gbit/s."""
    row = find(rows, "AES-256, 1 GB: QAT")
    assert row.verdict == "impossible"
    assert row.bound == pytest.approx(8e9 / 100e9 * 1e3)
    assert re.search(r"8\.00 Gbit.*100 Gbit/s.*80\.0 ms.*8 times", row.why)
    ratio = find(rows, "AES-256: QAT 50x")
    assert ratio.verdict == "impossible"
    assert ratio.bound == pytest.approx(500 / 80)


def test_a_vector_on_an_m1_cannot_move_faster_than_its_memory(rows: list[ClaimVerdict]) -> None:
    row = find(rows, "Metal on M1 0.06 ms")
    bandwidth = device_model("apple-m1", KNOWN).number("memory_bandwidth_bytes_per_s")
    assert row.bound == pytest.approx(3 * 4 * 1e6 / bandwidth * 1e3, rel=1e-5)
    assert row.verdict == "impossible"


def test_impossible_gives_way_when_the_datasheet_does() -> None:
    """Ten times the engines and the bus, and 1 GB in 10 ms becomes possible: the bound is arithmetic, not a list."""

    def faster(name: str) -> Device:
        device = device_model(name, KNOWN)
        if device.kind.name != "qat":
            return device
        names = ("bulk_bytes_s.aes_gcm", "host_link_bytes_s")
        more = {n: SourcedValue(device.values[n].value * 10, Provenance.DATASHEET, "this test") for n in names}
        return replace(device, values={**device.values, **more})

    (row,) = [r for r in judged.report(setting(faster), "aes") if "QAT" in r.claim]
    assert row.verdict != "impossible"
    assert row.bound == pytest.approx(8.0)


def test_the_doubt_is_the_claims(rows: list[ClaimVerdict]) -> None:
    """A claim within the favourable end of an uncertain datasheet number is off, not impossible."""
    claim = next(c for c in judged.read_claims() if c.id == "aes-qat")
    device = device_model("qat-8970", KNOWN)
    bound = time_bound(device, one_row(OPERATIONS["aes"], claim.model["values"]))
    assert bound is not None
    assert bound.favourable < bound.value
    between = (bound.favourable + bound.value) / 2
    near = replace(claim, stated=judged.StatedFigure(between, between), tolerance=0.0)
    report = judged.Report(setting(), [near])
    assert report.row(near).verdict == "off"
    below = replace(claim, stated=judged.StatedFigure(bound.favourable * 0.99, bound.favourable * 0.99))
    assert judged.Report(setting(), [below]).row(below).verdict == "impossible"


def test_no_modelled_value_beats_its_bound(rows: list[ClaimVerdict]) -> None:
    sense = {claim.claim: claim.sense for claim in judged.read_claims()}
    for row in rows:
        if row.modelled is None or row.bound is None or row.unit == "x":
            continue
        if sense[row.claim] == "time":
            assert row.modelled >= row.bound * (1 - 1e-9), row.claim
        else:
            assert row.modelled <= row.bound * (1 + 1e-9), row.claim


def test_11327_is_not_what_317_over_3_hundredths_is(rows: list[ClaimVerdict]) -> None:
    row = find(rows, "11,327x")
    assert row.verdict == "off"
    assert "10,567x, not 11,327x" in row.why


def test_ratios_are_of_the_rows_they_name(rows: list[ClaimVerdict]) -> None:
    cpu, cuda = find(rows, "vector addition, 1M elements: CPU"), find(rows, "vector addition, 1M elements: CUDA")
    ratio = find(rows, "vector addition: CUDA 40x")
    assert ratio.modelled == pytest.approx(cpu.modelled / cuda.modelled, rel=1e-4)
    assert ratio.bound == pytest.approx(cpu.stated / cuda.bound, rel=1e-4)


def test_a_figure_that_the_model_took_from_the_documents_proves_nothing(rows: list[ClaimVerdict]) -> None:
    taken = find(rows, "persistent: write")
    assert (taken.verdict, taken.independent) == ("reproduced", False)
    assert "not independent: depends on numbers from the same documents: persistent_write_s" in taken.why
    assert find(rows, "single step: launch per command").independent is True
    assert find(rows, "QAT: 100 Gbps").independent is False
    # The watts of a device may be assumed from them; they do not enter the times.
    assert find(rows, "TPU: latency").independent is True


def test_the_facts_name_their_sources_and_assumptions_have_ranges() -> None:
    for field in fields(FACTS):
        fact: SourcedValue = getattr(FACTS, field.name)
        assert fact.source
        if fact.provenance is Provenance.ASSUMED:
            assert fact.low is not None and fact.high is not None and fact.low < fact.high and fact.reason


@pytest.mark.parametrize(
    ("stated", "value", "verdict"),
    [
        ("10 us", 10.9e-6, "reproduced"),
        ("10 us", 11.1e-6, "off"),
        ("10 us", 9.1e-6, "reproduced"),
        ("10 us", 8.9e-6, "off"),
        ({"low": "1 us", "high": "10 us"}, 5e-6, "reproduced"),
        ({"low": "1 us", "high": "10 us"}, 10.9e-6, "reproduced"),
        ({"low": "1 us", "high": "10 us"}, 12e-6, "off"),
        ({"low": "1 us", "high": "10 us"}, 0.8e-6, "off"),
        ({"below": "1 us"}, 1e-9, "reproduced"),
        ({"below": "1 us"}, 2e-6, "off"),
        ({"at_least": "1 us"}, 1.0, "reproduced"),
        ({"at_least": "1 us"}, 0.5e-6, "off"),
    ],
    ids=str,
)
def test_the_rules_of_the_verdicts(stated: Any, value: float, verdict: str) -> None:
    claim = judged.Claim(
        "id", "group", "claim", "document", None, judged._stated(stated, "us"), "us", "time", {"untested": "x"}
    )
    report = judged.Report(setting(), [claim])
    assert report.judge(claim, Modelled(value, "because"))[0] == verdict


def test_a_factor_and_a_reason_stand_in_every_row_that_is_off(rows: list[ClaimVerdict]) -> None:
    off = [row for row in rows if row.verdict == "off"]
    assert off
    for row in off:
        assert re.search(
            r"off by (a factor of [\d.e+]+|\d+ points): the model predicts (more|less)|not 11,327x|neither of its two",
            row.why,
        ), row.claim
        assert "likeliest: " in row.why, row.claim


def test_the_factor_is_the_distance_of_the_figures(rows: list[ClaimVerdict]) -> None:
    row = find(rows, "TPU: latency 1-5 us")
    factor = float(re.search(r"factor of ([\d.]+)", row.why)[1])  # type: ignore[index]
    assert factor == pytest.approx(row.modelled / 5.0, rel=0.01)


def test_the_command_prints_json_text_and_groups(rows: list[ClaimVerdict], monkeypatch: pytest.MonkeyPatch) -> None:
    runner = CliRunner()
    some = runner.invoke(cli, ["claims", "--only", "rtx", "--format", "json"], catch_exceptions=False)
    assert some.exit_code == 0
    assert json.loads(some.stdout) == [row.to_dict() for row in rows if row.group == "rtx"]
    # All rows were evaluated once for the fixture, so that the text of all of them costs no second evaluation.
    monkeypatch.setattr(judged, "report", lambda _setting, only: rows if only is None else [])
    text = runner.invoke(cli, ["claims"], catch_exceptions=False)
    assert text.exit_code == 0
    assert text.stdout.rstrip().splitlines()[-1].startswith(f"{len(rows)} claims: ")
    for row in rows:
        assert row.claim in text.stdout


def test_an_unknown_group_is_told_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'overview'"):
        claims_command.claims("overveiw")


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ("unit: ms", "unit: kg"),
        ("document: evaluation", "document: evalution"),
        ("unit: us, sense: time", "unit: us, sens: time"),
        ("{low: 1 us, high: 10 us}", "{lowest: 1 us, high: 10 us}"),
        ("id: cuda-latency", "id: cuda-power"),
    ],
)
def test_a_broken_list_of_claims_is_refused(tmp_path: Path, broken: str, expected: str) -> None:
    text = judged.FILE.read_text()
    assert broken in text
    path = tmp_path / "claims.yaml"
    path.write_text(text.replace(broken, expected, 1))
    with pytest.raises(InputError, match=r"claims\.yaml"):
        judged.read_claims(path)
