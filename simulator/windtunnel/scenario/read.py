"""Reads a scenario: from a file or plain data to a checked `Scenario`."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError
from pydantic.json_schema import JsonSchemaValue

from windtunnel.core.errors import InputError
from windtunnel.core.yamlfile import Document
from windtunnel.scenario.changes import read_document
from windtunnel.scenario.checks import check_names, check_operation_faults, check_serving_targets
from windtunnel.scenario.decoder import served_models
from windtunnel.scenario.located import located
from windtunnel.scenario.program import parse_program
from windtunnel.scenario.scenario import Scenario


def read_scenario(
    path: Path, changes: Sequence[str] = (), *, seed: int | None = None, outside_code: bool = False
) -> Scenario:
    """Return the scenario in the file ``path`` with ``changes`` ("fleet[0].count=3") made to it.

    ``outside_code``: its policy may be code in a file outside of its folder.

    Raises:
        InputError: The first thing that is wrong, with file, line, column, field, what was expected and the nearest
            right name.
    """
    return check_scenario(read_document(path, changes, seed=seed, outside_code=outside_code))


def scenario_from_data(data: Mapping[str, object], file: str = "scenario") -> Scenario:
    """Return a scenario from plain data, as a file holds it; its files are relative to the folder of ``file``.

    The scenario has a copy of the data: neither changes with the other.
    """
    return check_scenario(Document(copy.deepcopy(dict(data)), file))


def is_placement(document: Document) -> bool:
    """Return whether a document describes a cluster instead of a fleet, so that `placement.scenario` reads it."""
    return isinstance(document.data, dict) and "cluster" in document.data


def check_scenario(document: Document) -> Scenario:
    """Return the scenario of a document; raises InputError for the first thing that is wrong."""
    if not isinstance(document.data, dict):
        raise InputError(
            "a scenario is a mapping" if document.data is not None else "this scenario is empty",
            where=document.where(()),
            expected="keys such as schema, name, fleet, workload",
        )
    if is_placement(document) and "fleet" not in document.data:
        # `run` reads such a file; other commands need a fleet.
        raise InputError(
            "this is a placement scenario, with a cluster instead of a fleet: it can be run, but not planned, swept or "
            "compared",
            where=document.where(("cluster",), key=True),
            expected="a scenario with a fleet and a workload; `windtunnel run` takes this one",
        )
    try:
        scenario = Scenario.model_validate(document.data)
    except ValidationError as error:
        raise located(error, document, Scenario) from None
    check_names(scenario, document)
    programs = [
        parse_program(workload.ops, ("workload", i, "ops"), document.where, list(scenario.models), workload.gang)
        for i, workload in enumerate(scenario.workload)
    ]
    scenario.attach(document, programs, served_models(scenario.models, document))
    check_operation_faults(scenario, document)
    check_serving_targets(scenario, document)
    return scenario


def json_schema() -> JsonSchemaValue:
    """Return the JSON Schema of a scenario file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Scenario.model_json_schema(by_alias=True),
        "title": "Windtunnel scenario",
    }
