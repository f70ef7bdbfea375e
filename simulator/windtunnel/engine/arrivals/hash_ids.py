"""Traces with the hash ids of prompts, in the format of Mooncake (JSON lines), and their blocks as runs.

Source of the format: the trace release of Mooncake (Qin et al., FAST 2025): each line has ``timestamp`` (ms),
``input_length``, ``output_length`` (tokens), and ``hash_ids``, one id for each block of 512 tokens of the prompt. An id
stands for all tokens up to the end of its block, so equal ids have equal ids before them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from windtunnel.core.csvfile import Table
from windtunnel.core.errors import InputError, Location
from windtunnel.core.files import TABLE_BYTES, decompressed, read_bytes
from windtunnel.core.memory import require_memory

IDS = "hash_ids"
_BYTES_PER_BYTE = 12.0
"""Memory of a trace for each byte of JSON: an id of 6 characters is a number of 28 bytes in a list, and is copied."""


@dataclass(frozen=True)
class BlockRuns:
    """The prompts of the rows of a trace as lists of runs of blocks.

    A run is a longest sequence of blocks that occur only together, one after the other.

    Attributes:
        at: Where the runs of each row begin in ``runs``; shape (rows + 1,).
        runs: The runs of all rows, from the first block of a prompt on.
        blocks: The number of blocks of each run; shape (runs,).
        home: For each row a number that the rows of one conversation share: the first run that not all rows begin with.
    """

    at: np.ndarray
    runs: np.ndarray
    blocks: np.ndarray
    home: np.ndarray

    def counts(self) -> np.ndarray:
        """Return the number of blocks of each row; shape (rows,)."""
        sums = np.concatenate([[0], np.cumsum(self.blocks[self.runs])])
        counts: np.ndarray = sums[self.at[1:]] - sums[self.at[:-1]]
        return counts


def read_json_lines(path: Path, what: str, where: Location, columns: Sequence[str]) -> Table:
    """Return a file of JSON objects, one a line, as a table of text; lists become their elements with spaces.

    Args:
        path: The file, plain or gzip by its name.
        what: What error messages call the file.
        where: The place that names the file.
        columns: The keys that every line must have; other ones are kept if the first line has them.

    Raises:
        InputError: with the line, if the file is not readable or a line is not such an object.
    """
    content = read_bytes(path, what, TABLE_BYTES, where)
    if path.suffix == ".gz":
        content = decompressed(content, path, what, TABLE_BYTES, where)
    require_memory(_BYTES_PER_BYTE * len(content), f"the {what} '{path}'", where, "a trace with fewer rows")
    header: tuple[str, ...] = ()
    rows: list[list[str]] = []
    lines: list[int] = []
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        place = Location(str(path), number)
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"this is not JSON: {error}", where=place, expected="a JSON object on each line") from None
        if not isinstance(values, dict):
            raise InputError("this line is not a JSON object", where=place, expected='{"timestamp": 0, ...}')
        header = header or tuple(values)
        for name in (*columns, *header):
            if name not in values:
                raise InputError(f"this line has no '{name}'", where=place, expected="the same keys on each line")
        rows.append([_text(values[name], Location(str(path), number, field=name)) for name in header])
        lines.append(number)
    return Table(str(path), header, rows, lines)


def _text(value: object, where: Location) -> str:
    if isinstance(value, list):
        if not all(isinstance(part, int) and not isinstance(part, bool) and 0 <= part < 2**63 for part in value):
            raise InputError("this list has other elements than ids", where=where, expected="whole numbers from 0 on")
        return " ".join(map(str, value))
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputError(f"this is {str(value)[:40]}", where=where, expected="a number, a text or a list of ids")
    return str(value)


def block_runs(table: Table, column: str = IDS) -> BlockRuns:
    """Return the runs of blocks of a table's rows, from its column of ids.

    Raises:
        InputError: with the line, if a row has no id, or an id has other ids before it than on another line.
    """
    texts = table.column(column)
    ids = np.array(" ".join(texts).split(), dtype=np.int64)
    counts = np.array([text.count(" ") + 1 if text else 0 for text in texts], dtype=np.int64)
    if (counts == 0).any():
        line = table.lines[int(np.argmin(counts))]
        raise InputError("this prompt has no block", where=Location(table.file, line, field=column), expected="its ids")
    ends = np.cumsum(counts)
    begins = ends - counts
    _, which = np.unique(ids, return_inverse=True)
    before = np.append(-1, which[:-1])
    before[begins] = -1
    first = np.full(int(which.max()) + 1, len(which), dtype=np.int64)
    np.minimum.at(first, which, np.arange(len(which)))
    wrong = np.flatnonzero(before != before[first[which]])
    if len(wrong):
        row, other = np.searchsorted(ends, [wrong[0], first[which[wrong[0]]]], side="right")
        raise InputError(
            f"the id {ids[wrong[0]]} has other ids before it than on line {table.lines[int(other)]}",
            where=Location(table.file, table.lines[int(row)], field=column),
            expected="chained ids: an id stands for its block and all blocks before it",
        )
    predecessor = before[first]
    followers = np.bincount(predecessor[predecessor >= 0], minlength=len(first))
    last = np.zeros(len(first), dtype=bool)
    last[which[ends - 1]] = True
    # A block begins a run unless it always follows its predecessor, and that is never without it.
    starts = (predecessor < 0) | (followers[predecessor] != 1) | last[predecessor]
    places = np.flatnonzero(starts[which])
    found, runs = np.unique(which[places], return_inverse=True)
    lengths = np.diff(np.append(places, len(which)))
    blocks = np.zeros(len(found), dtype=np.int64)
    blocks[runs] = lengths
    at = np.searchsorted(places, np.append(begins, len(which)))
    return BlockRuns(at, runs.astype(np.int64), blocks, _homes(at, runs))


def _homes(at: np.ndarray, runs: np.ndarray) -> np.ndarray:
    """Return the first run of each row that not all rows have; its last one if all have it."""
    rows = len(at) - 1
    common = np.bincount(runs) == rows
    place = at[:-1].copy()
    while True:
        more = common[runs[place]] & (place + 1 < at[1:])
        if not more.any():
            return np.asarray(runs[place], dtype=np.int64)
        place[more] += 1
