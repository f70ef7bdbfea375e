"""Base classes of instances of class templates, which libclang 18 does not name.

Each class template with bases is given members without a size, of types that name its bases, when it is parsed a second
time. Of such a member, libclang gives the type in each instance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from windtunnel.csource.edits import Edit
from windtunnel.csource.includes import PRELUDE

MEMBER = "__wt_base_"
"""How the names of these members begin."""
_TEMPLATES = ("CLASS_TEMPLATE", "CLASS_TEMPLATE_PARTIAL_SPECIALIZATION")
_AROUND = ("NAMESPACE", "LINKAGE_SPEC", "UNEXPOSED_DECL", "CLASS_DECL", "STRUCT_DECL", *_TEMPLATES)
_ACCESS = re.compile(r"(?:(?:public|protected|private|virtual|typename)\b\s*)+")
_ARGUMENTS = re.compile(r"<[^<>]*>")


def base_members(top: Any) -> dict[str, list[Edit]]:
    """Return the members that name the bases of class templates, at the ends of the templates."""
    found: dict[str, list[Edit]] = {}
    for cursor in _templates(top.get_children()):
        bases = [kid for kid in cursor.get_children() if kid.kind.name == "CXX_BASE_SPECIFIER"]
        named = [_named(base) for base in bases]
        *_, last = cursor.get_tokens()
        if named and all(named) and last.spelling == "}":
            members = "".join(
                f" __attribute__((packed)) {name} *{MEMBER}{number}[0];" for number, name in enumerate(named)
            )
            at = last.extent.start
            found.setdefault(str(at.file), []).append(Edit(at.offset, f" public:{members} "))
    return found


def _templates(cursors: Iterable[Any]) -> Iterator[Any]:
    for cursor in cursors:
        if cursor.kind.name not in _AROUND or str(cursor.location.file).startswith(str(PRELUDE)):
            continue
        if cursor.kind.name in _TEMPLATES and cursor.is_definition():
            yield cursor
        yield from _templates(cursor.get_children())


def _named(base: Any) -> str:
    """Return the name of a base as that of a member's type; empty if it names several."""
    text = _ACCESS.sub("", " ".join(token.spelling for token in base.get_tokens()), count=1)
    if text.endswith("..."):
        return ""
    outer = text
    while _ARGUMENTS.search(outer):
        outer = _ARGUMENTS.sub("", outer)
    return f"typename {text}" if "::" in outer.strip(": ") else text
