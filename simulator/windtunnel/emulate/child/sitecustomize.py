"""Begins the emulation in child processes of an emulated program, before anything of them is imported."""

import contextlib
import importlib
import sys
from pathlib import Path

_HERE = str(Path(__file__).resolve().parent)
sys.path[:] = [path for path in sys.path if path != _HERE]
try:
    from windtunnel.emulate.children import begin
except ImportError:
    pass  # another interpreter, which does not have Windtunnel
else:
    begin()
# The environment's own module of this name, if it has one.
_THIS = sys.modules.pop("sitecustomize", None)
with contextlib.suppress(ImportError):
    importlib.import_module("sitecustomize")
if _THIS is not None:
    sys.modules.setdefault("sitecustomize", _THIS)  # Python expects one there
