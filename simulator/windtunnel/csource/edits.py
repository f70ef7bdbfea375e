"""What is put into files when Clang reads them a second time, at the places that the first time has told."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Edit(NamedTuple):
    """A text in place of so many bytes of a file, from one on."""

    at: int
    text: str
    replaced: int = 0


Edits = Mapping[str, Sequence[Edit]]
"""The edits of files, by their names."""
_OUTERMOST = "variables in the local address space can only be declared in the outermost scope"
"""Clang's error for a variable of a group that is declared within a block of a kernel, which drivers take."""


def with_edits(edits: Edits, text: Mapping[str, str]) -> list[tuple[str, bytes]]:
    """Return files with their edits; ``text`` has those whose contents are not those on disk."""
    made = []
    for file in {**text, **edits}:
        whole = text[file].encode() if file in text else Path(file).read_bytes()
        for edit in sorted(edits.get(file, ()), reverse=True):
            whole = whole[: edit.at] + edit.text.encode() + whole[edit.at + edit.replaced :]
        made.append((file, whole))
    return made


def outermost_locals(clang: Any, file: str, text: str) -> dict[str, list[Edit]]:
    """Return the edits that declare variables of a group at the beginning of their kernels, with the same lines."""
    whole, made = text.encode(), dict[tuple[int, int], Edit]()
    bodies = [
        kid.extent
        for node in clang.cursor.get_children() if node.kind.name == "FUNCTION_DECL"
        for kid in node.get_children() if kid.kind.name == "COMPOUND_STMT" and str(kid.extent.start.file) == file
    ]  # fmt: skip
    for found in clang.diagnostics:
        if _OUTERMOST not in found.spelling or str(found.location.file) != file:
            continue
        at = found.location.offset
        first = max(whole.rfind(sign, 0, at) for sign in (b";", b"{", b"}")) + 1
        # A comment or a directive before it stays where it is.
        words = list(re.finditer(rb"\b(?:__local|local)\b", whole[first:at]))
        last = whole.find(b";", at) + 1
        body = next((one for one in bodies if one.start.offset < at < one.end.offset), None)
        if not words or not last or body is None:
            continue
        first += words[0].start()
        stated = whole[first:last].decode(errors="replace")
        made[first, last] = Edit(first, re.sub(r"[^\n]", " ", stated), last - first)
        made[first, -1] = Edit(body.start.offset + 1, f" {' '.join(stated.split())}")
    return {file: list(made.values())} if made else {}
