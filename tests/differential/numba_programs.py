"""Runs the recorded programs of Numba CUDA on an emulated device, and says which agree: ``python numba_programs.py``.

It prints one JSON document: for each program its verdict, and a text where it differs. The verdicts are ``same`` (every
bit), ``close`` (floats within 1e-6), ``error`` (the recorded class), ``other error``, ``raises``, ``no error``, ``wrong``.
``numba.cuda`` is replaced in the whole process, so the tests run this file in a process of its own.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import io
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.emulate import session
from windtunnel.emulate.hooks import install

CORPUS = Path(__file__).resolve().parents[1] / "corpus" / "numba_cuda"
CLOSE = 1e-6


def array_of(recorded: dict[str, Any]) -> np.ndarray:
    kind = recorded["dtype"]
    dtype = np.dtype(kind) if isinstance(kind, str) else np.dtype([(name, *rest) for name, *rest in kind])
    return np.frombuffer(base64.b64decode(recorded["bytes"]), dtype).reshape(recorded["shape"])


def difference(name: str, found: Any, wanted: np.ndarray) -> tuple[str, str]:
    """The verdict on one array, and what differs."""
    got = np.asarray(found)
    if got.dtype.names:  # padding has names of its own in the recording, and is not compared
        parts = [difference(f"{name}.{f}", got[f], wanted[f]) for f in got.dtype.names]
        return max(parts, key=lambda part: ("same", "close", "wrong").index(part[0]))
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return "wrong", f"{name}: {got.dtype} {got.shape} instead of {wanted.dtype} {wanted.shape}"
    if np.ascontiguousarray(got).tobytes() == np.ascontiguousarray(wanted).tobytes():
        return "same", ""
    at = np.flatnonzero(got.ravel() != wanted.ravel())[:3]
    text = f"{name}{at.tolist()}: {got.ravel()[at].tolist()} instead of {wanted.ravel()[at].tolist()}"
    number = got.dtype.kind in "fc"
    is_close = number and np.allclose(got, wanted, rtol=CLOSE, atol=0, equal_nan=True)
    # A result that cancels to nearly nothing, such as that of a contracted product, is compared with the operands' size.
    tiny = number and np.allclose(got, wanted, rtol=0, atol=1e-15, equal_nan=True)
    return ("close" if is_close or tiny else "wrong"), text


def verdict(one: dict[str, Any], module: Any) -> tuple[str, str]:
    """The verdict on a program, and what differs."""
    program = getattr(module, f"program_{one['program']}")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            found = program()
    except Exception as error:
        names = {kind.__name__ for kind in type(error).__mro__} - {"Exception", "BaseException", "object"}
        if "error" not in one:
            return "raises", f"{type(error).__name__}: {error}"
        return ("error" if names & set(one["error"]["class"]) else "other error"), f"{type(error).__name__}: {error}"
    if "error" in one:
        return "no error", f"instead of {one['error']['class'][0]}"
    compared = [difference(name, found[name], array_of(recorded)) for name, recorded in one["outputs"].items()]
    parts = compared or [("same", "")]  # of a program that only has to run
    return max(parts, key=lambda part: ("same", "close", "wrong").index(part[0]))


def verdicts() -> dict[str, tuple[str, str]]:
    warnings.simplefilter("ignore")
    install(["numba"])
    session.begin(session.Session("h200-sxm-141gb"))
    sys.path.insert(0, str(CORPUS))
    recorded = json.loads((CORPUS / "recorded.json").read_text(encoding="utf-8"))
    return {
        f"{one['module']}.{one['program']}": verdict(one, importlib.import_module(one["module"]))
        for one in recorded["programs"]
    }


if __name__ == "__main__":
    print(json.dumps(verdicts()))
