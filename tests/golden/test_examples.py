"""What each example printed when it was last looked at, here and on its page.

WINDTUNNEL_REGENERATE=1 pytest tests/golden
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from windtunnel.examples import EXAMPLES

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent / "examples"
PAGE = ROOT / "docs" / "examples.md"


def shown() -> dict[str, str]:
    """What the page shows after each command."""
    blocks = re.findall(
        r"^```\n\$ python docs/examples/(\w+)\.py\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    return dict(blocks)


def printed_by(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run an example as a program in this process; warnings are errors as in every test."""
    capsys.readouterr()
    runpy.run_path(str(ROOT / "docs" / "examples" / f"{name}.py"), run_name="__main__")
    output, errors = capsys.readouterr()
    assert errors == ""
    return output


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_it_did(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed = printed_by(name, capsys)
    golden = HERE / f"{name}.txt"
    if os.environ.get("WINDTUNNEL_REGENERATE"):
        golden.write_text(printed)
        text = PAGE.read_text()
        block = rf"(?<=^\$ python docs/examples/{name}\.py\n).*?(?=^```)"
        PAGE.write_text(re.sub(block, lambda _: printed, text, count=1, flags=re.MULTILINE | re.DOTALL))
        pytest.fail("written again; run without WINDTUNNEL_REGENERATE")
    assert printed == golden.read_text()
    assert shown()[name] == golden.read_text()


def test_an_example_is_a_program_of_its_own() -> None:
    file = ROOT / "docs" / "examples" / "unified_memory.py"
    done = subprocess.run([sys.executable, "-W", "error", file], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (HERE / "unified_memory.txt").read_text()


def test_every_example_is_listed_shown_and_kept() -> None:
    shared = {"__init__", "kernels", "measure"}
    modules = {path.stem for path in (ROOT / "docs" / "examples").glob("*.py")} - shared
    assert modules == set(EXAMPLES) == set(shown()) == {path.stem for path in HERE.glob("*.txt")}


def test_the_folder_in_docs_is_the_package() -> None:
    assert (ROOT / "docs" / "examples").resolve() == ROOT / "simulator" / "windtunnel" / "examples"
