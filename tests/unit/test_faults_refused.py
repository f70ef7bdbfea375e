"""Faults that are stated wrongly are refused, with their place and the nearest right name."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
from click.testing import CliRunner

from windtunnel.cli.main import cli, main

GOOD = """\
schema: 1
name: small
fleet:
  - {device: server, name: rack, count: 2, power: {idle: 20 W, max: 100 W}}
workload:
  - name: calls
    arrivals: {process: poisson, rate: 100 /s}
    ops: [{service: {mean: 1 ms}}]
stop: {jobs: 50}
"""


FAULTS = "faults:\n  - {kind: failure, mtbf: 1 h, mttr: 1 min}\n"


def refused(path: Path) -> str:
    """What `windtunnel run` says when it exits 2."""
    output = io.StringIO()
    with contextlib.redirect_stderr(output), pytest.raises(SystemExit) as caught:
        main(["run", str(path)])
    assert caught.value.code == 2
    return output.getvalue()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("kind: failure", "kind: failur", "s.yaml:11:12: faults[0].kind: 'failur' is not a valid value"),
        ("kind: failure", "kind: failur", "did you mean 'failure'?"),
        ("kind: failure, ", "", "'kind' is missing"),
        ("mtbf", "mtbff", "faults[0].mtbff: unknown key 'mtbff'"),
        ("mtbf", "mtbff", "did you mean 'mtbf'?"),
        ("mttr: 1 min", "mttr: 0 s", "zero"),
        (", mttr: 1 min", "", "the duration is missing; expected mtbf and mttr, or at (and duration)"),
        ("mttr: 1 min", "mttr: 1 min, at: [1 s]", "needs either mtbf or at, not both"),
        ("mttr: 1 min", "mttr: 1 min, duration: 1 s", "duration is for failures at stated times"),
        ("mttr: 1 min", "mttr: 1 min, on_failure: retri", "did you mean 'retry'?"),
        ("mttr: 1 min", "mttr: 1 min, max_attempts: 0", "at least 1"),
        ("mttr: 1 min", "mttr: 1 min, devices: [rak]", "s.yaml:11:55: faults[0].devices[0]: the fleet has no 'rak'"),
        ("mttr: 1 min", "mttr: 1 min, devices: [rak]", "did you mean 'rack'?"),
        ("mttr: 1 min", "mttr: 1 min, devices: []", "at least 1"),
        ("mtbf: 1 h, mttr: 1 min", "mtbf: 1 ns, mttr: 1 ns", "faults[0]: this fault would occur"),
        ("failure, mtbf: 1 h, mttr: 1 min", "throttle, mean_interval: 1 s, duration: 1 s, speed: 1", "less than 1"),
        ("failure, mtbf: 1 h, mttr: 1 min", "brown-out, mean_interval: 1 s, duration: 1 s, budget: 10 W", "the idle power of the fleet, 40.0 W"),
        ("failure, mtbf: 1 h, mttr: 1 min", "straggler, probability: 2, slowdown: 2", "at most 1"),
        (
            "failure, mtbf: 1 h, mttr: 1 min",
            "straggler, probability: 0.1, slowdown: 2, workloads: [cals]",
            "unknown workload 'cals'; expected one of calls; did you mean 'calls'?",
        ),
        ("faults:", "power_budget: 30 W\nfaults:", "s.yaml:10:15: power_budget: the idle power of the fleet, 40.0 W"),
        ("faults:", "power_budget: 100 W\nfaults:", "'calls' on rack could never start: it draws 80.0 W"),
        ("faults:", "power_budget: 100 W\nfaults:", "expected at least 120 W"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place_and_the_nearest_right_name(
    old: str, new: str, says: str, tmp_path: Path
) -> None:
    text = GOOD + FAULTS
    assert old in text
    path = tmp_path / "s.yaml"
    path.write_text(text.replace(old, new))
    assert says in refused(path)


def test_a_target_on_availability_needs_something_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(GOOD + "targets: [availability >= 0.9]\n")
    assert "availability requires a fault" in refused(path)
    path.write_text(GOOD + FAULTS + "targets: [availability >= 0.9]\n")
    assert CliRunner().invoke(cli, ["run", str(path)]).exit_code == 0
