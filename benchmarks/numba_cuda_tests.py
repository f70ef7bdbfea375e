"""Runs the kernel tests of Numba CUDA, unmodified, on an emulated device, and writes a table by file.

    python benchmarks/numba_cuda_tests.py --out reports/benchmarks --numba-cuda FOLDER

The tests are those of the installed Numba (``numba/cuda/tests/cudapy``), and with ``--numba-cuda`` those of a wheel of
numba-cuda that was unpacked into a folder (``pip download --no-deps numba-cuda``). They are copied, because pytest
would import the package around them. A test counts only if it launched a kernel. Those that ask for PTX, LLVM IR, SASS,
code of other languages or the compiler's own tables fail by an error that says so, and are counted apart.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numba

LIMIT_S = 300
ASKS_FOR_CODE = (
    "PTX", "LLVM", "SASS", "typed IR", "cuda.compile", "nvvm", "codegen", "descriptor", "libdevice.",
    "foreign function", "jitlink", "_codelibrary", "fndesc", "ASSEMBLY", "IR DUMP", "CFG dominators", "BINARY_OP(",
    "cudaimpl", "run_frontend", "inspect_asm", "ffi.from_buffer", "nvjitlink",
)  # fmt: skip
"""What the messages of tests hold that ask for compiled code, its compiler or a linker."""
NO_TEST = "fixture 'r' not found"
"""Helpers of the tests whose names begin like those of tests; unittest does not run them."""
PLUGIN = f"""
import json, os, signal
import pytest
from windtunnel.emulate.numba_cuda import launcher

LAUNCHES = [0]
RUN = launcher.Launch.run


def counted(self, *arguments):
    LAUNCHES[0] += 1
    return RUN(self, *arguments)


launcher.Launch.run = counted


def late(*_):
    raise TimeoutError("the test took longer than {LIMIT_S} s")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    LAUNCHES[0] = 0
    signal.signal(signal.SIGALRM, late)
    signal.alarm({LIMIT_S})
    try:
        return (yield)
    finally:
        signal.alarm(0)


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        crash = getattr(report.longrepr, "reprcrash", None)
        text = "" if report.outcome != "failed" else crash.message if crash else str(report.longrepr)
        text = text[:300]
        with open(os.environ["NUMBA_TESTS_OUT"], "a") as out:
            out.write(json.dumps([report.nodeid, report.outcome, LAUNCHES[0], text]) + "\\n")
"""


def measured(folder: Path, package: Path | None = None) -> list[tuple[str, str, int, str]]:
    """The outcome of every test of Numba, or of numba-cuda in a folder: (name, outcome, launches, message)."""
    around = Path(numba.__file__).parent if package is None else package / "numba_cuda" / "numba"
    tests = around / "cuda" / "tests" / "cudapy"
    copied = folder / "cudapy"
    shutil.copytree(tests, copied, ignore=shutil.ignore_patterns("__pycache__"))
    (copied / "__init__.py").write_text("")
    (folder / "counting_plugin.py").write_text(PLUGIN)
    out = folder / "outcomes.jsonl"
    ahead = [str(folder)] if package is None else [str(folder), str(package.resolve())]
    path = os.pathsep.join([*ahead, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_TESTS_OUT": str(out)}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--emulate", "numba", "-p", "counting_plugin", "-p", "no:cacheprovider",
         "--continue-on-collection-errors", str(copied)],
        cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    return outcomes_in(out)


def outcomes_in(out: Path) -> list[tuple[str, str, int, str]]:
    """The outcome of every test that the plugin has recorded."""
    found: dict[str, tuple[str, str, int, str]] = {}
    for line in out.read_text().splitlines():
        name, outcome, launches, text = json.loads(line)
        if NO_TEST in text:
            continue
        name = name.split("/")[-1].split(" ")[0]
        before = found.get(name)
        # Of a test with subtests, a failure counts.
        if before is None or outcome == "failed" or (before[1] == "passed" and launches > before[2]):
            found[name] = (name, outcome, launches, text)
    return list(found.values())


def kind_of(outcome: str, launches: int, text: str) -> str:
    if outcome == "passed":
        return "passed" if launches else "passed without a launch"
    if outcome == "skipped":
        return "skipped"
    return "asks for compiled code" if any(word in text for word in ASKS_FOR_CODE) else "failed"


KINDS = ("passed", "passed without a launch", "skipped", "asks for compiled code", "failed")


def table(title: str, outcomes: list[tuple[str, str, int, str]]) -> str:
    files: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    total: collections.Counter[str] = collections.Counter()
    failed = []
    for name, outcome, launches, text in outcomes:
        kind = kind_of(outcome, launches, text)
        files[name.split("::")[0]][kind] += 1
        total[kind] += 1
        if kind == "failed":
            # Without the paths of this host and the addresses of objects.
            plain = re.sub(r"(\\n|(?<![\w.]))/\S*/", "", re.sub(r"\x1b\[\d*m", "", " ".join(text.split())))
            failed.append((name, re.sub(r"0x[0-9a-f]{6,}", "0x...", plain)[:160]))
    lines = [
        f"## {title}",
        "",
        "| file | " + " | ".join(KINDS) + " |",
        "|---|" + "---:|" * len(KINDS),
        *(f"| {name} | " + " | ".join(str(files[name][kind]) for kind in KINDS) + " |" for name in sorted(files)),
        "| all | " + " | ".join(str(total[kind]) for kind in KINDS) + " |",
        "",
        "Failed:",
        "",
        *(f"- `{name}`: {text}" for name, text in sorted(failed)),
        "",
    ]
    return "\n".join(lines)


HEAD = """# Kernel tests of Numba CUDA on an emulated device

Folders `cudapy` of the tests, unmodified, on an emulated h100-sxm-80gb. Written by `benchmarks/numba_cuda_tests.py`. A
test passes if it launched a kernel and its assertions hold.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--numba-cuda", type=Path, help="a folder with numba-cuda, unpacked")
    given = parser.parse_args()
    tables = [HEAD]
    for package in [None] if given.numba_cuda is None else [None, given.numba_cuda]:
        with tempfile.TemporaryDirectory() as folder:
            outcomes = measured(Path(folder), package)
        tables.append(table(f"Numba {version('numba')}" if package is None else _title(package), outcomes))
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "numba-cuda-tests.md").write_text("\n".join(tables))


def _title(package: Path) -> str:
    found = next(package.glob("numba_cuda-*.dist-info"), package)
    return found.name.removesuffix(".dist-info").replace("numba_cuda-", "numba-cuda ")


if __name__ == "__main__":
    main()
