"""For `make study`: the kernels in C under further orders of their threads.

    python -m tests.corpus.c_source.schedules 8

Exits with 1 if a right kernel is flagged under some order, or a mistake is found under none.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.corpus.c_source.programs import clean, planted

from windtunnel.app.check import check
from windtunnel.app.check_launches import launches_of


def main(schedules: int) -> int:
    """Check all programs, print those that are wrong, and return the exit code."""
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for program in [*clean(), *(one.mended(Path(folder)) for one in planted())]:
            for one in check(launches_of(program.launches), schedules=schedules, quiet=True).findings:
                print(f"{program.name}: flagged: {one.message}")
                wrong += 1
    for program in planted():
        if not check(launches_of(program.launches), schedules=schedules, quiet=True).findings:
            print(f"{program.name}: missed")
            wrong += 1
    print(f"{wrong} wrong, {schedules} further orders")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
