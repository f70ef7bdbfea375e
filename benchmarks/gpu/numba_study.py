"""Numba CUDA's arithmetic on a GPU and emulated: the generated kernels of numba_cases.py and the programs of numba_more.py, numba_host.py and numba_errors.py.

    python benchmarks/gpu/numba_study.py run gpu --out DIR                          # on a host with a GPU and numba-cuda
    windtunnel emulate benchmarks/gpu/numba_study.py run emulated --out DIR         # the same programs, emulated
    python benchmarks/gpu/numba_study.py run host --out DIR                         # expressions alone, by Numba's @njit
    python benchmarks/gpu/numba_study.py run typed --out DIR                        # types alone, by numba-cuda without a GPU
    python benchmarks/gpu/numba_study.py compare DIR/gpu DIR/emulated

A run writes ``DIR/SIDE.json``, which has the type of each result or the error, and ``DIR/SIDE.npz`` with the values. A
case that does not compile is recorded as such and never ends the run.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import numba_cases
from numba_cases import Group

PROGRAMS = ("numba_more", "numba_host", "numba_errors")
SIDES = ("gpu", "emulated", "host", "typed")
_ERROR_LENGTH = 400


def plan(side: str) -> list[Group | str]:
    """Return what a side runs, in order: groups, and names of programs."""
    made: list[Group | str] = list(numba_cases.groups(libdevice=side != "host"))
    if side == "host":
        return [group for group in made if isinstance(group, Group) and group.host]
    if side == "typed":
        return made
    texts = [Path(__file__).with_name(f"{name}.py").read_text() for name in PROGRAMS]
    names = [name for text in texts for name in re.findall(r"^def (program_\w+)", text, re.MULTILINE)]
    return [*sorted(names), *made]


# One process runs some of the groups, and appends a pickle for each to its file.


def work(side: str, folder: Path, out: Path, only: str, limit_s: float, known: Path | None) -> None:
    """Run what no other process has begun, in order; ends at an error after which the device is lost."""
    warnings.simplefilter("ignore")
    began, planned = time.monotonic(), plan(side)
    skipped = _not_compiled(known) if known else {}
    with out.open("ab") as file:
        for index, one in enumerate(planned):
            name = one if isinstance(one, str) else one.name
            if not re.search(only, name) or not _claimed(folder / f"{index}.begun"):
                continue
            if time.monotonic() - began > limit_s:
                break
            started = time.perf_counter()
            pickle.dump({"index": index}, file)
            file.flush()
            found, lost = (
                program(one) if isinstance(one, str) else group(side, one, folder, index, skipped.get(name, {}))
            )
            pickle.dump(found | {"index": index, "seconds": round(time.perf_counter() - started, 3)}, file)
            file.flush()
            if lost:
                os._exit(9)


def _claimed(path: Path) -> bool:
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _not_compiled(known: Path) -> dict[str, dict[str, Any]]:
    """Return the cases of a file that numba-cuda does not compile, for whatever device."""
    groups = json.loads(known.read_text())["groups"]
    return {name: {text: case for text, case in entry.get("cases", {}).items()
                   if "error" in case and "CudaSupportError" not in case["error"]["class"]}
            for name, entry in groups.items()}  # fmt: skip


def error_of(error: BaseException) -> dict[str, Any]:
    """Return the class and the message of an error."""
    classes = [one.__name__ for one in type(error).__mro__ if one not in (object, BaseException, Exception)]
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    return {
        "class": classes or [type(error).__name__],
        "message": text[-_ERROR_LENGTH:] if len(text) > 4 * _ERROR_LENGTH else text[:_ERROR_LENGTH],
    }


def _lost(error: BaseException) -> bool:
    return any(
        "CudaAPI" in one.__name__ or "Driver" in one.__name__ or "CUDAError" in one.__name__
        for one in type(error).__mro__
    )


def group(side: str, one: Group, folder: Path, index: int, known: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Run the kernel of a group without the cases that do not compile."""
    found: dict[str, Any] = {"name": one.name, "cases": {}}
    cases = found["cases"]
    chosen = []
    for k, case in enumerate(one.cases):
        if case.text in known:
            cases[case.text] = {**known[case.text], "known": True}
        else:
            chosen.append(k)
    pending, outputs, lost, tries = [chosen], one.outputs(), False, 0
    while pending and not lost:
        some = pending.pop()
        if not some:
            continue
        tries += 1
        path = folder / f"g{index}_{tries}.py"
        source = one.source(some, side)
        path.write_text(source)
        try:
            types, made = execute(side, one, path)
        except BaseException as error:
            lost = _lost(error)
            culprit = some[0] if len(some) == 1 else blamed(error, source, path.name, some)
            if culprit is not None:
                cases[one.cases[culprit].text] = {"error": error_of(error)}
                pending.append([k for k in some if k != culprit])
            else:
                pending += [some[len(some) // 2 :], some[: len(some) // 2]]
            continue
        for k in some:
            cases[one.cases[k].text] = {"type": types.get(f"r{k}", "")}
            for name in made:
                outputs[name][k] = made[name][k]
    found["values"] = outputs
    found["order"] = [case.text for case in one.cases]
    return found, lost


def blamed(error: BaseException, source: str, file: str, some: list[int]) -> int | None:
    """Return the case in whose line an error says that it is; None if it does not say it."""
    lines = source.splitlines()
    places = re.findall(rf"{re.escape(file)}[\",: ]+(?:line )?(\d+)", re.sub(r"\x1b\[[0-9;]*m", "", str(error)))
    for place in reversed(places):
        at = int(place)
        for text in reversed(lines[:at]):
            named = re.search(r"\b[rsjq](\d+)\b|\[(\d+), i\]", text)
            if named and int(named[1] or named[2]) in some:
                return int(named[1] or named[2])
            if text.startswith("def "):
                break
    return None


def execute(side: str, one: Group, path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Compile and launch a kernel; return the types of its variables and its outputs."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel, outs = module.kernel, one.outputs()
    given = [*one.inputs().values(), *outs.values()]
    if side == "typed":
        from numba.cuda import compiler
        from numba.cuda import types as nb
        from numba.cuda.typing.typeof import typeof

        result = compiler.compile_cuda(kernel.py_func, nb.void, tuple(typeof(array) for array in given), cc=(9, 0))
        return _types(result.type_annotation.typemap), {}
    if side == "host":
        kernel(*given)
        overload = next(iter(kernel.overloads.values()))
        return _types(overload.type_annotation.typemap), outs
    kernel[numba_cases.THREADS // one.block, one.block](*given)
    from numba import cuda

    cuda.synchronize()
    return _types_of(kernel), outs


def _types(typemap: dict[str, Any]) -> dict[str, str]:
    """Return the types of the results by name; of a variable with several, the one that it has at the end."""
    found: dict[str, tuple[int, str]] = {}
    for name, kind in typemap.items():
        plain = re.fullmatch(r"(r\d+)(?:[._](\d+))?", name)
        if plain:
            text = re.sub(r"Literal\[(\w+)\]\(.*\)", r"\1", str(kind))
            text = {"int": "int64", "boolean": "bool"}.get(text, text)
            found[plain[1]] = max(found.get(plain[1], (-1, "")), (int(plain[2] or 0), text))
    return {name: text for name, (_, text) in found.items()}


def _types_of(kernel: Any) -> dict[str, str]:
    try:
        return _types(next(iter(kernel.overloads.values()))._type_annotation.typemap)
    except AttributeError:  # Numba's simulator has no types
        return {}


def program(name: str) -> tuple[dict[str, Any], bool]:
    """Run a program."""
    found: dict[str, Any] = {"name": name, "program": True}
    lost = False
    try:
        made = next(vars(module)[name] for module in map(importlib.import_module, PROGRAMS) if hasattr(module, name))()
        found["values"] = {key: np.asarray(value) for key, value in (made or {}).items()}
    except BaseException as error:
        found["error"], lost = error_of(error), _lost(error)
    return found, lost or name.endswith("_last")


# The parent starts the processes, and starts one anew when it ended early.


def _read(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if path.exists():
        with path.open("rb") as file:
            while True:
                try:
                    found.append(pickle.load(file))
                except (EOFError, pickle.UnpicklingError):
                    break
    return found


def run(side: str, out: Path, processes: int, limit_s: float, only: str, known: Path | None,
        patience_s: float) -> None:  # fmt: skip
    """Run a side in several processes, and write its file."""
    out.mkdir(parents=True, exist_ok=True)
    planned = plan(side)
    wanted = [at for at, one in enumerate(planned) if re.search(only, one if isinstance(one, str) else one.name)]
    began, ended, shown = time.monotonic(), time.monotonic() + limit_s, 0.0
    with tempfile.TemporaryDirectory() as folder, (out / f"{side}.log").open("wb") as log:
        files = [Path(folder) / f"{at}.pkl" for at in range(processes)]
        died: dict[int, str] = {}
        running: list[subprocess.Popen[bytes] | None] = [None] * processes
        ready, grown = [False] * processes, [(0, 0.0)] * processes
        while time.monotonic() < ended and not all(ready):
            for at in range(processes):
                process = running[at]
                if process is not None and process.poll() is None:
                    size = files[at].stat().st_size if files[at].exists() else 0
                    if size != grown[at][0]:
                        grown[at] = (size, time.monotonic())
                    elif time.monotonic() - grown[at][1] > patience_s:
                        process.kill()
                    continue
                if process is not None:
                    seen = _read(files[at])
                    if process.poll() not in (0, 9) and seen and "name" not in seen[-1]:
                        died[seen[-1]["index"]] = f"the process ended with {process.poll()}"
                    ready[at] = process.poll() == 0
                if not ready[at]:
                    command = [sys.executable, __file__, "work", side, folder, str(files[at]), "--only", only]
                    command += ["--limit", str(max(1.0, ended - time.monotonic()))]
                    command += ["--known", str(known)] if known else []
                    running[at], grown[at] = subprocess.Popen(command, stdout=log, stderr=log), (0, time.monotonic())
            time.sleep(0.1)
            if time.monotonic() - shown > 10:
                shown = time.monotonic()
                done = sum("name" in entry for file in files for entry in _read(file))
                print(f"{shown - began:5.0f} s: {done} of {len(wanted)}", flush=True)
        for process in running:
            if process is not None:
                process.kill()
                process.wait()
        entries = {entry["index"]: entry for file in files for entry in _read(file) if "name" in entry}
    write(side, out, planned, wanted, entries, died, time.monotonic() - began)


def write(side: str, out: Path, planned: Any, wanted: list[int], entries: Any, died: Any, seconds: float) -> None:
    """Write what was found: the types and errors as JSON, the values as one archive."""
    table: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    missing = []
    for index in wanted:
        one = planned[index]
        name = one if isinstance(one, str) else one.name
        entry = entries.get(index)
        if entry is None:
            missing.append(name)
            table[name] = {"error": {"class": ["died" if index in died else "not run"], "message": died.get(index, "")}}
            continue
        for key, array in entry.get("values", {}).items():
            if side != "typed":
                arrays[f"{name}:{key}"] = array
        table[name] = {key: value for key, value in entry.items() if key not in ("values", "index", "name")}
    versions = {"python": sys.version.split()[0], "numpy": np.__version__}
    for package in (
        "numba",
        "numba-cuda",
        "llvmlite",
        "cuda-bindings",
        "cuda-core",
        "nvidia-nvvm",
        "nvidia-cuda-nvrtc",
    ):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = ""
    (out / f"{side}.json").write_text(
        json.dumps({"versions": versions, "seconds": seconds, "missing": missing, "groups": table}, indent=0)
    )
    np.savez_compressed(out / f"{side}.npz", **arrays)
    cases = [case for entry in table.values() for case in entry.get("cases", {}).values()]
    print(f"{side}: {len(table)} groups and programs in {seconds:.0f} s, {len(missing)} missing; {len(cases)} cases, "
          f"{sum('error' in case for case in cases)} with an error")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("side", choices=SIDES)
    runs.add_argument("--out", type=Path, required=True)
    runs.add_argument("--processes", type=int, default=os.cpu_count())
    runs.add_argument("--limit", type=float, default=120.0, help="seconds")
    runs.add_argument("--only", default="", help="a regular expression of names of groups")
    runs.add_argument("--patience", type=float, default=40.0, help="seconds after which a group is given up")
    runs.add_argument("--known", type=Path, help="the file of another side, whose errors are not tried again")
    works = commands.add_parser("work")
    works.add_argument("side")
    works.add_argument("folder", type=Path)
    works.add_argument("out", type=Path)
    works.add_argument("--only", default="")
    works.add_argument("--limit", type=float)
    works.add_argument("--known", type=Path)
    compares = commands.add_parser("compare")
    compares.add_argument("left", type=Path)
    compares.add_argument("right", type=Path)
    compares.add_argument("--show", default="", help="a regular expression of verdicts whose cases are listed")
    given = parser.parse_args()
    if given.command == "run":
        run(given.side, given.out, given.processes, given.limit, given.only, given.known, given.patience)
    elif given.command == "work":
        work(given.side, given.folder, given.out, given.only, given.limit, given.known)
        os._exit(0)  # what a library does at the end of a process is not waited for
    else:
        import numba_compare

        numba_compare.main(given.left, given.right, given.show)


if __name__ == "__main__":
    main()
