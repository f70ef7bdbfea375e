"""What can go wrong, shaped so that the message alone is enough to mend it.

Exit codes follow the command line's contract: 0 done, 1 a target missed, 2 the input is wrong,
3 a device asked for by name is not here, 70 a bug of Windtunnel's own.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


class WindtunnelError(Exception):
    """Base of every error Windtunnel raises on purpose."""

    exit_code: ClassVar[int] = 70


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like ``name``, or None when nothing comes near."""
    names = list(candidates)
    folded = {candidate.casefold(): candidate for candidate in reversed(names)}
    exact = folded.get(name.casefold())
    if exact is not None:
        return exact
    begun = [candidate for candidate in folded if len(name) > 1 and candidate.startswith(name.casefold())]
    if begun:
        return folded[min(begun, key=len)]
    # Of a short name one wrong letter is half of it.
    close = difflib.get_close_matches(name.casefold(), list(folded), n=1, cutoff=0.6 if len(name) > 3 else 0.5)
    return folded[close[0]] if close else None


def nearest_file(name: str, present: Iterable[str]) -> str | None:
    """The file most like ``name``: judged without their endings, which nearly all share and which say nothing."""
    files = list(present)
    stems = {file.partition(".")[0] or file: file for file in sorted(files, reverse=True)}
    if name in files:
        return name
    found = nearest(name.partition(".")[0], stems)
    return None if found is None else stems[found]


def one_of(candidates: Iterable[str], limit: int = 12) -> str:
    """``candidates`` as the 'expected' part of a message, cut where it would drown the rest."""
    names = list(candidates)
    shown = ", ".join(names[:limit])
    return f"one of {shown}" + (f", ... ({len(names)} in all)" if len(names) > limit else "")


@dataclass(frozen=True)
class Where:
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
    """The input is wrong. Says where, what was found, what was expected, and the nearest right name."""

    exit_code: ClassVar[int] = 2

    def __init__(
        self,
        problem: str,
        *,
        where: Where | None = None,
        expected: str | None = None,
        nearest: str | None = None,
    ) -> None:
        self.problem = problem
        self.where = where or Where()
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

    def at(self, where: Where) -> InputError:
        """The same error with the parts of its place that it did not know filled in from ``where``."""
        mine = self.where
        merged = Where(
            file=mine.file or where.file,
            line=mine.line if mine.line is not None else where.line,
            column=mine.column if mine.line is not None else where.column,
            field=mine.field or where.field,
        )
        return type(self)(self.problem, where=merged, expected=self.expected, nearest=self.nearest)


class UnsupportedOperationError(InputError):
    """A device was asked for an operation that its kind, or the API it is reached through, does not run."""


class DeviceNotPresentError(WindtunnelError):
    """A device was asked for by name and is not here. Never answered by another device in its place."""

    exit_code: ClassVar[int] = 3


class InvariantError(WindtunnelError):
    """A finished run broke one of the numbered invariants: a bug of Windtunnel's, never of the input."""


# What a program under test meets: errors of devices, shaped like those of the API they come through.


@dataclass(frozen=True)
class ApiCode:
    """An API's own word for what went wrong: its name there, and its number where the API has numbers."""

    api: str
    name: str
    number: int | None = None

    def __str__(self) -> str:
        number = "" if self.number is None else f" {self.number}"
        return f"{self.api} error{number} ({self.name})"


class DeviceError(WindtunnelError):
    """A device refused or failed. Says what was being done, where, and the API's name and code for it.

    ``operation``: such as ``launch saxpy``; ``device``: its label; ``code``: see ``ApiCode``. ``sticky``: every later
    call on the device fails alike, until it is reset.
    """

    sticky: ClassVar[bool] = False

    def __init__(self, problem: str, *, operation: str, device: str, code: ApiCode) -> None:
        self.problem, self.operation, self.device, self.code = problem, operation, device, code
        super().__init__(f"{operation} on {device}: {problem}: {code}")
        self.file, line = caller()
        self.lines = (line,)
        """Where the program made the call: a file, and the line in it."""

    @property
    def api(self) -> str:
        """The API through which it came."""
        return self.code.api


def caller() -> tuple[str, int]:
    """(file, line) of the nearest call from outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


_PACKAGE = str(Path(__file__).resolve().parents[1])


class DeviceOutOfMemory(DeviceError):
    """More memory was asked for than is free."""


class LaunchError(DeviceError):
    """A kernel was not started, or failed while it ran."""


class InvalidArgument(DeviceError):
    """A call that the API refuses: a wrong size, type, pointer or handle."""


class UseAfterFree(InvalidArgument):
    """Memory is used, or given back, that was given back before."""


class CopyError(DeviceError):
    """A copy between host and device, or within one, failed."""


class EccError(DeviceError):
    """Memory lost bits and could not mend them. What is on the device is not to be trusted any more."""

    sticky = True


class DeviceHang(DeviceError):
    """A kernel did not end, and was ended by a watchdog."""

    sticky = True


class DeviceLost(DeviceError):
    """The device is gone until it is reset; all that was on it is lost."""

    sticky = True


class LinkDown(DeviceError):
    """The device cannot be reached for a while."""


class Finding(WindtunnelError):
    """A bug of a program that was found while it ran: the message reads alone.

    ``file`` and ``lines``: where, one or two line numbers (none for what is no line's doing); ``array`` and ``index``:
    of which element, where it is one's; ``threads``: who, as ((block), (thread)) pairs.
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
    ) -> None:
        super().__init__(message)
        self.file, self.lines, self.array, self.index, self.threads = file, lines, array, index, threads
        self.schedule: int | None = None
        """The seed of the order of threads in which it was met; None where that was the usual one."""

    def under(self, schedule: int) -> None:
        """It was met in the order that this seed picks."""
        self.schedule = schedule
        self.args = (f"{self.args[0]} (schedule {schedule})",)

    @property
    def address(self) -> int | tuple[int, ...] | None:
        """The element's index in its array."""
        return self.index


class DataRace(Finding):
    """Two threads touch one element, at least one of them writes, and nothing orders them."""


class OutOfBounds(Finding):
    """An index beyond its array, or below it."""


class UninitializedRead(Finding):
    """An element is read that nobody has written, or a variable to which its thread has assigned nothing."""


class BarrierDivergence(Finding):
    """A barrier that some threads of a block reach, and others do not."""


class MissingSync(Finding):
    """Work in two streams, or of host and device, touches one buffer, and nothing orders it."""


class Leak(Finding):
    """A device was given back with memory that the program had allocated and not freed, or a kernel that stays."""


class Deadlock(Finding):
    """Somebody waits for what cannot come: the message says who, for what, and why."""


class ChecksSkippedWarning(UserWarning):
    """A launch was executed without some of the usual checks; the message states which and why."""


class QueueFull(DeviceError):
    """A queue took no more work."""
