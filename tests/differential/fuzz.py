"""Random scenarios over all features of a fleet, from fixed seeds, and what must hold of each on both engines.

`make test` checks the first 60, `make study` the first 1,000 (`python -m tests.differential.fuzz 0 1000`).
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from tests.cases import memory_of
from tests.differential.comparison import assert_same, prepared
from tests.differential.oracle import Oracle
from tests.differential.oracle import rows as rows_of
from tests.differential.oracle import rows_of as rows_of_jobs
from tests.differential.oracle_scenarios import known_part
from tests.differential.watched import run_watched

from windtunnel.core.errors import InputError
from windtunnel.core.recording import Recording
from windtunnel.engine.compiled import run as compiled
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.process import engine as process
from windtunnel.engine.results import invariants

ROUTES = ["central", "round-robin", "least-loaded", "shortest-expected-completion", "cheapest-that-meets-the-deadline"]
SERVING_ROUTES = ["kv-aware", "prefix-aware", "prefix-and-load", "session-affinity"]
ORDERS = ["arrival", "priority", "deadline", "shortest"]
MODEL = {
    "layers": 2, "width": 256, "heads": 4, "kv_heads": 2, "feed_forward": 512, "vocabulary": 1000, "dtype": "bfloat16"
}  # fmt: skip


class Draw(random.Random):
    """Random choices."""

    def some(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.random() < probability


def seconds(value: float) -> str:
    """Return a time as a scenario states it, in whole nanoseconds."""
    return f"{max(1, round(value * 1e9))} ns"


# Programs.


def service(draw: Draw) -> dict[str, Any]:
    """Return an operation whose time is drawn."""
    distribution = draw.choice(["exponential", "lognormal", "deterministic"])
    return {"service": {"distribution": distribution, "mean": draw.choice(["1 ms", "3 ms"])}}


def operations(draw: Draw) -> list[dict[str, Any]]:
    """Return a program of operations, with a loop or with streams."""
    there = {"copy": {"bytes": draw.choice([100_000, 3_000_000]), "direction": "h2d"}}
    back = {"copy": {"bytes": 500_000, "direction": "d2h"}}
    kernel = {"gemm": {"m": 512, "n": draw.choice([256, 2048]), "k": 512, "dtype": "float16"}}
    if draw.some(0.3):
        return [there, {"streams": [[kernel, back], [there, kernel], [{"launch": {}}]]}, back]
    return [there, {"repeat": {"times": draw.randint(1, 3), "ops": [kernel, {"launch": {}}]}}, back]


def generate(draw: Draw, model: str) -> list[dict[str, Any]]:
    """Return a program that generates tokens."""
    return [
        {"generate": {"model": model, "prompt": draw.choice([1, 7, 50, 200]), "output": draw.choice([1, 2, 9, 33])}}
    ]


# Parts of a scenario whose times are relative to the time of a job.


def times(draw: Draw, job_s: float) -> dict[str, Any]:
    """Return random or stated times of a fault."""
    duration = seconds(job_s * draw.choice([0.7, 4, 15]))
    if draw.some(0.5):
        return {"mean_interval": seconds(job_s * draw.choice([8, 30])), "duration": duration}
    at = sorted({round(job_s * draw.uniform(0, 60), 9) for _ in range(draw.randint(1, 3))})
    return {"at": [seconds(tick) for tick in at], "duration": duration}


def ending(draw: Draw) -> dict[str, Any]:
    """Return what becomes of interrupted jobs."""
    return {"on_failure": draw.choice(["retry", "migrate", "fail"]), "max_attempts": draw.randint(1, 4)}


def fault(draw: Draw, names: list[str], ops: set[str], job_s: float, budget_w: float) -> dict[str, Any]:
    """Return a fault; ``ops`` are the operations that the workloads run."""
    kinds = ["failure", "failure", "throttle", "link-loss", "straggler", "brown-out"]
    of_copies, of_kernels = ["copy-failure", "slow-copy", "corrupt-copy"], ["out-of-memory", "launch-failure", "hang"]
    of_operations = (of_copies if "copy" in ops else []) + (of_kernels if ops - {"copy", "service"} else [])
    kind = draw.choice(kinds + (["operation"] * 3 if of_operations else []))
    on = {"devices": [names[0]]} if draw.some(0.4) else {}
    if kind == "straggler":
        return {"kind": kind, "probability": 0.2, "slowdown": draw.choice([1.5, 7])}
    if kind == "failure":
        stated = times(draw, job_s)
        if "mean_interval" in stated:
            stated = {"mtbf": stated["mean_interval"], "mttr": stated["duration"]}
        elif draw.some(0.2):
            del stated["duration"]  # the device is never repaired
        return {"kind": kind, **on, **ending(draw), **stated}
    if kind == "throttle":
        return {"kind": kind, **on, **times(draw, job_s), "speed": draw.choice([0.25, 0.7])}
    if kind == "link-loss":
        return {"kind": kind, **on, **times(draw, job_s)}
    if kind == "brown-out":
        return {"kind": kind, **times(draw, job_s), "budget": f"{budget_w * draw.choice([0.8, 1.0]):.3f} W"}
    kind = draw.choice([*of_operations, "ecc", "device-lost"] if of_operations else ["ecc"])
    which = draw.choice([{"probability": 0.1}, {"call": draw.randint(1, 20)}, {"after": seconds(20 * job_s)}])
    data: dict[str, Any] = {"kind": kind, **which, **({"times": draw.randint(1, 3)} if draw.some(0.5) else {})}
    if kind in ("slow-copy", "corrupt-copy"):
        return data
    data |= ending(draw)
    if kind == "hang":
        data["watchdog_timeout"] = seconds(3 * job_s)
    if kind == "device-lost" or (kind != "out-of-memory" and draw.some(0.4)):
        data["reset_time"] = seconds(job_s * draw.choice([1, 6]))
    return data


def names_of(ops: list[dict[str, Any]]) -> set[str]:
    """Return the names of the operations of a program."""
    found: set[str] = set()
    for op in ops:
        (name,) = op
        if name == "repeat":
            found |= names_of(op[name]["ops"])
        elif name == "streams":
            found |= set().union(*(names_of(body) for body in op[name]))
        else:
            found.add(name)
    return found


def autoscale(draw: Draw, entry: dict[str, Any], job_s: float) -> dict[str, Any]:
    """Return a rule that scales an entry."""
    threshold = draw.choice(["queue_per_device", "utilisation"])
    up, down = (3, 0.5) if threshold == "queue_per_device" else (0.8, 0.3)
    return {
        "entry": entry["name"],
        "min": 1,
        "max": entry["count"] + draw.randint(0, 2),
        "up": {threshold: up},
        **({"down": {threshold: down, "for": seconds(draw.choice([0, 10]) * job_s)}} if draw.some(0.8) else {}),
        "every": seconds(draw.choice([1, 4]) * job_s),
        "provisioning": seconds(draw.choice([0, 3]) * job_s),
    }


def arrivals(draw: Draw, rate: float, job_s: float, rows: list[str]) -> dict[str, Any]:
    """Return an arrival process with this mean rate (1/s); the rows of a trace are appended to ``rows``."""
    kind = draw.choice(["poisson", "deterministic", "burst", "closed", "trace"])
    if kind == "closed":
        think = draw.choice(["exponential", "deterministic"])
        return {
            "process": kind,
            "users": draw.randint(1, 6),
            "think": {"distribution": think, "mean": seconds(draw.choice([0.5, 4]) * job_s)},
        }
    if kind == "burst":
        return {
            "process": kind,
            "rate": f"{rate / 2:.6g} /s",
            "burst_rate": f"{rate * 4:.6g} /s",
            "every": seconds(20 / rate),
            "duration": seconds(5 / rate),
        }
    if kind == "trace":
        tick = 0.0
        for _ in range(draw.randint(1, 40)):
            tick += draw.choice([0.0, 0.0, 1.0, 3.0]) / rate
            rows.append(f"{tick:.9f}")
        return {"process": kind, "file": "rows.csv", "time": "t"}
    return {"process": kind, "rate": f"{rate:.6g} /s"}


def scenario(seed: int) -> tuple[dict[str, Any], list[str]]:
    """Return the scenario of a seed, and the rows of the trace that it may read."""
    draw = Draw(seed)
    programs = draw.choice(["service", "service", "operations", "generate", "generate", "mixed"])
    batch = draw.choice(["none", "none", "request", "continuous"] if programs != "generate" else ["none", "continuous"])
    if batch == "continuous":
        programs = "generate"
    skus = {"service": ["server"], "mixed": ["l4", "h100-sxm-80gb"], "operations": ["l4", "alveo-u280", "epyc-9654"]}
    fleet = []
    for i in range(draw.randint(1, 3)):
        entry: dict[str, Any] = {
            "device": draw.choice(skus.get(programs, ["l4", "h100-sxm-80gb", "tpu-v5e"])),
            "name": f"d{i}",
            "count": draw.randint(1, 4),
            "speed": draw.choice([0.5, 1.0, 3.0]) if programs == "service" else draw.choice([0.5, 1.0]),
            "price": f"{i + 1} USD/h",
        }
        if programs == "service":
            entry["power"] = {"idle": "20 W", "max": draw.choice(["100 W", "300 W"])}
        if batch == "none" and draw.some(0.3):
            entry["streams"] = draw.randint(2, 4)
        fleet.append(entry)
    names = [entry["name"] for entry in fleet]
    workload: list[dict[str, Any]] = []
    for i in range(draw.randint(1, 3)):
        kind = draw.choice(["service", "operations", "generate"]) if programs == "mixed" else programs
        ops = {"service": lambda: [service(draw)] * draw.choice([1, 1, 2]), "operations": lambda: operations(draw)}.get(
            kind, lambda: generate(draw, "small")
        )()
        if batch == "request" and any("streams" in op for op in ops):
            ops = [op for op in ops if "streams" not in op]
        workload.append(
            {
                "name": f"w{i}",
                "arrivals": {"process": "poisson", "rate": "1000 /s"},
                "ops": ops,
                "priority": draw.randint(-1, 1),
                "deadline": draw.choice(["2 ms", "20 ms"]),
                **({"devices": [names[-1]]} if draw.some(0.25) else {}),
            }
        )
    policy: dict[str, Any] = {"route": draw.choice(ROUTES), "order": draw.choice(ORDERS)}
    data: dict[str, Any] = {
        "schema": 1,
        "name": f"fuzz-{seed}",
        "seed": seed,
        "fleet": fleet,
        "models": {"small": MODEL},
        "workload": workload,
        "policy": policy,
        "stop": {"jobs": 1},
    }
    if batch == "continuous":
        tokens = draw.choice([64, 256])
        policy["batch"] = {"kind": batch, "size": draw.choice([2, 4, 16]), "tokens": tokens, "memory": 1.0}
    elif batch == "request":
        policy["batch"] = {"kind": batch, "size": draw.randint(1, 5), "wait": draw.choice(["0 ms", "2 ms"])}
    # The times of what follows are relative to those of a job, which a first preparation tells.
    ready = prepare_run_of(data, [])
    job_s = float(np.mean([p.mean_s for p in ready.compiled.values()]))
    rate = draw.choice([0.4, 0.9, 1.4]) * ready.device_count / job_s / len(workload)
    rows: list[str] = []
    for one in workload:
        one["arrivals"] = arrivals(draw, rate, job_s, rows)
    rows.sort(key=float)
    span = 60 / (rate * len(workload))
    data["stop"] = draw.choice([{"jobs": 80}, {"jobs": 80}, {"time": seconds(span)}, {"jobs": 3}])
    scaled = draw.some(0.3)
    if scaled:
        data["autoscale"] = [autoscale(draw, draw.choice(fleet), job_s)]
    extra = {rule["entry"]: rule["max"] for rule in data.get("autoscale", ())}
    idle = sum(c.idle_w * max(extra.get(n, 0), c.count) for c, n in zip(ready.classes, names, strict=True))
    budget_w = idle + max(c.limit_w - c.idle_w for c in ready.classes) * draw.uniform(1.01, 3)
    if draw.some(0.35):
        data["power_budget"] = f"{budget_w:.3f} W"
    ops = set().union(*(names_of(one["ops"]) for one in workload))
    data["faults"] = [fault(draw, names, ops, job_s, budget_w) for _ in range(draw.choice([0, 1, 1, 2, 3]))]
    gangs(Draw(f"{seed} gangs"), data)
    add_progress(data, batch, job_s)
    add_waits(data, job_s)
    add_limits(data)
    add_domains(data)
    add_designs(data)
    add_speculation(data)
    add_adapters(data)
    add_prefixes(data)
    add_sessions(data)
    return data, rows


def add_domains(data: dict[str, Any]) -> None:
    """Let some faults affect several devices together, from random numbers of their own."""
    draw = Draw(f"{data['seed']} domains")
    for fault in data["faults"]:
        domain = draw.choice([2, 3])
        if draw.some(0.5) and fault["kind"] in ("failure", "throttle", "link-loss"):
            fault["domain"] = domain


KERNELS = [
    {"gemm": {"m": 512, "n": 512, "k": 512, "dtype": "float32"}},
    {"vector_add": {"n": 3_000_000}},
    {"fft": {"n": 4096, "batch": 64, "dtype": "float16"}},
]
"""Operations that need other designs than the multiplication in ``operations``."""


def add_designs(data: dict[str, Any]) -> None:
    """Let reconfigurable cards hold designs and load others, from random numbers of their own."""
    draw = Draw(f"{data['seed']} designs")
    for entry in data["fleet"]:
        sku, resident = draw.choice(["one", "one", "two"]), draw.choice([None, [], ["fft_float16"], ["gemm_float32"]])
        if entry["device"] == "alveo-u280":
            entry["device"] = f"quick-fpga-{sku}"
            entry |= {} if resident is None else {"resident": resident}
    for one in data["workload"]:
        # All operations of a batch need one design.
        alike = [draw.choice([None, *KERNELS])] if "batch" in data["policy"] else [None, None, *KERNELS]
        # Others may need more power than the budget has.
        if "power_budget" not in data and any(entry["device"].startswith("quick") for entry in data["fleet"]):
            one["ops"] = with_kernels(draw, one["ops"], alike)


def add_speculation(data: dict[str, Any]) -> None:
    """Let a draft propose tokens, from random numbers of its own."""
    draw = Draw(f"{data['seed']} speculation")
    batch = data["policy"].get("batch", {})
    if batch.get("kind") != "continuous" or draw.some(0.5):
        return
    drafted = draw.randint(1, min(5, batch["tokens"] // batch["size"] - 1))
    data["models"]["small"] = MODEL | {
        "speculation": {
            "draft": draw.choice(["small", "eagle", "medusa", "ngram"]),
            "tokens": drafted,
            "acceptance": draw.choice([0, 1, 0.6, [0.9, 0.5]]),
        }
    }


def add_adapters(data: dict[str, Any]) -> None:
    """Let requests use adapters, from random numbers of their own."""
    draw = Draw(f"{data['seed']} adapters")
    if data["policy"].get("batch", {}).get("kind") != "continuous" or draw.some(0.5):
        return
    count, slots = draw.randint(1, 6), draw.randint(1, 3)
    stated: dict[str, Any] = {"count": count, "slots": slots, "rank": 8, "popularity": draw.choice([0, 1, 3])}
    if draw.some(0.5) and slots < count:
        stated |= {"host": draw.randint(slots, count - 1), "storage": "2 GB/s"}
    data["models"]["small"] = data["models"]["small"] | {"adapters": stated}
    if draw.some(0.5):
        data["policy"]["route"] = "adapter-affinity"
    for one in data["workload"]:
        if draw.some(0.2):
            one["ops"][0]["generate"]["adapter"] = draw.randint(0, count)


def add_prefixes(data: dict[str, Any]) -> None:
    """Add prefix caches, shared prompts, their routes and small memories, from random numbers of their own."""
    draw = Draw(f"{data['seed']} prefixes")
    batch = data["policy"].get("batch", {})
    if batch.get("kind") != "continuous" or draw.some(0.3):
        return
    batch["prefix_cache"] = {"block": draw.choice([1, 4, 16]), **draw.choice([{}, {}, {"blocks": draw.randint(1, 60)}])}
    longest = 1
    for one in data["workload"]:
        stage = one["ops"][0]["generate"]
        longest = max(longest, stage["prompt"] + stage["output"])
        if draw.some(0.8):
            stage["shared_prefix"] = draw.randint(1, stage["prompt"])
    if draw.some(0.5):
        data["policy"]["route"] = draw.choice(SERVING_ROUTES)
    memory = memory_of(
        data["models"]["small"], longest + draw.choice([0, 60, 300]), batch["tokens"], batch["size"], 1.0
    )
    for entry in data["fleet"]:
        if draw.some(0.6):
            entry["memory"] = memory


def add_sessions(data: dict[str, Any]) -> None:
    """Add tiers below prefix caches, drawn lengths and sessions, from random numbers of their own.

    No context becomes longer than it was, so that the memories suffice.
    """
    draw = Draw(f"{data['seed']} sessions")
    batch = data["policy"].get("batch", {})
    if batch.get("kind") != "continuous":
        return
    if "prefix_cache" in batch and draw.some(0.5):
        host = {"host": {"size": f"{draw.choice([2, 30])} MB", "bandwidth": f"{draw.choice([0.1, 40])} GB/s"}}
        disk = {"disk": {"size": f"{draw.choice([5, 90])} MB", "bandwidth": f"{draw.choice([0.1, 9])} GB/s"}}
        batch["prefix_cache"] |= draw.choice([host, disk, host | disk])
    for one in data["workload"]:
        stage = one["ops"][0]["generate"]
        prompt, output = stage["prompt"], stage["output"]
        if draw.some(0.6):
            shortest = stage.get("shared_prefix", 1)
            stage["prompt"] = {"distribution": "uniform", "min": shortest, "max": prompt}
            stage["output"] = {"distribution": "exponential", "mean": max(1, output // 2), "max": output}
        if draw.some(0.5) and one["arrivals"]["process"] != "trace":
            one["session"] = {
                "turns": draw.choice([3, {"distribution": "geometric", "mean": 3}]),
                "new_tokens": draw.choice([1, {"distribution": "uniform", "min": 1, "max": 20}]),
                "think": {"mean": seconds(draw.choice([0.0, 0.01, 1.0]))},
                "max_context": prompt + output,
            }


def with_kernels(draw: Draw, ops: list[dict[str, Any]], kernels: list[Any]) -> list[dict[str, Any]]:
    """Return a program with some of these kernels instead of its own."""
    program: list[dict[str, Any]] = []
    for op in ops:
        (name,) = op
        if name == "repeat":
            op = {name: {**op[name], "ops": with_kernels(draw, op[name]["ops"], kernels)}}
        elif name == "streams":
            op = {name: [with_kernels(draw, body, kernels) for body in op[name]]}
        elif name == "gemm":
            op = draw.choice(kernels) or op
        program.append(op)
    return program


def add_limits(data: dict[str, Any]) -> None:
    """Add admission limits, from random numbers of their own."""
    draw = Draw(f"{data['seed']} limits")
    for one in data["workload"]:
        limit = draw.choice([1, 2, 6])
        closed = one["arrivals"]["process"] == "closed"  # users who do not think would be rejected without end
        if draw.some(0.2) and not closed:
            one["max_waiting"] = limit


def add_waits(data: dict[str, Any], job_s: float) -> None:
    """Add patience and pauses between attempts, from random numbers of their own."""
    draw = Draw(f"{data['seed']} waits")
    for one in data["workload"]:
        mean = f"{round(draw.choice([0, 0.5, 3]) * job_s * 1e9)} ns"
        patience = draw.choice([mean, {"distribution": draw.choice(["exponential", "gamma"]), "mean": mean}])
        if draw.some(0.25):
            one["patience"] = patience
    for fault in data["faults"]:
        first = seconds(draw.choice([0.2, 2]) * job_s)
        pause = draw.choice([first, {"first": first, "factor": draw.choice([1, 3]), "max": seconds(5 * job_s)}])
        if draw.some(0.4) and "on_failure" in fault:
            fault["pause"] = pause


def add_progress(data: dict[str, Any], batch: str, job_s: float) -> None:
    """Add preemption and checkpoints, from random numbers of their own, where the scenario supports them."""
    draw = Draw(f"{data['seed']} progress")
    sides = [any("streams" in op for op in one["ops"]) for one in data["workload"]]
    streams = [entry.get("streams", 1) > 1 for entry in data["fleet"]]
    policy, mode = data["policy"], draw.choice(["resume", "restart"])
    if draw.some(0.5) and batch == "none" and not any([*sides, *streams]) and policy["order"] != "arrival":
        policy["preemption"] = mode
    for one in data["workload"]:
        every, cost, restore = draw.choice([0.1, 0.3, 2]), draw.choice([0, 0.05, 0.3]), draw.choice([0, 0.2])
        wanted, has_tokens = draw.some(0.5), "generate" in names_of(one["ops"])
        if wanted and batch == "none" and not has_tokens and not any(sides + streams):
            one["checkpoint"] = {
                "every": seconds(every * job_s),
                "cost": f"{round(cost * job_s * 1e9)} ns",
                "restore": f"{round(restore * job_s * 1e9)} ns",
            }


def gangs(draw: Draw, data: dict[str, Any]) -> None:
    """Let the jobs of some workloads occupy several devices, with a central queue, where the scenario allows it."""
    taken = {rule["entry"] for rule in data.get("autoscale", ())}
    parallel = [one for one in data["workload"] if any("streams" in op for op in one["ops"])]
    for one in parallel:
        taken |= set(one.get("devices", [entry["name"] for entry in data["fleet"]]))
    entries = [e for e in data["fleet"] if e.get("streams", 1) == 1 and e["name"] not in taken and e["count"] > 1]
    able = [one for one in data["workload"] if "generate" not in names_of(one["ops"]) and one not in parallel]
    if "batch" in data["policy"] or not entries or not able or draw.some(0.4):
        return
    data["policy"] |= {"route": "central", "backfill": draw.some(0.3)}
    for one in draw.sample(able, draw.randint(1, len(able))):
        chosen = draw.sample(entries, draw.randint(1, len(entries)))
        one |= {"gang": draw.randint(1, max(e["count"] for e in chosen)), "devices": [e["name"] for e in chosen]}
    if "power_budget" in data:
        # Each job must be able to start.
        most = max(one.get("gang", 1) for one in data["workload"])
        data["power_budget"] = f"{float(data['power_budget'].removesuffix(' W')) * draw.choice([1, most]):.3f} W"


def prepare_run_of(data: dict[str, Any], rows: list[str]) -> PreparedRun:
    """Prepare a scenario whose trace has these rows."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rows.csv").write_text("\n".join(["t", *rows, ""]))
        for one in data["workload"]:
            if one["arrivals"]["process"] == "trace":
                one["arrivals"]["file"] = str(Path(folder) / "rows.csv")
        return prepared(data)


def check(seed: int) -> str:
    """Check the scenario of a seed, and its part that the oracle knows; return "checked", or why it is an error."""
    data, rows = scenario(seed)
    try:
        ready = prepare_run_of(data, rows)
    except InputError as error:
        return str(error)
    one, other = run_watched(ready) if ready.chains else process.run(ready), compiled.run(ready)
    assert_same(one, other)
    hold_loads(ready, one)
    invariants.check(one)
    hold_bounds(ready, one)
    ready = prepare_run_of(known_part(data), rows)
    oracle = Oracle(ready)
    wanted = rows_of_jobs(oracle.run(), ready)
    for engine in (process, compiled):
        recording = engine.run(ready)
        assert rows_of(recording) == wanted
        if recording.loads is not None:
            assert recording.loads.count == oracle.loads
    return "checked"


def hold_loads(ready: PreparedRun, recording: Recording) -> None:
    """Check that the intervals of loads are those that were counted."""
    table, loads = recording.intervals, recording.loads
    if table is None or loads is None:
        return
    words = np.array([word.startswith("load design") for word in table.words])
    spans = (table.end - table.start)[words[table.name]] if len(table) else np.zeros(0, dtype=np.int64)
    assert spans.sum() == loads.ticks
    assert loads.ticks <= loads.count * max(designs.load_ticks for designs in ready.designs.values())


def hold_bounds(ready: PreparedRun, recording: Recording) -> None:
    """Check what holds of every run: conservation, energy sums, power limits and budgets."""
    joules = sum(device.energy_j for device in recording.devices)
    assert math.isclose(joules, recording.power.integral(), rel_tol=1e-9, abs_tol=1e-12)
    if ready.budget_w is not None:
        assert recording.power.values.max() <= ready.budget_w + 1e-6
    if ready.end is not None:
        assert recording.end == ready.end
    limits = np.repeat([c.limit_w for c in ready.classes], [c.count for c in ready.classes])
    busy_s = np.array([device.busy_ticks for device in recording.devices]) / 1e12
    idle_w = np.repeat([c.idle_w for c in ready.classes], [c.count for c in ready.classes])
    most_j = idle_w * recording.end / 1e12 + (limits - idle_w) * busy_s
    energy_j = np.array([device.energy_j for device in recording.devices])
    assert (energy_j <= most_j * (1 + 1e-9) + 1e-9).all()
    assert (busy_s <= recording.end / 1e12 + 1e-12).all()


def features(data: dict[str, Any]) -> set[str]:
    """Return which features a scenario has."""
    ops = [op for one in data["workload"] for op in one["ops"]]
    faults = {fault["kind"] for fault in data["faults"]}
    plain = {"failure", "throttle", "link-loss", "brown-out", "straggler"}
    present = {
        "autoscale": "autoscale" in data,
        "closed": any(one["arrivals"]["process"] == "closed" for one in data["workload"]),
        "continuous": data["policy"].get("batch", {}).get("kind") == "continuous",
        "prefix caches": "prefix_cache" in data["policy"].get("batch", {}),
        "adapters": "adapters" in data["models"]["small"],
        "speculation": "speculation" in data["models"]["small"],
        "request": data["policy"].get("batch", {}).get("kind") == "request",
        "faults": bool(faults & plain),
        "faults of operations": bool(faults - plain),
        "gangs": any(one.get("gang", 1) > 1 for one in data["workload"]),
        "generate": any("generate" in op for op in ops),
        "checkpoints": any("checkpoint" in one for one in data["workload"]),
        "preemption": "preemption" in data["policy"],
        "admission": any("max_waiting" in one for one in data["workload"]),
        "patience": any("patience" in one for one in data["workload"]),
        "designs": any(entry["device"].startswith("quick") for entry in data["fleet"]),
        "domains": any("domain" in fault for fault in data["faults"]),
        "pauses": any("pause" in fault for fault in data["faults"]),
        "power budget": "power_budget" in data,
        "streams of a job": any("streams" in op for op in ops),
        "streams of a device": any(entry.get("streams", 1) > 1 for entry in data["fleet"]),
    }
    return {name for name, is_present in present.items() if is_present}


def main() -> None:
    """Check the scenarios of the seeds from the first argument up to the second."""
    outcomes: Counter[str] = Counter()
    failures = 0
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        try:
            outcomes[check(seed)] += 1
        except Exception:
            failures += 1
            print(f"seed {seed}:")
            traceback.print_exc()
    for outcome, number in outcomes.most_common():
        print(f"{number:6,} {outcome}")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
