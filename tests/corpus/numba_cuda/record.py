"""Run the programs of this folder with Numba CUDA, and write what they computed: ``python record.py OUT.json``.

Each module runs in a process of its own, and after an error of the driver the rest of it in a new one. With
``NUMBA_ENABLE_CUDASIM=1`` Numba's own simulator runs them, which needs no GPU and is not what is recorded.
"""

from __future__ import annotations

import base64
import importlib.metadata
import json
import os
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
MODULES = ("arithmetic", "language", "threads", "host", "libraries", "errors")
LIMIT_S = float(os.environ.get("RECORD_LIMIT_S", "100"))


def told(array):
    array = np.ascontiguousarray(array) if np.ndim(array) else np.asarray(array)
    kind = array.dtype.descr if array.dtype.names else array.dtype.str
    size = array.dtype.itemsize if array.dtype.names else None
    made = {"dtype": kind, "shape": list(array.shape), "bytes": base64.b64encode(array.tobytes()).decode()}
    if size is not None:
        made["itemsize"] = size
    elif array.size <= 16 and array.dtype.kind in "biuf":
        made["values"] = [repr(v) for v in array.ravel().tolist()]
    return made


def of_module(name: str, out: Path, skip: int) -> None:
    """Run programs ``skip`` and later of a module; one line of JSON for each."""
    sys.path.insert(0, str(HERE))
    module = __import__(name)
    programs = [(k, v) for k, v in vars(module).items() if k.startswith("program_")]
    with out.open("a") as file:
        for number, (key, program) in enumerate(programs):
            if number < skip:
                continue
            began = time.perf_counter()
            line = {"module": name, "program": key.removeprefix("program_"), "number": number, "of": len(programs)}
            file.write(json.dumps({**line, "began": True}) + "\n")
            file.flush()
            fatal = False
            try:
                found = program()
                line["outputs"] = {k: told(v) for k, v in (found or {}).items()}
            except BaseException as error:  # noqa: BLE001
                cause = [one.__name__ for one in type(error).__mro__[:-2]]
                line["error"] = {"class": cause, "message": str(error)[:1500], "trace": traceback.format_exc()[-800:]}
                fatal = any("Cuda" in one or "CUDA" in one for one in cause)
            line["seconds"] = round(time.perf_counter() - began, 3)
            file.write(json.dumps(line) + "\n")
            file.flush()
            if fatal:
                os._exit(9)


def versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in ("numba", "numba-cuda", "numpy", "cuda-bindings", "cuda-core", "llvmlite", "nvidia-cuda-nvrtc"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
    found["numpy"] = np.__version__
    return found


def whole(name: str, folder: Path) -> list[dict]:
    out, skip, done, ended = folder / f"{name}.jsonl", 0, {}, time.monotonic() + LIMIT_S
    out.unlink(missing_ok=True)
    for _ in range(60):
        try:
            ran = subprocess.run(
                [sys.executable, __file__, "--module", name, str(out), str(skip)],
                capture_output=True, text=True, timeout=max(1.0, ended - time.monotonic()),
            )  # fmt: skip
            code, said = ran.returncode, ran.stdout + ran.stderr
        except subprocess.TimeoutExpired as error:
            code, said = 124, str(error)
        lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
        for line in lines:
            if "began" in line:
                done.setdefault(line["number"], line)
            else:
                done[line["number"]] = line
        if not lines:
            return [{"module": name, "program": "", "error": {"class": ["import"], "message": said[-3000:]}}]
        last = max(done)
        if "began" in done[last]:
            done[last]["error"] = {"class": ["died"], "message": f"exit {code}: {said[-1500:]}"}
            del done[last]["began"]
        skip = last + 1
        if code == 0 or skip >= lines[-1]["of"] or time.monotonic() > ended:
            break
    return [done[key] for key in sorted(done)]


def main() -> None:
    if sys.argv[1] == "--module":
        of_module(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
        return
    out = Path(sys.argv[1])
    with ThreadPoolExecutor(len(MODULES)) as pool:
        found = list(pool.map(lambda name: whole(name, out.parent), MODULES))
    programs = [line for lines in found for line in lines]
    out.write_text(json.dumps({"versions": versions(), "programs": programs}, indent=0))
    failed = [p for p in programs if "error" in p and p["module"] != "errors"]
    print(f"{len(programs)} programs, {len(failed)} with an unexpected error")
    for p in failed:
        print(f"  {p['module']}.{p['program']}: {p['error']['class'][:1]} {p['error']['message'][:300]!r}")


main()
