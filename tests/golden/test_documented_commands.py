"""Every `$ windtunnel ...` shown in the documents is run, and prints what is shown there.

A line of three dots stands for lines left out. `$ echo $?` shows the exit code of the command before it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def sessions() -> list[tuple[str, list[tuple[str, str]]]]:
    """Each console block: where it is, and its (command, shown output) pairs."""
    found = []
    for path in DOCUMENTS:
        text = path.read_text()
        for match in re.finditer(r"^```[a-z]*\n(\$ windtunnel .*?)^```", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, match.start()) + 1
            parts = re.split(r"^\$ (.*)\n", match[1], flags=re.MULTILINE)[1:]
            pairs = list(zip(parts[::2], parts[1::2], strict=True))
            found.append((f"{path.name}:{line}", pairs))
    return found


def pattern(shown: str) -> str:
    """A regular expression of the shown output: a line of dots for any lines, spaces at line ends ignored."""
    lines = [
        r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line.rstrip()) + r"[ ]*\n" for line in shown.splitlines()
    ]
    return "".join(lines)


@pytest.mark.parametrize("pairs", [pytest.param(pairs, id=place) for place, pairs in sessions()])
def test_a_shown_command_prints_what_is_shown(
    pairs: list[tuple[str, str]], tmp_path: Path, windtunnel_command: Callable[..., CompletedProcess[str]]
) -> None:
    code = 0
    for command, shown in pairs:
        if command == "echo $?":
            assert shown.strip() == str(code)
            continue
        words = shlex.split(command)
        if words[0] != "windtunnel":
            pytest.fail(f"this test runs windtunnel only, not {command!r}")
        words = [w.replace("reports/make-run", str(tmp_path)) for w in words]
        done = windtunnel_command(*words[1:], expect=None)
        code = done.returncode
        # The progress bar comes and goes on standard error; one-line errors are shown.
        errors = "".join(line for line in done.stderr.splitlines(keepends=True) if line.startswith("windtunnel: "))
        printed = done.stdout + errors
        kept = "".join(line for line in printed.splitlines(keepends=True) if not line.startswith("wrote "))
        assert re.fullmatch(pattern(shown) + r"\n?", kept), f"{command}\nshown:\n{shown}\nprinted:\n{kept}"


def test_there_are_commands_to_check() -> None:
    assert len(sessions()) >= 4


def test_times_of_requests_and_names_of_models_are_explained_before_they_are_used() -> None:
    for path in (ROOT / "README.md", ROOT / "docs" / "planning.md"):
        text = path.read_text()
        for term, meaning in (("TTFT", "first token"), ("ITL", "gap between two"), ("TPOT", "mean gap")):
            first = text.index(term)
            assert meaning in text[max(0, first - 100) : first + 100], f"{path.name}: {term}"
        assert "{catalogue: llama-3.1-70b}" in text and "`windtunnel models`" in text


def test_every_relative_link_leads_somewhere() -> None:
    broken = []
    for path in [*DOCUMENTS, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "decisions").glob("*.md"))]:
        text = re.sub(r"(?ms)^```.*?^```", "", path.read_text())
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if "://" not in target and not (path.parent / target).exists():
                broken.append(f"{path.name}: {target}")
    assert broken == []
