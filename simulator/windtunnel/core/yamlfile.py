"""Reads YAML with the position of every value, by the rules of YAML 1.2.

PyYAML's own construction reads ``1e12`` as text, ``12:30`` as 750 and ``no`` as False, and silently keeps the last
of two equal keys. This module composes nodes, resolves scalars by the core schema of YAML 1.2, rejects duplicate
keys, and keeps the line and column of every value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import yaml

from windtunnel.core.errors import InputError, Location
from windtunnel.core.files import TEXT_BYTES, read_bytes

try:
    from yaml import CSafeLoader as _SafeLoader
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

Path = tuple[str | int, ...]

_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_MAX_NODES = 1_000_000


def format_path(path: Path) -> str:
    """Return a path as text: ``fleet[0].power.max``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else str(part))
    return text


@dataclass
class Document:
    """Plain data (dict, list, str, int, float, bool, None) and the position of each value in its file."""

    data: Any
    file: str
    marks: dict[Path, tuple[int, int]] = field(default_factory=dict)
    key_marks: dict[Path, tuple[int, int]] = field(default_factory=dict)
    changes: dict[Path, str] = field(default_factory=dict)
    """The options that set values which do not come from the file, by path."""
    outside_code: bool = False
    """Whether code that the document names may be in files outside of its folder."""

    def where(self, path: Path, *, key: bool = False) -> Location:
        """Return the place of the value (or the key) at ``path``, or of its nearest ancestor."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.changes:
                return Location(self.changes[path[:end]], field=format_path(path) or None)
            marks = self.key_marks if key and end == len(path) else self.marks
            mark = marks.get(path[:end])
            if mark is not None:
                return Location(self.file, mark[0], mark[1], format_path(path) or None)
        return Location(self.file, field=format_path(path) or None)


def read_text(path: FilePath, what: str) -> str:
    """Return the text of the file ``path``, which error messages call ``what``.

    Raises:
        InputError: The file does not exist, is not a regular file, is not readable, is not UTF-8, or is larger than
            64 MiB.
    """
    content = read_bytes(path, what, TEXT_BYTES)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"this {what} is not UTF-8 text (byte {error.start})", where=Location(str(path))) from None


def parse(text: str, file: str) -> Document:
    """Return ``text`` as a document; raises InputError with line and column for invalid YAML."""
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(error, text, file) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"this is not YAML: {reason}", where=Location(file)) from None
    document = Document(None, file)
    if node is not None:
        try:
            document.data = _Builder(document).build(node, ())
        except RecursionError:
            raise InputError("this is nested too deeply", where=Location(file)) from None
    return document


_EXPLANATIONS = {
    "found a tab character": ("there is a tab here", "spaces: YAML does not indent with tabs"),
    "did not find expected '-' indicator": (
        "this line is part neither of the list above nor of its last item",
        "'- ' exactly below the other items, or a key exactly below the keys of the item",
    ),
    "did not find expected key": (
        "this line is not indented like the keys above it",
        "'key: value' exactly below the other keys",
    ),
    "mapping values are not allowed": (
        "there is a ':' where no key can be",
        "keys exactly below each other, braces around 'key: value' on one line, or quotes around text with ': '",
    ),
    "could not find expected ':'": ("a key above this has no ':'", "'key: value'"),
    "did not find expected ',' or '}'": ("a '{' is not closed, or a ',' is missing", "{key: value, key: value}"),
    "did not find expected ',' or ']'": ("a '[' is not closed, or a ',' is missing", "[value, value]"),
    "found unexpected end of stream": ("a quotation mark is not closed", "the same mark at the end of the text"),
    "found undefined alias": (
        "'*' begins a reference to a name that is not defined",
        "quotes around text that begins with '*'",
    ),
    "did not find expected alphabetic or numeric character": (
        "'*' stands in text without quotes",
        "quotes around a key or text with '*', such as \"fleet[*].group.tensor\"",
    ),
    "block sequence entries are not allowed": (
        "a list begins on the line of its key",
        "'- ' on separate lines below the key, or [value, value]",
    ),
    "found unknown escape character": (
        "a backslash in double quotes begins an escape",
        "single quotes, or two backslashes for each backslash",
    ),
    "did not find expected comment or line break": (
        "there is text after the '|' or '>' that begins a block of lines",
        "the text on separate lines below, indented",
    ),
}
"""For each beginning of a message of the YAML parser: a clearer problem, and what was expected."""


def _not_yaml(error: yaml.MarkedYAMLError, text: str, file: str) -> InputError:
    """Return the parser's error as an InputError, with the line of a bracket or quote that is not closed."""
    mark, problem = error.problem_mark or error.context_mark, str(error.problem or error.context)
    if mark is None:
        return InputError(f"this is not YAML: {problem}", where=Location(file))
    where = Location(file, mark.line + 1, mark.column + 1)
    lines = text.splitlines()
    here = lines[mark.line][mark.column :] if mark.line < len(lines) else ""
    message, expected = next(
        (texts for begin, texts in _EXPLANATIONS.items() if problem.startswith(begin)), (problem, None)
    )
    if problem.startswith("found character that cannot start any token") and here:
        if here[0] == "\t":
            message, expected = _EXPLANATIONS["found a tab character"]
        else:
            message, expected = f"a value cannot begin with '{here[0]}'", "quotes around it"
    opened = error.context_mark
    if opened is not None and opened.line != mark.line and "closed" in message:
        message += f" (opened in line {opened.line + 1})"
    return InputError(f"this is not YAML: {message}", where=where, expected=expected)


def dump(data: object) -> str:
    """Return plain data as YAML that ``parse`` reads as the same data."""
    text = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    return str(text)


def dump_line(data: object) -> str:
    """Return plain data as YAML on one line, as ``--set`` takes it."""
    text = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=True, width=10**9)
    return str(text).removesuffix("\n").removesuffix("\n...")


class _Dumper(yaml.SafeDumper):
    """Writes text in quotes wherever this module would read it as something else, which differs from YAML 1.1."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write a value that occurs twice twice."""
        return True


def _written_text(dumper: _Dumper, text: str) -> yaml.Node:
    plain = text in _WORDS or _INT.fullmatch(text) or _FLOAT.fullmatch(text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'" if plain else None)


_WORDS = ("", "~", "null", "Null", "NULL", "true", "True", "TRUE", "false", "False", "FALSE")
_Dumper.add_representer(str, _written_text)


class _Loader(_SafeLoader):
    """Composes nodes whose tags are those of text, lists and mappings unless the file states others.

    PyYAML would match every text with the patterns of YAML 1.1, which takes longer than parsing it.
    """

    def descend_resolver(self, _parent: yaml.Node | None, _index: object) -> None:
        """Do nothing: no path has a tag of its own."""

    def ascend_resolver(self) -> None:
        """Do nothing, as ``descend_resolver``."""

    def resolve(self, kind: type[yaml.Node], _value: object, _implicit: object) -> str:
        """Return the tag of a node without one; ``_Builder`` resolves text itself."""
        return _TAGS[kind]


_TAGS = {
    yaml.ScalarNode: "tag:yaml.org,2002:str",
    yaml.SequenceNode: "tag:yaml.org,2002:seq",
    yaml.MappingNode: "tag:yaml.org,2002:map",
}


class _Builder:
    """Converts nodes to data. Aliases are followed, up to a limit on the number of values (against billion laughs)."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.seen = 0
        self.open: set[int] = set()

    def build(self, node: yaml.Node, path: Path) -> Any:
        self.seen += 1
        if self.seen > _MAX_NODES:
            raise InputError(f"this has more than {_MAX_NODES:,} values", where=self._where(node, path))
        self.document.marks[path] = _mark(node)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if id(node) in self.open:
            raise InputError("this alias contains itself", where=self._where(node, path))
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.build(child, (*path, i)) for i, child in enumerate(node.value)]
            return self._mapping(node, path)
        finally:
            self.open.discard(id(node))

    def _mapping(self, node: yaml.Node, path: Path) -> dict[str, object]:
        result: dict[str, object] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise InputError("a key is not plain text", where=self._where(key_node, path))
            key = key_node.value
            inner = (*path, key)
            if key in result:
                where = self._where(key_node, inner)
                raise InputError(f"the key '{key}' is given twice", where=where, expected="each key once")
            self.document.key_marks[inner] = _mark(key_node)
            result[key] = self.build(value_node, inner)
        return result

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        if not node.tag.startswith("tag:yaml.org,2002:"):
            where = self._where(node, path)
            raise InputError(f"the tag '{node.tag}' is not supported", where=where, expected="plain data")
        text: str = node.value
        if node.style:  # quoted or block text is text (for plain text libyaml has "", the Python parser None)
            return text
        if text in ("", "~", "null", "Null", "NULL"):
            return None
        if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
            return text[0] in "tT"
        if _INT.fullmatch(text):
            if len(text) > 400:
                raise InputError("this number has too many digits", where=self._where(node, path))
            return int(text)
        return float(text) if _FLOAT.fullmatch(text) else text

    def _where(self, node: yaml.Node, path: Path) -> Location:
        return Location(self.document.file, *_mark(node), format_path(path) or None)


def _mark(node: yaml.Node) -> tuple[int, int]:
    """Return the line and the column of a node, from 1 on."""
    mark = node.start_mark
    return mark.line + 1, mark.column + 1
