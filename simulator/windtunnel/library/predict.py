"""The catalogue, and the predicted cost of one operation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.core.device import Cost
from windtunnel.core.ops import OPERATIONS, one_row
from windtunnel.simulation.fleet import device_model as device
from windtunnel_models.catalogue import Catalogue

if TYPE_CHECKING:
    pass


def catalogue(folders: Sequence[str | Path] = ()) -> Catalogue:
    """Every device that is known, with a user's own folders of SKU files beside the shipped ones."""
    return Catalogue([Path(folder) for folder in folders])


def predict(
    op: str,
    device_name: str,
    values: Mapping[str, object],
    *,
    known: Catalogue | None = None,
    calibration: str | None = None,
) -> dict[str, Any]:
    """One operation's cost on one device: the cost columns, in SI. Raises InputError for what is wrong."""
    operation = OPERATIONS.find(op)
    target = device(device_name, known or Catalogue(), calibration)
    cost = target.cost(one_row(operation, values))
    return next(_cost_rows(cost))


def _cost_rows(cost: Cost) -> Iterator[dict[str, Any]]:
    columns = [getattr(cost, name).tolist() for name in Cost.COLUMNS[:-1]]
    for row in zip(*columns, cost.provenance_labels(), strict=True):
        yield dict(zip(Cost.COLUMNS, row, strict=True))
