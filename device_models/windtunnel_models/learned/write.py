"""A calibration as the file that `predict --calibration` and the shipped `calibration/` folder read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windtunnel.core.device import Device
from windtunnel.core.ops import OPERATIONS
from windtunnel.core.provenance import Sourced
from windtunnel_models.learned.calibrate import Calibration, Points
from windtunnel_models.learned.law import UNITS, Law
from windtunnel_models.learned.residuals import LOG_RATIO, NOISE, choice_key

_DIGITS = 6


def overlay_data(found: Calibration, source: str, note: str) -> dict[str, Any]:
    """The overlay of one calibration, as plain data: numbers, the residual's points, and how the fit did."""
    op = found.op
    points = "\n".join(_point_lines(found.points)) if found.points else ""
    scales = {
        "/".join(choice_key(kept.group.rows)): {
            "wide": kept.process.scales.wide,
            "narrow": kept.process.scales.narrow,
            "noise": kept.process.scales.noise,
            "mix": kept.process.scales.mix,
            "calibration": _round(found.width),
        }
        for kept in found.points
    }
    data: dict[str, Any] = {
        "schema": 1,
        "sku": found.device.spec.sku,
        "api": found.device.api.name,
        "sources": {"measurements": {"text": source, "provenance": "measured"}},
        "values": values_data(found.device, found.values, "measurements"),
    }
    if points:
        stated = {"form": "points", "measurements": found.rows, "source": "measurements"}
        laws = {one.key: law_data(one.law) for one in found.laws}
        data["learned"] = {op: {**stated, **({"law": laws} if laws else {}), "scales": scales, "points": points + "\n"}}
    data["fit"] = {
        op: {
            "rows": found.rows,
            "held_out": _round(found.error_after),
            "inside": _round(found.inside),
            "half_width": _round(found.half_width),
            "split": "rows at random, five folds",
            "note": "; ".join(
                [
                    note,
                    *(["one factor for all sizes"] if found.level_alone else []),
                    *(f"{one.key}: {one.law.words()}, then its residual" for one in found.laws),
                ]
            ),
        }
    }
    return data


def law_data(law: Law) -> dict[str, str]:
    """A law's numbers as quantities; a term that takes no time is left out."""
    return {name: f"{value!r} {UNITS[name]}" for name, value in law.numbers.items()}


def values_data(device: Device, values: Mapping[str, Sourced], source: str) -> dict[str, Any]:
    """Parameters as an overlay holds them: name (or name and key) to a quantity with its source."""
    data: dict[str, Any] = {}
    for path, sourced in sorted(values.items()):
        name, _, key = path.partition(".")
        unit = device.kind.parameter(name).unit
        number = float(f"{sourced.value:.{_DIGITS}g}")
        entry = {"value": number if unit == "1" else f"{number!r} {unit}", "source": source}
        if key:
            data.setdefault(name, {})[key] = entry
        else:
            data[name] = entry
    return data


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def _point_lines(kept: Sequence[Points]) -> list[str]:
    op = OPERATIONS.find(kept[0].group.rows.op.name)
    columns = [column for column in op.all_columns() if column.name != "dispatch"]
    lines = [",".join([*(column.name for column in columns), LOG_RATIO, NOISE])]
    for points in kept:
        rows = points.group.rows
        for i in range(len(points.group)):
            cells = [
                rows.choices[column.name] if column.kind == "choice" else f"{rows.numbers[column.name][i]:.10g}"
                for column in columns
            ]
            cells += [f"{points.residual[i]:.5f}", f"{points.group.noise[i]:.4g}"]
            lines.append(",".join(cells))
    return lines


def overlay_text(data: Mapping[str, Any]) -> str:
    """The overlay as YAML, points as one block of lines."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Long text as a literal block."""

    def block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, block)
    return str(yaml.dump(dict(data), Dumper=Dumper, sort_keys=False, width=110, default_flow_style=None))
