"""Run the kernels in C of a folder that c_cases.py has prepared on a CUDA device, alone and under compute-sanitizer.

    python benchmarks/gpu/record_c.py FOLDER OUT --limit 150

Writes `numbers.json.gz` (what the buffers hold after launches through `windtunnel.load` and the CUDA back end: as such,
on a stream, and from a graph), `native.json.gz` (12 launches of each case: hashes of the buffers), `sanitizer.json.gz`
(what each tool said) and `versions.txt`. Only the numbers need Windtunnel and CuPy; the rest needs Python alone. A case
that fails, crashes or hangs costs the others nothing. What the limit (s) leaves no time for is absent from the files:
a later run with `--after OUT` runs what it lacks, and writes to another folder. report_c.py makes tables of both.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import heapq
import itertools
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
REPEATS = 12
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
MODES = ("plain", "stream", "graph")
HANGING = 8
"""The rank of jobs whose kernels hang alone."""
BEGAN_S = time.monotonic()


def say(*words: object) -> None:
    print(f"[{time.monotonic() - BEGAN_S:6.1f}]", *words, flush=True)


def read_json(path: Path) -> Any:
    with gzip.open(path, "rt") as file:
        return json.load(file)


def write_json(path: Path, held: Any) -> None:
    with gzip.open(path, "wt") as file:
        json.dump(held, file)


# Numbers, through Windtunnel.


def number_cases(folder: Path) -> list[str]:
    """The names of the cases whose numbers are compared: kernels without a mistake, in CUDA C and OpenCL C."""
    told = json.loads((folder / "cases.json").read_text())
    right = [one["name"] for one in told if one["group"] != "changed" and not one["truth"]]
    from tests.corpus.opencl_c import CASES

    return [*right, *(f"opencl_c_{case.name}" for case in CASES)]


def launched(device: Any, name: str, folder: Path, mode: str) -> dict[str, Any]:
    """Launch a case on an open device, and return what its buffers hold, by name."""
    if name.startswith("opencl_c_"):
        return _opencl_c(device, name, mode)
    import windtunnel
    from windtunnel.app.check_arguments import MadeUp, arguments_of
    from windtunnel.app.check_kernels import kernels_of
    from windtunnel.app.check_launches import launches_of

    requests = launches_of(folder / "src" / f"{name}.yaml")
    kernels = kernels_of(requests)
    modules = {request.file: windtunnel.load(request.file) for request in requests}
    buffers: dict[str, Any] = {}
    given = [
        arguments_of(device, kernel.parameters, request, buffers, MadeUp())
        for kernel, request in zip(kernels, requests, strict=True)
    ]
    launches = []
    for request, kernel, arguments in zip(requests, kernels, given, strict=True):
        one: Any = getattr(modules[request.file], kernel.function._qualified)
        launches.append((one, request.grid, request.block, arguments, request.shared_bytes or 0))
    _run(device, launches, mode)
    return {key: _host(device, buffer) for key, buffer in buffers.items()}


def _opencl_c(device: Any, name: str, mode: str) -> dict[str, Any]:
    import tempfile

    import numpy as np
    from tests.corpus.opencl_c import CASES, LocalBytes

    import windtunnel

    (case,) = (one for one in CASES if f"opencl_c_{one.name}" == name)
    path = Path(tempfile.mkdtemp()) / f"{case.name}.cl"
    path.write_text(case.source)
    module = windtunnel.load(path)
    given = [device.to_device(one) if isinstance(one, np.ndarray) else one.size if isinstance(one, LocalBytes) else one
             for one in case.arguments]  # fmt: skip
    grid = tuple(items // side for items, side in zip(case.items, case.group, strict=True))
    _run(device, [(getattr(module, dir(module)[0]), grid, case.group, given, 0)], mode)
    return {str(at): _host(device, one) for at, one in enumerate(given) if hasattr(one, "memory")}


def _run(device: Any, launches: list[Any], mode: str) -> None:
    if mode == "graph":
        with device.capture() as graph:
            for kernel, grid, block, arguments, shared in launches:
                device.launch(kernel, grid, block, *arguments, shared_bytes=shared)
        device.replay(graph.compile())
    else:
        stream = device.stream() if mode == "stream" else None
        for kernel, grid, block, arguments, shared in launches:
            device.launch(kernel, grid, block, *arguments, shared_bytes=shared, stream=stream)
        if stream is not None:
            stream.synchronize()
    device.synchronize()


def _host(device: Any, buffer: Any) -> Any:
    from windtunnel.core.errors import UninitializedRead

    try:
        return device.to_host(buffer)
    except UninitializedRead:
        return None


def open_cuda(*, probe: bool) -> Any:
    """Open the first CUDA device: as a user would, or without the probe of all devices."""
    if probe:
        import windtunnel

        try:
            return windtunnel.select(device="cuda:0", real=True).open()
        except Exception as error:
            say(f"select: {type(error).__name__}: {error}"[:500])
    import cupy

    from windtunnel.backends.cuda.context import open_context
    from windtunnel.runtime.accelerator import Accelerator

    return Accelerator(open_context(cupy, "cuda", 0))


def numbers_worker(folder: Path, out: Path, names: list[str]) -> None:
    """Write a line for each case and mode. The process ends after an error that breaks the context."""
    began = time.monotonic()
    with open_cuda(probe=out.name == "0-0.jsonl") as device, out.open("a") as file:
        file.write(json.dumps({"opened_s": round(time.monotonic() - began, 2), "device": str(device.info.name)}) + "\n")
        for name in names:
            for mode in MODES:
                row: dict[str, Any] = {"case": name, "mode": mode}
                file.write(json.dumps({**row, "began": True}) + "\n")
                file.flush()
                start = time.monotonic()
                try:
                    held = launched(device, name, folder, mode)
                    row["arrays"] = {
                        key: None if one is None else [one.dtype.str, base64.b64encode(one.tobytes()).decode()]
                        for key, one in held.items()
                    }
                except Exception as error:
                    row["error"] = f"{type(error).__name__}: {error}"[:1500]
                row["s"] = round(time.monotonic() - start, 3)
                file.write(json.dumps(row) + "\n")
                file.flush()
                if getattr(getattr(device, "context", None), "broken", False):
                    os._exit(5)


def numbers(folder: Path, out: Path, workers: int, limit_s: float, after: Path | None) -> None:
    """Run `numbers_worker` in several processes, and again for what a process that died has left."""
    try:
        names = number_cases(folder)
    except Exception as error:
        say(f"numbers: {type(error).__name__}: {error}")
        return
    if after is not None:
        rows = read_json(after / "numbers.json.gz")["rows"]
        right = {(row["case"], row["mode"]) for row in rows if "arrays" in row}
        names = [name for name in names if any((name, mode) not in right for mode in MODES)]
    workers = min(workers, max(len(names), 1))
    temporary = out / "numbers-parts"
    temporary.mkdir(exist_ok=True)
    ends_s = time.monotonic() + limit_s

    def one(number: int) -> None:
        left, attempt = names[number::workers], 0
        while left and time.monotonic() < ends_s and attempt < 6:
            part = temporary / f"{number}-{attempt}.jsonl"
            words = [sys.executable, __file__, str(folder), str(part), "--numbers-of", ",".join(left)]
            code, told, _ = ran(words, ends_s - time.monotonic())
            rows = [json.loads(line) for line in part.read_text().splitlines()] if part.exists() else []
            begun = [row["case"] for row in rows if "began" in row]
            if code == 0:
                return
            say(f"numbers {number}: exit {code} in {begun[-1:]}: {told[-600:]}")
            (temporary / f"{number}-{attempt}.txt").write_text(told[-3000:])
            # What it was at is not tried again.
            left = left[left.index(begun[-1]) + 1 :] if begun else left
            attempt += 1

    threads = [threading.Thread(target=one, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows, failures = [], []
    for part in sorted(temporary.glob("*.jsonl")):
        rows += [json.loads(line) for line in part.read_text().splitlines()]
    for part in sorted(temporary.glob("*.txt")):
        failures.append(part.read_text())
    done = {(row["case"], row["mode"]) for row in rows if "s" in row}
    lost = [row for row in rows if "began" in row and (row["case"], row["mode"]) not in done]
    kept = [row for row in rows if "s" in row or "opened_s" in row]
    kept += [{**row, "error": "the process ended here"} for row in lost]
    write_json(out / "numbers.json.gz", {"cases": names, "rows": kept, "failures": failures})
    shutil.rmtree(temporary)
    wrong = [row for row in kept if "error" in row]
    say(f"numbers: {len(kept) - len(wrong)} rows of {len(names)} cases, {len(wrong)} errors")
    for row in wrong[:12]:
        say("  ", row["case"], row["mode"], row["error"][:200].replace("\n", " | "))


# Programs.


def ran(words: list[str], limit_s: float, patience_s: float = float("inf")) -> tuple[int, str, float]:
    """Exit code, output and seconds; 124 after a limit, when the process and all that it started are killed.

    ``patience_s``: how long it may say nothing once it has begun a case.
    """
    start = heard = time.monotonic()
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    except OSError as error:
        return 127, str(error), 0.0
    assert process.stdout is not None
    said, begun, code = bytearray(), False, None
    while code is None:
        ends = min(start + limit_s, heard + patience_s if begun else float("inf"))
        left_s = ends - time.monotonic()
        if left_s <= 0:
            code = 124
        elif select.select([process.stdout], [], [], left_s)[0]:
            part = os.read(process.stdout.fileno(), 1 << 16)
            said += part
            heard = time.monotonic()
            begun = begun or b"@@ start" in said
            if not part:  # it has closed its output, and ends
                with suppress(subprocess.TimeoutExpired):
                    code = process.wait(max(start + limit_s - time.monotonic(), 0.1))
                code = 124 if code is None else code
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
    return code, said.decode(errors="replace"), time.monotonic() - start


def runner_of(folder: Path) -> Path:
    """The program that launches: as it was compiled, or else compiled here."""
    runner = folder / "launch_cases"
    if runner.exists():
        runner.chmod(0o755)
        code, said, _ = ran([str(runner)], 30)
        if "@@ usage" in said:
            return runner
        say(f"launch_cases does not start: {code} {said[-300:]}")
    made = Path("/tmp/launch_cases")
    for compiler in ("g++", "c++", "clang++", "nvcc"):
        if shutil.which(compiler):
            source = str(Path(__file__).with_name("launch_cases.cc"))
            code, said, _ = ran([compiler, "-std=c++17", "-O1", "-o", str(made), source, "-ldl"], 60)
            if code == 0:
                return made
            say(f"{compiler}: {said[-500:]}")
    return runner


def sanitizer_path() -> str | None:
    """The path of compute-sanitizer."""
    found = shutil.which("compute-sanitizer")
    if found:
        return found
    for pattern in ("usr/local/cuda*/bin/compute-sanitizer", "usr/local/cuda*/compute-sanitizer/compute-sanitizer",
                    "opt/nvidia/**/compute-sanitizer"):  # fmt: skip
        for path in Path("/").glob(pattern):
            if path.is_file():
                return str(path)
    return None


@dataclass(order=True)
class Job:
    """Cases to run in one process. Lower ranks are run first."""

    rank: int
    number: int
    tool: str = field(compare=False)
    names: list[str] = field(compare=False)
    limit_s: float = field(compare=False)
    patience_s: float = field(compare=False, default=8)

    @property
    def alone(self) -> bool:
        """Whether nothing else may run: a kernel that hangs takes most of the device's time from other processes."""
        return self.rank >= HANGING


class Study:
    """The queue of jobs, and what they said."""

    def __init__(self, folder: Path, out: Path, ends_s: float, after: Path | None) -> None:
        self.folder, self.out, self.ends_s = folder, out, ends_s
        self.told = {one["name"]: one for one in json.loads((folder / "cases.json").read_text())}
        self.known = set(re.findall(r"^case (\S+)", (folder / "launches.txt").read_text(), re.M))
        self.runner, self.sanitizer = runner_of(folder), sanitizer_path()
        self.queue: list[Job] = []
        self.counter = itertools.count()
        self.lock = threading.Condition()
        self.running = 0
        self.alone = False
        self.results: list[dict[str, Any]] = []
        self.native: dict[str, dict[str, Any]] = {}
        self.more: dict[str, list[str]] = {
            "memcheck": ["--destroy-on-device-error", "kernel"],
            "racecheck": ["--racecheck-report", "analysis"],
        }
        self.before: set[tuple[str, str]] = set()
        """Tools and cases of an earlier run."""
        if after is not None:
            self.read(after)

    def read(self, after: Path) -> None:
        """Take over which cases an earlier run has recorded."""
        self.native = read_json(after / "native.json.gz")
        for job in read_json(after / "sanitizer.json.gz")["jobs"]:
            ended = set(job["done"]) | set(re.findall(r"^@@ error (\S+)", job["said"] + job["ends"], re.M))
            if len(job["names"]) == 1 and job["reports"]:
                ended |= set(job["begun"])
            self.before |= {(job["tool"], name) for name in ended}

    def put(self, rank: int, tool: str, names: list[str], limit_s: float, patience_s: float = 8) -> None:
        if names and (tool == "native" or self.sanitizer):
            heapq.heappush(self.queue, Job(rank, next(self.counter), tool, names, limit_s, patience_s))

    def lacking(self, tool: str, names: Iterable[str]) -> list[str]:
        """The cases that can be run and are not recorded."""
        return [name for name in names if name in self.known and (tool, name) not in self.before]

    def fill_native(self) -> None:
        """Queue the launches alone: first in groups, of which one that hangs is taken out."""
        told = self.lacking("native", [one["name"] for one in self.told.values() if one["truth"]])
        hang = [name for name in told if self.hangs(name)]
        for names in grouped([name for name in told if name not in hang], 8):
            self.put(0, "native", names, 20, 4)
        for names in grouped(self.lacking("native", self.right()), 12):
            self.put(1, "native", names, 20, 4)
        for name in hang:
            self.put(HANGING, "native", [name], 5, 1.5)

    def hangs(self, name: str) -> bool:
        """Whether not even one launch of a case was seen to end."""
        one = self.native.get(name, {"error": "", "hashes": []})
        return one["error"] == "did not end" and not one["hashes"]

    def right(self) -> list[str]:
        told = self.told.values()
        return [one["name"] for one in told if one["group"] not in ("changed", "opencl") and not one["truth"]]

    def fill_tools(self) -> None:
        """Queue the tools. Cases share a process, unless they hang alone."""
        modules = {one["name"]: one["module"] for one in self.told.values()}
        for tool in TOOLS:
            of_tool = self.lacking(tool, [one["name"] for one in self.told.values() if tool in one["tools"]])
            planted = [name for name in of_tool if self.told[name]["truth"]]
            changed = [name for name in of_tool if self.told[name]["group"] == "changed"]
            right = [name for name in of_tool if name not in planted and name not in changed]
            hang = [name for name in planted if self.hangs(name)]
            planted = [name for name in planted if name not in hang]
            for rank, names, size in ((3, planted, 6), (4, right, 10), (5, changed, 8)):
                for some in grouped(names, size, modules):
                    self.put(rank, tool, some, 30)
            if tool in ("synccheck", "racecheck"):  # a tool may still say why
                for name in hang:
                    self.put(HANGING + (tool == "racecheck"), tool, [name], 8, 4)

    def words(self, job: Job, dump: Path) -> list[str]:
        launch = [str(self.runner), str(self.folder / "launches.txt"), str(self.folder / "launches.bin"), "--go-on"]
        if job.tool == "native":
            return [*launch, "--fill", "--repeat", str(REPEATS), "--out", str(dump), *job.names]
        limit = "100" if len(job.names) == 1 else "3000"
        more = self.more.get(job.tool, [])
        options = ["--tool", job.tool, *more, "--print-limit", limit, "--error-exitcode", "9"]
        return [str(self.sanitizer), *options, *launch, *job.names]

    def work(self) -> None:
        """Take jobs until none is left or the time is over."""
        while True:
            with self.lock:
                while self.waits() and time.monotonic() < self.ends_s:
                    self.lock.wait(0.2)
                if not self.queue or time.monotonic() > self.ends_s - 3:
                    return
                job = heapq.heappop(self.queue)
                self.running += 1
                self.alone = job.alone
            try:
                self.do(job)
            except Exception as error:
                say(f"{job.tool} {job.names[:2]}: {type(error).__name__}: {error}")
            with self.lock:
                self.running -= 1
                self.lock.notify_all()

    def waits(self) -> bool:
        """Whether there may be something to do later, but not now."""
        if not self.running:
            return False
        return not self.queue or self.queue[0].alone or self.alone

    def do(self, job: Job) -> None:
        dump = Path(f"/tmp/launch-cases-{job.number}.bin")
        limit_s = min(job.limit_s, self.ends_s - time.monotonic())
        code, said, took_s = ran(self.words(job, dump), limit_s, job.patience_s)
        done, begun, failed = (set(re.findall(rf"^@@ {word} (\S+)", said, re.M)) for word in ("done", "start", "error"))
        done |= failed
        row: dict[str, Any] = {"tool": job.tool, "names": job.names, "code": code, "s": round(took_s, 2)}
        row |= {"begun": sorted(begun), "done": sorted(done), "reports": reports(said), "said": said[:1500]}
        row["ends"] = said[-400:]
        with self.lock:
            self.results.append(row)
            if job.tool == "native":
                self.keep_native(job, said, code, dump)
            left = [name for name in job.names if name not in done]
            if len(job.names) > 1 and left:
                # The first is to blame; it is run once more, with nothing beside it.
                culprit = next((name for name in left if name in begun), None)
                rest = [name for name in left if name != culprit]
                if culprit is not None:
                    self.put(HANGING, job.tool, [culprit], 12, 4)
                if rest and (culprit is not None or len(rest) < len(job.names)):
                    self.put(job.rank, job.tool, rest, job.limit_s, job.patience_s)
        dump.unlink(missing_ok=True)

    def keep_native(self, job: Job, said: str, code: int, dump: Path) -> None:
        begun = re.findall(r"^@@ start (\S+)", said, re.M)
        for name in job.names:
            if len(job.names) > 1 and name not in begun:
                continue  # it is run again
            lines = re.findall(rf"^@@ hashes {re.escape(name)}((?: [0-9a-f]{{16}})*)$", said, re.M)
            error = re.findall(rf"^@@ error {re.escape(name)} (.*)$", said, re.M)
            made = {"hashes": [line.split() for line in lines], "error": error[0] if error else ""}
            if f"@@ done {name}" not in said and not error:
                made["error"] = "did not end" if code == 124 else f"exit {code}"
            self.native[name] = made
        if len(job.names) == 1 and dump.exists():
            self.native[job.names[0]]["last"] = base64.b64encode(dump.read_bytes()[:200_000]).decode()

    def save(self) -> None:
        with self.lock:
            write_json(self.out / "native.json.gz", self.native)
            left = [[job.tool, job.names] for job in sorted(self.queue)]
            write_json(self.out / "sanitizer.json.gz", {"jobs": self.results, "left": left})

    def progress(self) -> None:
        with self.lock:
            tools = [row["tool"] for row in self.results]
            counts = {tool: tools.count(tool) for tool in sorted(set(tools))}
            say(f"{counts}, {len(self.queue)} queued, {self.running} running")
        self.save()

    def run(self, workers: int) -> None:
        """Run all jobs."""
        # While one process holds a context, the driver stays initialised for the others.
        holder = subprocess.Popen([str(self.runner), "--hold"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        hanging: list[Job] = []
        try:
            for fill in (self.fill_native, self.fill_tools):
                fill()
                # What hangs comes after all else, of the tools too.
                self.queue += hanging
                hanging = [job for job in self.queue if job.alone] if fill == self.fill_native else []
                self.queue = [job for job in self.queue if job not in hanging]
                heapq.heapify(self.queue)
                threads = [threading.Thread(target=self.work) for _ in range(workers)]
                for thread in threads:
                    thread.start()
                said_s = 0.0
                while any(thread.is_alive() for thread in threads):
                    time.sleep(0.2)
                    if time.monotonic() - said_s > 8:
                        said_s = time.monotonic()
                        self.progress()
                self.progress()
        finally:
            holder.kill()
            holder.wait()
        self.save()
        codes: dict[str, dict[int, int]] = {}
        for row in self.results:
            of_tool = codes.setdefault(row["tool"], {})
            of_tool[row["code"]] = of_tool.get(row["code"], 0) + 1
        say(f"sanitizer: {len(self.results)} processes, {len(self.queue)} left; exit codes {codes}")


def reports(said: str) -> list[list[Any]]:
    """The reports of a tool without threads and addresses, each with how often it was made."""
    counts: dict[str, int] = {}
    lines: list[str] = []
    for line in [*said.splitlines(), "========= "]:
        if not line.startswith("========="):
            continue
        text = line[9:].strip()
        if text:
            if not re.match(
                r"(Host Frame|Saved host|by thread|Address |Access to |and is |Current Value|COMPUTE-SAN)", text
            ):
                lines.append(re.sub(r"Thread \(\d+,\d+,\d+\)|0x[0-9a-f]+|block \(\d+,\d+,\d+\)", "*", text)[:300])
        elif lines:
            whole = "\n".join(lines)
            counts[whole] = counts.get(whole, 0) + 1
            lines = []
    return [[text, count] for text, count in counts.items()][:400]


def grouped(names: list[str], size: int, modules: Mapping[str, str] | None = None) -> list[list[str]]:
    """Groups of names, none of which has two cases of one module."""
    groups: list[list[str]] = []
    for name in names:
        module = (modules or {}).get(name, name)
        for group in groups:
            if len(group) < size and all((modules or {}).get(other, other) != module for other in group):
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def versions(out: Path) -> None:
    sanitizer = sanitizer_path() or "compute-sanitizer"
    packages = "import cupy, numba, numpy; print(cupy.__version__, numba.__version__, numpy.__version__)"
    lines = []
    for words in (
        ["nvidia-smi", "-L"],
        ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.mem,power.limit", "--format=csv"],
        ["nvcc", "--version"],
        [sanitizer, "--version"],
        [sanitizer, "--help"],
        [sys.executable, "-c", f"{packages}; print(cupy.cuda.get_cuda_path())"],
    ):
        code, said, took_s = ran(words, 20)
        lines.append(f"$ {' '.join(words)}\n{said}\n[exit {code}, {took_s:.1f} s]\n")
    (out / "versions.txt").write_text("\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--limit", type=float, default=150, help="seconds for all")
    parser.add_argument("--after", type=Path, help="the folder of an earlier run: only what it lacks is run")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--number-workers", type=int, default=14)
    parser.add_argument("--numbers-of", default="")
    parser.add_argument("--skip", default="", help="numbers or sanitizer")
    given = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "simulator"), str(ROOT / "device_models")]
    folder, out = given.folder.resolve(), given.out.resolve()
    if given.numbers_of:
        numbers_worker(folder, out, given.numbers_of.split(","))
        return
    out.mkdir(parents=True, exist_ok=True)
    ends_s = BEGAN_S + given.limit
    versions(out)
    if given.skip != "numbers":
        numbers(folder, out, given.number_workers, min(0.3 * given.limit, 60.0), given.after)
    if given.skip != "sanitizer":
        study = Study(folder, out, ends_s - 2, given.after)
        study.run(given.workers)
    say("done")


if __name__ == "__main__":
    main()
