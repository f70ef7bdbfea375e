"""`windtunnel deploy`: the configuration of the serving engines of a scenario's fleet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windtunnel.core.errors import InputError, Location
from windtunnel.core.files import only_writer
from windtunnel.core.results.deployment import Deployment
from windtunnel.deployment.commands import deployment
from windtunnel.scenario.read import read_scenario
from windtunnel.simulation.run import prepare_run
from windtunnel_models.catalogue import Catalogue


def deploy(
    scenario: Path, changes: Sequence[str], catalogue: Catalogue, *, outside_code: bool = False
) -> tuple[Deployment, str]:
    """Return the configuration that deploys the fleet of a scenario, and the scenario's name; nothing is simulated.

    Raises InputError for a scenario that is not valid, or in which no device serves a decoder.
    """
    read = read_scenario(scenario, changes, outside_code=outside_code)
    found = deployment(prepare_run(read, catalogue, "auto"))
    if found is None:
        raise InputError(
            "no job of the scenario generates tokens, so there is no serving engine to configure",
            where=Location(str(scenario), field="workload"),
            expected="ops: [{generate: {model: ..., prompt: ..., output: ...}}]",
        )
    return found, read.name


def save(found: Deployment | None, name: str, folder: Path) -> list[Path]:
    """Write the files of a deployment as ``write`` does, and as the only command that does."""
    folder.mkdir(parents=True, exist_ok=True)
    with only_writer(folder):
        return write(found, name, folder)


def write(found: Deployment | None, name: str, folder: Path) -> list[Path]:
    """Write the files of a deployment to the folder ``deploy`` in ``folder``, and return their paths.

    Files of an earlier deployment that are not part of this one are removed, because they would start another fleet.
    """
    from windtunnel.core.csvfile import write_texts
    from windtunnel.report.deployment import FOLDER, files, is_written_by_us

    texts = {} if found is None else files(found, name)
    inner = folder / FOLDER
    if texts:
        inner.mkdir(parents=True, exist_ok=True)
    paths = write_texts(inner, texts)
    for path in [*inner.glob("*.sh"), *inner.glob("*.yaml")]:
        if path.name not in texts and path.is_file() and is_written_by_us(path.read_text(errors="replace")):
            path.unlink()
    return paths


__all__ = ["deploy", "save", "write"]
