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


def test_ctrl_c_while_workers_start_prints_one_line_and_no_traceback_of_theirs() -> None:
    """A terminal sends the signal to all processes of the command; the fork server still imports its modules."""
    program = """
import multiprocessing, os, signal, sys, time
from concurrent.futures import ProcessPoolExecutor
from windtunnel.cli import main
from windtunnel.core.worker_processes import end_at_once, start_fork_server, starting_workers

@main.cli.command()
def forever():
    start_fork_server(["asyncio"])
    pool = ProcessPoolExecutor(2, multiprocessing.get_context("forkserver"))
    try:
        with starting_workers():
            begun = pool.submit(abs, 1)
        signal.signal(signal.SIGINT, lambda *_: None)
        os.killpg(0, signal.SIGINT)
        assert begun.result() == 1, "they work although the signal was sent to them"
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with starting_workers():
            pool.submit(time.sleep, 60)
        os.killpg(0, signal.SIGINT)
        time.sleep(60)
    finally:
        end_at_once(pool)

sys.argv = ["windtunnel", "forever"]
signal.signal(signal.SIGINT, signal.default_int_handler)
main.script()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        start_new_session=True,
    )
    assert (done.returncode, done.stderr, done.stdout) == (130, "\nwindtunnel: interrupted\n", "")
