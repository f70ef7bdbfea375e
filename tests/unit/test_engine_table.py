"""The table of what does not combine in docs/engine.md states exactly what the program refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import windtunnel
from windtunnel.core.errors import InputError
from windtunnel.engine.choice import choose
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import prepare_run

PAGE = Path(__file__).parents[2] / "docs" / "engine.md"
MODEL = {"layers": 2, "width": 256, "heads": 4, "feed_forward": 512}
SPECULATION = {"draft": "ngram", "tokens": 2, "acceptance": 0.5}
SERVICE = {"service": {"mean": "1 ms"}}
GENERATE = {"generate": {"model": "m", "prompt": 10, "output": 5}}
DRAFTED = {"generate": {"model": "d", "prompt": 10, "output": 5}}
ADAPTED = {"generate": {"model": "a", "prompt": 10, "output": 5}}
OTHER = {"generate": {"model": "n", "prompt": 10, "output": 5}}
STREAMS = {"streams": [[{"launch": {}}], [{"launch": {}}]]}
GPU = {"device": "h100-sxm-80gb"}
PAIR = [{**GPU, "count": 2}]
CPU = {"device": "host", "real": "cpu:0"}
OPERATION = {"vector_add": {"n": 1000}}
RULE = {"entry": "h100-sxm-80gb", "max": 2, "up": {"queue_per_device": 2}, "provisioning": "1 s"}


def batch(kind: str) -> dict[str, Any]:
    return {"name": "fifo", "batch": {"kind": kind, "size": 2}}


def outcome(
    *programs: list[Any],
    fleet: list[Any] | None = None,
    arrivals: Any = None,
    engine: str = "auto",
    checkpoint: bool = False,
    gang: int | None = None,
    **more: Any,
) -> str:
    """Return the error of a scenario, or the notes of its run."""
    data = {
        "schema": 1,
        "name": "refused",
        "fleet": fleet or [GPU],
        "models": {
            "m": MODEL,
            "n": MODEL,
            "d": MODEL | {"speculation": SPECULATION},
            "a": MODEL | {"adapters": {"count": 2}},
        },
        "workload": [
            {
                "name": f"w{i}",
                "arrivals": arrivals or {"process": "poisson", "rate": "1000 /s"},
                "ops": ops,
                "gang": gang,
            }
            | ({"checkpoint": CHECKPOINT} if checkpoint else {})
            for i, ops in enumerate(programs)
        ],
        "stop": {"jobs": 5},
        **more,
    }
    try:
        scenario = scenario_from_data(data)
        prepared = prepare_run(scenario, windtunnel.catalogue(), engine)
        choose(prepared, engine)
        return " ".join(windtunnel.run(scenario, engine=engine).result.notes)
    except InputError as error:
        return str(error)


USERS = {"process": "closed", "users": 2, "think": {"distribution": "exponential", "mean": "1 ms"}}
PREEMPTIVE = {"name": "priority", "preemption": "restart"}
POISSON = {"name": "w", "arrivals": {"process": "poisson", "rate": "1000 /s"}}
TRACE = {"name": "w", "arrivals": {"process": "trace", "file": "t.csv", "time": "t"}}
SESSION = {"turns": 2, "new_tokens": 5, "think": {"mean": "1 ms"}}
CHECKPOINT = {"every": "1 ms", "cost": "1 us"}
CASES: dict[str, list[tuple[list[list[Any]], dict[str, Any]]]] = {
    "continuous batching with other programs than one `generate`": [
        ([[SERVICE]], {"policy": batch("continuous")}),
        ([[GENERATE, OPERATION]], {"policy": batch("continuous")}),
    ],
    "request-level batches with `streams` in a program, or with `generate` beside operations": [
        ([[STREAMS]], {"policy": batch("request")}),
        ([[GENERATE, OPERATION]], {"policy": batch("request")}),
    ],
    "sessions with other programs than one `generate`": [
        ([], {"workload": [{**POISSON, "session": SESSION, "ops": [SERVICE]}]}),
        ([], {"workload": [{**POISSON, "session": SESSION, "ops": [GENERATE, OPERATION]}]}),
    ],
    "sessions, or `rows`, with arrivals from a trace": [
        ([], {"workload": [{**TRACE, "session": SESSION, "ops": [GENERATE]}]}),
        ([], {"workload": [{**TRACE, "rows": {"file": "t.csv"}, "ops": [GENERATE]}]}),
    ],
    "request-level batches of a program that needs several designs, on FPGAs that change designs": [
        ([[OPERATION, {"fft": {"n": 64}}]], {"policy": batch("request"), "fleet": [{"device": "alveo-u50"}]})
    ],
    "batches with `streams` above 1": [
        ([[SERVICE]], {"policy": batch("request"), "fleet": [{**GPU, "streams": 2}]}),
        ([[GENERATE]], {"policy": batch("continuous"), "fleet": [{**GPU, "streams": 2}]}),
    ],
    "prefill and decode entries of one model with different engines": [
        (
            [[GENERATE]],
            {
                "fleet": [{**GPU, "role": "prefill", "engine": "vllm"}, {**GPU, "role": "decode", "engine": "sglang"}],
                "policy": batch("continuous"),
            },
        ),
    ],
    "a `role` without continuous batching": [
        ([[GENERATE]], {"fleet": [{**GPU, "role": "prefill"}, {**GPU, "role": "decode"}]}),
        ([[SERVICE]], {"fleet": [{**GPU, "role": "decode"}]}),
    ],
    "prefill without decode, or decode without prefill, for some request": [
        ([[GENERATE]], {"fleet": [{**GPU, "role": "prefill"}], "policy": batch("continuous")}),
        ([[GENERATE]], {"fleet": [{**GPU, "role": "decode"}, GPU], "policy": batch("continuous")}),
    ],
    "continuous batching of several models on one fleet entry": [
        ([[GENERATE], [OTHER]], {"policy": batch("continuous")})
    ],
    "speculative decoding without continuous batching": [
        ([[DRAFTED]], {}),
        ([[DRAFTED]], {"policy": batch("request")}),
    ],
    "speculative decoding with pipeline stages": [
        ([[DRAFTED]], {"policy": batch("continuous"), "fleet": [{**GPU, "count": 2, "group": {"pipeline": 2}}]})
    ],
    "LoRA adapters without continuous batching": [
        ([[ADAPTED]], {}),
        ([[ADAPTED]], {"policy": batch("request")}),
    ],
    "preemption with an order by arrival": [([[SERVICE]], {"policy": {"name": "fifo", "preemption": "resume"}})],
    "preemption with request-level batches": [
        ([[SERVICE]], {"policy": {**PREEMPTIVE, "batch": {"kind": "request", "size": 2}}}),
    ],
    "`preemption: restart` with continuous batching": [
        ([[GENERATE]], {"policy": {**batch("continuous"), "name": "priority", "preemption": "restart"}})
    ],
    "fair shares without continuous batching": [([[SERVICE]], {"policy": {"name": "fifo", "fair": {}}})],
    "fair shares with an order other than `arrival` and `priority`": [
        ([[GENERATE]], {"policy": {**batch("continuous"), "name": "shortest-job-first", "fair": {}}})
    ],
    "preemption with `streams` above 1, or with `streams` in a program": [
        ([[SERVICE]], {"policy": PREEMPTIVE, "fleet": [{**GPU, "streams": 2}]}),
        ([[STREAMS]], {"policy": PREEMPTIVE}),
    ],
    "checkpoints with batches": [([[SERVICE]], {"checkpoint": True, "policy": batch("request")})],
    "checkpoints with `generate`": [
        ([[GENERATE]], {"checkpoint": True}),
        ([[GENERATE, OPERATION]], {"checkpoint": True}),
    ],
    "checkpoints on devices with `streams` above 1, or with `streams` in a program": [
        ([[SERVICE]], {"checkpoint": True, "fleet": [{**GPU, "streams": 2}]}),
        ([[STREAMS]], {"checkpoint": True}),
    ],
    "`records: sample` with traces, closed loops, `generate`, streams, autoscaling, gangs or faults of operations": [
        ([[SERVICE]], {"records": "sample", "arrivals": USERS}),
        ([[GENERATE]], {"records": "sample"}),
        ([[STREAMS]], {"records": "sample"}),
        ([[SERVICE]], {"records": "sample", "fleet": [{**GPU, "streams": 2}]}),
        ([[SERVICE]], {"records": "sample", "autoscale": [RULE]}),
        ([[SERVICE]], {"records": "sample", "fleet": PAIR, "gang": 2}),
        ([[OPERATION]], {"records": "sample", "faults": [{"kind": "ecc", "call": 1}]}),
    ],
    "`records: sample` in the process engine": [([[SERVICE]], {"records": "sample", "engine": "process"})],
    "a gang with a route that chooses a device": [
        ([[SERVICE]], {"fleet": PAIR, "gang": 2, "policy": "least-loaded"}),
        ([[SERVICE]], {"fleet": PAIR, "gang": 2, "policy": {"route": "round-robin", "order": "priority"}}),
    ],
    "a gang with batches": [([[SERVICE]], {"fleet": PAIR, "gang": 2, "policy": batch("request")})],
    "a gang with `generate` or `streams` in its program": [
        ([[GENERATE]], {"fleet": PAIR, "gang": 2}),
        ([[STREAMS]], {"fleet": PAIR, "gang": 2}),
    ],
    "a gang on devices with streams": [
        ([[SERVICE]], {"fleet": [{**PAIR[0], "streams": 2}], "gang": 2}),
    ],
    "a gang on devices that are scaled": [
        ([[SERVICE]], {"fleet": PAIR, "gang": 2, "autoscale": [RULE]}),
    ],
    "a gang of real devices": [([[OPERATION]], {"fleet": [CPU], "gang": 2})],
    "a real device in the compiled engine": [([[OPERATION]], {"fleet": [CPU], "engine": "compiled"})],
    "a real device with batches": [([[OPERATION]], {"fleet": [CPU], "policy": batch("request")})],
    "a real device with `streams` above 1": [([[OPERATION]], {"fleet": [{**CPU, "streams": 2}]})],
    "a real device with `generate`": [([[GENERATE]], {"fleet": [CPU]})],
    "a real device with preemption, or with checkpoints": [
        ([[OPERATION]], {"fleet": [CPU], "policy": PREEMPTIVE}),
        ([[OPERATION]], {"fleet": [CPU], "checkpoint": True}),
    ],
    "a real device with autoscaling": [([[OPERATION]], {"fleet": [CPU], "autoscale": [{**RULE, "entry": "host"}]})],
}


def rows() -> dict[str, str]:
    """Return the error of each combination in the table."""
    lines = re.findall(r"^\| (.*?) \| (.*?) \| .* \|$", PAGE.read_text(), re.MULTILINE)
    heading = lines.index(("combination", "error"))
    table = dict(lines[heading + 1 : heading + 1 + len(CASES)])
    return {combination: error for combination, error in table.items() if combination != "---"}


def test_the_table_has_these_rows() -> None:
    assert list(rows()) == list(CASES)


@pytest.mark.parametrize("combination", CASES)
def test_each_combination_of_the_table_is_refused_in_its_words(combination: str) -> None:
    words = rows()[combination].replace("`", "")
    for programs, more in CASES[combination]:
        assert words in outcome(*programs, **more).replace("`", "")


@pytest.mark.parametrize("entry", [{"streams": 2}, {}])
@pytest.mark.parametrize(
    "more", [{"faults": [{"kind": "ecc", "call": 1}]}, {"autoscale": [RULE]}, {"power_budget": "2 kW"}]
)
def test_what_the_table_does_not_name_is_not_refused(entry: Any, more: Any) -> None:
    for engine in ("process", "compiled"):
        assert outcome([OPERATION], fleet=[{**GPU, **entry}], engine=engine, **more) == ""


@pytest.mark.parametrize("ops", [[OPERATION], [STREAMS], [GENERATE]])
def test_faults_of_devices_combine_with_streams_and_generate(ops: list[Any]) -> None:
    times = {"mean_interval": "1 s", "duration": "100 ms"}
    faults = [
        {"kind": "failure", "mtbf": "2 s", "mttr": "300 ms", "on_failure": "migrate"},
        {"kind": "throttle", **times, "speed": 0.5},
        {"kind": "link-loss", **times},
        {"kind": "brown-out", **times, "budget": "2 kW"},
    ]
    for streams in (1, 2):
        fleet = [{**GPU, "streams": streams}]
        assert outcome(ops, fleet=fleet, faults=faults, engine="process") == outcome(ops, fleet=fleet, engine="process")


def test_entries_may_serve_different_models() -> None:
    fleet = [{**GPU, "name": "one"}, {**GPU, "name": "other"}]
    workload = [
        {"name": name, "arrivals": {"process": "poisson", "rate": "1000 /s"}, "ops": [ops], "devices": [name]}
        for name, ops in (("one", GENERATE), ("other", OTHER))
    ]
    assert "serves one model" not in outcome(fleet=fleet, workload=workload, policy=batch("continuous"))
