"""The kernels in CUDA C: verdicts as the authors state them, and numbers as an H200 computed them."""

from __future__ import annotations

import base64
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import windtunnel
from windtunnel import errors

HERE = Path(__file__).parent
CASES = json.loads((HERE / "recorded.json").read_text())["cases"]
FOUND = {
    "misaligned": ["MisalignedAccess"],
    "undefined-shuffle": ["BarrierDivergence", "UninitializedRead"],
    "equal-writes": ["DataRace"],
    "scoped-atomic": ["DataRace"],
}
"""The classes of findings, where the truth is no class of `windtunnel.errors`."""
OPEN: dict[str, str] = {}
"""The kernels of which the verdict is not the author's, and why (docs/open-ends.md)."""
ROUNDED = {
    "floats_as_in_c": "nvcc contracts a product and a sum",
    "math_functions": "the device's functions have errors of 1 or 2 units in the last place",
}
"""The kernels whose floats are not equal bit for bit, and why."""


def argument(accelerator: Any, spec: str) -> Any:
    """Return a number, or a buffer with the contents that a case states."""
    kind, *rest = spec.split(":")
    if not rest:
        return float(kind) if "." in kind else int(kind)
    count, dtype = int(rest[0]), np.dtype(rest[1])
    if kind == "empty":
        return accelerator.empty(count, dtype)
    return accelerator.to_device({"zeros": np.zeros, "ones": np.ones, "arange": np.arange}[kind](count).astype(dtype))


def run(case: dict[str, Any], *, strict: bool) -> tuple[str, dict[str, np.ndarray]]:
    """Return the verdict on a case, and what its arrays hold afterwards."""
    module = windtunnel.load(HERE / case["file"])
    with (
        warnings.catch_warnings(action="ignore"),
        windtunnel.device("h200-sxm-141gb", strict=strict) as accelerator,
    ):
        given = {name: argument(accelerator, spec) for name, spec in case["arguments"].items()}
        kernel = getattr(module, case["kernel"])
        try:
            accelerator.launch(kernel, case["grid"], case["block"], *given.values(), shared_bytes=case["shared_bytes"])
            accelerator.synchronize()
        except errors.Finding as finding:
            return type(finding).__name__, {}
        except errors.InputError:
            return "refused", {}
        outputs = {name: accelerator.to_host(given[name]) for name in case.get("outputs") or {}}
        return "clean", outputs


def wrong_outputs(case: dict[str, Any], outputs: dict[str, np.ndarray]) -> list[str]:
    """Return the arrays that are not what the device computed."""
    wrong = []
    for name, array in outputs.items():
        stated = case["outputs"][name]
        expected = np.frombuffer(base64.b64decode(stated["bytes"]), stated["dtype"])
        equal = np.array_equal(array, expected)
        if case["case"] in ROUNDED:
            equal = np.allclose(array, expected, rtol=2e-5, atol=1e-6, equal_nan=True)
        if not equal:
            wrong.append(name)
    return wrong


def test_each_kernel_has_the_verdict_that_its_author_states_and_the_numbers_of_an_h200() -> None:
    differing = {}
    for case in CASES:
        truth = case["truth"]
        strict = truth == "equal-writes"
        verdict, outputs = run(case, strict=strict)
        expected = FOUND.get(truth, [truth])
        wrong = wrong_outputs(case, outputs) if truth == "clean" else []
        if verdict not in expected or wrong:
            differing[case["case"]] = (expected, verdict, wrong)
    assert differing.keys() == OPEN.keys(), differing


def test_equal_writes_are_found_in_strict_mode_only() -> None:
    case = next(case for case in CASES if case["truth"] == "equal-writes")
    assert run(case, strict=False)[0] == "clean"
    assert run(case, strict=True)[0] == "DataRace"
