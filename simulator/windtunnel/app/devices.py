"""`windtunnel devices` and `windtunnel ops`: what the catalogue holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.core.ops import OPERATIONS, describe
from windtunnel.core.provenance import Provenance
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds import find_kind, kind_names

if TYPE_CHECKING:
    pass


def list_devices(catalogue: Catalogue) -> list[dict[str, Any]]:
    """What `windtunnel devices` prints: SKU, kind, usual API, vendor, and the weakest provenance of its numbers."""
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
    """What `windtunnel ops` prints: each operation's columns and the kinds that run it."""
    kinds = {name: find_kind(name) for name in kind_names()}
    return [
        describe(op, [kind for kind, found in kinds.items() if name in found.costs]) for name, op in OPERATIONS.items()
    ]
