"""No signal is lost: one that arrives where its exception would be discarded still ends the command."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_a_finalizer_ends_the_command(number: int, code: int) -> None:
    program = f"""
import signal, sys
from windtunnel.cli import main

class Interrupted:
    def __del__(self):
        signal.raise_signal({int(number)})

@main.cli.command()
def forever():
    Interrupted()
    sys.stdout.write("the exception was discarded\\n")  # at once, because the signal may come between two writes
    sys.stdout.flush()
    while True:
        pass

sys.argv = ["windtunnel", "forever"]
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the parent ignores the signal
main.script()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stdout) == (code, "the exception was discarded\n"), done.stderr
