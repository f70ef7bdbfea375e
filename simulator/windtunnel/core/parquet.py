"""Parquet files as rows of text, and the reverse. pyarrow is optional, and is imported only for such files."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from windtunnel.core.errors import InputError, Location
from windtunnel.core.memory import require_memory

if TYPE_CHECKING:
    from types import ModuleType

_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_BYTES_PER_CELL = 80.0
"""Memory of a cell as text, beside the file's own columns."""


def require_pyarrow(where: Location) -> tuple[ModuleType, ModuleType]:
    """Return pyarrow and its module parquet; raises InputError if they are not installed."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise InputError(
            "Parquet files need the package pyarrow, which is not installed",
            where=where,
            expected='`pip install "windtunnel[parquet]"`, or a table in CSV',
        ) from None
    return pa, parquet


def rows_of(
    content: bytes, path: Path, what: str, where: Location | None
) -> tuple[tuple[str, ...], list[list[str]], dict[str, object]]:
    """Return the header, the rows as text, and the Arrow type of each column of a Parquet file.

    Numbers are their shortest decimal text, whole ones without a point; times are ISO 8601; missing values are empty.

    Raises:
        InputError: pyarrow is not installed, the content is not Parquet, a column has lists or structures, or the
            table does not fit into memory.
    """
    named = where or Location(str(path))
    pa, parquet = require_pyarrow(named)
    try:
        file = parquet.ParquetFile(io.BytesIO(content))
        shape = (file.metadata.num_rows, len(file.schema_arrow.names))
        require_memory(
            _BYTES_PER_CELL * shape[0] * shape[1],
            f"the {what} '{path}', with {shape[0]:,} rows,",
            named,
            "a table with fewer rows or columns",
        )
        table = file.read()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"this is not Parquet: {str(error).splitlines()[0]}", where=Location(str(path))) from None
    types: dict[str, object] = {}
    columns: list[list[str]] = []
    for entry, values in zip(table.schema, table.columns, strict=True):
        if pa.types.is_nested(entry.type):
            raise InputError(
                f"this column has the type {entry.type}",
                where=Location(str(path), field=entry.name),
                expected="a column of numbers, text or times",
            )
        if pa.types.is_dictionary(entry.type):
            values = values.cast(entry.type.value_type)  # noqa: PLW2901  the same values
        types[entry.name] = values.type
        if pa.types.is_temporal(values.type):
            values = values.cast(pa.string())  # noqa: PLW2901  Python's times have no nanoseconds
        columns.append([_text(value) for value in values.to_pylist()])
    rows = [list(row) for row in zip(*columns, strict=True)] if columns else []
    return tuple(name.strip() for name in table.schema.names), rows, types


def _text(value: Any) -> str:
    if value is None or value != value:  # noqa: PLR0124  NaN is a missing value
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    return str(value)


Kind = Literal["integer", "number", "text"]


def write_blocks(path: Path, kinds: Mapping[str, Kind], blocks: Iterable[Sequence[Sequence[str]]]) -> None:
    """Write columns of text as a Parquet file, block by block, so that memory holds one block.

    Args:
        path: The file.
        kinds: The kind of each column, in order. Empty text is a missing value.
        blocks: For each block the cells of every column.

    Raises:
        InputError: pyarrow is not installed.
    """
    pa, parquet = require_pyarrow(Location(str(path)))
    types = {"integer": pa.int64(), "number": pa.float64(), "text": pa.string()}
    schema = pa.schema([(name, types[kind]) for name, kind in kinds.items()])
    with parquet.ParquetWriter(path, schema) as writer:
        for columns in blocks:
            arrays = [
                pa.array([cell or None for cell in cells], pa.string()).cast(entry.type)
                for cells, entry in zip(columns, schema, strict=True)
            ]
            writer.write_table(pa.table(arrays, schema=schema))


def write_rows(
    path: Path, *, header: Sequence[str], rows: Iterable[Sequence[Any]], types: Mapping[str, object]
) -> None:
    """Write rows as a Parquet file; see ``csvfile.write_table``.

    Raises:
        InputError: pyarrow is not installed.
    """
    pa, parquet = require_pyarrow(Location(str(path)))
    columns = list(zip(*rows, strict=True)) or [()] * len(header)
    arrays = [_array(pa, cells, types.get(name)) for name, cells in zip(header, columns, strict=True)]
    parquet.write_table(pa.table(arrays, names=list(header)), path)


def _array(pa: ModuleType, cells: Sequence[Any], stated: object) -> Any:
    """Return a column as an Arrow array: of its stated type, if all cells are text, or of the narrowest that fits."""
    kept = [None if cell == "" else cell for cell in cells]
    present = [cell for cell in kept if cell is not None]
    if not all(isinstance(cell, str) for cell in present):
        kinds = {bool if isinstance(cell, bool) else str if isinstance(cell, str) else float for cell in present}
        return pa.array(kept if len(kinds) == 1 else [_str(cell) for cell in kept])
    if stated is not None:
        array = pa.array(kept, pa.string())
        try:
            return array.cast(stated)
        except pa.ArrowException:
            return array
    number = _number_type([cell.strip() for cell in present])
    if number is None:
        return pa.array(kept, pa.string())
    return pa.array([None if cell is None else number(cell) for cell in kept])


def _str(cell: object) -> str | None:
    return None if cell is None else str(cell)


def _number_type(texts: Sequence[str]) -> type[int | float] | None:
    """Return the type of numbers that holds all texts without a loss; None if there is none."""
    if texts and all(_WHOLE.fullmatch(text) for text in texts):
        return int
    if texts and all(_NUMBER.fullmatch(text) and text[-1].isdigit() for text in texts):
        return float
    return None
