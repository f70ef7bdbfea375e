"""Findings in the Static Analysis Results Interchange Format (SARIF 2.1.0, OASIS), for annotations of code reviews."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from windtunnel.core import errors
from windtunnel.core.version import __version__


class PlacedFinding(Protocol):
    """A finding: its class, its place and its message."""

    @property
    def finding(self) -> str:
        """The class in `windtunnel.errors`."""

    @property
    def file(self) -> str:
        """The file."""

    @property
    def lines(self) -> tuple[int, ...]:
        """The lines."""

    @property
    def places(self) -> tuple[tuple[str, int, int | None], ...]:
        """File, line and column of its accesses, those of ``file`` first; none if only the lines are known."""

    @property
    def message(self) -> str:
        """The message."""


class Failure(Protocol):
    """Why a check was not done."""

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""

    @property
    def message(self) -> str:
        """The error."""


def sarif(
    findings: Sequence[PlacedFinding],
    properties: Mapping[str, object] | None = None,
    failure: Failure | None = None,
    where: errors.Location | None = None,
) -> dict[str, Any]:
    """Return a SARIF log of one run, with properties of the run, and why it was not done, if so, with the place."""
    names = sorted({one.finding for one in findings})
    rules = [{"id": name, "shortDescription": {"text": _described(name)}} for name in names]
    driver = {"name": "windtunnel", "version": __version__, "rules": rules}
    run: dict[str, Any] = {"tool": {"driver": driver}, "results": [_result(one) for one in findings]}
    run["invocations"] = [_invocation(findings, failure, where or errors.Location())]
    if properties:
        run["properties"] = dict(properties)
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }


def _described(name: str) -> str:
    """Return what a class of findings is: the first sentence that describes it."""
    text = " ".join((getattr(errors, name).__doc__ or name).split())
    return text.partition(". ")[0].rstrip(".") + "."


def _invocation(findings: Sequence[PlacedFinding], failure: Failure | None, where: errors.Location) -> dict[str, Any]:
    """Return whether the check was done, and the error that ended it."""
    if failure is None:
        return {"executionSuccessful": True, "exitCode": 1 if findings else 0}
    notification: dict[str, Any] = {"level": "error", "message": {"text": failure.message}}
    if where.file:
        place: dict[str, Any] = {"artifactLocation": {"uri": where.file}}
        if where.line is not None:
            place["region"] = {"startLine": where.line}
            if where.column is not None:
                place["region"]["startColumn"] = where.column
        notification["locations"] = [{"physicalLocation": place}]
    return {
        "executionSuccessful": False, "exitCode": failure.exit_code, "toolExecutionNotifications": [notification],
    }  # fmt: skip


def _result(found: PlacedFinding) -> dict[str, Any]:
    result: dict[str, Any] = {"ruleId": found.finding, "level": "error", "message": {"text": found.message}}
    places = []
    for file, line, column in found.places or [(found.file, line, None) for line in found.lines]:
        region = {"startLine": line}
        if column is not None:
            region["startColumn"] = column
        places.append({"physicalLocation": {"artifactLocation": {"uri": file}, "region": region}})
    if places:
        result["locations"] = places[:1]
        if places[1:]:
            result["relatedLocations"] = places[1:]
    elif found.file:
        result["locations"] = [{"physicalLocation": {"artifactLocation": {"uri": found.file}}}]
    return result
