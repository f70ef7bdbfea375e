"""Has the argument parsers of vLLM and SGLang read the commands of `windtunnel deploy`, and writes a table.

    python benchmarks/engine_arguments.py --vllm VENV/bin/python --sglang VENV/bin/python --out reports/benchmarks

Each PYTHON is that of an environment in which the engine is installed. No GPU is needed: nothing is loaded, but every
flag, the type of its value and its choices are the engine's own. The commands are those of every scenario under
``scenarios/`` that serves a decoder, with each entry on that engine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from windtunnel.app.deploy import deploy
from windtunnel.core.errors import InputError
from windtunnel.core.results.deployment import FIRST_NODE, NODE_RANK, POD_IP, EngineCommand
from windtunnel_models.catalogue import shipped_catalogue

ROOT = Path(__file__).resolve().parents[1]
READERS = {
    "vllm": """
import json, sys
import vllm.platforms
from vllm.platforms.interface import UnspecifiedPlatform
vllm.platforms._current_platform = UnspecifiedPlatform()
UnspecifiedPlatform.device_type = "cuda"  # the parser asks for the kind of device
import vllm
from vllm import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser
try:
    from vllm.entrypoints.openai.cli_args import make_arg_parser, validate_parsed_serve_args
except ImportError:
    from vllm.entrypoints.common.cli_args import make_arg_parser, validate_parsed_serve_args
VERSION, SKIPPED = vllm.__version__, 2
def read(words):
    arguments = make_arg_parser(FlexibleArgumentParser(prog="vllm serve")).parse_args(words)
    validate_parsed_serve_args(arguments)
    AsyncEngineArgs.from_cli_args(arguments)
""",
    "sglang": """
import argparse, json, sys
import sglang
from sglang.srt.server_args import ServerArgs
VERSION, SKIPPED = sglang.__version__, 3
def read(words):
    parser = argparse.ArgumentParser(prog="sglang")
    ServerArgs.add_cli_args(parser)
    parser.parse_args(words)
""",
}
LOOP = """
import contextlib, io
found = []
for words in json.load(sys.stdin):
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            read(words[SKIPPED:])
        found.append(None)
    except SystemExit:
        found.append(said.getvalue().strip().splitlines()[-1])
    except Exception as error:
        found.append(f"{type(error).__name__}: {error}")
print("\\n" + json.dumps([VERSION, found]))
"""


@dataclass(frozen=True)
class Outcome:
    """A command that the engine refuses, and why."""

    scenario: str
    command: str
    reason: str


def commands(engine: str) -> list[tuple[str, list[str]]]:
    """Return the scenario and the words of every command of the shipped scenarios."""
    found = []
    for path in sorted((ROOT / "scenarios").rglob("*.yaml")):
        data = yaml.safe_load(path.read_text())
        if not isinstance(data, dict) or not data.get("models"):
            continue
        changes = [f"fleet[{number}].engine={engine}" for number in range(len(data["fleet"]))]
        try:
            deployment, _ = deploy(path, changes, shipped_catalogue(), outside_code=True)
        except InputError as error:
            print(f"{path.name}: {error}", flush=True)
            continue
        for command in deployment.commands:
            found += [(path.relative_to(ROOT).as_posix(), words) for words in nodes(command)]
    return found


def nodes(command: EngineCommand) -> list[list[str]]:
    """Return the words of a command on the first node of a replica and, if there are more, on the second."""
    stand_ins = {FIRST_NODE: "10.0.0.1", NODE_RANK: "0", POD_IP: "10.0.0.1"}

    def filled(words: Sequence[str], **others: str) -> list[str]:
        for stand_in, value in {**stand_ins, **others}.items():
            words = [word.replace(stand_in, value) for word in words]
        return list(words)

    found = [filled(command.words)]
    if command.worker_arguments is not None:
        found.append(filled([*command.words, *(a.flag for a in command.worker_arguments)], **{NODE_RANK: "1"}))
    return found


def read(engine: str, python: str) -> tuple[str, int, list[Outcome]]:
    """Return the version of an engine, the number of commands, and those that it refuses."""
    known = commands(engine)
    done = subprocess.run(
        [python, "-c", READERS[engine] + LOOP],
        input=json.dumps([words for _, words in known]),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{engine} does not start:\n{done.stderr[-3000:]}")
    version, reasons = json.loads(done.stdout.strip().splitlines()[-1])
    refused = [
        Outcome(path, " ".join(words), reason)
        for (path, words), reason in zip(known, reasons, strict=True)
        if reason is not None
    ]
    return version, len(known), refused


def main() -> None:
    """Read the commands and write ``engine-arguments.md``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "reports" / "benchmarks")
    for engine in READERS:
        parser.add_argument(f"--{engine}", action="append", default=[], metavar="PYTHON")
    options = parser.parse_args()
    rows, refusals = [], []
    for engine in READERS:
        for python in getattr(options, engine):
            version, count, refused = read(engine, python)
            rows.append(f"| {engine} {version} | {count} | {count - len(refused)} |")
            refusals += [f"- {engine} {version}, `{r.scenario}`: {r.reason}\n  (`{r.command}`)" for r in refused]
    text = [
        "# Commands of `windtunnel deploy`, read by the engines",
        "",
        "Made by `benchmarks/engine_arguments.py`. The engine's own parser reads each command of each shipped scenario, on the",
        "first node and, where a replica has several, on the second. Nothing is loaded: an engine may still refuse a",
        "combination when it starts.",
        "",
        "| engine | commands | accepted |",
        "|---|---|---|",
        *rows,
        "",
        *refusals,
    ]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "engine-arguments.md").write_text("\n".join(text).rstrip() + "\n")
    print("\n".join(text))


if __name__ == "__main__":
    main()
