"""What is written of a configuration: scripts that run its commands word by word, and folders."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import yaml
from click.testing import CliRunner
from tests.unit.deployments import FEATURES, ROOT, check_manifest, deployed, flags, with_changes

from windtunnel.app import deploy as deploying_app
from windtunnel.app import plan as planner
from windtunnel.cli.main import cli
from windtunnel.core.errors import InputError
from windtunnel.report.deployment import files
from windtunnel.scenario.read import scenario_from_data
from windtunnel_models.engines.arguments import ENGINES


def test_names_of_a_scenario_cannot_become_commands(tmp_path: Path) -> None:
    evil = "x\n$(touch pwned); `touch pwned`"
    fleet = [{"device": "h100-sxm-80gb", "name": evil, "engine": "vllm", "role": role} for role in ("both",)]
    found = deployed(fleet=fleet, name=evil)
    texts = files(found, evil)
    (script,) = [t for name, t in texts.items() if name.endswith(".sh")]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "vllm").write_text('#!/bin/sh\nprintf "%s\\n" "$@" > said\n')
    (tmp_path / "bin" / "vllm").chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["sh", "-c", script], cwd=tmp_path, env={"PATH": path}, check=True)
    assert not (tmp_path / "pwned").exists()
    assert (tmp_path / "said").read_text().splitlines() == found.commands[0].words[1:]
    check_manifest(texts, found)


def test_the_scripts_run_the_commands_word_by_word(tmp_path: Path) -> None:
    """A JSON value survives the shell, and TensorRT-LLM finds its file beside the script."""
    for engine in ENGINES:
        found = deployed(**FEATURES, **{"fleet[0].engine": engine})
        (command,) = found.commands
        folder = tmp_path / engine
        folder.mkdir()
        for name, content in files(found, "x").items():
            (folder / name).write_text(content)
        program = folder / command.program[0]
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{folder}/said"\n')
        program.chmod(0o755)
        path = f"{folder}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(["sh", folder / f"{command.name}.sh"], env={"PATH": path}, check=True)
        said = (folder / "said").read_text().splitlines()
        expected = [str(folder / f"{command.name}.yaml") if w == "OPTIONS" else w for w in command.words[1:]]
        assert said == expected
        if command.options:
            assert yaml.safe_load(Path(said[said.index("--extra_llm_api_options") + 1]).read_text()) == command.options


def test_the_command_prints_and_writes_the_configuration(tmp_path: Path) -> None:
    scenario = ROOT / "scenarios" / "serving" / "speculation.yaml"
    run = CliRunner().invoke(cli, ["deploy", str(scenario), "--out", str(tmp_path)])
    assert run.exit_code == 0, run.output
    assert "vllm serve meta-llama/Llama-3.1-70B" in run.output
    written = {path.name for path in (tmp_path / "deploy").iterdir()}
    assert written == {"h100-sxm-80gb.sh", "kubernetes.yaml"}
    said = CliRunner().invoke(cli, ["deploy", str(scenario), "--format", "json"])
    assert json.loads(said.output)["commands"][0]["arguments"][0] == {"flag": "--host", "value": "0.0.0.0", "key": None}
    none = CliRunner().invoke(cli, ["deploy", str(ROOT / "scenarios" / "mm64.yaml")])
    assert isinstance(none.exception, InputError) and "no serving engine" in none.exception.problem


def test_a_plan_writes_the_configuration_of_the_recommended_fleet(tmp_path: Path) -> None:
    """The searched values are in the commands, and only entries of the fleet."""
    data = with_changes(
        fleet=[
            {"device": "h100-sxm-80gb", "price": "3 USD/h", "engine": "vllm"},
            {"device": "b200-sxm-180gb", "price": "30 USD/h", "engine": "sglang"},
        ],
        targets=["ttft p99 <= 5 s"],
        plan={"search": {"policy.batch.tokens": [512], "fleet[0].group.tensor": [2]}, "fleets": 1, "max": 2},
    )
    result = planner.plan(scenario_from_data(data), workers=1)
    assert result.deployment is not None
    (command,) = result.deployment.commands
    assert command.device == "h100-sxm-80gb" and command.replicas == 1
    assert flags(command)["--max-num-batched-tokens"] == "512" and flags(command)["--tensor-parallel-size"] == "2"
    names = [str(path.relative_to(tmp_path)) for path in planner.save(result, tmp_path)]
    assert names[:2] == ["plan.json", "plan.html"]
    assert set(names[2:]) == {f"deploy/{command.name}.sh", "deploy/kubernetes.yaml"}
    assert "Configuration to deploy" in (tmp_path / "plan.html").read_text()
    assert json.loads((tmp_path / "plan.json").read_text())["deployment"]["commands"][0]["name"] == command.name
    nothing = planner.plan(scenario_from_data({**data, "targets": ["ttft p99 <= 1 us"]}), workers=1)
    assert nothing.deployment is None


def test_a_folder_holds_no_script_of_an_earlier_fleet_and_keeps_what_is_not_ours(tmp_path: Path) -> None:
    named = {"fleet[0].engine": "trtllm", "fleet[0].name": "kubernetes"}
    first = deploying_app.save(deployed(**named), "one", tmp_path)
    names = {path.name for path in first}
    assert names == {"kubernetes-2.sh", "kubernetes-2.yaml", "kubernetes.yaml"}
    own = tmp_path / "deploy" / "values.yaml"
    own.write_text("mine: 1\n")
    again = deploying_app.save(deployed(), "two", tmp_path)
    assert {path.name for path in own.parent.iterdir()} == {*(path.name for path in again), "values.yaml"}
    assert deploying_app.save(None, "none", tmp_path) == [] and [*own.parent.iterdir()] == [own]
