"""An old word of a scenario is an error that names the new word, wherever the word stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.core.errors import InputError
from windtunnel.core.renamed import RENAMED
from windtunnel.policies.own import own_route
from windtunnel.scenario.changes import read_document
from windtunnel.simulation.run import checked

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
PLACEMENT = """\
schema: 1
name: small
cluster: {nodes: {file: nodes.csv}}
workload:
  - {name: tasks, arrivals: {process: trace, file: tasks.csv, time: at}, resources: {gpus: 1}}
policy: random
"""
ARRIVALS = "workload[0].arrivals={process: %s, OLD: 1 s}"
FAULT = "faults=[{kind: %s, OLD: 1}]"
# Each kind of place: a change to the scenario in which OLD stands for the old word.
PLACES = {
    "target": "targets=[OLD p99 <= 1 s]",
    "Workload": "workload[0].OLD=ml inference",
    "Autoscale": "autoscale=[{entry: server, OLD: 1}]",
    "Plan": "plan={OLD: 1}",
    "Stop": "stop={relative_error: 2%, OLD: 1}",
    "Site": "site={OLD: 1}",
    "records": "records=OLD",
    "Burst": ARRIVALS % "burst",
    "Diurnal": ARRIVALS % "diurnal",
    "Spikes": ARRIVALS % "spikes",
    "Batches": ARRIVALS % "batches",
    "Mix": ARRIVALS % "mix",
    "Trace": ARRIVALS % "trace",
    "Knot": "workload[0].arrivals={process: trace, file: a.csv, time_map: [{OLD: 1 s}]}",
    "Failure": FAULT % "failure",
    "Throttle": FAULT % "throttle",
    "LinkLoss": FAULT % "link-loss",
    "BrownOut": FAULT % "brown-out",
    "Refusal": FAULT % "queue-full",
    "LaunchFailure": FAULT % "launch-failure",
    "EccError": FAULT % "ecc",
    "CopyFailure": FAULT % "copy-failure",
    "Hang": FAULT % "hang",
    "DeviceLost": FAULT % "device-lost",
    "on_failure": "faults=[{kind: ecc, call: 1, on_failure: OLD}]",
    "NodeFile": "cluster.nodes.OLD=1",
    "Tasks": "workload[0].OLD=1 s",
}
POLICY = """\
def choose(device):
    return device.jobs

%s
"""
# The same for a policy of a user's own: what is added to the file, or stands in place of the attribute that it reads.
POLICIES = {
    "policy function": POLICY % "choose.OLD = 'jobs'",
    "rank_by": POLICY % "choose.rank_by = 'OLD'",
    "requires": POLICY % "choose.requires = ('OLD',)",
    "Candidate": (POLICY % "").replace("device.jobs", "device.OLD"),
}


def test_every_old_word_names_the_new_one(tmp_path: Path) -> None:
    assert set(PLACES) | set(POLICIES) == set(RENAMED)
    path, policy = tmp_path / "s.yaml", tmp_path / "mine.py"
    for place, words in RENAMED.items():
        for old, new in words.items():
            if place in POLICIES:
                policy.write_text(POLICIES[place].replace("OLD", old))
                with pytest.raises(InputError) as caught:
                    own_route("./mine.py:choose", tmp_path)
            else:
                path.write_text(PLACEMENT if place in ("NodeFile", "Tasks") else SCENARIO)
                with pytest.raises(InputError) as caught:
                    checked(read_document(path, [PLACES[place].replace("OLD", old)]))
            assert f"'{old}' was renamed to '{new}'" in str(caught.value), (place, old)
            assert caught.value.exit_code == 2
