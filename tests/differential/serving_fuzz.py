"""Random scenarios of continuous batching for the oracle of serving: `python -m tests.differential.serving_fuzz 0 500`."""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from tests.cases import memory_of
from tests.differential.comparison import prepared
from tests.differential.serving_oracle import Habits, Oracle, Toy, rows_of, toy_run

from windtunnel.core.recording import FAILED, Recording
from windtunnel.engine.prepare import decoder_cache
from windtunnel.engine.prepare.decoding import DecoderCosts
from windtunnel.engine.prepare.prepared import PreparedRun

MODEL = {
    "layers": 2, "width": 256, "feed_forward": 512, "heads": 4, "kv_heads": 2, "head_dim": 64, "vocabulary": 1024,
    "dtype": "float16", "kv_dtype": "float16",
}  # fmt: skip
BLOCK = 512


def _rows(draw: random.Random, count: int) -> list[dict[str, Any]]:
    """Return rows of a trace: each prompt continues a beginning of an earlier one, or is new."""
    rows: list[dict[str, Any]] = []
    after = now = 0
    for _ in range(count):
        earlier = [i for i in draw.choice(rows)["hash_ids"] if i % 10 != 9] if rows and draw.random() < 0.7 else []
        ids = earlier[: draw.randint(0, len(earlier))]
        more = draw.randint(0 if ids else 1, 2)
        ids += range(10 * after, 10 * (after + more), 10)
        after += more
        length = BLOCK * len(ids)
        if draw.random() < 0.4:  # a partial last block belongs to one length, and is followed by none
            ids, length = [*ids, 10 * after + 9], length + draw.randint(1, BLOCK - 1)
            after += 1
        now += draw.choice([0, 0, 0, 1, 3])
        output = draw.choice([1, 30, 200, 400])
        rows.append({"timestamp": now, "input_length": length, "output_length": output, "hash_ids": ids})
    return rows


def scenario(seed: int) -> tuple[dict[str, Any], Habits, list[dict[str, Any]], int | None]:
    """Return a scenario without its trace, the engine's habits, the rows of the trace, and the oracle's cache."""
    draw = random.Random(seed)
    cached = draw.random() < 0.5
    size, tokens = draw.choice([1, 3, 8, 16]), draw.choice([16, 64, 700])
    rows = _rows(draw, draw.randint(8, 30)) if cached else []
    longest = max((row["input_length"] + row["output_length"] for row in rows), default=140)
    room = draw.choice([longest, longest + 40, 2 * longest, 6 * longest])
    order = draw.choice(["arrival", "priority", "priority"])
    work: list[dict[str, Any]] = []
    for name in ["a", "b", "c"][: draw.randint(1, 3)]:
        generate = {"model": "small", "prompt": draw.choice([3, 20, 64, 90]), "output": draw.choice([1, 2, 20, 50])}
        arrivals = {"process": "poisson", "rate": f"{draw.choice([300, 3000, 10_000])} /s"}
        work.append({"name": name, "arrivals": arrivals, "ops": [{"generate": generate}]})
        if draw.random() < 0.8:
            work[-1]["priority"] = draw.randint(0, 2)
        if draw.random() < 0.3:
            work[-1]["tenant"] = draw.choice(["a", "z"])
    if cached:
        work[0]["arrivals"] = {"process": "trace", "file": "rows.jsonl", "format": "mooncake"}
        work[0]["ops"][0]["generate"] |= {"prompt": "$input_length", "output": "$output_length"}
    policy: dict[str, Any] = {
        "route": draw.choice(["central", "least-loaded"]),
        "order": order,
        "batch": {"kind": "continuous", "size": size, "tokens": tokens, "memory": 1.0},
    }
    blocks = None
    if cached:
        blocks = draw.choice([0, 0, 3, 9])
        policy["batch"]["prefix_cache"] = {"blocks": blocks} if blocks else {}
    if draw.random() < 0.5:
        tenants = sorted({w.get("tenant", w["name"]) for w in work})
        policy["fair"] = draw.choice([{}, {"weights": {tenants[0]: 3.0}}, {"prompt": 2, "output": 0.5}])
    if order == "priority" and draw.random() < 0.6:
        policy["preemption"] = "resume"
    data = {
        "schema": 1,
        "name": f"serving {seed}",
        "seed": seed,
        "models": {"small": MODEL},
        "fleet": [
            {
                "device": "l4",
                "name": f"d{n}",
                "calibration": "none",
                "memory": memory_of(MODEL, room, tokens, size, 1.0),
            }
            for n in range(draw.randint(1, 3))
        ],
        "workload": work,
        "policy": policy,
        "stop": draw.choice([{"jobs": 40}, {"jobs": 15}, {"time": "30 ms"}]),
    }
    if draw.random() < 0.4:
        becomes = draw.choice(["retry", "migrate", "fail"])
        when = draw.choice([{"at": ["2 ms", "9 ms"], "duration": "3 ms"}, {"mtbf": "8 ms", "mttr": "1 ms"}])
        data["faults"] = [{"kind": "failure", "on_failure": becomes, "max_attempts": draw.choice([2, 5]), **when}]
    habits = Habits(alone=draw.random() < 0.3, undivided=draw.random() < 0.3, whole=draw.random() < 0.3)
    return data, habits, rows, blocks


def _free(
    _costs: DecoderCosts,
    _part: object,
    amount: np.ndarray,
    more: Mapping[str, np.ndarray] | None = None,
    group: object = None,
) -> np.ndarray:
    """Return no cost in the place of that of a part, because the toy replaces it."""
    return np.zeros((2, *np.broadcast_shapes(amount.shape, *(values.shape for values in (more or {}).values()))))


@cache
def ready_run(seed: int) -> PreparedRun:
    """Return a scenario, prepared with the costs of the toy."""
    data, habits, rows, _ = scenario(seed)
    with tempfile.TemporaryDirectory() as folder, patch.object(DecoderCosts, "_cost", _free):
        decoder_cache._cache.clear()
        if rows:
            path = Path(folder) / "rows.jsonl"
            path.write_text("\n".join(map(json.dumps, rows)))
            data["workload"][0]["arrivals"]["file"] = str(path)
        ready = toy_run(prepared(data), habits, Toy())
        decoder_cache._cache.clear()
    return ready


def oracle_of(seed: int) -> Oracle:
    """Return the oracle for a scenario."""
    data, habits, _, blocks = scenario(seed)
    rules = [(fault["on_failure"], fault["max_attempts"]) for fault in data.get("faults", [])]
    return Oracle(ready_run(seed), habits, Toy(), blocks, rules)


def check(seed: int, *engines: Callable[[PreparedRun], Recording]) -> Oracle:
    """Run a scenario by the oracle and by engines; AssertionError if a request or a count differs."""
    ready, oracle = ready_run(seed), oracle_of(seed)
    wanted = rows_of(oracle.run())
    for engine in engines:
        recording = engine(ready)
        jobs = recording.jobs
        columns = (jobs.device, jobs.start, jobs.first, jobs.finish, jobs.starts, jobs.status == FAILED)
        found = list(zip(*(column.astype(int).tolist() for column in columns), strict=True))
        different = [i for i, (one, other) in enumerate(zip(found, wanted, strict=True)) if one != other]
        assert not different, (
            f"seed {seed}, request {different[0]}: {found[different[0]]} and not {wanted[different[0]]}"
        )
        assert recording.use is not None and int(recording.use.preemptions.sum()) == oracle.preemptions
        if jobs.hit_blocks is not None:
            hits = [request.noted for request in oracle.requests]
            started = [i for i, request in enumerate(oracle.requests) if request.starts]
            assert [int(jobs.hit_blocks[i]) for i in started] == [hits[i] for i in started]
    return oracle


def main(first: int, last: int) -> None:
    """Check the scenarios with these seeds on both engines."""
    from windtunnel.engine.compiled import run as compiled
    from windtunnel.engine.process import engine as process

    for seed in range(first, last):
        check(seed, process.run, compiled.run)
    print(f"{last - first} scenarios of continuous batching agree with the oracle")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
