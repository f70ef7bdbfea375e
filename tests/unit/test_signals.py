"""No signal is lost: SIGINT and SIGTERM are held while code runs that would discard the exception of their handler."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from numba.core.dispatcher import Dispatcher

from windtunnel.core.signals import HeldSignals
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import run


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """The signals that the handlers of this test received; SIGINT also raises KeyboardInterrupt."""
    numbers: list[int] = []

    def handle(number: int, _: FrameType | None) -> None:
        numbers.append(number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt

    before = [(number, signal.signal(number, handle)) for number in (signal.SIGINT, signal.SIGTERM)]
    yield numbers
    for number, handler in before:
        signal.signal(number, handler)


def test_signals_are_handled_when_the_context_ends_and_by_the_handlers_of_before(handled: list[int]) -> None:
    with pytest.raises(KeyboardInterrupt), HeldSignals():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert handled == []
    assert handled == [signal.SIGTERM, signal.SIGINT]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert len(handled) == 3


def test_contexts_nest_and_a_signal_after_them_is_handled_at_once(handled: list[int]) -> None:
    with HeldSignals():
        with HeldSignals():
            signal.raise_signal(signal.SIGTERM)
        assert handled == []
    assert handled == [signal.SIGTERM]


def test_in_other_threads_nothing_is_held(handled: list[int]) -> None:
    def hold() -> None:
        before = signal.getsignal(signal.SIGTERM)
        with HeldSignals():
            unchanged.append(signal.getsignal(signal.SIGTERM) is before)

    unchanged: list[bool] = []
    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    assert unchanged == [True]


def test_an_interrupt_while_numba_looks_at_the_arguments_of_the_kernel_ends_the_run(
    queue: Any, handled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numba reads this property of each function that is an argument, and discards what it raises."""
    described = vars(Dispatcher)["_numba_type_"].fget

    def interrupted(dispatcher: Any) -> Any:
        if not handled:
            signal.raise_signal(signal.SIGINT)
        return described(dispatcher)

    scenario = scenario_from_data(queue(stop={"jobs": 300}))
    run(scenario, engine="compiled")
    monkeypatch.setattr(Dispatcher, "_numba_type_", property(interrupted))
    with pytest.raises(KeyboardInterrupt):
        run(scenario, engine="compiled")
    assert handled == [signal.SIGINT]


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
