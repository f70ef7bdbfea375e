"""Time of whole plans: an hour of conversations over six devices, and the search of a grid of three devices.

    python benchmarks/plan.py [--rounds 1] [--workers 2] [--baseline CHECKOUT] [--out DIR]

Measures whole commands `windtunnel plan SCENARIO --format json`. The processor time of the process and of its workers
depends less on what else the machine does than the wall time; on two idle cores, a plan with two workers takes little
more than half of it. With --baseline the same is measured with the sources of another checkout, in turn; the table then
says which parts of the plans differ. Linux only: elsewhere the time of the workers cannot be seen.

The grid is three SKUs by four groups by four token budgets, with the two hours of the Azure traces in one scenario.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
ROOT = Path(__file__).resolve().parents[1]
TRACES = ROOT / "scenarios" / "traces"
GRID: dict[str, Any] = {
    "schema": 1,
    "name": "plan-grid",
    "seed": 1,
    "fleet": [
        # Assumed prices, as in scenarios/azure-conv-plan.yaml.
        {"device": "h100-sxm-80gb", "price": "2.99 USD/h", "engine": "vllm"},
        {"device": "h200-sxm-141gb", "price": "3.79 USD/h", "engine": "vllm"},
        {"device": "l40s", "price": "1.55 USD/h", "engine": "vllm"},
    ],
    "models": {"chat": {"catalogue": "llama-3.1-8b"}},
    "workload": [
        {
            "name": name,
            "arrivals": {
                "process": "trace",
                "file": str(TRACES / f"azure_llm_2023_{file}.csv.gz"),
                "format": "azure-llm",
            },
            "ops": [{"generate": {"model": "chat", "prompt": "$ContextTokens", "output": "$GeneratedTokens"}}],
        }
        for name, file in (("conversations", "conv"), ("code", "code"))
    ],
    "policy": {"name": "least-loaded", "batch": {"kind": "continuous"}},
    "targets": ["ttft p99 <= 1 s", "itl p99 <= 50 ms"],
    "plan": {"search": {"fleet[*].group.tensor": [1, 2, 4, 8], "policy.batch.tokens": [512, 1024, 2048, 8192]}},
}


def measured(scenario: Path, sources: Path, workers: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the times (s) of a plan with the sources of a checkout and how much it simulated, and the plan."""
    paths = [str(sources / part) for part in ("simulator", "device_models")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*paths, str(sources)])}
    command = [sys.executable, "-m", "windtunnel", "plan", str(scenario), "--workers", str(workers), "--format", "json"]
    # The server that workers are forked from outlives the command and becomes a child of this process.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    wall_s = time.monotonic() - began
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    plan = json.loads(done.stdout)
    search = plan["search"]
    times = {
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "wall_s": wall_s,
        "fleets": search["simulated_fleets"],
        "stopped": search.get("stopped_fleets", 0),
        "runs": search["simulations"],
    }
    return times, {key: value for key, value in plan.items() if key != "versions"}


def main() -> None:
    """Measure, print a table, and write it where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--baseline", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = [
        "# Time of plans",
        "",
        "Written by `python benchmarks/plan.py`.",
        "",
        "| plan | sources | processor time (s) | of the baseline's | wall time (s) | fleets | ended early | runs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    load, same = os.getloadavg()[0], list[str]()
    with tempfile.TemporaryDirectory() as folder:
        grid = Path(folder) / "plan-grid.yaml"
        grid.write_text(json.dumps(GRID))
        plans = {"azure-conv-plan": ROOT / "scenarios" / "azure-conv-plan.yaml", "grid of 3 x 4 x 4": grid}
        sources = {"these": ROOT} | ({"baseline": options.baseline.resolve()} if options.baseline else {})
        for name, scenario in plans.items():
            rounds: dict[str, list[dict[str, float]]] = {of: [] for of in sources}
            plans_of = []
            for _ in range(options.rounds):
                for of, checkout in sources.items():
                    times, plan = measured(scenario, checkout, options.workers)
                    rounds[of].append(times)
                    plans_of.append(plan)
            parts = [part for part, value in plans_of[0].items() if any(p.get(part) != value for p in plans_of)]
            same.append(f"{name}: " + (f"the plans differ in {', '.join(parts)}" if parts else "the plans are equal"))
            usual = statistics.median(t["cpu_s"] for t in rounds["baseline"]) if "baseline" in rounds else None
            for of, all_times in rounds.items():
                cpu_s, wall_s = (statistics.median(t[key] for t in all_times) for key in ("cpu_s", "wall_s"))
                counts = " | ".join(f"{all_times[0][key]:,}" for key in ("fleets", "stopped", "runs"))
                ratio = "" if usual is None else f"{cpu_s / usual:.2f}"
                lines.append(f"| {name} | {of} | {cpu_s:.1f} | {ratio} | {wall_s:.1f} | {counts} |")
    lines += [
        "",
        f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {options.workers} workers. Load of the machine, the "
        f"mean of one minute: {load:.1f} before and {os.getloadavg()[0]:.1f} after.",
        *([] if options.baseline is None else ["", *(f"- {text}" for text in same)]),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "plan.md").write_text(text)


if __name__ == "__main__":
    main()
