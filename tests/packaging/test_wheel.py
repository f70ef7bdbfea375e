"""The wheel, installed alone in a fresh environment, works: console script, data files, pytest plugin."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., CompletedProcess[str]]


def test_the_wheel_holds_both_packages_and_their_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "windtunnel/cli/main.py" in names
    assert "windtunnel/py.typed" in names
    assert "windtunnel_models/kinds/gpu/__init__.py" in names
    assert "windtunnel/claims/claims.yaml" in names
    assert "windtunnel/runtime/codes.yaml" in names
    assert "windtunnel/examples/particles.py" in names
    assert "windtunnel_models/calibration/h100-sxm-80gb.yaml" in names
    assert "windtunnel_models/calibration/h100-sxm-80gb.npz" in names
    assert "windtunnel_models/catalog/gpu/h100-sxm-80gb.yaml" in names
    assert "windtunnel_models/apis/cuda.yaml" in names
    assert "windtunnel_models/engines/arguments/vllm.yaml" in names
    assert any(name.endswith("page.html.j2") for name in names)
    assert not any(name.startswith(("tests/", "simulator/", "scenarios/")) for name in names)


def test_the_console_script_of_the_wheel_runs(fresh: Path, run: Run, tmp_path: Path) -> None:
    listed = json.loads(run(fresh / "windtunnel", "devices", "--format", "json", cwd=tmp_path).stdout)
    assert len(listed) >= 47
    cost = json.loads(
        run(
            fresh / "windtunnel", "predict", "gemm", "--device", "h100-sxm-80gb", "m=1024", "n=1024", "k=1024",
            "dtype=bfloat16", "--format", "json", cwd=tmp_path,
        ).stdout
    )  # fmt: skip
    assert cost["duration_s"] > 0
    small = run(fresh / "windtunnel", "run", ROOT / "scenarios" / "mm64.yaml", "--set", "stop.jobs=1000", cwd=tmp_path)
    assert "compiled engine" in small.stdout
    kinds = ROOT / "scenarios" / "all-kinds.yaml"
    done = run(fresh / "windtunnel", "run", kinds, "--engine", "process", "--out", tmp_path / "out", cwd=tmp_path)
    assert "all-kinds" in done.stdout
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"result.json", "jobs.csv", "report.html", "trace.json.gz"}


def test_the_plugin_is_found_in_a_repository_that_has_a_simulator_folder_of_its_own(
    fresh: Path, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "simulator").mkdir()
    (tmp_path / "simulator" / "__init__.py").write_text("MINE = True\n")
    (tmp_path / "test_mine.py").write_text(
        "import simulator\n\n"
        "def test_mine(windtunnel_run):\n"
        "    assert simulator.MINE\n"
        "    run = windtunnel_run({'schema': 1, 'name': 'q', 'fleet': [{'device': 'server'}], 'stop': {'jobs': 100},\n"
        "        'workload': [{'name': 'w', 'arrivals': {'process': 'deterministic', 'rate': '10 /s'},\n"
        "                      'ops': [{'service': {'mean': '1 ms', 'distribution': 'deterministic'}}]}]},\n"
        "        engine='process')\n"
        "    assert run.result.jobs.completed == 100\n"
    )
    done = run(fresh / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, cwd=tmp_path)
    assert "1 passed" in done.stdout


def test_the_plugin_imports_nothing_heavy_until_it_is_used(fresh: Path, run: Run, tmp_path: Path) -> None:
    heavy = ("numpy", "pydantic", "simpy", "scipy")
    code = f"import sys, windtunnel.pytest_plugin; print([m for m in {heavy} if m in sys.modules])"
    assert run(fresh / "python", "-c", code, cwd=tmp_path).stdout.strip() == "[]"
