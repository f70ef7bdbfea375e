"""Names of Python's syntax in messages."""

from __future__ import annotations

import ast
from collections.abc import Mapping

_WORDS: Mapping[str, str] = {
    "Try": "try",
    "With": "with",
    "Raise": "raise",
    "Assert": "assert",
    "Import": "import",
    "ImportFrom": "import",
    "FunctionDef": "a function within a kernel",
    "ClassDef": "a class",
    "Delete": "del",
    "Global": "global",
    "Nonlocal": "nonlocal",
    "ListComp": "a list comprehension",
    "DictComp": "a dictionary comprehension",
    "SetComp": "a set comprehension",
    "GeneratorExp": "a generator",
    "Lambda": "a lambda",
    "List": "a list",
    "Dict": "a dictionary",
    "Set": "a set",
    "Tuple": "a tuple",
    "JoinedStr": "an f-string",
    "Yield": "yield",
    "Await": "await",
    "Starred": "a starred value",
    "NamedExpr": "an assignment within an expression",
    "Match": "match",
    "Attribute": "an attribute",
    "AsyncFor": "async for",
    "AsyncWith": "async with",
    "Slice": "a slice",
    "Expr": "an expression that does nothing",
    "Assign": "several assignments at once",
    "Call": "a call",
    "Name": "a name",
    "Constant": "a constant",
    "Subscript": "an element",
    "AnnAssign": "a declaration without a value",
}


def many(number: int, what: str) -> str:
    """Return a number with a noun in singular or plural."""
    plural = "indices" if what == "index" else f"{what}s"
    return f"{number} {what if number == 1 else plural}"


def words_of(node: ast.AST) -> str:
    """Return the name of a syntax node."""
    name = type(node).__name__
    return _WORDS.get(name, name)
