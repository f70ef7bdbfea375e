"""Back ends made for a test: packages in a folder that takes the place of the package's own."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib import invalidate_caches
from pathlib import Path

import pytest

from windtunnel import backends
from windtunnel.backends.discovery import probe as _probe
from windtunnel.backends.discovery import registry

MODULE = """
import os, signal, sys, time, json
from pathlib import Path
from windtunnel.backends.common.backend import DetectedDevice, RealBackend
HERE = Path({here!r})
def device(index=0, **more):
    told = dict(backend={name!r}, index=index, label="a card", kind="gpu", software=False, driver="1.0", api="opencl")
    return DetectedDevice(**(told | more))
def leave_pid():
    (HERE / f"{{os.getpid()}}.pid").touch()
def opened(index):  # something that runs programs
    from windtunnel.emulator.device.context import EmulatedContext
    from windtunnel_models.catalogue import Catalogue
    return EmulatedContext(Catalogue().device("l4@opencl"))
def opened_software(index):
    from dataclasses import replace
    context = opened(index)
    context.info = replace(context.info, software=True)
    return context
def find():
    leave_pid()
{body}
BACKEND = RealBackend(name={name!r}, description="cards", install="a driver", find=find, operations=None, {options})
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """``fake(name, body, options)`` writes a back end whose ``find`` is ``body``; there are no others."""
    folder = tmp_path / "back ends"
    folder.mkdir()
    monkeypatch.setattr(backends, "__path__", [str(folder)])
    # A file that is written again within a second would be taken for what was compiled of it before.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    kept = {name: module for name, module in sys.modules.items() if name.startswith("windtunnel.backends.")}

    def clear() -> None:
        for path in folder.glob("*/backend.py"):
            for name in (path.parent.name, f"{path.parent.name}.backend"):
                sys.modules.pop(f"windtunnel.backends.{name}", None)
        invalidate_caches()
        registry.names.cache_clear()
        registry.backend.cache_clear()
        _probe.forget()

    def make(name: str, body: str, options: str = "") -> str:
        body = textwrap.indent(textwrap.dedent(body).strip(), "    ")
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "__init__.py").touch()
        (folder / name / "backend.py").write_text(
            MODULE.format(name=name, body=body, here=str(tmp_path), options=options), encoding="utf-8"
        )
        clear()
        return name

    clear()
    yield make
    clear()
    for path in folder.glob("*/backend.py"):
        if hasattr(backends, path.parent.name):
            delattr(backends, path.parent.name)
    for name, module in kept.items():
        sys.modules[name] = module
        if name.count(".") == 2:
            setattr(backends, name.rpartition(".")[2], module)
