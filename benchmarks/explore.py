"""How long `windtunnel explore` takes from a change to its first figures, and to those of the whole scenario.

    python benchmarks/explore.py [--rounds 9] [--out DIR]

The page's server is started as a user starts it. A client then changes one control after the other over the page's own
connection, each time to a value that was not seen before, and waits until the answer to the change before is complete
as far as curves. The goal is 300 ms on two idle cores. Processor time is that of the same look in one process, which
other work on the machine changes less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SCENARIO = ROOT / "scenarios" / "llama-70b-h100.yaml"
GOAL_S = 0.3
DEVICES = (
    "h200-sxm-141gb", "b200-sxm-180gb", "a100-sxm-80gb", "mi300x", "h100-nvl-94gb", "h200-nvl-141gb", "mi325x-256gb",
    "rtx-pro-6000-server", "h100-pcie-80gb",
)  # fmt: skip
MODELS = (
    "llama-3.1-8b", "qwen3-32b", "qwen3-30b-a3b", "gpt-oss-120b", "mixtral-8x7b", "mistral-nemo-12b", "qwen2.5-7b",
    "llama-3.2-1b", "codellama-34b",
)  # fmt: skip


def changes(rounds: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the kind of a change, and the design after it."""
    for i in range(rounds):
        yield "load", {"load": 1.01 + 0.03 * i}
    for i in range(rounds):
        yield "replicas", {"fleet[0].replicas": 3 + i}
    for i in range(rounds):
        yield "limit of a target", {"targets[0]": f"{900 + 10 * i} ms"}
    for i in range(rounds):
        yield "tokens of a step", {"policy.batch.tokens": 1024 + 256 * i}
    for i in range(rounds):
        yield "group", {"fleet[0].group.tensor": (2, 8, 16)[i % 3], "fleet[0].group.pipeline": (1, 2, 4)[i // 3 % 3]}
    for i, device in enumerate(DEVICES[:rounds]):
        yield "device", {"fleet[0].device": device, "fleet[0].price": f"{2 + i} USD/h"}
    for model in MODELS[:rounds]:
        yield "model", {"models.chat.catalogue": model}


async def answered(connection: Any, number: int, design: dict[str, Any], whole: bool) -> tuple[float, float | None]:
    """Return the time to the first figures, and to those of the whole scenario if these are waited for (s)."""
    began = time.perf_counter()
    await connection.write_message(json.dumps({"slot": "A", "number": number, "changes": design}))
    first = None
    while True:
        message = json.loads(await connection.read_message())
        if message["number"] != number:
            continue
        if message["kind"] == "refused":
            raise SystemExit(f"{design}: {message['message']}")
        if message["kind"] == "seen" and first is None:
            first = time.perf_counter() - began
        if message["kind"] == "seen" and message["stage"] == "whole":
            return first or 0.0, time.perf_counter() - began
        if message["kind"] == "knees" and first is not None and not whole:
            return first, None


async def measure(address: str, rounds: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    from tornado.websocket import websocket_connect

    connection = await websocket_connect(address.replace("http", "ws") + "live")
    await answered(connection, 0, {}, whole=True)  # the engine is loaded then
    firsts: dict[str, list[float]] = {}
    wholes: dict[str, list[float]] = {}
    designs = list(changes(rounds))
    for number, (kind, design) in enumerate(designs, 1):
        last = number == len(designs) or designs[number][0] != kind
        first, whole = await answered(connection, number, design, whole=last)
        firsts.setdefault(kind, []).append(first)
        if whole is not None:
            wholes.setdefault(kind, []).append(whole)
    connection.close()
    return firsts, wholes


def processor_s(rounds: int) -> dict[str, list[float]]:
    """Return the processor time (s) of each change's first look in this process."""
    from windtunnel.explorer.look import Look, Looker
    from windtunnel.scenario.changes import read_document
    from windtunnel_models.catalogue import shipped_catalogue

    looker = Looker(read_document(SCENARIO), shipped_catalogue())
    looker.make_ready({})
    compiled = frozenset(looker.warm)
    found: dict[str, list[float]] = {}
    for kind, design in changes(rounds):
        began = time.process_time()
        looker.see(Look(design, compiled=compiled))
        found.setdefault(kind, []).append(time.process_time() - began)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    before = os.getloadavg()[0]
    command = [sys.executable, "-m", "windtunnel", "explore", str(SCENARIO), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            firsts, wholes = asyncio.run(measure(process.stdout.readline().strip(), options.rounds))
        finally:
            process.terminate()
    processor = processor_s(options.rounds)
    lines = [
        "| change of | median (ms) | largest (ms) | processor time, median (ms) | whole scenario (s) | changes |",
        "|---|---|---|---|---|---|",
    ]
    for kind, seconds in firsts.items():
        cells = [statistics.median(seconds), max(seconds), statistics.median(processor[kind])]
        whole = statistics.median(wholes[kind])
        lines.append(f"| {kind} | {' | '.join(f'{cell * 1e3:.0f}' for cell in cells)} | {whole:.1f} | {len(seconds)} |")
    within = [second <= GOAL_S for seconds in firsts.values() for second in seconds]
    text = "\n".join(lines) + (
        f"\n\n{sum(within)} of {len(within)} changes were answered within 300 ms.\n\n{os.cpu_count()} cores, whose "
        f"load was {before:.1f} before and {os.getloadavg()[0]:.1f} after; Python {sys.version.split()[0]}.\n"
    )
    print(text)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        head = (
            "# `windtunnel explore`: from a change to its answer\n\nWritten by `python benchmarks/explore.py`. The "
            f"scenario is `{SCENARIO.relative_to(ROOT)}`: an hour of 19,366 requests. The first figures are those of "
            "its first 1,000 requests.\n\n"
        )
        (options.out / "explore.md").write_text(head + text)


if __name__ == "__main__":
    main()
