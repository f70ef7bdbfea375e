"""The corpora of kernels in CUDA C as cases for a GPU: a source, and a list of launches as `windtunnel check` takes it.

    python benchmarks/gpu/c_cases.py FOLDER          # writes the cases and compiles them; nvcc, but no GPU is needed

Written are `FOLDER/src/NAME.cu` and `NAME.yaml` of each case, `cases.json` (group, truth, tools), the compiled modules
`cubin/NAME.cubin`, and the list of launches and its data for `launch_cases` (`launches.txt`, `launches.bin`).
record_c.py takes the folder to the GPU.

Groups: `planted` (a mistake), `mended` (the same without it), `clean`; `stated` (tests/corpus/verdicts); `recorded`
(tests/corpus/cuda_c, whose reports by compute-sanitizer are kept there already); `opencl` (kernels in OpenCL C without
a mistake, of which a GPU gets translations); `changed` (a right kernel, changed by a rule, so that nobody has stated
whether it is wrong).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "simulator"), str(ROOT / "device_models")]

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_BARRIER = re.compile(
    r"__syncthreads\(\);|__syncwarp\([^)]*\);|\bblock\.sync\(\);|cg::wait\(block\);|__threadfence\(\);"
)
_GUARD = re.compile(r"(\bif \([^\n]*?\b\w+ )(<|>=)( (?:n|size|count|length|items|width|height|columns|rows)\b)")
_ATOMIC = re.compile(r"\batomicAdd\(\s*(?:&\s*)?([\w.\[\]]+(?:\[[^\n;]*?\])?), ([^,;\n]+)\);")
_BUFFER = re.compile(r"\b(zeros|ones|arange|random):(\d+)((?::\d+)?)")
KINDS = {
    "no barrier": (80, "racecheck"), "no atomic": (24, "racecheck"), "diverging barrier": (30, "synccheck"),
    "wider guard": (40, "memcheck"), "one element fewer": (50, "memcheck"), "never written": (60, "initcheck"),
}  # fmt: skip
"""By the kind of a change: how many kernels at most, and the tool that is asked."""


@dataclass(frozen=True)
class Case:
    """A kernel file and its launches.

    Attributes:
        name: Also the name of its files.
        group: planted, mended, clean, recorded, changed or opencl.
        source: The text in CUDA C.
        launches: The text of the list of launches.
        truth: The findings one of which is right; none if there is no mistake, or if nobody knows (``changed``).
        tools: The tools of compute-sanitizer to ask.
        note: How it was changed.
    """

    name: str
    group: str
    source: str
    launches: str
    truth: tuple[str, ...] = ()
    tools: tuple[str, ...] = TOOLS
    note: str = ""
    suffix: str = ".cu"


def corpus() -> list[Case]:
    """Return the kernels of tests/corpus/c_source and tests/corpus/cuda_c; those in OpenCL C without a mistake."""
    from tests.corpus.c_source import programs
    from tests.corpus.cuda_c import test_verdicts

    found: list[Case] = []

    def add(group: str, program: Any, truth: tuple[str, ...] = ()) -> None:
        suffix, name = program.source.suffix, f"{group}_{program.name}"
        if suffix == ".cl" and group == "planted":
            return
        launches = program.launches.read_text().replace(program.source.name, f"{name}{suffix}")
        kind, tools = (group, TOOLS) if suffix == ".cu" else ("opencl", ())
        found.append(Case(name, kind, program.source.read_text(), launches, truth, tools, "", suffix))

    with tempfile.TemporaryDirectory() as folder:
        for program in programs.planted():
            add("planted", program, program.mistake.findings)
            add("mended", program.mended(Path(folder)))
    for program in programs.clean():
        add("clean", program)
    for case in test_verdicts.CASES:
        name = f"recorded_{case['case']}"
        launch = {"file": f"{name}.cu", "kernel": case["kernel"], "grid": case["grid"], "block": case["block"]}
        launch |= {"shared_bytes": case["shared_bytes"], "args": case["arguments"]}
        right = case["truth"] == "clean"
        truth = () if right else tuple(test_verdicts.FOUND.get(case["truth"], [case["truth"]]))
        text = (test_verdicts.HERE / case["file"]).read_text()
        found.append(Case(name, "recorded", text, yaml.safe_dump([launch]), truth, TOOLS if right else ()))
    return found + stated()


def stated() -> list[Case]:
    """Return the kernels of tests/corpus/verdicts in CUDA C, but for those whose launch is refused."""
    from tests.corpus.verdicts import test_pairs

    found = []
    for file in sorted(test_pairs.HERE.glob("*.cu")):
        request, verdicts = test_pairs.stated(file)
        if "refused" in verdicts:
            continue
        name = f"stated_{file.stem}"
        launch: dict[str, Any] = {"file": f"{name}.cu", "grid": _sides(request.grid), "block": _sides(request.block)}
        launch |= {"shared_bytes": request.shared_bytes or 0, "args": request.arguments}
        truth = () if "clean" in verdicts else tuple(verdicts)
        found.append(Case(name, "stated", file.read_text(), yaml.safe_dump([launch]), truth))
    return found


def _sides(sides: tuple[int, ...]) -> str:
    return ",".join(str(side) for side in sides)


def _matches(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    """Return the matches outside of comments."""
    comments = [found.span() for found in re.finditer(r"//[^\n]*|/\*.*?\*/", text, re.S)]
    return [one for one in pattern.finditer(text) if not any(a <= one.start() < b for a, b in comments)]


def _changes(case: Case) -> Iterator[tuple[str, str, str, str]]:
    """Return (kind, note, source, launches) of the changes of a right kernel."""

    def replaced(text: str, one: re.Match[str], by: str) -> str:
        return text[: one.start()] + by + text[one.end() :]

    def line(one: re.Match[str]) -> int:
        return case.source.count("\n", 0, one.start()) + 1

    for one in _matches(_BARRIER, case.source):
        note = f"line {line(one)}: without {one[0]}"
        yield "no barrier", note, replaced(case.source, one, ";"), case.launches
    for one in _matches(_GUARD, case.source)[:2]:
        other = {"<": "<=", ">=": ">"}[one[2]]
        note = f"line {line(one)}: {other} for {one[2]}"
        yield "wider guard", note, replaced(case.source, one, one[1] + other + one[3]), case.launches
    for one in _matches(_ATOMIC, case.source)[:2]:
        target = one[1] if "&" in one[0].split(",")[0] else f"*({one[1]})"
        note = f"line {line(one)}: {target} += without an atomic operation"
        yield "no atomic", note, replaced(case.source, one, f"{target} += {one[2]};"), case.launches
    for one in [m for m in _matches(_BARRIER, case.source) if m[0] == "__syncthreads();"][:1]:
        note = f"line {line(one)}: a barrier that thread 0 skips"
        changed = replaced(case.source, one, "if (threadIdx.x != 0) __syncthreads();")
        yield "diverging barrier", note, changed, case.launches
    for one in list(_BUFFER.finditer(case.launches))[:3]:
        changed = replaced(case.launches, one, f"empty:{one[2]}")
        yield "never written", f"argument {one[0]} is empty", case.source, changed
    for one in list(_BUFFER.finditer(case.launches))[:3]:
        if int(one[2]) > 1:
            changed = replaced(case.launches, one, f"{one[1]}:{int(one[2]) - 1}{one[3]}")
            yield "one element fewer", f"argument {one[0]} has one element fewer", case.source, changed


def changed(cases: list[Case]) -> list[Case]:
    """Return right kernels with one change each, spread over the kernels."""
    found: dict[str, list[Case]] = {kind: [] for kind in KINDS}
    right = [case for case in cases if case.group in ("clean", "mended") or (case.group == "recorded" and case.tools)]
    for case in right:
        for number, (kind, note, source, launches) in enumerate(_changes(case)):
            name = f"changed_{case.name}_{number}"
            launches = launches.replace(f"{case.name}.cu", f"{name}.cu")
            found[kind].append(Case(name, "changed", source, launches, (), KINDS[kind][1:], f"{kind}: {note}"))
    chosen = []
    for kind, of_kind in found.items():
        most, _ = KINDS[kind]
        step = max(len(of_kind) / most, 1)
        chosen += [of_kind[int(at * step)] for at in range(min(most, len(of_kind)))]
    return chosen


def write(folder: Path) -> tuple[list[Case], dict[str, str]]:
    """Write the sources and launches of all cases into a folder; return them, and the module of each by name.

    Cases with one text share a module.
    """
    cases = corpus()
    cases += changed(cases)
    (folder / "src").mkdir(parents=True, exist_ok=True)
    for case in cases:
        for suffix, text in ((case.suffix, case.source), (".yaml", case.launches)):
            file = folder / "src" / f"{case.name}{suffix}"
            if not file.exists() or file.read_text() != text:
                file.write_text(text)
    modules: dict[str, str] = {}
    kept: list[dict[str, Any]] = []
    for case in cases:
        told = {key: value for key, value in asdict(case).items() if key not in ("source", "launches", "suffix")}
        kept.append({**told, "module": modules.setdefault(case.source, case.name)})
    (folder / "cases.json").write_text(json.dumps(kept, indent=0))
    return cases, {one["name"]: one["module"] for one in kept}


def compiled(folder: Path, name: str) -> str:
    """Compile a case, if it has changed; return what the compiler says if it cannot."""
    source, module = folder / "src" / f"{name}.cu", folder / "cubin" / f"{name}.cubin"
    if module.exists() and module.stat().st_mtime >= source.stat().st_mtime:
        return ""
    # The lines of reports bear the name of the file as it is given.
    words = ["nvcc", "-cubin", "-arch=sm_90", "-lineinfo", "-std=c++17", "-o", str(module.absolute()), source.name]
    done = subprocess.run(words, cwd=source.parent, capture_output=True, text=True)
    if done.returncode:
        module.unlink(missing_ok=True)
    return "" if not done.returncode else done.stderr[-1500:] or "failed"


def symbols(module: Path) -> dict[str, str]:
    """Return the symbols of a module's functions by their names in C++, without blanks."""
    said = subprocess.run(["readelf", "-sW", str(module)], capture_output=True, text=True, check=True).stdout
    names = [line.split()[-1] for line in said.splitlines() if " FUNC " in line]
    plain = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return {re.sub(r"\s", "", text): name for text, name in zip(plain.splitlines(), names, strict=True)}


def symbol_of(known: dict[str, str], kernel: str) -> str:
    """Return the symbol of a kernel, which may be an instance of a template."""
    wanted = re.sub(r"\s", "", kernel)
    pattern = rf"(void)?{re.escape(wanted)}(<.*>)?(\(.*\))?"
    (found,) = [symbol for text, symbol in known.items() if re.fullmatch(pattern, text)]
    return found


@dataclass
class _Data:
    """The bytes of all buffers, each kept once."""

    data: bytearray = field(default_factory=bytearray)
    places: dict[bytes, int] = field(default_factory=dict)

    def place(self, content: bytes) -> int:
        if content not in self.places:
            self.places[content] = len(self.data)
            self.data += content + bytes(-len(content) % 16)
        return self.places[content]


# Long: one part for each line of the list.
def lines_of(case: Case, module_name: str, folder: Path, data: _Data) -> tuple[list[str], list[str]]:
    """Return the lines of a case for `launch_cases`, and the names of its buffers."""
    from windtunnel.app.check_arguments import MadeUp, arguments_of
    from windtunnel.app.check_kernels import kernels_of
    from windtunnel.app.check_launches import launches_of

    requests = launches_of(folder / "src" / f"{case.name}.yaml")
    kernels = kernels_of(requests)
    module = f"cubin/{module_name}.cubin"
    known, together = symbols(folder / module), "this_grid()" in case.source
    made: list[tuple[int, int]] = []  # bytes, and where they begin

    def kept(array: np.ndarray) -> int:
        made.append((array.nbytes, data.place(array.tobytes())))
        return -len(made)

    def empty(count: int, dtype: Any) -> int:
        made.append((count * np.dtype(dtype).itemsize, -1))
        return -len(made)

    device: Any = SimpleNamespace(to_device=lambda array: SimpleNamespace(at=kept(array)),
                                  empty=lambda count, dtype: SimpleNamespace(at=empty(count, dtype)))  # fmt: skip
    buffers: dict[str, Any] = {}
    launches = []
    for request, kernel in zip(requests, kernels, strict=True):
        function: Any = kernel.function
        given = arguments_of(device, kernel.parameters, request, buffers, MadeUp())
        sizes = " ".join(str(side) for side in (*request.grid, *request.block))
        symbol = symbol_of(known, function._qualified)
        launches.append(f"launch {symbol} {sizes} {request.shared_bytes or 0} {int(together)}")
        parts: dict[str, list[str]] = {}
        lengths: dict[str, int] = {}
        kinds = {kid.name: kid.type for kid in function.node.kids if kid.kind == "PARM_DECL"}
        for parameter, value in zip(kernel.parameters, given, strict=True):
            name = parameter.name.partition(".")[0]
            if name != parameter.name:  # a member of a struct with pointers, which is one argument
                offset = kinds[name].leaves[len(parts.get(name, []))][0]
                if offset > lengths.get(name, 0):
                    parts[name][-1] += " v" + "00" * (offset - lengths[name])
                    lengths[name] = offset
            if hasattr(value, "at"):
                part, size = f"b{-value.at - 1}", 8
            elif parameter.kind == "number":
                raw = (
                    value.tobytes()
                    if isinstance(value, np.void)
                    else np.array(value).astype(parameter.dtypes[0]).tobytes()
                )
                part, size = f"v{raw.hex()}", len(raw)
            else:
                part, size = "v" + "00" * 8, 8
            parts.setdefault(name, []).append(part)
            lengths[name] = lengths.get(name, 0) + size
        launches += [f"arg {' '.join(one)}" for one in parts.values()]
    lines = [f"case {case.name} {module}", *(f"buffer {size} {at}" for size, at in made), *launches, "end"]
    return lines, list(buffers)


def prepare(folder: Path, workers: int) -> None:
    """Write and compile all cases."""
    cases, modules = write(folder)
    (folder / "cubin").mkdir(exist_ok=True)
    with ThreadPoolExecutor(workers) as pool:
        names_of = list(dict.fromkeys(modules[case.name] for case in cases if case.suffix == ".cu"))
        failed = dict(zip(names_of, pool.map(lambda name: compiled(folder, name), names_of), strict=True))
    lines: list[str] = []
    data, problems, names = _Data(), {}, {}
    for case in cases:
        if case.suffix != ".cu":
            continue
        if failed[modules[case.name]]:
            problems[case.name] = failed[modules[case.name]]
            continue
        try:
            some, names[case.name] = lines_of(case, modules[case.name], folder, data)
            lines += some
        except Exception as error:
            problems[case.name] = f"{type(error).__name__}: {error}"
    (folder / "launches.txt").write_text("\n".join(lines) + "\n")
    (folder / "launches.bin").write_bytes(data.data)
    (folder / "buffers.json").write_text(json.dumps(names))
    (folder / "problems.json").write_text(json.dumps(problems, indent=1))
    words = ["g++", "-std=c++17", "-O1", "-static-libstdc++", "-static-libgcc"]
    source = Path(__file__).with_name("launch_cases.cc")
    subprocess.run([*words, "-o", str(folder / "launch_cases"), str(source), "-ldl"], check=True)
    counts = {group: sum(case.group == group for case in cases) for group in dict.fromkeys(c.group for c in cases)}
    print(f"{counts}; {len(problems)} not prepared: {', '.join(problems)}")
    for name, why in problems.items():
        print(name, why[:400], file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    given = parser.parse_args()
    prepare(given.folder, given.workers)


if __name__ == "__main__":
    main()
