"""An old word of a scenario is an error that names the new word, wherever the word stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.core.errors import InputError
from windtunnel.core.renamed import RENAMED
from windtunnel.scenario.scenario import read_scenario

SCENARIO = """\
schema: 1
name: small
fleet:
  - {device: server, count: 2}
workload:
  - name: calls
    arrivals: {process: poisson, rate: 100 /s}
    ops: [{service: {distribution: exponential, mean: 1 ms}}]
stop: {jobs: 50}
"""

# Each kind of place: a change to the scenario in which OLD stands for the old word.
PLACES = {
    "target": "targets=[OLD p99 <= 1 s]",
}


def test_every_old_word_names_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO)
    assert set(PLACES) == set(RENAMED)
    for place, words in RENAMED.items():
        for old, new in words.items():
            with pytest.raises(InputError) as caught:
                read_scenario(path, [PLACES[place].replace("OLD", old)])
            assert f"'{old}' was renamed to '{new}'" in str(caught.value), (place, old)
            assert caught.value.exit_code == 2
