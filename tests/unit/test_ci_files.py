"""The GitHub Action and the pre-commit hook: their files have what their hosts read, and their scripts do what they say."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
(HOOK,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
STEPS = ACTION["runs"]["steps"]
(RUN,) = [step for step in STEPS if step.get("id") == "run"]


def scenario(limit: str) -> str:
    data = {
        "schema": 1,
        "name": "a | b `c` <d>",
        "fleet": [{"device": "server", "count": 2, "price": "1 USD/h"}],
        "workload": [
            {
                "name": "calls",
                "arrivals": {"process": "poisson", "rate": "100 /s"},
                "ops": [{"service": {"distribution": "exponential", "mean": "1 ms"}}],
            }
        ],
        "stop": {"jobs": 200},
        "targets": [f"latency mean <= {limit}"],
    }
    return yaml.safe_dump(data)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A checkout with one scenario that meets its target and one that misses it, and `windtunnel` on the path."""
    (tmp_path / "scenarios" / "deep er").mkdir(parents=True)
    (tmp_path / "scenarios" / "good.yaml").write_text(scenario("1 s"))
    (tmp_path / "scenarios" / "deep er" / "late.yml").write_text(scenario("1 us"))
    (tmp_path / "bin").mkdir()
    for name, words in (("windtunnel", "-m windtunnel"), ("python", "")):
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
        program.chmod(0o755)
    return tmp_path


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", **more}


def act(folder: Path, scenarios: str, arguments: str = "--engine process") -> tuple[int, dict[str, str], str, str]:
    """Run the action's step as GitHub does: exit code, outputs, summary, and what was printed."""
    output, summary = folder / "output", folder / "summary"
    for file in (output, summary):
        file.write_text("")
    script = folder / "step.sh"
    script.write_text(RUN["run"])
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
        cwd=folder,
        env=environment(
            folder, SCENARIOS=scenarios, ARGUMENTS=arguments, OUT="reports",
            GITHUB_OUTPUT=str(output), GITHUB_STEP_SUMMARY=str(summary),
        ),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
    return done.returncode, outputs, summary.read_text(), done.stdout + done.stderr


def test_the_action_has_what_github_requires() -> None:
    """https://docs.github.com/en/actions/reference/workflows-and-actions/metadata-syntax, of composite actions."""
    assert ACTION["name"] and ACTION["description"] and ACTION["runs"]["using"] == "composite"
    assert set(ACTION) <= {"name", "description", "author", "branding", "inputs", "outputs", "runs"}
    for given in ACTION["inputs"].values():
        assert given["description"] and set(given) <= {"description", "required", "default", "deprecationMessage"}
        assert given.get("required") or "default" in given
    for result in ACTION["outputs"].values():
        assert set(result) == {"description", "value"}
    for step in STEPS:
        assert ("uses" in step) != ("run" in step) and step["name"]
        assert "run" not in step or step["shell"] == "bash"
        assert set(step) <= {"name", "id", "if", "uses", "with", "shell", "env", "run", "working-directory"}
        assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])


def test_every_expression_of_the_action_names_an_input_or_an_output_that_exists() -> None:
    text = (ROOT / "action.yml").read_text()
    for name in re.findall(r"inputs\.([\w-]+)", text):
        assert name in ACTION["inputs"], name
    for step, name in re.findall(r"steps\.(\w+)\.outputs\.(\w+)", text):
        assert step == RUN["id"] and f'echo "{name}=' in RUN["run"]
    # An expression inside of a script would insert its text as code.
    assert not any("${{" in step.get("run", "") for step in STEPS)


def test_met_targets_pass_with_a_summary_and_a_report(workspace: Path) -> None:
    code, outputs, summary, printed = act(workspace, "scenarios/*.yaml")
    assert code == 0, printed
    assert outputs == {"met": "true", "missed": "", "reports": "reports"}
    assert (workspace / "reports" / "scenarios-good" / "report.html").exists()
    rows = [line for line in summary.splitlines() if line.startswith("| scenarios")]
    assert len(rows) == 1 and "| latency mean &lt;= 1 s |" in rows[0] and "| met |" in rows[0]
    assert all(row.count("|") == 6 for row in rows)


def test_a_missed_target_fails_the_step_after_all_scenarios_ran(workspace: Path) -> None:
    code, outputs, summary, printed = act(workspace, "scenarios/**/late.yml\n\n  scenarios/good.yaml  \n")
    assert code == 1, printed
    assert outputs["met"] == "false" and outputs["missed"] == "scenarios/deep er/late.yml"
    assert "| **missed** |" in summary and "| met |" in summary
    assert "::error file=scenarios/deep er/late.yml::a target is missed" in printed
    result = json.loads((workspace / "reports" / "scenarios-deep er-late" / "result.json").read_text())
    assert not result["targets"][0]["met"]


def test_a_wrong_scenario_fails_with_its_code_and_a_pattern_without_files_is_an_error(workspace: Path) -> None:
    (workspace / "scenarios" / "wrong.yaml").write_text("schema: 1\nfleet: 3\n")
    code, outputs, summary, printed = act(workspace, "scenarios/*.yaml")
    assert code == 2 and outputs["met"] == "false"
    assert "**failed** (exit code 2)" in summary and "windtunnel run failed with exit code 2" in printed
    for nothing in ("scenarios/absent*.yaml", "scenarios/absent.yaml", "\n"):
        code, outputs, _, printed = act(workspace, nothing)
        assert code == 2 and "::error::no scenario" in printed and not outputs


def test_inputs_of_the_action_are_no_code(workspace: Path) -> None:
    for given in ("$(touch pwned)", "`touch pwned`", '"; touch pwned; "'):
        assert act(workspace, given)[0] == 2
    assert act(workspace, "scenarios/good.yaml", "--set $(touch${IFS}pwned)")[0] == 2
    assert not (workspace / "pwned").exists()


def test_arguments_of_the_action_reach_the_run(workspace: Path) -> None:
    assert act(workspace, "scenarios/good.yaml", "--engine process --seed 77")[0] == 0
    assert json.loads((workspace / "reports" / "scenarios-good" / "result.json").read_text())["seed"] == 77
    assert act(workspace, "scenarios/good.yaml", "")[0] == 0


def hook(folder: Path, *words: str) -> int:
    """Run the hook as pre-commit does: the entry split into words, its arguments, and the files."""
    done = subprocess.run([*shlex.split(HOOK["entry"]), *words], cwd=folder, env=environment(folder), check=False)
    return done.returncode


def test_the_hook_has_what_pre_commit_requires() -> None:
    """https://pre-commit.com/#new-hooks."""
    assert {"id", "name", "entry", "language"} <= set(HOOK) and HOOK["language"] == "python"
    wanted = re.compile(HOOK["files"])
    assert wanted.search("scenarios/serving/tiers.yaml") and wanted.search("a/scenarios/x.yml")
    assert not wanted.search("docs/x.yaml") and not wanted.search("scenarios/traces/x.csv")


def test_the_hook_passes_met_scenarios_and_fails_missed_and_wrong_ones(workspace: Path) -> None:
    good, late = "scenarios/good.yaml", "scenarios/deep er/late.yml"
    assert hook(workspace, good) == 0
    assert hook(workspace, late, good) == 1
    assert hook(workspace, "--engine", "process", "--seed", "3", good) == 0
    assert hook(workspace, "--engine", "none", good) == 2
    assert hook(workspace) == 0
