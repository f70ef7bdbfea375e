"""The exceptions of Windtunnel. Their messages state what is wrong, where, and what was expected.

Exit codes of the command line: 0 done, 1 a target was missed, 2 the input is wrong, 3 a requested device is not
present, 70 a bug of Windtunnel.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple


class WindtunnelError(Exception):
    """Base of all errors that Windtunnel raises."""

    exit_code: ClassVar[int] = 70


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that is most similar to ``name``; None if none is similar."""
    names = list(candidates)
    folded = {candidate.casefold(): candidate for candidate in reversed(names)}
    exact = folded.get(name.casefold())
    if exact is not None:
        return exact
    completions = [candidate for candidate in folded if len(name) > 1 and candidate.startswith(name.casefold())]
    if completions:
        return folded[min(completions, key=len)]
    # The cutoff is lower for short names, in which one wrong letter is a large part.
    cutoff = 0.6 if len(name) > 4 else 0.5
    close = difflib.get_close_matches(name.casefold(), [*folded, *_first_parts(folded)], n=1, cutoff=cutoff)
    found = [candidate for candidate in folded if close and f"{candidate}-".startswith(f"{close[0]}-")]
    return folded[min(found, key=len)] if found else None


def _first_parts(names: Iterable[str]) -> list[str]:
    """Return what names have before the first ``-``: ``h1000`` is nearer to ``h100-sxm-80gb`` than to ``mi100``."""
    return [first for first, dash, _ in (name.partition("-") for name in names) if dash]


def nearest_file(name: str, present: Iterable[str]) -> str | None:
    """Return the file whose name is most similar to ``name`` without the extensions, which most files share."""
    files = list(present)
    stems = {file.partition(".")[0] or file: file for file in sorted(files, reverse=True)}
    if name in files:
        return name
    stem = nearest(name.partition(".")[0], stems)
    return None if stem is None else stems[stem]


def list_choices(candidates: Iterable[str], limit: int = 12) -> str:
    """Return ``candidates`` as the 'expected' part of a message, with at most ``limit`` names."""
    names = list(candidates)
    shown = ", ".join(names[:limit])
    return f"one of {shown}" + (f", ... ({len(names)} in all)" if len(names) > limit else "")


@dataclass(frozen=True)
class Location:
    """A place in the input: a file, a line and column in it (from 1), and a field's path."""

    file: str | None = None
    line: int | None = None
    column: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        spot = self.file or ""
        if self.line is not None:
            spot += f":{self.line}" + (f":{self.column}" if self.column is not None else "")
        return ": ".join(part for part in (spot, self.field or "") if part)


class InputError(WindtunnelError):
    """The input is wrong. The message states the place, the problem, what was expected, and the nearest right name."""

    exit_code: ClassVar[int] = 2

    def __init__(
        self, problem: str, *, where: Location | None = None, expected: str | None = None, nearest: str | None = None
    ) -> None:
        self.problem = problem
        self.where = where or Location()
        self.expected = expected
        self.nearest = nearest
        super().__init__(problem)

    def __str__(self) -> str:
        text = f"{self.where}: {self.problem}" if str(self.where) else self.problem
        if self.expected:
            text += f"; expected {self.expected}"
        if self.nearest:
            text += f"; did you mean '{self.nearest}'?"
        return text

    def at(self, where: Location) -> InputError:
        """Return the same error with the missing parts of its place taken from ``where``.

        A line belongs to a file, so an error in another file keeps its own line or none.
        """
        own = self.where
        keeps = own.line is not None or (own.file is not None and where.file is not None and own.file != where.file)
        merged = Location(
            file=own.file or where.file,
            line=own.line if keeps else where.line,
            column=own.column if keeps else where.column,
            field=own.field or where.field,
        )
        return type(self)(self.problem, where=merged, expected=self.expected, nearest=self.nearest)


class TranslatorError(InputError):
    """A bug of Windtunnel that shows at a place of a C source: what the translator does not expect."""

    exit_code: ClassVar[int] = 70


class UnsupportedOperationError(InputError):
    """The kind of a device, or its API, does not support an operation."""


class DeviceNotPresentError(WindtunnelError):
    """A device that was requested by name is not present. Another device is never used instead."""

    exit_code: ClassVar[int] = 3


class InvariantError(WindtunnelError):
    """A finished run violates one of the numbered invariants. This is a bug of Windtunnel, never of the input."""


# Errors of devices that a program under test receives. They correspond to those of the API.


@dataclass(frozen=True)
class ApiCode:
    """An error code of an API: its name, and its number if the API has numbers."""

    api: str
    name: str
    number: int | None = None

    def __str__(self) -> str:
        number = "" if self.number is None else f" {self.number}"
        return f"{self.api} error{number} ({self.name})"


class DeviceError(WindtunnelError):
    """A device rejected a call or failed. The message states the operation, the device, and the API's error code.

    ``operation``: such as ``launch saxpy``; ``device``: its label; ``code``: see ``ApiCode``. ``sticky``: every later
    call on the device fails with the same error, until it is reset.
    """

    sticky: ClassVar[bool] = False

    def __init__(self, problem: str, *, operation: str, device: str, code: ApiCode) -> None:
        self.problem, self.operation, self.device, self.code = problem, operation, device, code
        super().__init__(f"{operation} on {device}: {problem}: {code}")
        self.file, line = caller()
        self.lines = (line,)
        """The line of ``file`` in which the program made the call."""

    @property
    def api(self) -> str:
        """Return the name of the API that reported the error."""
        return self.code.api


def caller() -> tuple[str, int]:
    """Return file and line of the innermost call from outside of this package, NumPy and ``contextlib``."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(_PACKAGE)
        or str(frame.f_globals.get("__name__", "")).partition(".")[0] in ("numpy", "contextlib")
    ):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


_PACKAGE = str(Path(__file__).resolve().parents[1])


class DeviceOutOfMemory(DeviceError):
    """An allocation is larger than the free memory."""


class LaunchError(DeviceError):
    """A kernel could not be launched, or failed during its execution."""


class InvalidArgument(DeviceError):
    """The API rejects a call because of a wrong size, type, pointer or handle."""


class UseAfterFree(InvalidArgument):
    """A buffer is used or freed after it was freed."""


class CopyError(DeviceError):
    """A copy between host and device, or within a device, failed."""


class EccError(DeviceError):
    """An uncorrectable memory error. The data on the device is no longer reliable."""

    sticky = True


class DeviceHang(DeviceError):
    """A kernel did not end, and a watchdog ended it."""

    sticky = True


class DeviceLost(DeviceError):
    """The device is lost until it is reset, and so is all its data."""

    sticky = True


class LinkDown(DeviceError):
    """The device is temporarily unreachable."""


class CodePlace(NamedTuple):
    """A place in source code; the column is None where it is not known."""

    file: str
    line: int
    column: int | None


class Finding(WindtunnelError):
    """An error of a program that a detector found during its execution.

    ``file`` and ``lines``: the place, with one or two line numbers (none if no line causes it); ``columns`` are
    those of the lines, where the source is C. ``places``: all places of the accesses, also those of one line and of
    other files, where a launch found it. ``array`` and ``index``: the element, if the error concerns one.
    ``threads``: the threads, as ((block), (thread)) pairs.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        lines: tuple[int, ...] = (),
        array: str | None = None,
        index: int | tuple[int, ...] | None = None,
        threads: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (),
        columns: tuple[int, ...] = (),
        places: tuple[CodePlace, ...] = (),
    ) -> None:
        super().__init__(message)
        self.columns, self.places = columns, places
        self.file, self.lines, self.array, self.index, self.threads = file, lines, array, index, threads
        self.schedule: int | None = None
        """The seed of the schedule of threads in which it was found; None for the default schedule."""
        self.expected = False
        """Whether a test expects the finding, such as with ``pytest.raises``, or pytest has reported it."""
        self.process: int | None = None
        """The id of the process that found it, if the program is emulated. A pool passes on findings of children."""

    def under(self, schedule: int) -> None:
        """Record the seed of the schedule in which it was found."""
        self.schedule = schedule
        self.add(f" (schedule {schedule})")

    def add(self, text: str) -> None:
        """Add text at the end of the message."""
        self.args = (f"{self.args[0]}{text}",)

    @property
    def address(self) -> int | tuple[int, ...] | None:
        """Return the element's index in its array."""
        return self.index


class DataRace(Finding):
    """Two threads access one element, at least one of them writes, and nothing orders the accesses."""


class OutOfBounds(Finding):
    """A thread accesses an index outside an array.

    ``shape``: the sides of the array, if they are known.
    """

    shape: tuple[int, ...] = ()


class UninitializedRead(Finding):
    """A thread reads an element or a variable that was not written before."""


class AssertionFailed(Finding):
    """An assertion of the kernel does not hold, or it reaches a trap."""


class MisalignedAccess(Finding):
    """A thread accesses a number at an address that is no multiple of the number's size."""


class DivisionByZero(Finding):
    """A thread divides an integer by zero, which C leaves undefined."""


class BarrierDivergence(Finding):
    """Some threads of a block reach a barrier, and others do not."""


class MissingSync(Finding):
    """Operations in two streams, or on host and device, access one buffer, and nothing orders them."""


class Leak(Finding):
    """A device was closed while it had memory that was not freed, or a running persistent kernel."""


class Deadlock(Finding):
    """No thread can continue: the message states which thread waits, for what, and why."""


class ChecksSkippedWarning(UserWarning):
    """A launch was executed without some of the usual checks; the message states which and why."""


class QueueFull(DeviceError):
    """A queue is full."""
