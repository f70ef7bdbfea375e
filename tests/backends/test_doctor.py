"""`windtunnel doctor`: what is here, what is missing, what to install, and exit 3 for what was required."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windtunnel.app import doctor as doctoring
from windtunnel.backends.common import system
from windtunnel.cli import main as cli
from windtunnel.report.doctor import doctor_lines

Fake = Callable[..., str]
POCL = "device(label='pthread', kind='cpu', software=True, driver='PoCL 3.0')"


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.fixture
def some(fake: Fake) -> None:
    fake("opencl", f"return [{POCL}]")
    fake("wgpu", "import a_driver_nobody_has")
    fake("vulkan", "os.abort()")


@pytest.mark.usefixtures("some")
def test_each_back_end_has_its_state_and_what_is_missing_its_reason_and_what_to_install(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = command(capsys, "doctor", "--format", "json")
    report = json.loads(out)
    assert (code, err) == (0, "")
    assert [(one["name"], one["state"], one["present"]) for one in report["backends"]] == [
        ("opencl", "present", True),
        ("vulkan", "crashed", False),
        ("wgpu", "missing package", False),
    ]
    assert report["validate"] == [{"name": "opencl:0", "as": "host@opencl", "software": True}]
    assert report["limits"]["cores"] > 0 and report["limits"]["memory_bytes"] > 0
    code, out, err = command(capsys, "doctor")
    assert (code, err) == (0, "")
    assert re.search(r"opencl +present\n +opencl:0  pthread, software on the processor \(PoCL 3.0\)\n", out)
    assert re.search(r"wgpu +missing package: the package 'a_driver_nobody_has' is not installed\n", out)
    assert re.search(r"vulkan +crashed: .*SIGABRT.*\n +for cards; to install: a driver\n", out)
    assert out.splitlines()[-1] == "Devices that windtunnel validate can measure: opencl:0 (as host@opencl)"
    order = [out.index(word) for word in ("Python 3", "numpy ", "g++", "opencl ", "root", "Limits:", "validate")]
    assert order == sorted(order)


@pytest.mark.usefixtures("some")
@pytest.mark.parametrize(
    ("required", "code", "said"),
    [
        (["--require", "opencl"], 0, ""),
        (["--require", "opencl,wgpu"], 3, "a required back end has no device: wgpu: the package 'a_driver_nobody_has'"),
        (["--require", "vulkan", "--require", "wgpu, opencl"], 3, "vulkan: the process .* to install: a driver; wgpu:"),
        (["--require", "opencll"], 2, "--require: unknown back end 'opencll'.*did you mean 'opencl'"),
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_back_end_that_is_required_and_missing_is_exit_3_after_the_report(
    capsys: pytest.CaptureFixture[str], required: list[str], code: int, said: str, form: str
) -> None:
    found, out, err = command(capsys, "doctor", *required, "--format", form)
    assert found == code
    assert re.search(said, err) and bool(err) == bool(code)
    assert bool(out) == (code != 2)
    if form == "json" and out:
        assert (json.loads(out)["missing"] == []) == (code == 0)


def test_where_no_back_end_reaches_anything_nothing_can_be_validated(fake: Fake) -> None:
    fake("opencl", "return []")
    *_, last = doctor_lines(doctoring.doctor())
    assert last == "Devices that windtunnel validate can measure: none"


@pytest.mark.usefixtures("some")
@pytest.mark.parametrize("root", [True, False])
def test_it_says_what_being_root_changes(monkeypatch: pytest.MonkeyPatch, root: bool) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    text = "\n".join(doctor_lines(doctoring.doctor()))
    assert ("Running as root: " in text, "Not running as root: " in text) == (root, not root)


@pytest.mark.usefixtures("some")
def test_a_card_without_a_driver_and_a_limit_of_address_space_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    card = system.PciDevice("0000:17:00.0", 0x10DE, 0x2335, 3)
    monkeypatch.setattr(system, "accelerators", lambda: (card,))
    monkeypatch.setattr(system, "limits", lambda: system.Limits(0.5, 2e9, 1e9))
    text = "\n".join(doctor_lines(doctoring.doctor()))
    assert "PCI 0000:17:00.0: NVIDIA GPU (10de:2335) is not reached by any back end" in text
    assert "Limits: 0.5 cores, 2.0 GB of memory, 1.0 GB of address space per process" in text


def compiler(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport os, sys, time\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.usefixtures("some")
def test_compilers_are_asked_and_what_is_missing_or_does_not_work_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctoring, "_ANSWER_S", 600.0)
    monkeypatch.setenv("PATH", str(tmp_path))
    compiler(tmp_path, "g++", "print('hello')\nprint('g++ (of ours) 99.1')")
    compiler(tmp_path, "verilator", "sys.exit(1)")
    report = doctoring.doctor()
    versions: dict[str, Any] = {one.name: one.version for one in report.compilers}
    assert versions["g++"] == "g++ (of ours) 99.1"
    assert (versions["verilator"], versions["hipcc"], versions["iverilog"]) == (None, None, None)
    text = "\n".join(doctor_lines(report))
    assert "missing (RTL simulation of kernels): apt install iverilog" in text


@pytest.mark.usefixtures("some")
def test_a_compiler_that_hangs_has_no_version_and_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctoring, "_ANSWER_S", 0.01)
    monkeypatch.setenv("PATH", str(tmp_path))
    compiler(tmp_path, "hipcc", "time.sleep(1000) if os.fork() == 0 else time.sleep(1000)")
    assert {one.name: one.version for one in doctoring.doctor().compilers}["hipcc"] is None


def test_the_packages_it_looks_for_are_those_that_windtunnel_needs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    assert sorted(re.split(r"[<>=]", one)[0] for one in needed) == sorted(doctoring.NEEDED)
    monkeypatch.setattr(doctoring, "NEEDED", ("numpy", "a-package-nobody-has"))
    text = "\n".join(doctor_lines(doctoring.doctor()))
    assert re.search(r"  numpy \d.*\n  missing: pip install a-package-nobody-has\n", text)
