"""The catalogue, and the predicted cost of one operation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.core.device import Cost, Device
from windtunnel.core.ops import one_row
from windtunnel.core.step_op import PREDICTED, Step
from windtunnel_models.catalogue import Catalogue, shipped_catalogue
from windtunnel_models.catalogue import device_model as device

if TYPE_CHECKING:
    from windtunnel.core.results.catalogue import Prediction
    from windtunnel.library.steps import StepPricing


def catalogue(folders: Sequence[str | Path] = ()) -> Catalogue:
    """Return the shipped devices, and those described in the user's own ``folders``.

    Without folders every call returns the same catalogue, whose devices and cost tables are made once.
    """
    return Catalogue([Path(folder) for folder in folders]) if folders else shipped_catalogue()


def pricing(op: str, target: Device) -> Device | StepPricing:
    """Return what prices rows of an operation: the device, or for steps groups of it."""
    if op != Step.name:
        return target
    from windtunnel.library.steps import StepPricing

    return StepPricing(target)


def predict(
    op: str,
    device_name: str,
    values: Mapping[str, object],
    *,
    catalogue: Catalogue | None = None,
    calibration: str | None = None,
) -> Prediction:
    """Predict one operation on one device, or one step on a group of it.

    Raises InputError for an unknown operation, device or column, and for a value
    out of range.
    """
    operation = PREDICTED.find(op)
    target = device(device_name, catalogue or shipped_catalogue(), calibration)
    cost = pricing(op, target).cost(one_row(operation, values))
    return next(predictions(cost))


def predictions(cost: Cost) -> Iterator[Prediction]:
    """Yield the cost of each row."""
    from windtunnel.core.results.catalogue import Prediction

    columns = [getattr(cost, name).tolist() for name in Cost.COLUMNS[:-1]]
    for row in zip(*columns, cost.provenance_labels(), strict=True):
        yield Prediction(*row)
