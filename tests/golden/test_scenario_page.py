"""Every fragment of docs/scenarios.md runs when its keys replace the same keys of the page's whole file, as it promises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import windtunnel
from windtunnel.core.yamlfile import parse
from windtunnel.scenario.read import scenario_from_data

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "scenarios.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
FILES = re.findall(r"^```csv (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_fragment_of_the_page_runs_in_its_whole_file(number: int, tmp_path: Path) -> None:
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    whole = parse(BLOCKS[0], "docs/scenarios.md").data
    fragment = parse(BLOCKS[number], "docs/scenarios.md").data
    if "targets" not in fragment:
        # The whole file's target names its own workload and what that measures.
        whole["targets"] = []
    finished = windtunnel.run(scenario_from_data(whole | fragment, str(tmp_path / "s.yaml")))
    assert finished.result.jobs.arrived > 0


def test_there_are_fragments_to_run() -> None:
    assert len(BLOCKS) > 12 and FILES
