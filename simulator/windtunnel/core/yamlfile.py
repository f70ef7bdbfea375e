"""YAML with positions and without surprises.

PyYAML's own construction reads ``1e12`` as text, ``12:30`` as 750 and ``no`` as False, and keeps the last
of two equal keys in silence. Here nodes are composed, scalars resolved by YAML 1.2's core schema, duplicate
keys refused, and every value remembers its line and column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import yaml

from windtunnel.core.errors import InputError, Where, nearest_file

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

Path = tuple[str | int, ...]

_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_MAX_NODES = 1_000_000
_MAX_BYTES = 64 * 2**20


def spell(path: Path) -> str:
    """A path as people write it: ``fleet[0].power.max``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else str(part))
    return text


@dataclass
class Document:
    """Plain data (dict, list, str, int, float, bool, None) and where each value stood."""

    data: Any
    file: str
    marks: dict[Path, tuple[int, int]] = field(default_factory=dict)
    key_marks: dict[Path, tuple[int, int]] = field(default_factory=dict)
    changes: dict[Path, str] = field(default_factory=dict)
    """Values that did not come from the file, and what they came from."""

    def where(self, path: Path, *, key: bool = False) -> Where:
        """The place of the value (or the key) at ``path``, or of the nearest thing above it."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.changes:
                return Where(self.changes[path[:end]], field=spell(path) or None)
            marks = self.key_marks if key and end == len(path) else self.marks
            mark = marks.get(path[:end])
            if mark is not None:
                return Where(self.file, mark[0], mark[1], spell(path) or None)
        return Where(self.file, field=spell(path) or None)


def read_text(path: FilePath, what: str) -> str:
    """The text of ``path``; InputError when it is not there, not readable, not UTF-8, or over 64 MiB."""
    where = Where(str(path))
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"this {what} is larger than 64 MiB", where=where)
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        siblings = sorted(p.name for p in path.parent.glob("*")) if path.parent.is_dir() else []
        raise InputError(f"there is no such {what}", where=where, nearest=nearest_file(path.name, siblings)) from None
    except UnicodeDecodeError as error:
        raise InputError(f"this {what} is not UTF-8 text (byte {error.start})", where=where) from None
    except OSError as error:
        raise InputError(f"this {what} cannot be read: {error.strerror}", where=where) from None


def parse(text: str, file: str) -> Document:
    """``text`` as a Document. Raises InputError with line and column for what is not clean YAML."""
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(error, text, file) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"this is not YAML: {reason}", where=Where(file)) from None
    document = Document(None, file)
    if node is not None:
        try:
            document.data = _Builder(document).build(node, ())
        except RecursionError:
            raise InputError("this is nested too deeply", where=Where(file)) from None
    return document


_MENDING = {
    "found a tab character": ("a tab stands here", "spaces: YAML does not indent with tabs"),
    "did not find expected '-' indicator": (
        "this line belongs neither to the list above nor to its last item",
        "'- ' exactly below the other items, or a key exactly below those of the item",
    ),
    "did not find expected key": (
        "this line is indented unlike the keys above it",
        "'key: value' exactly below the other keys",
    ),
    "mapping values are not allowed": (
        "a ':' stands where no key can be",
        "keys exactly below each other, braces around 'key: value' on one line, or quotes around text that holds ': '",
    ),
    "could not find expected ':'": ("a key above this has no ':'", "'key: value'"),
    "did not find expected ',' or '}'": ("a '{' is not closed, or a ',' is missing", "{key: value, key: value}"),
    "did not find expected ',' or ']'": ("a '[' is not closed, or a ',' is missing", "[value, value]"),
    "found unexpected end of stream": ("a quotation mark is not closed", "the same mark at the end of the text"),
    "found undefined alias": (
        "'*' begins a reference, and nothing is named so",
        "quotes around text that begins with '*'",
    ),
    "block sequence entries are not allowed": (
        "a list begins in the line of its key",
        "'- ' on lines of their own below the key, or [value, value]",
    ),
    "found unknown escape character": (
        "a backslash in double quotes begins an escape",
        "single quotes, or two backslashes for one",
    ),
    "did not find expected comment or line break": (
        "text follows the '|' or '>' that begins a block of lines",
        "the text on lines of its own below, indented",
    ),
}
"""What the YAML parser says, by how it begins: the same in words that say what to mend, and what was expected."""


def _not_yaml(error: yaml.MarkedYAMLError, text: str, file: str) -> InputError:
    """The parser's complaint as one of ours, with the place of what was opened and not closed."""
    mark, problem = error.problem_mark or error.context_mark, str(error.problem or error.context)
    if mark is None:
        return InputError(f"this is not YAML: {problem}", where=Where(file))
    where = Where(file, mark.line + 1, mark.column + 1)
    lines = text.splitlines()
    here = lines[mark.line][mark.column :] if mark.line < len(lines) else ""
    said, expected = next((words for begin, words in _MENDING.items() if problem.startswith(begin)), (problem, None))
    if problem.startswith("found character that cannot start any token") and here:
        if here[0] == "\t":
            said, expected = _MENDING["found a tab character"]
        else:
            said, expected = f"a value cannot begin with '{here[0]}'", "quotes around it"
    opened = error.context_mark
    if opened is not None and opened.line != mark.line and "closed" in said:
        said += f" (opened in line {opened.line + 1})"
    return InputError(f"this is not YAML: {said}", where=where, expected=expected)


class _Builder:
    """Turns nodes into data, once; aliases are followed, within a bound on the total (no billion laughs)."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.seen = 0
        self.open: set[int] = set()

    def build(self, node: yaml.Node, path: Path) -> Any:
        self.seen += 1
        where = self._where(node, path)
        if self.seen > _MAX_NODES:
            raise InputError(f"this holds more than {_MAX_NODES:,} values", where=where)
        self.document.marks[path] = (node.start_mark.line + 1, node.start_mark.column + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, where)
        if id(node) in self.open:
            raise InputError("this alias contains itself", where=where)
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.build(child, (*path, i)) for i, child in enumerate(node.value)]
            return self._mapping(node, path)
        finally:
            self.open.discard(id(node))

    def _mapping(self, node: yaml.Node, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            where = self._where(key_node, path)
            if not isinstance(key_node, yaml.ScalarNode):
                raise InputError("a key is not plain text", where=where)
            key = key_node.value
            if key in result:
                raise InputError(
                    f"the key '{key}' is given twice",
                    where=self._where(key_node, (*path, key)),
                    expected="each key once",
                )
            self.document.key_marks[*path, key] = (
                key_node.start_mark.line + 1,
                key_node.start_mark.column + 1,
            )
            result[key] = self.build(value_node, (*path, key))
        return result

    def _scalar(self, node: yaml.ScalarNode, where: Where) -> Any:
        if not node.tag.startswith("tag:yaml.org,2002:"):
            raise InputError(f"the tag '{node.tag}' is not understood", where=where, expected="plain data")
        text: str = node.value
        if node.style:  # quoted or block text is text (libyaml says "" for plain, the Python parser None)
            return text
        if text in ("", "~", "null", "Null", "NULL"):
            return None
        if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
            return text[0] in "tT"
        if _INT.fullmatch(text):
            if len(text) > 400:
                raise InputError("this number has too many digits", where=where)
            return int(text)
        return float(text) if _FLOAT.fullmatch(text) else text

    def _where(self, node: yaml.Node, path: Path) -> Where:
        return Where(self.document.file, node.start_mark.line + 1, node.start_mark.column + 1, spell(path) or None)
