"""Compare what record_c.py brought from a GPU with the emulator and with `windtunnel check`, and write tables.

    python benchmarks/gpu/report_c.py FOLDER [LATER ...] --out OUT    # folders that record_c.py wrote; no GPU is needed

Of the later folders is taken what the first lacks. Writes `numbers.csv` (each buffer of each kernel: elements that
differ from the emulator's, and by how many units in the last place), `verdicts.csv` (each kernel: what check, the tools
and the launches alone say) and `report.md`. The kernels are those of the corpora today: run it on the commit that was
recorded. Emulating all kernels takes some minutes.
"""

from __future__ import annotations

import argparse
import base64
import csv
import json
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import c_cases
import numpy as np
from record_c import MODES, TOOLS, launched, read_json

DEVICE = "h200-sxm-141gb"
ALONE = "alone"
_NO_REPORT = re.compile(
    r"(ERROR SUMMARY|RACECHECK SUMMARY|Program hit|Target application|Internal|Unable|Error: No attach)"
)


@dataclass
class Verdict:
    """What is said of a kernel. ``tools``: by tool, how often each report was made; None where it was not run."""

    name: str
    group: str
    truth: tuple[str, ...]
    note: str
    asked: tuple[str, ...]
    check: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    tools: dict[str, dict[str, int] | None] = field(default_factory=dict)
    tool_lines: dict[str, list[int]] = field(default_factory=dict)
    native: str = ""

    def found_by(self, tool: str) -> bool:
        return bool(self.tools.get(tool))

    @property
    def found_by_a_tool(self) -> bool:
        return any(self.found_by(tool) for tool in TOOLS)

    @property
    def ran_all(self) -> bool:
        return all(self.tools.get(tool) is not None for tool in self.asked)

    @property
    def hangs(self) -> bool:
        """Whether no launch was seen to end alone. Only two tools are asked about such a kernel."""
        return self.native == "did not end"


# Numbers.


def ulps(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest distance in units in the last place; infinite where one is NaN and the other is not."""
    signed = {2: np.int16, 4: np.int32, 8: np.int64}[found.dtype.itemsize]

    def ordered(array: np.ndarray) -> np.ndarray:
        bits = array.view(signed).astype(np.int64).astype(object)
        least = -(2 ** (8 * array.dtype.itemsize - 1))
        return np.array([least - b if b < 0 else b for b in bits.reshape(-1)], object)

    nan = np.isnan(found), np.isnan(wanted)
    if (nan[0] != nan[1]).any():
        return float("inf")
    distances = np.abs(ordered(found) - ordered(wanted))[~nan[0].reshape(-1)]
    return float(distances.max()) if distances.size else 0.0


def compared(found: np.ndarray, wanted: np.ndarray) -> dict[str, Any]:
    """How two arrays differ: equal bits, units in the last place, another order of the elements, or other values."""
    found, wanted = found.reshape(-1), wanted.reshape(-1)
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return {"elements": wanted.size, "differing": wanted.size, "ulp": "", "verdict": "another shape"}
    floats = wanted.dtype.kind == "f"
    equal = found == wanted
    if floats:
        equal |= np.isnan(found) & np.isnan(wanted)
    row: dict[str, Any] = {"elements": wanted.size, "differing": int((~equal).sum()), "ulp": "", "verdict": "equal"}
    if equal.all():
        return row
    order = np.array_equal(np.sort(found), np.sort(wanted), equal_nan=floats)
    row["verdict"] = "another order" if order else "differs"
    if floats and not order:
        row["ulp"] = ulps(found, wanted)
        near = row["ulp"] <= 64
        row["verdict"] = "last places" if near else "differs"
    return row


def numbers(recorded: Sequence[Path], folder: Path) -> list[dict[str, Any]]:
    """Return a row for each buffer of each launch on the GPU."""
    import windtunnel

    told: dict[tuple[str, str], dict[str, Any]] = {}
    for run in recorded:
        for one in _held(run / "numbers.json.gz").get("rows", []):
            if "case" in one and ("arrays" in one or "arrays" not in told.get((one["case"], one["mode"]), {})):
                told[one["case"], one["mode"]] = one
    emulated: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []

    def expected_of(name: str) -> Any:
        if name not in emulated:
            try:
                with warnings.catch_warnings(action="ignore"), windtunnel.device(DEVICE) as device:
                    emulated[name] = launched(device, name, folder, "plain")
            except Exception as error:
                emulated[name] = f"{type(error).__name__}: {error}".replace(f"{folder}/src/", "")
        return emulated[name]

    for one in told.values():
        name = one["case"]
        if "error" in one:
            rows.append({"case": name, "mode": one["mode"], "verdict": "error", "why": one["error"][:200]})
            continue
        expected = expected_of(name)
        if isinstance(expected, str):
            rows.append({"case": name, "mode": one["mode"], "verdict": "not emulated", "why": expected[:200]})
            continue
        for key, held in one["arrays"].items():
            if held is None or expected.get(key) is None:
                continue  # parts of it were never written
            found = np.frombuffer(base64.b64decode(held[1]), np.dtype(held[0]))
            row = {"case": name, "mode": one["mode"], "buffer": key, "dtype": found.dtype.name}
            rows.append({**row, **compared(found, np.asarray(expected[key]))})
    for name, hashes in _hashes(recorded, folder).items():
        expected = expected_of(name)
        if isinstance(expected, str):
            rows.append({"case": name, "mode": ALONE, "verdict": "not emulated", "why": expected[:200]})
            continue
        for at, (key, held) in enumerate(expected.items()):
            results = {launch[at] for launch in hashes}
            if held is not None:
                one_of = _fnv(np.asarray(held)) in results
                row = {"case": name, "mode": ALONE, "buffer": key, "dtype": np.asarray(held).dtype.name}
                why = (
                    ""
                    if len(results) == 1
                    else f"one of {len(results)} results"
                    if one_of
                    else f"{len(results)} results"
                )
                rows.append({**row, "elements": np.size(held), "verdict": "equal" if one_of else "differs", "why": why})
    return rows


def _hashes(recorded: Sequence[Path], folder: Path) -> dict[str, list[list[str]]]:
    """Return the hashes of the buffers after each launch of right kernels alone, as nvcc compiles them."""
    native: dict[str, Any] = {}
    for run in recorded:
        native |= _held(run / "native.json.gz")
    told = {one["name"]: one for one in json.loads((folder / "cases.json").read_text())}
    names = [name for name in native if not told[name]["truth"] and not native[name]["error"]]
    return {name: native[name]["hashes"] for name in names}


def _held(path: Path) -> dict[str, Any]:
    """What a run has recorded; empty if it has not run this part."""
    made: dict[str, Any] = read_json(path) if path.exists() else {}
    return made


def _fnv(array: np.ndarray) -> str:
    """The hash of launch_cases (FNV-1a, 64 bits)."""
    made = 14695981039346656037
    for byte in array.tobytes():
        made = (made ^ byte) * 1099511628211 % (1 << 64)
    return f"{made:016x}"


# Verdicts.


def verdicts(recorded: Sequence[Path], folder: Path, schedules: int) -> list[Verdict]:
    """Return what is said of each kernel in CUDA C."""
    from windtunnel.app.check import check
    from windtunnel.app.check_launches import launches_of

    told = json.loads((folder / "cases.json").read_text())
    jobs: list[dict[str, Any]] = []
    native: dict[str, Any] = {}
    for run in recorded:
        jobs += _held(run / "sanitizer.json.gz").get("jobs", [])
        native |= _held(run / "native.json.gz")
    modules = {one["name"]: one["module"] for one in told}
    found = {}
    for one in told:
        if one["group"] == "opencl":
            continue
        found[one["name"]] = Verdict(one["name"], one["group"], tuple(one["truth"]), one["note"], tuple(one["tools"]))
    for verdict in found.values():
        requests = launches_of(folder / "src" / f"{verdict.name}.yaml")
        try:
            checked = check(requests, quiet=True)
            if not checked.findings and (verdict.truth or verdict.group == "changed"):
                checked = check(requests, quiet=True, schedules=schedules)
            verdict.check = sorted({one.finding for one in checked.findings})
            verdict.lines = sorted({line for one in checked.findings for line in one.lines})
        except Exception as error:
            verdict.check = [f"{type(error).__name__}: {error}"[:160]]
        verdict.native = _native(verdict.name, native)
    for job in jobs:
        if job["tool"] != "native":
            _attribute(job, found, modules)
    return list(found.values())


def _native(name: str, native: dict[str, Any]) -> str:
    """In words: an error, or how many results the launches had, and whether they are those without the mistake."""
    one = native.get(name)
    if one is None:
        return "not run"
    if one["error"]:
        return str(one["error"])
    results = {tuple(hashes) for hashes in one["hashes"]}
    said = "one result" if len(results) == 1 else f"{len(results)} results"
    if name.startswith("planted_"):
        right = native.get(name.replace("planted_", "mended_"), {}).get("hashes", [])
        if right:
            differ = sum(hashes not in right for hashes in one["hashes"])
            said += f", {differ} of {len(one['hashes'])} wrong"
    return said


def _attribute(job: dict[str, Any], found: dict[str, Verdict], modules: dict[str, str]) -> None:
    """Add a job's reports to the kernels whose file they name."""
    tool, names = job["tool"], [name for name in job["names"] if name in found]
    of_module = {modules[name]: name for name in names}
    for name in names:
        begun = name in job["begun"] and (name in job["done"] or job["code"] != 124 or len(names) == 1)
        if begun and found[name].tools.get(tool) is None:
            found[name].tools[tool] = {}
            found[name].tool_lines[tool] = []
    for text, count in job["reports"]:
        if _NO_REPORT.match(text):
            continue
        places = re.findall(r" in (?:\S*/)?(\w+)\.cu:(\d+)", text)
        name = next((of_module[stem] for stem, _ in places if stem in of_module), names[0] if len(names) == 1 else None)
        if name is None:
            continue
        kinds = found[name].tools.get(tool)
        if kinds is None:
            kinds = found[name].tools[tool] = {}
        first = text.splitlines()[0][:110]
        kinds[first] = kinds.get(first, 0) + count
        lines = found[name].tool_lines.setdefault(tool, [])
        lines += [int(line) for stem, line in places if stem in of_module and int(line) not in lines]


# Tables.


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows), ""]


def tools_said(one: Verdict) -> str:
    parts = []
    for tool in TOOLS:
        kinds = one.tools.get(tool)
        if kinds:
            lines = ", ".join(str(line) for line in one.tool_lines.get(tool, []))
            parts.append(f"{tool}: {'; '.join(list(kinds)[:2])} (lines {lines})")
    return "; ".join(parts) or "nothing"


def check_said(one: Verdict) -> str:
    return f"{', '.join(one.check)} (lines {', '.join(map(str, one.lines))})" if one.check else "nothing"


def row_of(one: Verdict) -> dict[str, str]:
    """A kernel's row in `verdicts.csv`."""
    row = {"kernel": one.name, "group": one.group, "truth": " ".join(one.truth), "change": one.note}
    row |= {"check": " ".join(one.check), "check_lines": " ".join(map(str, one.lines)), "alone": one.native}
    for tool in TOOLS:
        kinds = one.tools.get(tool)
        said = "; ".join(f"{count} x {kind}" for kind, count in (kinds or {}).items())
        row[tool] = "" if kinds is None else said or "nothing"
        row[f"{tool}_lines"] = " ".join(map(str, one.tool_lines.get(tool, [])))
    return row


def numbers_report(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "## Numbers",
        "",
        f"Of the emulator ({DEVICE}) and the GPU, after launches through `windtunnel.load` and the CUDA back end.",
        f"`{ALONE}`: compiled by nvcc and launched without Windtunnel, of which hashes of the buffers are compared.",
        "",
    ]
    kinds = ("equal", "last places", "another order", "differs", "error", "not emulated", "another shape")
    by_mode = []
    for mode in (*MODES, ALONE):
        worst = {}
        for row in rows:
            if row["mode"] == mode:
                at = kinds.index(row["verdict"])
                worst[row["case"]] = max(worst.get(row["case"], 0), at)
        counts = Counter(kinds[at] for at in worst.values())
        by_mode.append([mode, len(worst), *(counts[kind] for kind in kinds)])
    lines += table(["launches", "kernels", *kinds], by_mode)
    keys = ("case", "buffer", "dtype", "elements", "differing", "ulp")
    wrong: dict[tuple[object, ...], list[str]] = {}
    for row in rows:
        if row["verdict"] != "equal":
            said = " ".join(f"{row['verdict']} {row.get('why', '')}".split())
            wrong.setdefault((*(row.get(key, "") for key in keys), said), []).append(row["mode"])
    head = ["kernel", "buffer", "type", "elements", "differing", "ULP", "verdict", "launches"]
    return [*lines, *table(head, [[*row, ", ".join(modes)] for row, modes in wrong.items()])]


def verdicts_report(found: list[Verdict]) -> list[str]:
    lines = ["## compute-sanitizer and `windtunnel check`", ""]
    lines += mistakes_report("Planted mistakes", [one for one in found if one.group == "planted"])
    lines += mistakes_report("Mistakes of tests/corpus/verdicts", [o for o in found if o.group == "stated" and o.truth])
    lines += right_report(found)
    return lines + changed_report(found)


def mistakes_report(title: str, planted: list[Verdict]) -> list[str]:
    """Kernels whose mistake is known."""
    lines = [f"### {title}", ""]
    rows: list[list[object]] = []
    for truth in [*sorted({one.truth[0] for one in planted}), "all"]:
        some = [one for one in planted if truth in ("all", one.truth[0])]
        right = sum(bool(set(one.check) & set(one.truth)) for one in some)
        by_tool = [sum(one.found_by(tool) for one in some) for tool in TOOLS]
        pairs = Counter((bool(set(one.check) & set(one.truth)), one.found_by_a_tool) for one in some)
        neither = pairs[False, False]
        hang = sum(one.hangs for one in some)
        missing = sum(not one.ran_all and not one.hangs for one in some)
        both = [right, sum(one.found_by_a_tool for one in some), pairs[True, True], neither]
        rows.append([truth, len(some), *both, *by_tool, sum(map(shows, some)), hang, missing])
    head = [
        "mistake",
        "kernels",
        "check",
        "a tool",
        "both",
        "neither",
        *TOOLS,
        "shows alone",
        "hang",
        "not all tools ran",
    ]
    lines += table(head, rows)
    lines += ["A mistake shows alone if one of 12 launches crashes or hangs, or if their results differ among each",
              "other or from those of the mended kernel, where there is one.", ""]  # fmt: skip
    said = [[one.name, one.truth[0], check_said(one), tools_said(one), one.native] for one in planted]
    return lines + table(["kernel", "truth", "check", "tools", "alone"], said)


def shows(one: Verdict) -> bool:
    """Whether a mistake is seen without a tool."""
    if one.native == "not run":
        return False
    return "one result" not in one.native or ("wrong" in one.native and ", 0 of" not in one.native)


def right_report(found: list[Verdict]) -> list[str]:
    """Kernels without a mistake."""
    lines: list[str] = []
    right = [one for one in found if one.group not in ("changed", "opencl") and not one.truth]
    ran = sum(one.ran_all for one in right)
    lines += ["### Kernels without a mistake", "", f"{len(right)} kernels, all tools ran on {ran}."]
    quiet = sum(not one.check for one in right), sum(not one.found_by_a_tool for one in right)
    lines += [f"Nothing is found in {quiet[0]} by check, and in {quiet[1]} by the tools.", ""]
    alarms = [one for one in right if one.check or one.found_by_a_tool or "one result" not in one.native]
    return lines + table(
        ["kernel", "check", "tools", "alone"], [[o.name, check_said(o), tools_said(o), o.native] for o in alarms]
    )


def changed_report(found: list[Verdict]) -> list[str]:
    """Kernels with a change by rule, and those of tests/corpus/cuda_c."""
    lines: list[str] = []
    rows: list[list[object]] = []
    changed = [one for one in found if one.group == "changed"]
    for kind in c_cases.KINDS:
        some = [one for one in changed if one.note.startswith(kind + ":")]
        pairs = Counter((bool(one.check), one.found_by_a_tool) for one in some if one.ran_all)
        counts = [pairs[check, tool] for check, tool in ((True, True), (True, False), (False, True), (False, False))]
        rows.append([kind, c_cases.KINDS[kind][1], len(some), sum(counts), *counts])
    lines += [
        "### Changed kernels",
        "",
        "Right kernels with one change. Whether it is a mistake is not stated by an author.",
        "",
    ]
    lines += table(["change", "tool", "kernels", "run", "found by both", "check alone", "tool alone", "neither"], rows)
    apart = [one for one in changed if one.ran_all and bool(one.check) != one.found_by_a_tool]
    lines += table(["kernel", "change", "check", "tools"],
                   [[one.name, one.note, check_said(one), tools_said(one)] for one in apart])  # fmt: skip
    recorded = [one for one in found if one.group == "recorded" and one.truth]
    lines += ["### Kernels of tests/corpus/cuda_c with a mistake, alone", ""]
    lines += table(
        ["kernel", "truth", "check", "12 launches"], [[o.name, o.truth[0], check_said(o), o.native] for o in recorded]
    )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, help="by default the last folder")
    parser.add_argument("--schedules", type=int, default=4, help="further orders, where the first finds nothing")
    given = parser.parse_args()
    recorded: list[Path] = given.folders
    out: Path = given.out or recorded[-1]
    out.mkdir(parents=True, exist_ok=True)
    lines = ["# Kernels in C on a GPU", ""]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        c_cases.write(folder)
        rows = numbers(recorded, folder)
        with (out / "numbers.csv").open("w", newline="") as file:
            writer = csv.DictWriter(
                file, ["case", "mode", "buffer", "dtype", "elements", "differing", "ulp", "verdict", "why"]
            )
            writer.writeheader()
            writer.writerows(rows)
        lines += numbers_report(rows)
        found = verdicts(recorded, folder, given.schedules)
        with (out / "verdicts.csv").open("w", newline="") as file:
            rows_of = [row_of(one) for one in found]
            writer = csv.DictWriter(file, list(rows_of[0]))
            writer.writeheader()
            writer.writerows(rows_of)
        lines += verdicts_report(found)
    (out / "report.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
