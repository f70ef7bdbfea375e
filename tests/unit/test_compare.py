"""Two fleets compared on the same random numbers: what differs is known better than either figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import windtunnel
from windtunnel.app import compare as compare_command
from windtunnel.cli.main import cli
from windtunnel.core.errors import InputError
from windtunnel.core.results.run import Estimate
from windtunnel.scenario.changes import read_document
from windtunnel.scenario.read import check_scenario

SCENARIO = """
schema: 1
name: pair
fleet:
  - {device: server, count: 8, power: {idle: 60 W, max: 300 W}, price: 1 USD/h}
workload:
  - name: calls
    arrivals: {process: poisson, rate: 6800 /s}
    ops:
      - service: {distribution: exponential, mean: 1 ms}
stop: {jobs: 3000}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "pair.yaml"
    path.write_text(SCENARIO)
    return path


def test_a_difference_is_known_better_than_the_figures(scenario: Path) -> None:
    found = compare_command.compare(scenario, changes=["fleet[0].count=9"], replications=12)
    row = next(row for row in found.metrics if row.metric == "waiting_s.mean")
    assert row.significant and row.difference.value < 0

    def width(e: Estimate) -> float:
        return e.high - e.low

    independent = (width(row.baseline) ** 2 + width(row.candidate) ** 2) ** 0.5
    assert width(row.difference) < 0.8 * independent
    assert row.difference.value == pytest.approx(row.candidate.value - row.baseline.value)
    cost = next(row for row in found.metrics if row.metric == "cost_usd_per_h")
    assert cost.difference.to_dict() == {"value": 1.0, "low": 1.0, "high": 1.0}


def test_a_scenario_does_not_differ_from_itself(scenario: Path) -> None:
    found = compare_command.compare(scenario, scenario, replications=3)
    assert all(row.difference.value == 0.0 and not row.significant for row in found.metrics)


def test_what_cannot_be_compared_is_refused(scenario: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(SCENARIO.replace("schema: 1", "schema: 1\nseed: 7"))
    with pytest.raises(InputError, match="the seeds are 1 and 7"):
        compare_command.compare(scenario, other)
    with pytest.raises(InputError, match="nothing to compare"):
        compare_command.compare(scenario)
    with pytest.raises(InputError, match="one pair"):
        compare_command.compare(scenario, scenario, replications=1)


def test_the_command_prints_a_table_or_json(scenario: Path) -> None:
    words = ["compare", str(scenario), "--change", "fleet[0].speed=1.1", "--replications", "4"]
    shown = CliRunner().invoke(cli, words)
    assert shown.exit_code == 0, shown.output
    assert "4 pairs of runs with common random numbers" in shown.stdout
    assert "latency p99" in shown.stdout and "lower" in shown.stdout
    data = json.loads(CliRunner().invoke(cli, [*words, "--format", "json"]).stdout)
    assert data["replications"] == 4


def test_unstable_runs_leave_times_out_and_that_is_said(scenario: Path) -> None:
    words = ["compare", str(scenario), "--change", "fleet[0].speed=0.1", "--replications", "2"]
    shown = CliRunner().invoke(cli, words)
    assert shown.exit_code == 0, shown.output
    assert "times are not compared: 2 of 2 runs of candidate are unstable" in shown.stdout
    assert "latency" not in shown.stdout and "throughput" in shown.stdout


def test_what_draws_nothing_is_run_once_and_has_no_interval_of_pairs(scenario: Path) -> None:
    steady = scenario.read_text().replace("poisson", "deterministic").replace("exponential", "deterministic")
    scenario.write_text(steady)
    found = compare_command.compare(scenario, changes=["fleet[0].count=9"], replications=5)
    assert found.replications == 1
    assert "nothing in these scenarios is random" in found.notes[0]
    assert all(row.difference.low is None and not row.significant for row in found.metrics)
    repeated = windtunnel.run(check_scenario(read_document(scenario)), replications=5).result
    assert repeated.replications == 1
    assert any("nothing in this scenario is random" in note for note in repeated.notes)
    drawn = windtunnel.run(
        check_scenario(read_document(scenario, ["faults=[{kind: failure, mtbf: 1 h, mttr: 1 s}]"])),
        replications=3,
    )
    assert drawn.result.replications == 3


def test_nothing_that_cannot_be_negative_is_less_by_more_than_all_of_it(scenario: Path) -> None:
    found = compare_command.compare(scenario, changes=["fleet[0].count=14"], replications=2)
    for row in found.metrics:
        assert row.difference.low >= -row.baseline.value - 1e-12, row.metric


def test_the_change_is_named(scenario: Path) -> None:
    done = CliRunner().invoke(cli, ["compare", str(scenario), "--change", "fleet[0].count=9", "--replications", "2"])
    assert "candidate  pair with fleet[0].count=9" in done.output
