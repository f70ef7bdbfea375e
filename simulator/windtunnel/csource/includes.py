"""What a C file may include: headers of its own folder, of the folders given, and our own that stand for the vendors'.

The includes are followed before Clang reads anything, so that no other file is read. Of a file whose name the
preprocessor makes, Clang says nothing before its place is checked. A header of the system or of a
library that is not found (``<omp.h>``) is taken as empty: what the kernel needs of it is then an error, and what only
functions of the host need is not missed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from windtunnel.core.errors import InputError, Location

PRELUDE = Path(__file__).parent / "prelude"
"""The headers that stand for those of the vendors."""
ABSENT = PRELUDE / "absent"
"""A folder that does not exist. Headers that are not found are empty files in it."""
_MACRO = re.compile(r"[A-Za-z_]\w*(\([\w\s,.]*\))?", re.ASCII)
"""The name of a macro of the command line, perhaps with parameters."""
INCLUDE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*(include(?:_next)?|import|embed)\b[ \t]*(.*?)[ \t]*$", re.MULTILINE)
"""A line that includes a file: how, and what."""
NAMED = re.compile(r'^(?:"([^"]+)"|<([^>]+)>)')
"""The name of the file, in quotes or in brackets."""
_OF_HOSTS = re.compile(
    r"(?:cutil\w*|helper_\w+|shr\w+|sdk\w+|oclUtils|exception|param|book|multithreading|cuda\w*|cu[a-z]+(?:_\w+)?|thrust/[\w/]+"
    r"|(?:ATen|c10|torch|cub|pybind11)/[\w/]+|GL/\w+|std\w+|math|string|assert|time|unistd)\.(?:h|hpp|cuh)$"
)
"""Headers in quotes that are the vendors', a library's or the system's too."""
_WITH_HALF = re.compile(r"(?:thrust|cub|ATen|c10|torch)/|cublas|cusparse|cudnn")
"""Headers that declare the types of 16-bit floats with their own names."""
_DEFINED = re.compile(r"^[ \t]*(?:#|%:)[ \t]*define[ \t]+(\w+)[ \t]+(.+?)[ \t]*$", re.MULTILINE)
_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def check_includes(
    file: str, text: str, folders: Sequence[str], prelude: Path, defines: Sequence[str] = ()
) -> list[str]:
    """Return the headers that are not found and are taken as empty.

    An include of a macro (``#include HEADER``) is one of each file that any definition of the macro names, in what is
    read or in ``defines``. Where the definition is no name, the preprocessor makes it (`check_read`).

    Raises InputError if a file, or one that it includes, includes a file from elsewhere, or if one of ``defines`` has
    no name of a macro.
    """
    missing: list[str] = []
    own = Path(file).resolve().parent
    allowed = [own, *(Path(folder).resolve() for folder in folders), prelude.resolve()]
    pending, seen = [(Path(file), text)], set[Path]()
    values: dict[str, set[str]] = {}
    for one in defines:
        name, _, value = one.partition("=")
        if _MACRO.fullmatch(name) is None:
            raise InputError(
                f"'{name}' is no name of a macro", where=Location(field="-D"), expected="NAME or NAME=VALUE"
            )
        values.setdefault(name, set()).add(value or "1")
    by_macro: list[tuple[Path, str, Location]] = []

    def follow(path: Path, stated: str, where: Location) -> None:
        """Put a file that is included among those to be read."""
        named = NAMED.match(stated)
        assert named is not None  # noqa: S101  the caller has seen it
        name = named[1] or named[2]
        # A name in quotes is searched beside the file that includes it first.
        places = [path.parent, *allowed[1:]] if named[1] else allowed[1:]
        target = next((place / name for place in places if (place / name).is_file()), None)
        if target is None:
            if _is_missing(named, places, where):
                missing.append(name)
            return
        resolved = target.resolve()
        if not any(resolved.is_relative_to(place) for place in allowed):
            raise _outside(name, where)
        if resolved not in seen:
            seen.add(resolved)
            if not resolved.is_relative_to(prelude.resolve()):
                pending.append((target, target.read_text(encoding="utf-8", errors="replace")))

    while pending:
        path, source = pending.pop()
        # A line that a backslash continues is one line to the preprocessor.
        joined = re.sub(r"\\[ \t]*\n", " ", without_comments(source))
        for defined in _DEFINED.finditer(joined):
            values.setdefault(defined[1], set()).add(defined[2])
        for found in INCLUDE.finditer(joined):
            where = Location(str(path), joined.count("\n", 0, found.start()) + 1)
            if found[1] != "include":
                raise InputError(f"#{found[1]} {found[2]}", where=where, expected='#include "name" or <name>')
            if NAMED.match(found[2]) is None:
                by_macro.append((path, found[2], where))
            else:
                follow(path, found[2], where)
        if not pending:
            for path, macro, where in by_macro:
                # A macro that nothing defines is Clang's error, where the line is compiled.
                for value in values.get(macro, ()):
                    if re.fullmatch(r'"[^"]+"|<[^>]+>', value) is not None:
                        follow(path, value, where)
    return missing


def check_read(read: Iterable[Any], file: str, folders: Sequence[str], prelude: Path) -> None:
    """Raise InputError if Clang has read a file from elsewhere, whose name the preprocessor made.

    ``read``: the includes of a parsed file, as libclang has them.
    """
    allowed = [Path(file).resolve().parent, *(Path(folder).resolve() for folder in folders), prelude.resolve()]
    for one in read:
        if not any(Path(str(one.include.name)).resolve().is_relative_to(place) for place in allowed):
            where = Location(str(one.location.file), one.location.line)
            raise _outside(str(one.include.name), where)


def _outside(name: str, where: Location) -> InputError:
    return InputError(
        f"the include of '{name}', which is outside of the source's folder and those of -I",
        where=where,
        expected="a header in one of these folders",
    )


def _is_missing(named: re.Match[str], places: Sequence[Path], where: Location) -> bool:
    """Return whether a header that is nowhere is taken as empty; of another one, Clang says that it is not found."""
    name = named[1] or named[2]
    if any((place / name).exists() for place in places):
        raise InputError(f"'{name}' is not a file", where=where, expected="a header")
    within = ".." not in Path(name).parts and not Path(name).is_absolute()
    return within and (named[1] is None or _OF_HOSTS.match(name) is not None)


def absent_text(name: str, *, opencl: bool) -> str:
    """Return what a header that is not found has: nothing but what the names of a library rest upon."""
    if opencl:
        return "#pragma once\n"
    halves = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n" if _WITH_HALF.match(name) else ""
    return f"#pragma once\n{halves}namespace std {{}}\n"


def without_comments(text: str) -> str:
    """Return a text with blanks in place of comments, and the same lines."""

    def blank(found: re.Match[str]) -> str:
        whole = found[0]
        return whole if whole.startswith('"') else " " + "\n" * whole.count("\n")

    return _COMMENT.sub(blank, text)
