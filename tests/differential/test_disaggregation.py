"""Requests that move between replicas: both engines alike, memory that adds up, and no request lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import memory_of
from tests.differential.comparison import assert_same
from tests.differential.test_engines import EXPENSIVE, SMALL
from tests.differential.test_prefix_cache import ready_run, requests, served
from tests.differential.watched import run_watched

from windtunnel.core.recording import COMPLETED, Recording
from windtunnel.engine.compiled import run as compiled
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.results import invariants

ROUTES = ["central", "least-loaded", "round-robin", "kv-aware", "prefix-aware", "session-affinity"]


@st.composite
def moving(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A scenario whose requests move, and the rows of its trace."""
    rows = draw(requests())
    longest = max(row["input_length"] + row["output_length"] for row in rows)
    size, tokens = draw(st.sampled_from([1, 2, 5])), draw(st.sampled_from([256, 1024, 8192]))
    fleet = []
    for role in ["prefill", "decode", *draw(st.sampled_from([[], [], ["both"], ["decode"]]))]:
        room = longest + draw(st.sampled_from([0, 100, 700, 3000]))
        memory = draw(st.sampled_from([{}, {"memory": memory_of(SMALL, room, tokens, size, 1.0)}]))
        engine = draw(st.sampled_from(["generic", "generic", "sglang", "trtllm"]))
        entry = {"device": draw(st.sampled_from(["l4", "h100-sxm-80gb"])), "name": f"{role}{len(fleet)}", "role": role}
        fleet.append({**entry, "count": draw(st.integers(1, 3)), "engine": engine, **memory})
    chat = served(Path("rows.jsonl"), {})["workload"][0]
    chat["ops"][0]["generate"]["output"] = "$output_length"
    other = {
        "name": "other",
        "priority": 1,
        "arrivals": draw(
            st.sampled_from(
                [
                    {"process": "poisson", "rate": "2000 /s"},
                    {"process": "closed", "users": 3, "think": {"distribution": "exponential", "mean": "1 ms"}},
                ]
            )
        ),
        "ops": [{"generate": {"model": "small", "prompt": 700, "output": 3, "shared_prefix": 600}}],
        **draw(st.sampled_from([{}, {"patience": "2 ms"}, {"max_waiting": 2}])),
    }
    on_failure = draw(st.sampled_from(["retry", "migrate", "fail"]))
    faults = draw(
        st.sampled_from(
            [
                [],
                [],
                [{"kind": "failure", "mtbf": "5 ms", "mttr": "1 ms", "on_failure": on_failure}],
                [{"kind": "failure", "at": ["3 ms"], "duration": "4 ms", "on_failure": on_failure, "pause": "1 ms"}],
                [{"kind": "failure", "at": ["2 ms"], "devices": ["decode1"], "on_failure": on_failure}],
                [{"kind": "link-loss", "at": ["2 ms", "9 ms"], "duration": "1 ms"}],
                [{"kind": "throttle", "at": ["1 ms"], "duration": "5 ms", "speed": 0.5}],
                [{"kind": "launch-failure", "probability": 0.05}],
            ]
        )
    )
    batch = {"kind": "continuous", "size": size, "tokens": tokens, "memory": 1.0}
    batch |= draw(st.sampled_from([{}, {"prefix_cache": {}}, {"prefix_cache": {"blocks": 9, "block": 512}}]))
    policy = {"route": draw(st.sampled_from(ROUTES)), "order": draw(st.sampled_from(["arrival", "priority"]))}
    policy |= draw(st.sampled_from([{}, {"decode_route": "kv-aware"}, {"decode_route": "prefix-aware"}]))
    network = draw(st.sampled_from([{}, {"bandwidth": "20 MB/s", "latency": "1 us"}]))
    more = draw(
        st.sampled_from(
            [
                {},
                {},
                {"power_budget": "20 kW"},
                {
                    "autoscale": [
                        {"entry": "decode1", "min": 1, "max": 3, "every": "1 ms", "provisioning": "1 ms",
                         "up": {"queue_per_device": 1}, "down": {"running_per_device": 1, "for": "2 ms"}}
                    ]
                },
            ]
        )
    )  # fmt: skip
    if "autoscale" in more:
        fleet[1]["count"] = 1
        faults = []
    return {
        "schema": 1,
        "name": "generated",
        "seed": draw(st.integers(0, 5)),
        "fleet": fleet,
        "network": network,
        "models": {"small": SMALL},
        "workload": [chat, other] if draw(st.booleans()) else [chat],
        "policy": {**policy, "batch": batch},
        "faults": faults,
        **more,
        "stop": draw(st.sampled_from([{"jobs": 40}, {"time": "8 ms"}, {"jobs": 15}])),
    }, rows


def none_is_lost(ready: PreparedRun, recording: Recording) -> None:
    """Without a stop time, every request that is not rejected, impatient or ended by a fault completes."""
    if ready.end is None and not ready.scenario.faults and not any(w.workload.patience for w in ready.workloads):
        rejected = 0 if recording.use is None else recording.use.rejected.sum()
        assert (recording.jobs.status == COMPLETED).sum() == len(recording.jobs) - rejected


@settings(max_examples=60, deadline=None, suppress_health_check=EXPENSIVE)
@given(moving())
def test_both_engines_move_requests_alike_and_memory_adds_up(
    drawn: tuple[dict[str, Any], list[dict[str, Any]]],
) -> None:
    ready = ready_run(*drawn)
    one, other = run_watched(ready), compiled.run(ready)
    invariants.check(other)
    assert_same(one, other)
    none_is_lost(ready, one)
    for recording in (one, other):
        moved = recording.transfers
        assert moved is not None
        assert (moved.asked <= moved.began).all() and (moved.began < moved.landed).all()
