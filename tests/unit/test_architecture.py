"""Imports point one way: the table of allowed imports is acyclic, every module keeps to it, and no modules form a cycle."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from radon.complexity import cc_visit_ast

import windtunnel

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {
    "windtunnel": ROOT / "simulator" / "windtunnel",
    "windtunnel_models": ROOT / "device_models" / "windtunnel_models",
}

# Each package, and the packages it may import from (itself always). "" is the package `windtunnel` itself, which offers
# the public names. A package may import only packages that stand above it here.
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "windtunnel_models": {"core"},
    "scenario": {"core", "windtunnel_models"},
    "policies": {"core"},
    "language": {"core"},
    "runtime": {"core"},
    "report": {"core", "placement"},
    "engine": {"core", "scenario"},
    "placement": {"core", "scenario", "engine", "windtunnel_models"},
    "codegen": {"core", "language"},
    "csource": {"core", "language"},
    "emulator": {"core", "language", "runtime"},
    "backends": {"core", "language", "runtime", "codegen", "windtunnel_models"},
    "simulation": {"core", "scenario", "policies", "engine", "placement", "backends", "windtunnel_models"},
    "sweep": {"core", "scenario"},
    "deployment": {"core", "scenario", "engine", "windtunnel_models"},
    "planning": {"core", "scenario", "engine", "simulation", "sweep", "deployment", "windtunnel_models"},
    "validation": {"core", "scenario", "runtime", "backends", "simulation", "windtunnel_models"},
    "library": {"core", "csource", "runtime", "emulator", "backends", "simulation", "windtunnel_models"},
    "errors": {"core", "runtime"},
    "emulate": {"core", "language", "csource", "runtime", "library"},
    "": {"core", "errors", "language", "runtime", "emulator", "simulation", "library"},
    "examples": {"", "core", "runtime"},
    "claims": {"core", "runtime", "examples"},
    "explorer": {"core", "scenario", "engine", "simulation", "sweep", "planning", "report", "windtunnel_models"},
    "app": {
        "core", "scenario", "engine", "placement", "codegen", "csource", "language", "runtime", "backends",
        "simulation", "sweep", "deployment", "planning", "validation", "library", "claims", "report", "explorer",
        "emulate", "windtunnel_models",
    },
    "cli": {
        "app", "core", "scenario", "placement", "backends", "simulation", "library", "report", "windtunnel_models",
    },
    "pytest_findings": {"core"},
    "pytest_plugin": {"core", "runtime", "simulation", "library", "emulate", "pytest_findings"},
    "__main__": {"cli"},
}  # fmt: skip
# The same within packages that have packages of their own. Modules that stand directly in the package are "".
WITHIN: dict[str, dict[str, set[str]]] = {
    "engine": {
        "arrivals": set(),
        "prepare": {"arrivals"},
        "event_log": {"prepare"},
        "results": {"prepare", "event_log"},
        "transitions": {"prepare", "event_log", "results"},
        "process": {"prepare", "event_log", "results", "transitions"},
        "compiled": {"prepare", "event_log", "results", "transitions"},
        "choice": {"prepare", "results", "process", "compiled"},
    },
    "emulator": {
        "common": set(),
        "races": {"common"},
        "lockstep": {"common", "races"},
        "threads": {"common", "races"},
        "work": {"common", "races", "lockstep"},
        "device": {"common", "races", "lockstep", "threads", "work"},
    },
}
# Every other folder of `backends` is a back end, which needs no line here.
NOT_BACK_ENDS = {"common", "discovery"}
BACK_ENDS = {path.parent.name for path in (SOURCES["windtunnel"] / "backends").glob("*/__init__.py")} - NOT_BACK_ENDS
WITHIN["backends"] = {
    "common": set(),
    "discovery": {"common"},
    **dict.fromkeys(BACK_ENDS, {"common"}),
    "hip": {"common", "cuda"},  # the same driver, built for ROCm
}
# Packages that a driver or an accelerator library lives in: only `backends` may import them.
DRIVERS = {"cupy", "pyopencl", "wgpu", "vulkan", "jax", "torch", "pynvml", "cuda"}

# Modules of tests over 600 lines, each with the reason. A module that no longer is has to leave this table.
LONG_TESTS = {
    "corpus/numba_cuda/language.py": "recorded results name its programs by this module",
}


def module_names() -> dict[str, Path]:
    """Every module of the product by its dotted name."""
    found = {}
    for package, folder in SOURCES.items():
        for path in sorted(folder.rglob("*.py")):
            name = ".".join((package, *path.relative_to(folder).with_suffix("").parts))
            found[name.removesuffix(".__init__")] = path
    return found


MODULES = module_names()
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Facts:
    """What the tests ask of a text: (line, module, imported names; none for a plain import), and functions that are too long."""

    imported: list[tuple[int, str, tuple[str, ...]]]
    long_functions: list[str]


@cache
def facts(source: str) -> Facts:
    """Read a text once for all tests."""
    tree, lines = ast.parse(source), source.splitlines()
    complexity = {block.lineno: block.complexity for block in cc_visit_ast(tree) if block.letter != "C"}
    found = Facts([], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.imported.extend((node.lineno, alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import hides which package it comes from"
            found.imported.append((node.lineno, str(node.module), tuple(alias.name for alias in node.names)))
        elif isinstance(node, FUNCTIONS) and not explained(node, lines):
            length = int(node.end_lineno or 0) - node.lineno + 1
            if length > 80:
                found.long_functions.append(f"line {node.lineno}: {node.name} has {length} lines")
            if complexity.get(node.lineno, 0) > 20:
                problem = f"line {node.lineno}: {node.name} has complexity {complexity[node.lineno]}"
                found.long_functions.append(problem)
    return found


def imports(source: str, modules: AbstractSet[str] = MODULES.keys()) -> list[tuple[int, str]]:
    """Every module that ``source`` imports, with its line: at the top, inside functions and for type checking alike."""
    found: list[tuple[int, str]] = []
    for line, module, names in facts(source).imported:
        wholes = [f"{module}.{name}" for name in names]
        found += [(line, whole if whole in modules else module) for whole in wholes] or [(line, module)]
    return found


def package_of(module: str) -> str | None:
    """The package of the table that a module belongs to; None for modules that are not ours."""
    names = module.split(".")
    if names[0] == "windtunnel_models":
        return "windtunnel_models"
    if names[0] != "windtunnel":
        return None
    return names[1] if len(names) > 1 and names[1] in MAY_IMPORT else ""


def violations(module: str, source: str) -> list[str]:
    """The imports of ``source``, as the text of ``module``, that the tables do not allow."""
    package, wrong = package_of(module), []
    assert package is not None
    for line, target in imports(source):
        other = package_of(target)
        if other is not None and other != package and other not in MAY_IMPORT[package]:
            wrong.append(f"{module}, line {line}: '{package or 'windtunnel'}' may not import {target}")
        if other == package and package in WITHIN:
            table = WITHIN[package]
            mine, theirs = (".".join(name.split(".")[2:3]) for name in (module, target))
            if mine and theirs and mine != theirs and theirs not in table.get(mine, set()):
                wrong.append(f"{module}, line {line}: '{package}.{mine}' may not import {target}")
        programs = module.startswith("windtunnel.examples.cupy.")  # as users of CuPy write them
        if target.split(".")[0] in DRIVERS and package != "backends" and not programs:
            wrong.append(f"{module}, line {line}: the driver {target} is imported outside of 'backends'")
    return wrong


def cycle(graph: Mapping[str, AbstractSet[str]]) -> list[str]:
    """One cycle of the graph, or an empty list."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def module_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    return {
        name: {target for _, target in imports(text, sources.keys()) if target in sources and target != name}
        for name, text in sources.items()
    }


@pytest.mark.parametrize("table", [MAY_IMPORT, *WITHIN.values()], ids=["packages", *WITHIN])
def test_the_table_of_allowed_imports_is_acyclic(table: dict[str, set[str]]) -> None:
    assert cycle(table) == []
    assert not set().union(*table.values()) - set(table), "the table names a package that it does not define"


def test_every_module_keeps_to_the_table() -> None:
    unknown = {name for name in MODULES if package_of(name) == "" and name not in ("windtunnel",)}
    assert not unknown, f"add these to MAY_IMPORT: {sorted(unknown)}"
    assert [wrong for name, path in MODULES.items() for wrong in violations(name, path.read_text())] == []


def test_no_modules_import_each_other_in_a_cycle() -> None:
    assert cycle(module_graph({name: path.read_text() for name, path in MODULES.items()})) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("windtunnel.core.x", "from windtunnel.engine import process"),
        ("windtunnel.core.x", "def f():\n    import windtunnel.report.run_page"),
        ("windtunnel.core.x", "import windtunnel_models"),
        ("windtunnel.core.x", "from windtunnel import run"),
        ("windtunnel.engine.x", "from windtunnel.policies import routes"),
        ("windtunnel.engine.x", "if TYPE_CHECKING:\n    from windtunnel.simulation.run import Run"),
        ("windtunnel.engine.prepare.x", "from windtunnel.engine.results.metrics import summarise"),
        ("windtunnel.backends.common.x", "from windtunnel.backends.cuda import driver"),
        ("windtunnel.backends.opencl.x", "from windtunnel.backends.vulkan.api import api"),
        ("windtunnel.backends.cuda.x", "from windtunnel.backends.discovery.probe import probe"),
        ("windtunnel.report.x", "from windtunnel.app import run"),
        ("windtunnel_models.x", "from windtunnel.simulation.run import run"),
        ("windtunnel.engine.x", "import cupy"),
        ("windtunnel.validation.x", "if True:\n    from pyopencl import Context"),
    ],
)
def test_a_forbidden_import_is_reported(module: str, source: str) -> None:
    assert violations(module, source)


def test_a_cycle_is_reported_also_through_imports_for_type_checking() -> None:
    sources = {
        "windtunnel.core.a": "from windtunnel.core import b",
        "windtunnel.core.b": "if TYPE_CHECKING:\n    from windtunnel.core.a import A",
    }
    assert set(cycle(module_graph(sources))) == set(sources)
    assert set(cycle({**MAY_IMPORT, "core": {"app"}})) >= {"core", "app"}


def long_functions(source: str) -> list[str]:
    """Functions over 80 lines or of a cyclomatic complexity over 20 without a comment `# Long: why` above them."""
    return facts(source).long_functions


def explained(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> bool:
    """Whether the comment directly above the function begins with `# Long:`."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 2
    while first >= 0 and lines[first].strip().startswith("#"):
        if lines[first].strip().startswith("# Long:"):
            return True
        first -= 1
    return False


def test_no_module_is_over_600_lines_and_none_imports_a_star() -> None:
    texts = {name: path.read_text() for name, path in MODULES.items()}
    assert [name for name, text in texts.items() if "import *" in text] == []
    assert {name: text.count("\n") for name, text in texts.items() if text.count("\n") > 600} == {}


def test_no_module_of_tests_is_over_600_lines_without_a_reason() -> None:
    tests = ROOT / "tests"
    counts = {str(path.relative_to(tests)): path.read_bytes().count(b"\n") for path in tests.rglob("*.py")}
    assert {name for name, count in counts.items() if count > 600} == LONG_TESTS.keys()


def test_long_and_complex_functions_say_why() -> None:
    assert {name: found for name, path in MODULES.items() if (found := long_functions(path.read_text()))} == {}


def test_a_long_and_a_complex_function_are_reported() -> None:
    long = "def f(x):\n" + "    x += 1\n" * 80
    complex_ = "def f(x):\n" + "    if x: x += 1\n" * 20
    assert len(long_functions(long)) == 1 and len(long_functions(complex_)) == 1
    assert long_functions("# Long: one table.\n" + long) == long_functions("# Long: one table.\n" + complex_) == []


def test_no_package_has_a_public_name_of_the_library() -> None:
    """Importing `windtunnel.NAME` would put the module in the place of the function."""
    submodules = {name.split(".")[1] for name in MODULES if name.startswith("windtunnel.")}
    assert submodules & set(windtunnel.__all__) == {"errors"}  # the name of the module itself
