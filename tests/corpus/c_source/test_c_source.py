"""Kernels in C as users write them: each planted mistake is found at its line, and without it the numbers are Clang's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.corpus.c_source.processor import Pocl, both, compiled
from tests.corpus.c_source.programs import Program, clean, planted

from windtunnel.app.check import Checked, check
from windtunnel.app.check_launches import launches_of


def checked(program: Program, schedules: int = 0) -> Checked:
    """Check a program's launches in order."""
    return check(launches_of(program.launches), quiet=True, schedules=schedules)


def test_each_planted_mistake_is_found_with_its_class_and_line() -> None:
    assert len(planted()) >= 60
    differing = {}
    for program in planted():
        assert program.mistake is not None
        findings = checked(program).findings
        source = program.source.read_text().splitlines()
        at = {source[line - 1].strip() for one in findings for line in one.lines if one.file == str(program.source)}
        is_right = any(one.finding in program.mistake.findings for one in findings)
        if not is_right or not at & set(program.mistake.lines):
            differing[program.name] = [(one.finding, one.file, one.lines) for one in findings]
    assert differing == {}


def test_without_mistakes_nothing_is_found_and_the_numbers_are_those_of_clang(tmp_path: Path) -> None:
    programs = [*clean(), *(program.mended(tmp_path) for program in planted())]
    assert len(programs) >= 90
    alone = {program.name for program in planted() if program.mistake is not None and not program.mistake.processor}
    for program in programs:
        assert program.name not in alone or checked(program).findings == [], program.name
    compared = [program for program in programs if program.name not in alone]
    assert len(compared) >= 90
    library, pocl = compiled([one for one in compared if one.source.suffix == ".cu"], tmp_path), Pocl()
    differing = {}
    for program in compared:
        # A finding would be an exception here.
        results = both(program, library if program.source.suffix == ".cu" else None, pocl)
        wrong = [
            name
            for name, (emulated, by_clang) in results.items()
            if not np.array_equal(emulated, by_clang, equal_nan=emulated.dtype.kind == "f")
        ]
        if wrong:
            differing[program.name] = [(name, *results[name]) for name in wrong]
    assert differing == {}, differing
