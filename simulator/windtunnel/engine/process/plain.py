"""Tables as lists of objects, which plain Python reads much faster than arrays of records."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from windtunnel.engine.transitions.tables import World


@cache
def _row_class(layout: np.dtype) -> type:
    """Return a class whose objects have the fields of a record."""
    return type("Row", (), {"__slots__": layout.names})


def rows(table: np.ndarray) -> list[Any]:
    """Return an object for each record of a table."""
    layout = table.dtype
    assert layout.names is not None  # noqa: S101  tables have named fields
    make, names = _row_class(np.dtype(layout)), layout.names
    objects = []
    for values in zip(*(table[name].tolist() for name in names), strict=True):
        row = make()
        for name, value in zip(names, values, strict=True):
            setattr(row, name, value)
        objects.append(row)
    return objects


def plain(world: World, clock: object) -> World:
    """Return the tables as lists of objects, with fields that can be replaced, and a clock."""
    fields = world._asdict()
    for name, table in fields.items():
        if table is None:
            continue
        if table.dtype.names:
            fields[name] = rows(table)
        elif table.ndim == 1:
            fields[name] = table.tolist()
    return cast(World, SimpleNamespace(**{**fields, "clock": clock}))


def records_of(objects: list[Any], layout: np.dtype) -> np.ndarray:
    """Return the records of a list of objects."""
    table = np.zeros(len(objects), dtype=layout)
    for name in layout.names or ():
        table[name] = [getattr(row, name) for row in objects]
    return table.view(np.recarray)
