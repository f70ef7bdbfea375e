"""The findings of child processes of an emulated program, which they append to a file."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from windtunnel.core.errors import Finding

_FINDINGS = "WINDTUNNEL_EMULATE_FINDINGS"
_PARENT = "WINDTUNNEL_EMULATE_PARENT"
_expected: set[str] = set()
"""The findings of child processes that the test expects."""


def begin() -> None:
    """Make the file, and tell child processes of it."""
    handle, os.environ[_FINDINGS] = tempfile.mkstemp(prefix="windtunnel-findings-")
    os.close(handle)
    os.environ[_PARENT] = str(os.getpid())


def note(finding: Finding) -> None:
    """Tell the process that announced the emulation of a finding of a child process."""
    finding.process = os.getpid()
    path = os.environ.get(_FINDINGS)
    if path and os.environ.get(_PARENT) != str(os.getpid()) and Path(path).exists():
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(_text(finding)) + "\n")


def _text(finding: Finding) -> str:
    return f"{type(finding).__name__}: {finding}"


def expect(finding: Finding) -> None:
    """Note that a test expects a finding, which is not reported if a child process has passed it on."""
    if finding.process not in (None, os.getpid()):
        _expected.add(_text(finding))


def forget_expected() -> None:
    """Forget what the last test has expected."""
    _expected.clear()


def take() -> list[str]:
    """Return the findings of child processes since the last call, without those that the test expects."""
    path = os.environ.get(_FINDINGS)
    if not path or os.environ.get(_PARENT) != str(os.getpid()) or not Path(path).exists():
        return []
    with Path(path).open("r+", encoding="utf-8") as file:
        lines = file.readlines()
        file.truncate(0)
    return [text for text in map(json.loads, lines) if text not in _expected]


def end() -> None:
    """Remove the file of the findings of child processes."""
    path = os.environ.get(_FINDINGS)
    if path and os.environ.get(_PARENT) == str(os.getpid()):
        Path(path).unlink(missing_ok=True)
