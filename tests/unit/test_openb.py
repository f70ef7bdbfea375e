"""The openb trace: its rows exactly, round trips to the byte, what its scenarios report, and input that is wrong."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windtunnel
import windtunnel.placement.policies
from windtunnel.app import run as run_command
from windtunnel.core.errors import InputError
from windtunnel.core.results.data import result_json
from windtunnel.core.results.run import JobCounts
from windtunnel.placement import engine as placement
from windtunnel.placement import invariants as placement_invariants
from windtunnel.placement import run as placement_run
from windtunnel.placement.nodes import PLACEMENTS
from windtunnel.placement.openb import nodes_csv, pods_csv, read_openb_nodes, read_openb_pods
from windtunnel.placement.recording import PlacementRecording
from windtunnel.placement.scenario import placement_from_data
from windtunnel.placement.tasks import prepare_placement
from windtunnel.report.placement import placement_summary, write_tasks
from windtunnel_models.catalogue import device_model

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
NODES, PODS = SCENARIOS / "traces" / "openb_nodes.csv.gz", SCENARIOS / "traces" / "openb_pods_default.csv.gz"


def small(**keys: Any) -> Any:
    """Ten nodes of eight GPUs and the openb tasks that fit them, as data."""
    return {
        "schema": 1,
        "name": "small",
        "cluster": {"nodes": {"file": "traces/openb_nodes.csv.gz", "stride": 80}},
        "workload": [
            {
                "name": "tasks",
                "arrivals": {
                    "process": "trace",
                    "file": "traces/openb_pods_default.csv.gz",
                    "format": "openb-pods",
                },
            }
        ],
        **keys,
    }


def checked(data: Any) -> Any:
    return placement_from_data(data, str(SCENARIOS / "small.yaml"))


def test_both_files_have_their_rows_and_come_back_to_the_byte() -> None:
    nodes, _ = read_openb_nodes(NODES)
    pods, _ = read_openb_pods(PODS)
    assert (len(nodes), sum(node.gpu for node in nodes)) == (1_213, 6_212)
    assert (len(pods), sum(pod.scheduled_time is None for pod in pods)) == (8_152, 897)
    assert sum(pod.num_gpu * pod.gpu_milli for pod in pods) == 6_086_800
    assert nodes_csv(nodes) == gzip.decompress(NODES.read_bytes()).decode()
    assert pods_csv(pods) == gzip.decompress(PODS.read_bytes()).decode()


def test_accepted_models_come_back_too(tmp_path: Path) -> None:
    text = gzip.decompress(PODS.read_bytes()).decode().splitlines(keepends=True)[:2]
    text[1] = text[1].replace(",,LS", ",V100M16|V100M32,LS")
    (tmp_path / "pods.csv").write_text("".join(text))
    pods, _ = read_openb_pods(tmp_path / "pods.csv")
    assert pods[0].gpu_spec == ("V100M16", "V100M32")
    assert pods_csv(pods) == "".join(text)


def test_the_replay_holds_every_task_and_node_and_is_the_same_twice() -> None:
    once = windtunnel.run(SCENARIOS / "openb-replay.yaml")
    result = once.result
    assert result.jobs == JobCounts(arrived=8_152, completed=8_152, dropped=0, failed=0, running=0, queued=0)
    assert len(result.devices) == 1_213
    assert sum(device.jobs for device in result.devices) == 8_152
    assert result.engine == "placement"
    assert result.energy_j is None and any("G2" in note for note in result.notes)
    placed = result.placement
    assert placed.arrived_demand == pytest.approx(6_086.8 / 6_212, rel=1e-12)
    # The series' time averages weigh the same time as the figure beside them.
    assert np.mean([row.allocated for row in placed.over_time]) == pytest.approx(placed.gpu_allocation.value, rel=1e-9)
    assert placed.over_time[-1].arrived == pytest.approx(placed.arrived_demand)
    # Against arrived demand: the same tasks, if none left.
    assert [row.demand for row in placed.series] == pytest.approx(np.arange(98) / 100)
    assert all(row.allocated.value <= row.demand + 1e-12 for row in placed.series)
    assert placed.series[50].allocated.value == pytest.approx(0.5, abs=0.002)
    assert result_json(result) == result_json(windtunnel.run(SCENARIOS / "openb-replay.yaml").result)
    assert "8,152 of 8,152 completed" in placement_summary(result)


def test_gradient_descent_allocates_more_than_random_and_best_fit_on_the_openb_mix() -> None:
    """Judged run by run on the same five draws of tasks: a sign that chance turns in one of 32 cases."""
    allocated: dict[str, Any] = {}
    drawn: dict[str, Any] = {}
    for policy in ("random", "best-fit", "fragmentation-gradient-descent"):
        data = small(policy=policy, ties="shuffled", mode={"kind": "inflate", "demand": 1.3})
        data["cluster"]["nodes"]["stride"] = 4
        stated = checked(data)
        prepared = prepare_placement(stated)
        runs = [placement.run(stated, prepared, PLACEMENTS[policy], seed) for seed in range(5)]
        for run in runs:
            placement_invariants.check(run, prepared)
            # The task that reaches the demand is the last.
            assert run.timeline.demand[-2] < 1.3 * run.capacity <= run.timeline.demand[-1]
        allocated[policy] = np.array([run.timeline.allocated[-1] / run.capacity for run in runs])
        drawn[policy] = [run.tasks.names for run in runs]
    assert drawn["random"] == drawn["best-fit"]
    best = allocated["fragmentation-gradient-descent"]
    assert (best > allocated["best-fit"]).all() and (best > allocated["random"]).all()
    assert (allocated["best-fit"] > allocated["random"]).all()


def test_inflation_draws_the_traces_mix() -> None:
    data = small(mode={"kind": "inflate", "demand": 20})
    stated = checked(data)
    prepared = prepare_placement(stated)
    run = placement.run(stated, prepared, PLACEMENTS["best-fit"], 3)
    drawn = np.bincount(run.tasks.kind, minlength=len(prepared.classes.cpu)) / len(run.tasks)
    share = np.bincount(prepared.tasks.kind, minlength=len(prepared.classes.cpu)) / len(prepared.tasks)
    # Five standard errors of a share, over every class at once.
    assert (np.abs(drawn - share) <= 5 * np.sqrt(share * (1 - share) / len(run.tasks)) + 1 / len(run.tasks)).all()


def test_runs_make_means_with_intervals() -> None:
    finished = windtunnel.run(checked(small(mode={"kind": "inflate", "demand": 1.2, "runs": 3})))
    placed, jobs = finished.result.placement, finished.result.jobs
    assert placed.runs == 3
    assert jobs.arrived == jobs.running + jobs.dropped
    last = placed.series[-1]
    assert last.demand == pytest.approx(1.2)
    assert last.allocated.low <= last.allocated.value <= last.allocated.high
    for row in placed.series:
        assert row.fragmented.value <= 1 - row.allocated.value + 1e-12
    assert finished.result.latency_s.mean.value is None


def test_runs_are_shown_by_their_mean_and_an_interval_across_a_limit_is_not_sure(tmp_path: Path) -> None:
    data = small(mode={"kind": "inflate", "demand": 1.2, "runs": 3})
    first = windtunnel.run(checked(data)).result
    allocated, jobs = first.placement.gpu_allocation, first.jobs
    assert allocated.low < allocated.value < allocated.high
    limits = [(allocated.low + allocated.value) / 2, allocated.low * 0.9]
    finished = windtunnel.run(checked(data | {"targets": [f"allocation >= {limit}" for limit in limits]}))
    assert [(t.met, t.confidence) for t in finished.result.targets] == [
        (True, "inconclusive"),
        (True, "conclusive"),
    ]
    run_command.save(finished, tmp_path)
    assert 'class="answer inconclusive"' in (tmp_path / "report.html").read_text()
    text = placement_summary(finished.result)
    assert f": 3 runs of {jobs.arrived / 3:,.0f} tasks on average on " in text
    assert f"tasks          {jobs.running / 3:,.0f} of {jobs.arrived / 3:,.0f} placed, " in text
    assert "  met (inconclusive)   allocation ≥ " in text


def test_energy_where_every_models_power_is_known() -> None:
    gpus = {name: {"sku": "v100-sxm-32gb", "price": "1 USD/h"} for name in ("G2", "G3")}
    data = small(mode="replay", targets=["allocation <= 99%", "waiting mean <= 1 h"])
    data["cluster"]["gpus"] = gpus
    result = windtunnel.run(checked(data)).result
    span = result.simulated_s
    assert result.energy_j == pytest.approx(sum(d.energy_j for d in result.devices))
    assert result.average_power_w == pytest.approx(result.energy_j / span)
    assert result.average_power_w <= result.peak_power_w
    assert [t.met for t in result.targets][0]
    assert result.cost_usd is None  # the other models have no price
    assert {row.device for row in result.provenance} >= {"v100-sxm-32gb", "t4"}


def test_whole_outputs_are_written(tmp_path: Path) -> None:
    for mode in ("replay", {"kind": "inflate", "demand": 1.1, "runs": 2}):
        finished = windtunnel.run(checked(small(mode=mode, description="<b>bold</b>")))
        paths = run_command.save(finished, tmp_path)
        assert [path.name for path in paths] == ["jobs.csv", "report.html", "result.json", "trace.json.gz"]
        rows = list(csv.DictReader((tmp_path / "jobs.csv").read_text().splitlines()))
        assert isinstance(finished.recording, PlacementRecording)
        assert len(rows) == len(finished.recording.tasks)
        if mode == "replay":
            assert [row["name"] for row in rows] == [f"openb-pod-{i:04d}" for i in range(8_152)]
            for row in rows[::500]:
                assert float(row["start_s"]) + 0 >= float(row["arrival_s"])
                assert len(row["gpu_indices"].split()) == int(row["gpus"])
        events = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
        slices = [event for event in events if event["ph"] == "X"]
        assert len(slices) == (8_152 if mode == "replay" else 0)
        lanes: dict[Any, float] = {}
        for piece in slices:  # in order of start: no two in one lane at a time
            lane = piece["pid"], piece["tid"]
            assert piece["ts"] >= lanes.get(lane, 0.0) - 1e-3
            lanes[lane] = piece["ts"] + piece["dur"]
        page = (tmp_path / "report.html").read_text()
        assert "&lt;b&gt;bold" in page and "<b>bold" not in page
        assert "http://" not in page.split("<script")[0]


def test_a_small_cluster_stated_in_the_file_and_a_fixture_share_one_way(windtunnel_run: Any, tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("at\n0\n1\n2\n")
    data = {
        "schema": 1,
        "name": "own",
        "cluster": {"nodes": [{"count": 2, "gpus": 1, "model": "l4", "cpu_milli": 4000, "memory": "16 GiB"}]},
        "workload": [
            {
                "name": "jobs",
                "arrivals": {"process": "trace", "file": str(trace), "time": "at"},
                "resources": {"gpus": 1, "cpu_milli": 1000, "memory": "1 GiB"},
                "duration": "10 s",
            }
        ],
        "policy": "best-fit",
    }
    result = windtunnel_run(data).result
    # The third waits for the first to leave, at 10 s: 8 s.
    assert result.waiting_s.mean.value == pytest.approx(8 / 3)
    assert result.simulated_s == 20
    # Two L4s, one held for 20 s and the other for 10 s of the 20.
    l4 = device_model("l4", windtunnel.catalogue())
    above = l4.power_limit_w - l4.idle_power_w
    assert result.energy_j == pytest.approx(2 * 20 * l4.idle_power_w + 30 * above)
    assert result.peak_power_w == pytest.approx(2 * l4.power_limit_w)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fleet": [{"device": "l4"}]}, "cannot have both a fleet and a cluster"),
        ({"policy": "best-fitt"}, "unknown placement policy.*did you mean 'best-fit'"),
        ({"mode": "inflat"}, "'inflat' is not a valid value.*did you mean 'inflate'"),
        ({"ties": "randm"}, "did you mean 'random'"),
        ({"cluster": {"nodes": {"file": "traces/openb_node.csv.gz"}}}, "there is no.*openb_nodes.csv.gz"),
        ({"cluster": {"nodes": [{"gpus": 2, "cpu_milli": 1, "memory": "1 GiB"}]}}, "no model"),
        ({"cluster": {"nodes": [{"gpu": 2, "cpu_milli": 1, "memory": "1 GiB"}]}}, "unknown key 'gpu'.*'gpus'"),
        ({"mode": {"kind": "inflate"}, "stop": {"jobs": 3}}, "an inflation ends at a demand"),
        ({"targets": ["allocaton >= 90%"]}, "did you mean 'allocation'"),
        ({"targets": ["ttft p99 <= 1 s"]}, "unknown metric 'ttft'"),
        ({"cluster": {"nodes": {"file": "traces/openb_nodes.csv.gz", "stride": 70}}}, "fits on no node"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(change: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        placement_run.run_placement(checked(small(**change)), 1, "auto", windtunnel.catalogue())


def test_a_broken_cell_is_named_by_the_traces_line(tmp_path: Path) -> None:
    lines = gzip.decompress(PODS.read_bytes()).decode().splitlines()[:4]
    lines[2] = lines[2].replace(",460,", ",46x,")
    (tmp_path / "pods.csv").write_text("\n".join(lines) + "\n")
    data = small()
    data["cluster"]["nodes"]["file"] = str(NODES)
    data["workload"][0]["arrivals"]["file"] = str(tmp_path / "pods.csv")
    with pytest.raises(InputError, match=r"pods\.csv:3: gpu_milli: '46x'"):
        prepare_placement(checked(data))
    with pytest.raises(InputError, match=r"pods\.csv:3: gpu_milli: '46x'"):
        read_openb_pods(tmp_path / "pods.csv")


def test_parts_of_several_gpus_are_refused(tmp_path: Path) -> None:
    data = small()
    data["workload"][0]["resources"] = {"gpus": 2, "gpu_milli": 500}
    with pytest.raises(InputError, match="several whole GPUs"):
        prepare_placement(checked(data))


def test_the_documents_own_cluster_runs(tmp_path: Path) -> None:
    text = (SCENARIOS.parent / "docs" / "placement.md").read_text()
    blocks = dict(re.findall(r"^```(csv jobs\.csv|yaml placement)\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    (tmp_path / "jobs.csv").write_text(blocks["csv jobs.csv"])
    (tmp_path / "own.yaml").write_text(blocks["yaml placement"])
    finished = windtunnel.run(tmp_path / "own.yaml")
    assert finished.met
    # 8 GPUs for 2 h, 1 for 5 h and 4 for 1 h, of 20 for 5 h and 10 min.
    assert finished.result.placement.gpu_allocation.value == pytest.approx(25 / (20 * (5 + 1 / 6)))
    assert finished.result.cost_usd_per_h == pytest.approx(16 * 1.79 + 4 * 0.80)


def test_a_cluster_without_gpus_runs_and_is_reported(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("at\n0\n1\n")
    data = small(policy="gpu-packing")
    data["cluster"] = {"nodes": [{"gpus": 0, "cpu_milli": 2000, "memory": "1 GiB"}]}
    arrivals = {"process": "trace", "file": str(tmp_path / "t.csv"), "time": "at"}
    data["workload"] = [{"name": "t", "arrivals": arrivals, "resources": {"cpu_milli": 1500}, "duration": "4 s"}]
    finished = windtunnel.run(checked(data))
    assert finished.result.devices[0].utilisation == pytest.approx(0.75)
    assert finished.result.latency_s.mean.value == pytest.approx((4 + 7) / 2)
    assert finished.result.energy_j == 0.0
    run_command.save(finished, tmp_path / "out")
    assert "2 of 2 completed" in placement_summary(finished.result)


def test_a_sample_of_the_tasks_is_written_where_asked(tmp_path: Path) -> None:
    finished = windtunnel.run(checked(small()))
    assert isinstance(finished.recording, PlacementRecording)
    write_tasks(tmp_path / "some.csv", finished.recording, np.array([3, 4_000, 8_151]))
    rows = list(csv.DictReader((tmp_path / "some.csv").read_text().splitlines()))
    assert [(row["job"], row["name"]) for row in rows] == [
        ("3", "openb-pod-0003"),
        ("4000", "openb-pod-4000"),
        ("8151", "openb-pod-8151"),
    ]


def test_the_engine_of_fleets_is_not_for_clusters() -> None:
    with pytest.raises(InputError, match="--engine"):
        windtunnel.run(checked(small()), engine="process")
