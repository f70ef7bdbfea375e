"""What tests of the GPU model share: devices without calibration, and what an operation costs on them."""

from __future__ import annotations

import functools
from dataclasses import replace

from windtunnel.core.device import Device
from windtunnel.core.ops import OPERATIONS, one_row
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel_models.catalogue import Catalogue

CATALOGUE = Catalogue()
SKUS = [spec.sku for spec in CATALOGUE.specs() if spec.kind == "gpu"]


@functools.cache
def device(name: str) -> Device:
    return CATALOGUE.device(name, calibrated=False)


def seconds(name: str | Device, op: str, /, **values: object) -> float:
    found = device(name) if isinstance(name, str) else name
    return float(found.cost(one_row(OPERATIONS[op], values), intervals=False).duration_s[0])


def watts(name: str, op: str, /, **values: object) -> float:
    return float(device(name).cost(one_row(OPERATIONS[op], values), intervals=False).power_w[0])


def with_values(name: str, **values: float) -> Device:
    found = device(name)
    moved = {path.replace("__", "."): SourcedValue(v, Provenance.DATASHEET, "a test") for path, v in values.items()}
    return replace(found, values={**found.values, **moved})
