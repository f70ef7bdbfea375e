"""Two fleets compared on the same random numbers: what differs is known better than either figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from windtunnel import app
from windtunnel.cli import cli
from windtunnel.core.errors import InputError

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
    found = app.compare(scenario, changes=["fleet[0].count=9"], replications=12)
    row = next(row for row in found["figures"] if row["figure"] == "waiting_s.mean")
    assert row["told_apart"] and row["difference"]["value"] < 0

    def width(e: dict[str, float]) -> float:
        return e["high"] - e["low"]

    independent = (width(row["one"]) ** 2 + width(row["other"]) ** 2) ** 0.5
    assert width(row["difference"]) < 0.8 * independent
    assert row["difference"]["value"] == pytest.approx(row["other"]["value"] - row["one"]["value"])
    cost = next(row for row in found["figures"] if row["figure"] == "cost_usd_per_h")
    assert cost["difference"] == {"value": 1.0, "low": 1.0, "high": 1.0}


def test_a_scenario_does_not_differ_from_itself(scenario: Path) -> None:
    found = app.compare(scenario, scenario, replications=3)
    assert all(row["difference"]["value"] == 0.0 and not row["told_apart"] for row in found["figures"])


def test_what_cannot_be_compared_is_refused(scenario: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(SCENARIO.replace("schema: 1", "schema: 1\nseed: 7"))
    with pytest.raises(InputError, match="the seeds are 1 and 7"):
        app.compare(scenario, other)
    with pytest.raises(InputError, match="nothing to compare"):
        app.compare(scenario)
    with pytest.raises(InputError, match="one pair"):
        app.compare(scenario, scenario, replications=1)


def test_the_command_prints_a_table_or_json(scenario: Path) -> None:
    words = ["compare", str(scenario), "--change", "fleet[0].speed=1.1", "--replications", "4"]
    shown = CliRunner().invoke(cli, words)
    assert shown.exit_code == 0, shown.output
    assert ": 4 pairs of runs with the same seeds" in shown.stdout.splitlines()[0]
    assert " and the same with fleet[0].speed=1.1" in shown.stdout.splitlines()[0]
    assert "other by (95% interval)" in shown.stdout
    assert "latency p99" in shown.stdout and "less" in shown.stdout
    data = json.loads(CliRunner().invoke(cli, [*words, "--format", "json"]).stdout)
    assert data["replications"] == 4


def test_unstable_runs_leave_times_out_and_that_is_said(scenario: Path) -> None:
    words = ["compare", str(scenario), "--change", "fleet[0].speed=0.1", "--replications", "2"]
    shown = CliRunner().invoke(cli, words)
    assert shown.exit_code == 0, shown.output
    assert "times are not compared: 2 of 2 runs of other are unstable" in shown.stdout
    assert "latency" not in shown.stdout and "throughput" in shown.stdout
