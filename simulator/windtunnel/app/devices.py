"""`windtunnel devices` and `windtunnel ops`: the devices of the catalogue, and the operations."""

from __future__ import annotations

from windtunnel.core.ops import OPERATIONS, Column, Operation
from windtunnel.core.provenance import Provenance
from windtunnel.core.results.catalogue import CatalogueDevice, ColumnDescription, OperationDescription
from windtunnel.core.step_op import Step
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds import find_kind, kind_names


def list_devices(catalogue: Catalogue) -> list[CatalogueDevice]:
    """List the SKUs of the catalogue."""
    return [
        CatalogueDevice(
            sku=spec.sku,
            kind=spec.kind,
            api=spec.apis[0],
            apis=spec.apis,
            vendor=spec.vendor,
            name=spec.name,
            provenance=spec.provenance.label,
            numbers=len(spec.values),
            assumed=sum(value.provenance is Provenance.ASSUMED for value in spec.values.values()),
        )
        for spec in catalogue.specs()
    ]


def list_operations() -> list[OperationDescription]:
    """List the operations: their columns and the device kinds that run them."""
    kinds = {name: find_kind(name) for name in kind_names()}
    described = [
        _described(op, [kind for kind, model in kinds.items() if name in model.costs])
        for name, op in OPERATIONS.items()
    ]
    # A step consists of other operations; these are what every decoder needs.
    needed = ("gemm", "attention", "kernel")
    steps = [kind for kind, model in kinds.items() if all(name in model.costs for name in needed)]
    return [*described, _described(Step, steps)]


def _described(op: type[Operation], kinds: list[str]) -> OperationDescription:
    return OperationDescription(op.name, (op.__doc__ or "").strip(), [_column(c) for c in op.all_columns()], kinds)


def _column(column: Column) -> ColumnDescription:
    number = column.is_number
    return ColumnDescription(
        name=column.name,
        kind=column.kind,
        unit=column.unit if number else None,
        default=column.default,
        required=column.default is None,
        choices=list(column.choices) or None,
        minimum=column.minimum if number else None,
        doc=column.doc,
    )
