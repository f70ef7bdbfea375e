"""The text of a statement of assembly: its instructions, the registers that it declares, names of its operands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from windtunnel.csource.clang import Node
from windtunnel.language.types import BOOL, SCALARS, Scalar

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DECLARED = re.compile(r"\.reg\s+\.(\w+)\s+(.+)$")
_NUMBERED = re.compile(r"(%?[\w$]+)<(\d+)>$")
_GUARD = re.compile(r"@(!?)(%?[\w$]+)\s+(.+)$")
_NAMED = re.compile(r"%\[(\w+)\]")


@dataclass(frozen=True)
class Instruction:
    """An instruction, and the predicate that guards it: ``@!p``."""

    text: str
    guard: str = ""
    negated: bool = False


@dataclass
class Assembled:
    """The instructions of a statement, in order, and the types of the registers that it declares."""

    instructions: list[Instruction] = field(default_factory=list)
    registers: dict[str, Scalar] = field(default_factory=dict)


def assembled(node: Node) -> Assembled:
    """Return the instructions of a statement of assembly. Names of operands become their numbers."""
    tokens = [token.spelling for token in node.cursor.get_tokens()]
    first = next((n for n, one in enumerate(tokens) if one in (":", "::", ":::")), len(tokens))
    text = "".join(one[1:-1] for one in tokens[:first] if one.startswith('"'))
    text = _COMMENT.sub(" ", text.replace("\\n", "\n").replace("\\t", " ").replace("\\r", " "))
    names = _names(tokens[first:])
    text = _NAMED.sub(lambda found: names.get(found[1], found[0]), text).replace("%%", "%")
    made = Assembled()
    for part in text.split(";"):
        line = " ".join(part.split())
        while line[:1] in ("{", "}") and line:  # a block has no names of its own here
            line = line[1:].lstrip()
        declared = _DECLARED.match(line)
        if declared is not None:
            _declare(declared[1], declared[2], made)
        elif line:
            guard = _GUARD.match(line)
            made.instructions.append(
                Instruction(line) if guard is None else Instruction(guard[3], guard[2], guard[1] == "!")
            )
    return made


def _declare(kind: str, names: str, made: Assembled) -> None:
    scalar = BOOL if kind == "pred" else SCALARS.get({"b": "u", "s": "i"}.get(kind[:1], kind[:1]) + kind[1:])
    for name in names.split(",") if scalar is not None else ():
        several = _NUMBERED.match(name.strip())
        every = [name.strip()] if several is None else [f"{several[1]}{n}" for n in range(min(int(several[2]), 256))]
        made.registers.update((one, scalar) for one in every if scalar is not None)


def _names(tokens: Sequence[str]) -> dict[str, str]:
    """Return the operands that have names (``[sum] "=r"(x)``), as the numbers that they have."""
    found: dict[str, str] = {}
    depth = number = 0
    for at, spelled in enumerate(tokens):
        depth += (spelled == "(") - (spelled == ")")
        if depth == 0 and spelled.startswith('"') and tokens[at + 1 : at + 2] == ["("]:
            if tokens[at - 1] == "]":
                found[tokens[at - 2]] = f"%{number}"
            number += 1
    return found
