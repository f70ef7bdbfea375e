"""The records of a sweep on disk: one folder, held by one sweep at a time, with a file for each finished point."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from windtunnel.core.errors import InputError, Location
from windtunnel.core.files import writing_output
from windtunnel.sweep.grid import Manifest, canonical


@dataclass(frozen=True)
class Outcome:
    """The outcome of a point: its result as result.json holds it, or its error with the exit code."""

    result: str | None = None
    error: str | None = None
    code: int = 0
    traceback: str | None = None


class Records:
    """A sweep's folder: manifest.json, and runs/KEY/ with result.json (or error.json) for each finished point.

    A lock gives it to one sweep at a time; the lock ends with its process. Every file is written aside, flushed to disk
    and renamed, so that it is complete.
    """

    def __init__(self, folder: Path, keys: Sequence[str]) -> None:
        self.folder = folder
        self._keys = keys
        self.scratch = folder / ".scratch"

    def run_folder(self, index: int) -> Path:
        """Return the folder of a point's record."""
        return self.folder / "runs" / self._keys[index]

    def result(self, index: int) -> str | None:
        """Return a finished point's result; None if the point is not finished or its record is damaged."""
        try:
            text = (self.run_folder(index) / "result.json").read_text(encoding="utf-8")
            result = json.loads(text)
            return text if isinstance(result, dict) and "targets" in result else None
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None

    def write(self, index: int, outcome: Outcome) -> None:
        """Record the outcome of a point; it replaces an earlier error."""
        folder = self.run_folder(index)
        with writing_output(self.folder):
            folder.mkdir(parents=True, exist_ok=True)
            if outcome.result is not None:
                self._write(folder / "result.json", outcome.result)
                (folder / "error.json").unlink(missing_ok=True)
                return
            failure = {"error": outcome.error, "exit_code": outcome.code, "traceback": outcome.traceback}
            self._write(folder / "error.json", json.dumps(failure, indent=2, ensure_ascii=False) + "\n")

    def write_manifest(self, stated: Manifest) -> None:
        """Write the manifest after every point was checked, and delete the records of the previous sweep."""
        with writing_output(self.folder):
            held = _manifest(self.folder) or {}
            for name in ("manifest.json", "sweep.csv", "sweep.json"):
                (self.folder / name).unlink(missing_ok=True)
            points = held.get("points")
            for key in points if isinstance(points, list) else ():
                if isinstance(key, str) and re.fullmatch(r"[0-9]+-[0-9a-f]{12}", key):
                    shutil.rmtree(self.folder / "runs" / key, ignore_errors=True)
            with suppress(OSError):  # a folder with files of others stays
                (self.folder / "runs").rmdir()
            self._write(
                self.folder / "manifest.json", json.dumps(stated.to_dict(), indent=2, ensure_ascii=False) + "\n"
            )

    def _write(self, path: Path, text: str) -> None:
        aside = self.scratch / f"record-{os.getpid()}"
        with aside.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)


@contextmanager
def records(folder: Path, stated: Manifest, *, fresh: bool = False) -> Iterator[tuple[Records, bool]]:
    """Return a sweep's folder, locked, and whether it already holds this sweep.

    Raises InputError if another sweep is running in it, or if it holds another sweep and ``fresh`` is False. With
    ``fresh`` the records of that sweep are deleted when this one begins.
    """
    where = Location(str(folder), field="--out")
    held = Records(folder, stated.points)
    with writing_output(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("a+", encoding="utf-8")
    with lock:
        _lock(lock, where)
        with writing_output(folder):
            resumed = _known(folder, json.loads(canonical(stated.to_dict())), where, fresh)
            # Only a sweep that was killed leaves these files.
            shutil.rmtree(held.scratch, ignore_errors=True)
            held.scratch.mkdir()
        try:
            yield held, resumed
        finally:
            shutil.rmtree(held.scratch, ignore_errors=True)


def _lock(lock: TextIO, where: Location) -> None:
    """Take the lock; the system releases it when this process ends."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        raise InputError(
            f"another sweep ({lock.read(200).strip() or 'starting'}) is running in this folder",
            where=where,
            expected="that it ends first, or another folder",
        ) from None
    lock.truncate(0)
    lock.write(f"process {os.getpid()} on {socket.gethostname()}")
    lock.flush()


def _manifest(folder: Path) -> Mapping[str, object] | None:
    """Return the manifest of the folder, None if there is none; raises InputError if the file is not a manifest."""
    try:
        held = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        held = None
    if isinstance(held, dict) and "windtunnel_sweep" in held:
        return held
    raise InputError(
        "the manifest.json there is no sweep's", where=Location(str(folder), field="--out"), expected="another folder"
    )


def _known(folder: Path, stated: Mapping[str, object], where: Location, fresh: bool) -> bool:
    """Return whether the folder holds the sweep ``stated``, which is then resumed."""
    held = _manifest(folder)
    if held is None:
        for name in ("runs", "sweep.csv", "sweep.json"):
            if (folder / name).exists():
                raise InputError(f"'{name}' is there already, of no sweep", where=where, expected="another folder")
        return False
    if not fresh and held != stated:
        apart = [name for name in stated if name != "points" and held.get(name) != stated[name]]
        raise InputError(
            f"this folder holds another sweep; what differs: {', '.join(apart or ['the scenario'])}",
            where=where,
            expected="another folder, or --fresh to throw that sweep's runs away",
        )
    return not fresh
