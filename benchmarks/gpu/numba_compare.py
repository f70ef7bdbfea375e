"""Compares two sides of numba_study.py, case by case: the types, the values and the errors."""

from __future__ import annotations

import collections
import json
import re
import warnings
from pathlib import Path
from typing import Any

import numba_cases
import numpy as np
from numba_cases import Case, Group

_FEW_ULP = 4


def ordered(values: np.ndarray, kind: str) -> np.ndarray:
    """Return floats as integers whose difference is the number of floats between them."""
    signed = {"float16": np.int16, "float32": np.int32}.get(kind, np.int64)
    bits = values.astype(kind if kind in ("float16", "float32") else np.float64).view(signed)
    return np.where(bits < 0, np.iinfo(signed).min - bits.astype(object), bits.astype(object))


def distance(left: np.ndarray, right: np.ndarray, kind: str) -> np.ndarray:
    """Return the number of floats between two results, for each element; a NaN and a number are far apart."""
    if left.dtype.kind == "c":
        part = "float32" if kind == "complex64" else "float64"
        return np.maximum(distance(left.real, right.real, part), distance(left.imag, right.imag, part))
    if left.dtype.kind in "iub":
        return np.where(left == right, 0.0, np.inf)
    found = np.zeros(left.shape)
    nans = np.isnan(left) | np.isnan(right)
    found[nans & ~(np.isnan(left) & np.isnan(right))] = np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        apart = np.abs(ordered(left, kind) - ordered(right, kind)).astype(float)
    found[~nans] = apart[~nans]
    infinite = (np.isinf(left) != np.isinf(right)) & ~nans
    found[infinite] = np.maximum(found[infinite], 1)
    return found


def undefined(group: Group, case: Case) -> np.ndarray:
    """Return for which elements the result of a case is undefined."""
    none = np.zeros(numba_cases.THREADS, bool)
    if not case.undefined:
        return none
    names: dict[str, Any] = dict(group.inputs())
    if "t" in group.outs:
        names["t"] = group.outputs()["t"][0]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if case.undefined != "outside":
            return none | eval(case.undefined, {"np": np}, names).astype(bool)
        kind = np.dtype(group.outs["t"])
        if kind.kind not in "iu":
            return none
        a, t = (names[name].astype(np.float64) for name in "at")
        op = re.search(r"\] (.*)= (.*)", case.text)
        assert op
        right = 1.0 if op[2] == "1" else a + t if "+" in op[2] else a
        result = right if op[1] == "" else eval(f"t {op[1]} right", {"t": t, "right": right})
        limits = np.iinfo(kind)
        return ~((np.trunc(result) >= limits.min) & (np.trunc(result) < float(limits.max) + 1))


def verdict(group: Group, k: int, left: Any, right: Any, values: tuple[Any, Any]) -> tuple[str, str]:
    """Return the verdict on one case, and what differs."""
    case = group.cases[k]
    one, two = left.get(case.text), right.get(case.text)
    if one is None or two is None:
        return "not run", ""
    if "error" in one or "error" in two:
        if "error" not in two:
            return "accepted", f"{one['error']['class'][0]}: {one['error']['message'][-160:]!r}"
        if "error" not in one:
            return "refused", f"{two['error']['class'][0]}: {two['error']['message'][-160:]!r}"
        return ("error" if set(one["error"]["class"]) & set(two["error"]["class"]) else "other error"), str(two["error"]["class"][:1])  # fmt: skip
    kind, other = (side["type"].split("|")[-1] for side in (one, two))
    if kind and other and kind != other:
        return "type", f"{kind} and {other}"
    if values[0] is None or values[1] is None:
        return "same", ""
    kind = kind or other
    names = ["t"] if "t" in group.outs else []
    if case.store:
        names.append(
            "oc" if "oc[" in case.store else "of" if kind.startswith("float") or "oi[" not in case.store else "oi"
        )
    far, not_defined = np.zeros(numba_cases.THREADS), undefined(group, case)
    worst, text = 0.0, ""
    for name in names:
        a, b = (side[name][k] for side in values)
        far = distance(a, b, group.outs["t"] if name == "t" else kind)
        defined = np.where(not_defined, 0, far)
        if defined.max() > worst or (far.max() > 0 and not text):
            at = int(np.argmax(defined if defined.max() > 0 else far))
            worst = max(worst, float(defined.max()))
            inputs = ", ".join(f"{n}={v[at]!r}" for n, v in group.inputs().items())
            text = f"{inputs}: {a[at]!r} and {b[at]!r} ({int((defined > 0).sum())} of {len(a)} differ, {worst:g} ulp)"
    if worst == 0:
        return ("undefined", text) if text else ("same", "")
    if worst <= 1:
        return "1 ulp or a zero's sign", text
    return ("few ulp" if worst <= _FEW_ULP else "differs"), text


def programs(left: Any, right: Any, arrays: tuple[Any, Any]) -> list[tuple[str, str, str]]:
    """Return the verdicts on the programs."""
    found = []
    for name, one in left.items():
        two = right.get(name)
        if not name.startswith("program_") or two is None:
            continue
        if "error" in one or "error" in two:
            sides = [
                f"{e['error']['class'][0]}: {e['error']['message'][:160]!r}" if "error" in e else "no error"
                for e in (one, two)
            ]
            same = "error" in one and "error" in two and set(one["error"]["class"]) & set(two["error"]["class"])
            found.append(("error" if same else "other error", name, " | ".join(sides)))
            continue
        worst, text = 0.0, ""
        keys = [{key.split(":", 1)[1] for key in side if key.startswith(f"{name}:")} for side in arrays]
        if keys[0] != keys[1]:
            worst, text = np.inf, f"outputs {keys[0] ^ keys[1]}"
        for key in sorted(keys[0] & keys[1]):
            a, b = (side[f"{name}:{key}"] for side in arrays)
            if a.dtype != b.dtype or a.shape != b.shape:
                worst, text = np.inf, f"{key}: {a.dtype} {a.shape} and {b.dtype} {b.shape}"
            elif a.dtype.kind in "iubfc":
                far = distance(np.atleast_1d(a).ravel(), np.atleast_1d(b).ravel(), str(a.dtype))
                if far.size and far.max() > worst:
                    at = int(far.argmax())
                    worst, text = (
                        float(far.max()),
                        f"{key}[{at}]: {a.ravel()[at]!r} and {b.ravel()[at]!r} ({worst:g} ulp)",
                    )
            elif a.tobytes() != b.tobytes():
                worst, text = np.inf, f"{key}: {a!r} and {b!r}"
        found.append(("same" if worst == 0 else "few ulp" if worst <= _FEW_ULP else "differs", name, text))
    return found


def main(left: Path, right: Path, show: str) -> None:
    """Print the number of cases for each verdict, and the cases of those that `show` matches."""
    tables = [json.loads(Path(f"{side}.json").read_text()) for side in (left, right)]
    print(f"{left.name}: {tables[0]['versions']}\n{right.name}: {tables[1]['versions']}")
    sides = [table["groups"] for table in tables]
    arrays = [dict(np.load(f"{side}.npz")) for side in (left, right)]
    found = programs(*sides, tuple(arrays))  # type: ignore[arg-type]
    for one in numba_cases.groups():
        if one.name not in sides[0] or one.name not in sides[1]:
            continue
        tables_of = [side[one.name] for side in sides]
        values: list[Any] = []
        for table, side in zip(tables_of, arrays, strict=True):
            held = {name: side[f"{one.name}:{name}"] for name in one.outs if f"{one.name}:{name}" in side}
            at = {text: k for k, text in enumerate(table.get("order", ()))}
            rows = [at.get(case.text, 0) for case in one.cases]
            values.append({name: array[rows] for name, array in held.items()} if held else None)
        for k, case in enumerate(one.cases):
            said, text = verdict(one, k, *(table.get("cases", {}) for table in tables_of), tuple(values))  # type: ignore[misc, arg-type]
            found.append((said, f"{one.name}: {case.text!r}", text))
    counted = collections.Counter(said for said, _, _ in found)
    for said, count in counted.most_common():
        print(f"{count:6} {said}")
    for said, name, text in found:
        if show and re.search(show, said):
            print(f"{said} | {name} | {text}")
