"""Progress is drawn on a terminal once the work has taken a second; elsewhere, a line follows now and then."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from windtunnel.cli import console


class Screen(io.StringIO):
    """A standard error that is a terminal, or says that it is none."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def advance_bar() -> None:
    progress = console.Progress("jobs")
    progress(0, 1000)
    progress(500, 1000)
    progress.close()
    assert progress.first == 0  # known whether or not a bar is drawn


def advance_count() -> None:
    progress = console.Progress("simulations")
    progress(0)
    progress(500)
    progress.close()


def name_stage() -> None:
    progress = console.StatusLine()
    progress("measuring gemm")
    progress.close()


@pytest.mark.parametrize("show", [advance_bar, advance_count, name_stage])
@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_drawn_on_a_terminal_only(
    show: Callable[[], None], terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter(range(0, 100, 2))
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    screen = Screen(terminal=terminal)
    monkeypatch.setattr("sys.stderr", screen)
    show()
    assert bool(screen.getvalue()) == terminal


@pytest.mark.parametrize("show", [advance_bar, advance_count])
def test_what_takes_less_than_a_second_draws_no_progress(
    show: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: 0.0))
    screen = Screen(terminal=True)
    monkeypatch.setattr("sys.stderr", screen)
    show()
    assert screen.getvalue() == ""


def test_a_line_is_printed_now_and_then_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = iter([0.0, 10.0, 31.0, 59.0, 61.0, 61.5])
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    progress = console.Progress("simulations")
    for done in range(5):
        progress(done)
    progress.close()
    printed = capsys.readouterr()
    assert printed.err == "1 simulations finished after 31 s\n3 simulations finished after 61 s\n"
    assert printed.out == ""
