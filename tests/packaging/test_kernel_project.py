"""A project of kernels in C with the wheel: the steps of its workflow pass, and a mistake is annotated at its line."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

Run = Callable[..., CompletedProcess[str]]
PROJECT = Path(__file__).parent / "kernel_project"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PROJECT, tmp_path / "pictures", ignore=shutil.ignore_patterns("__pycache__")))


def steps(project: Path) -> Iterator[str]:
    """Yield the commands of the workflow's jobs, for each value of their matrix; Windtunnel is installed already."""
    workflow: dict[Any, Any] = yaml.safe_load((project / ".github" / "workflows" / "kernels.yml").read_text())
    for job in workflow["jobs"].values():
        for program in job.get("strategy", {}).get("matrix", {}).get("program", [""]):
            for step in job["steps"]:
                command = step.get("run", "").replace("${{ matrix.program }}", program)
                if command and not command.startswith("pip install"):
                    yield command


def test_it_uses_windtunnel_and_nothing_else() -> None:
    for path in PROJECT.rglob("*.py"):
        imported = set(re.findall(r"^(?:import|from) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
        assert imported <= {"windtunnel", "numpy", "pytest", "pathlib"}, path


def test_the_steps_of_its_workflow_pass(fresh: Path, run: Run, project: Path) -> None:
    said = ""
    for command in steps(project):
        said += run("bash", "-ec", f'PATH="{fresh}:$PATH"\n{command}', cwd=project).stdout
    assert re.search(r"^10 passed", said, re.MULTILINE), said
    for program, kernels in (("blur", ["blur_rows", "blur_columns", "mean"]), ("words", ["words"])):
        (checked,) = json.loads((project / f"{program}.sarif").read_text())["runs"]
        assert checked["results"] == []
        times = checked["properties"]["predictedTimes"]
        assert [one["kernel"] for one in times] == kernels
        assert all(0 < one["duration_low_s"] <= one["duration_s"] <= one["duration_high_s"] for one in times)


def test_a_mistake_is_annotated_at_its_line(fresh: Path, run: Run, project: Path) -> None:
    said = run(fresh / "windtunnel", "check", "planted/words.yaml", "--format", "sarif", cwd=project, expect=1).stdout
    (result,) = json.loads(said)["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert result["ruleId"] == "DataRace" and place["artifactLocation"]["uri"] == "planted/words.cl"
    lines = (project / "planted" / "words.cl").read_text().splitlines()
    assert (
        "of_group[t] = 0" in lines[place["region"]["startLine"] - 1]
        or "atomic_inc" in lines[place["region"]["startLine"] - 1]
    )
