"""Puts Windtunnel's modules in the place of ``numba.cuda`` and ``cupy``, whether or not the real ones are installed."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from windtunnel.core.errors import InputError
from windtunnel.emulate import generated

INTERFACES = ("numba", "cupy")
"""The interfaces of programs that can be emulated."""
_NUMBA = "numba.cuda"
_OURS = {
    "numba": {_NUMBA: "windtunnel.emulate.numba_cuda"},
    "cupy": {"cupy": "windtunnel.emulate.cupy", "cupyx": "windtunnel.emulate.cupy.cupyx"},
}
"""For each interface, the packages that are replaced, and Windtunnel's in their place."""
_FROM_NUMBA = ("numba.cuda.deviceufunc", "numba.cuda.libdevicefuncs", "numba.cuda.random")
"""Modules of the real package that only use the public names of ``numba.cuda``, and are loaded as they are."""
_TESTS = "numba.cuda.tests"
"""The tests of Numba CUDA are loaded from the real package: they import what they test by its name."""
_SHARED = {
    **{f"numba.cuda.{name}": f"numba.core.{name}" for name in (
        "cgutils", "datamodel", "serialize", "typeconv", "typing", "utils",
    )},
    **{f"numba.cuda.{name}": f"numba.{name}" for name in ("cloudpickle", "core", "cpython", "misc", "np")},
}  # fmt: skip
"""Packages of numba-cuda that are copies of Numba's: they are Numba's own, with all that is in them."""


class _Loader(Loader):
    """Loads one of Windtunnel's modules under the name of the replaced one."""

    device: str | None = None
    """The device of a process that has no session yet."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.own_spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module: Windtunnel's or Numba's."""
        if _Loader.device is not None:
            from windtunnel.emulate import session

            session.begin(session.Session(_Loader.device))
            _Loader.device = None
        module = importlib.import_module(self.module)
        if spec.name == "cupy":
            module.__name__ = spec.name  # programs ask whether an array's module is this one
        self.own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Let the module keep its own name; it was executed under that."""
        module.__spec__ = self.own_spec


class _Finder(MetaPathFinder):
    """Finds the replaced packages and their modules. What Windtunnel does not have is an ImportError that names it."""

    def __init__(self, packages: dict[str, str]) -> None:
        self.packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return Windtunnel's module of this name; None for modules of other packages."""
        del path, target
        replaced = next((one for one in self.packages if fullname == one or fullname.startswith(f"{one}.")), None)
        if replaced is None:
            return None
        if fullname in _FROM_NUMBA or fullname == _TESTS or fullname.startswith(f"{_TESTS}."):
            return _of_numba(fullname)
        module = self.packages[replaced] + fullname.removeprefix(replaced)
        if not _exists(module):
            module = _shared(fullname) or module
        if not _exists(module):
            raise ModuleNotFoundError(f"{fullname} is not part of Windtunnel's {replaced}", name=fullname)
        return ModuleSpec(fullname, _Loader(module), is_package=True)


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ModuleNotFoundError, AttributeError):  # the package around it
        return False


def _shared(fullname: str) -> str | None:
    """Return the name in Numba of a module that numba-cuda has copied; None if it is no such module."""
    for prefix, theirs in _SHARED.items():
        if fullname == prefix or fullname.startswith(f"{prefix}."):
            return theirs + fullname.removeprefix(prefix)
    return None


def _of_numba(fullname: str) -> ModuleSpec | None:
    """Return a module of the real package, from numba-cuda or Numba, whichever is installed."""
    parent, _, _ = fullname.rpartition(".")
    if parent == _NUMBA:
        folders = []
        for package in ("numba_cuda.numba", "numba"):
            try:
                spec = find_spec(package)
            except ModuleNotFoundError:
                continue
            folders += [str(Path(place) / "cuda") for place in ((spec and spec.submodule_search_locations) or ())]
    else:
        folders = list(sys.modules[parent].__path__)
    return PathFinder.find_spec(fullname, folders)


def install(interfaces: Sequence[str], device: str | None = None) -> None:
    """Make the imports of the replaced packages load Windtunnel's modules, here and in child processes.

    ``interfaces``: names of `INTERFACES`. ``device``: the name of the device, if no session was begun. Raises
    InputError if Numba is missing.
    """
    if device is not None:
        _Loader.device = device
    for interface in interfaces:
        packages = _OURS[interface]
        if any(isinstance(finder, _Finder) and finder.packages is packages for finder in sys.meta_path):
            continue
        if interface == "numba" and find_spec("numba") is None:
            raise InputError("the package 'numba' is not installed", expected="pip install numba")
        for package in packages:
            _forget(package)
        sys.meta_path.insert(0, _Finder(packages))
        if interface == "numba":
            _prepare_numba()


def available() -> list[str]:
    """Return the interfaces that can be emulated here: Numba's needs Numba, CuPy's does not need CuPy."""
    return [name for name in INTERFACES if name != "numba" or find_spec("numba") is not None]


def _forget(package: str) -> None:
    """Remove the modules of a package that were loaded before."""
    loaded: Any = sys.modules.get(package)
    if loaded is None or (getattr(loaded, "__file__", None) or "").startswith(str(Path(__file__).parent)):
        return
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]
    parent, _, name = package.rpartition(".")
    if parent:
        vars(sys.modules[parent]).pop(name, None)


def _prepare_numba() -> None:
    generated.keep_sources()
    # What asks whether programs run on Numba's own simulator is told that they do not.
    os.environ["NUMBA_ENABLE_CUDASIM"] = "0"
    config: Any = sys.modules.get("numba.core.config")
    if config is not None:
        config.ENABLE_CUDASIM = 0
