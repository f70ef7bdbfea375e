"""Build the kernels of this folder with nvcc, run them, and ask compute-sanitizer: ``python record.py OUT.json``.

Each kernel becomes a program of its own, whose ``main`` makes the arguments as the ``launch:`` line says, launches once,
and writes what the arrays hold. The words of an argument are those of ``windtunnel check``: a number, ``zeros:N``,
``ones:N``, ``arange:N`` or ``empty:N`` (never written), with a type last.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
LIMIT_S = float(os.environ.get("RECORD_LIMIT_S", "40"))
SIZES = {"int32": 4, "uint32": 4, "float32": 4, "float64": 8, "uint64": 8, "int64": 8, "uint8": 1}
TYPES = {
    "int32": "int", "uint32": "unsigned", "float32": "float", "float64": "double", "uint64": "unsigned long long",
    "int64": "long long", "uint8": "unsigned char",
}  # fmt: skip
MAIN = r"""
#include <cstdio>
#include <cstdlib>
#include <vector>
#include KERNEL_FILE
static void ok(cudaError_t code, const char *what) {
    if (code != cudaSuccess) {
        std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorName(code));
        std::exit(3);
    }
}
template <typename T> static T *made(const char *kind, size_t n) {
    T *there = nullptr;
    ok(cudaMalloc(&there, n * sizeof(T)), "cudaMalloc");
    if (kind[0] == 'e') return there;
    std::vector<T> here(n);
    for (size_t i = 0; i < n; ++i) here[i] = kind[0] == 'z' ? T(0) : kind[0] == 'o' ? T(1) : T(i);
    ok(cudaMemcpy(there, here.data(), n * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    return there;
}
template <typename T> static void kept(FILE *file, const T *there, size_t n) {
    std::vector<T> here(n);
    ok(cudaMemcpy(here.data(), there, n * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    std::fwrite(here.data(), sizeof(T), n, file);
}
int main(int argument_count, char **argument_words) {
ARGUMENTS
    LAUNCH;
    ok(cudaGetLastError(), "launch");
    ok(cudaDeviceSynchronize(), "kernel");
    if (argument_count > 1) {
        FILE *file = std::fopen(argument_words[1], "wb");
RESULTS
        std::fclose(file);
    }
    return 0;
}
"""


def read(path: Path) -> dict[str, Any]:
    """A case: its launch, its arguments in order, and what is true of it."""
    text = path.read_text()
    words = re.search(r"^// launch: (.*)$", text, re.M)[1].split()
    given = dict(word.split("=", 1) for word in words)
    kernels = re.findall(r"__global__ void (\w+)\(([^)]*)\)", text)
    name, parameters = kernels[-1]
    sides = {key: tuple(int(n) for n in given.pop(key, "0").split(",")) for key in ("grid", "block", "shared")}
    return {
        "case": path.stem, "file": f"kernels/{path.name}", "kernel": name, "grid": list(sides["grid"]),
        "block": list(sides["block"]), "shared_bytes": sides["shared"][0], "arguments": given,
        "parameters": [p.strip() for p in parameters.split(",")], "truth": re.search(r"^// truth: (\S+)", text, re.M)[1],
    }  # fmt: skip


def main_of(case: dict[str, Any]) -> str:
    arguments, results, names = [], [], []
    for (name, spec), parameter in zip(case["arguments"].items(), case["parameters"], strict=True):
        assert re.search(rf"\b{name}$", parameter), (case["case"], name, parameter)
        if ":" not in spec:
            names.append(spec)
            continue
        kind, n, dtype = spec.split(":")
        plain = re.sub(r"\b(const|volatile|__restrict__)\b", "", parameter)
        pointed = plain.rsplit("*", 1)[0].strip()
        arguments.append(f'    auto *{name} = made<{TYPES[dtype]}>("{kind}", {n});')
        results.append(f"        kept(file, {name}, {n});")
        names.append(f"reinterpret_cast<{pointed} *>({name})")
    three = {key: ", ".join(str(n) for n in case[key]) for key in ("grid", "block")}
    launch = f"{case['kernel']}<<<dim3({three['grid']}), dim3({three['block']}), {case['shared_bytes']}>>>({', '.join(names)})"
    text = MAIN.replace("KERNEL_FILE", f'"{HERE / case["file"]}"').replace("LAUNCH", launch)
    return text.replace("ARGUMENTS", "\n".join(arguments)).replace("RESULTS", "\n".join(results))


def ran(words: list[str]) -> tuple[int, str]:
    """Exit code and output; 124 after `LIMIT_S`, when the program and what it started (a tool's target) are killed."""
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True
    )
    try:
        said, _ = process.communicate(timeout=LIMIT_S)
        return process.returncode, said
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        return 124, said


def recorded(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    source, program, out = (folder / f"{case['case']}{end}" for end in (".cu", "", ".out"))
    source.write_text(main_of(case))
    code, said = ran(["nvcc", "-std=c++17", "-arch=sm_90", "-lineinfo", "-o", str(program), str(source)])
    case["build"] = {"code": code, "said": said[-1500:]}
    if code:
        return case
    code, said = ran([str(program), str(out)])
    case["run"] = {"code": code, "said": said[-500:]}
    if out.exists() and case["truth"] == "clean":
        data, at, held = out.read_bytes(), 0, {}
        for name, spec in case["arguments"].items():
            if ":" in spec:
                _, n, dtype = spec.split(":")
                size = int(n) * SIZES[dtype]
                held[name] = {"dtype": dtype, "bytes": base64.b64encode(data[at : at + size]).decode()}
                at += size
        case["outputs"] = held
    case["tools"] = {}
    for tool in TOOLS if code != 124 else ("synccheck", "racecheck"):  # it does not end: a tool may still say why
        more = ["--racecheck-report", "all"] if tool == "racecheck" else []
        code, said = ran(
            ["compute-sanitizer", "--tool", tool, *more, "--print-limit", "6", "--error-exitcode", "9", str(program)]
        )
        said = said.replace(str(HERE) + "/", "").replace(str(folder) + "/", "")
        summary = re.findall(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (.*)$", said, re.M)
        kept = [line for line in said.splitlines() if "Host Frame" not in line and "Saved host backtrace" not in line]
        case["tools"][tool] = {"code": code, "summary": summary[-1] if summary else "", "said": "\n".join(kept)[:1800]}
    return case


def main() -> None:
    out = Path(sys.argv[1])
    cases = [read(path) for path in sorted((HERE / "kernels").glob("*.cu"))]
    only = os.environ.get("RECORD_ONLY", "").split()
    cases = [case for case in cases if not only or case["case"] in only]
    folder = Path(tempfile.mkdtemp())
    if len(sys.argv) > 2:  # only the sources of the programs
        for case in cases:
            (Path(sys.argv[2]) / f"{case['case']}.cu").write_text(main_of(case))
        return
    versions = {tool: ran([tool, "--version"])[1].strip().splitlines()[-2:] for tool in ("nvcc", "compute-sanitizer")}
    found: list[dict[str, Any]] = []
    with ThreadPoolExecutor(int(os.environ.get("RECORD_WORKERS", "10"))) as pool:
        for done in as_completed([pool.submit(recorded, case, folder) for case in cases]):
            found.append(done.result())
            found.sort(key=lambda case: str(case["case"]))
            out.write_text(json.dumps({"versions": versions, "cases": found}, indent=0))
    for case in found:
        said = {tool: f"{one['code']}:{one['summary'][:40]}" for tool, one in case.get("tools", {}).items()}
        print(case["case"], case["truth"], case["build"]["code"] or "", case.get("run", {}).get("code"), said)
        if case["build"]["code"]:
            print(case["build"]["said"][-600:])


if __name__ == "__main__":
    main()
