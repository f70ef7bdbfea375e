"""`windtunnel devices` and `windtunnel ops`: the devices of the catalogue, and the operations."""

from __future__ import annotations

from typing import Any

from windtunnel.core.ops import OPERATIONS, describe
from windtunnel.core.provenance import Provenance
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds import find_kind, kind_names


def list_devices(catalogue: Catalogue) -> list[dict[str, Any]]:
    """List the SKUs of the catalogue: kind, default API, vendor, and the least certain provenance of their numbers."""
    return [
        {
            "sku": spec.sku,
            "kind": spec.kind,
            "api": spec.apis[0],
            "apis": list(spec.apis),
            "vendor": spec.vendor,
            "name": spec.name,
            "provenance": spec.provenance.label,
            "numbers": len(spec.values),
            "assumed": sum(value.provenance is Provenance.ASSUMED for value in spec.values.values()),
        }
        for spec in catalogue.specs()
    ]


def list_operations() -> list[dict[str, Any]]:
    """List the operations: their columns and the device kinds that run them."""
    kinds = {name: find_kind(name) for name in kind_names()}
    return [
        describe(op, [kind for kind, model in kinds.items() if name in model.costs]) for name, op in OPERATIONS.items()
    ]
