"""Imports point one way: core knows nothing of ours, the parts know core, only app knows all of them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Each part, and the parts of Windtunnel it may import from (itself always). `models` is windtunnel_models.
MAY_IMPORT = {
    "core": set(),
    "engine": {"core"},
    "policies": {"core"},
    "report": {"core"},
    "planning": {"core"},
    "runtime": {"core"},
    "language": {"core"},
    "emulator": {"core", "language", "runtime"},
    "transpile": {"core", "language"},
    # Real devices take kernels of the language, as their own languages' text.
    "backends": {"core", "language", "runtime", "transpile"},
    "validation": {"core", "examples", "runtime"},
    # Programs as anybody writes them: what is public, and the runtime's names for annotations.
    "examples": {"core", "runtime", ""},
    "models": {"core"},
    "comparing": {"core", "engine", "models", "running", ""},
    # Devices of this host in fleets.
    "reals": {"backends", "core", "probing", "runtime"},
    "running": {"core", "engine", "policies", "models", "reals", ""},
    "placing": {"core", "engine", "policies", "report", "models", ""},
    # What back ends reach on this host, for `devices --real`, `doctor` and app: quick, without app's imports.
    "probing": {"backends", "core", "runtime", "models", ""},
    "doctoring": {"backends", "core", "probing", ""},
    "app": {
        "backends",
        "placing",
        "probing",
        "running",
        "comparing",
        "core",
        "engine",
        "policies",
        "report",
        "planning",
        "runtime",
        "emulator",
        "language",
        "transpile",
        "validation",
        "models",
        "",
    },
    # What `plan` puts together stands beside app, which would be two ideas in one module with it: it asks app about each
    # fleet, the engine what jobs ask for at least, and planning which fleets to ask about.
    "planner": {"app", "running", "core", "engine", "models", "planning", "policies", "report"},
    # So does what `validate` puts together: the catalogue's models beside measurements, and a fit of the one to the other.
    "measuring": {"app", "backends", "core", "models", "probing", "reals", "running", "validation", ""},
    "validating": {"app", "measuring", "core", "models", "report", "runtime", "validation"},
    "console": {"core"},
    "cli": {"app", "console", "core", "doctoring", "planner", "policies", "probing", "report", "validating", ""},
    "pytest_plugin": {"app", "core", "runtime", ""},
    "__main__": {"cli"},
    "": {"app", "core", "emulator", "errors", "language", "runtime"},
    "errors": {"core", "runtime"},
}
# Modules that a driver or an accelerator library lives in: only backends may import them.
DRIVERS = {"cupy", "pyopencl", "wgpu", "vulkan", "jax", "torch", "pynvml", "cuda"}


def part_of(module: str) -> str | None:
    """The part a module belongs to; None for what is not ours."""
    names = module.split(".")
    if names[0] == "windtunnel_models":
        return "models"
    if names[0] != "windtunnel":
        return None
    return names[1] if len(names) > 1 else ""


def imports(source: str) -> list[tuple[int, str]]:
    """Every module that ``source`` imports, however deep in it, with its line."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import hides which part it comes from"
            module = node.module or ""
            if module == "windtunnel":  # from windtunnel import app
                found += [(node.lineno, f"windtunnel.{a.name}" if a.name[0].islower() else module) for a in node.names]
            else:
                found.append((node.lineno, module))
    return found


def violations(part: str, source: str) -> list[str]:
    wrong = []
    for line, module in imports(source):
        target = part_of(module)
        if target is not None and target != part and target not in MAY_IMPORT[part]:
            wrong.append(f"line {line}: {part or 'windtunnel'} imports {module}")
        if module.split(".")[0] in DRIVERS and part != "backends":
            wrong.append(f"line {line}: {part or 'windtunnel'} imports the driver {module}")
    return wrong


def files() -> list[tuple[str, Path]]:
    found = []
    for path in sorted((ROOT / "simulator" / "windtunnel").rglob("*.py")):
        relative = path.relative_to(ROOT / "simulator" / "windtunnel")
        part = relative.parts[0] if len(relative.parts) > 1 else relative.stem
        found.append(("" if part == "__init__" else part, path))
    found += [("models", path) for path in sorted((ROOT / "device_models").rglob("*.py"))]
    return found


@pytest.mark.parametrize(("part", "path"), files(), ids=lambda v: v.stem if isinstance(v, Path) else v or "root")
def test_imports_point_one_way(part: str, path: Path) -> None:
    assert part in MAY_IMPORT, f"{path} is in no known part: say in this test what it may import"
    assert violations(part, path.read_text()) == []


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("core", "from windtunnel.engine import process"),
        ("core", "def f():\n    import windtunnel.report.html"),
        ("core", "import windtunnel_models"),
        ("engine", "from windtunnel.policies import routes"),
        ("report", "from windtunnel import app"),
        ("models", "from windtunnel.app import run"),
        ("engine", "import cupy"),
        ("validation", "if True:\n    from pyopencl import Context"),
    ],
)
def test_the_check_bites(part: str, source: str) -> None:
    assert violations(part, source)


def test_no_star_imports_and_no_module_over_700_lines() -> None:
    for _, path in files():
        text = path.read_text()
        assert "import *" not in text, path
        assert text.count("\n") <= 700, f"{path} holds more than one idea"
