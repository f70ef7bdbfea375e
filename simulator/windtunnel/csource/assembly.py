"""Assembly in C: barriers, fences, registers of a lane, and instructions of PTX on numbers and memory."""

from __future__ import annotations

import re
from collections.abc import Sequence

from windtunnel.csource import build
from windtunnel.csource.clang import Node
from windtunnel.csource.copies import Copies
from windtunnel.csource.ctype import Number, Pointer
from windtunnel.csource.memory import ASSERTION
from windtunnel.csource.places import operands, scalar_of_type
from windtunnel.csource.values import Mem, Ptr, Value
from windtunnel.language import ir
from windtunnel.language.types import BOOL, I32, U32, Scalar

_ASSEMBLY = {
    "bar.sync 0": "block", "barrier.sync 0": "block", "bar.warp.sync 0xffffffff": "warp", "membar.gl": "fence.device",
    "membar.sys": "fence.device", "membar.cta": "fence.block", "fence.acq_rel.gpu": "fence.device",
    "fence.sc.gpu": "fence.device", "fence.acq_rel.cta": "fence.block",
}  # fmt: skip
"""Instructions of assembly that are barriers and fences."""
_REGISTER = re.compile(r"mov\.(?:u32|b32|s32) %0, %%?(laneid|lanemask_(?:eq|lt|le|gt|ge))\b")
"""Assembly that reads a register which says where a lane is."""


_INSTRUCTION = re.compile(r"([a-z]\w*(?:\.\w+)*)\s+(.+)$")
"""An instruction of assembly: its name with modifiers and types, and its operands."""
_MODIFIERS = frozenset((
    "approx", "full", "ftz", "rn", "volatile", "global", "shared", "nc", "ca", "cg", "cs", "cv", "lu", "wb", "wt",
    "relaxed", "acquire", "release", "weak", "gpu", "cta", "sys", "L1", "no_allocate",
))  # fmt: skip
"""Modifiers that change accuracy, caching or nothing here."""
_NAMED_BARRIER = re.compile(r"(?:bar|barrier)(?:\.cta)?\.(sync|arrive)(?:\.aligned)?\s+(%?\w+)\s*(?:,\s*(%?\w+))?$")
"""Assembly that is a barrier of a number: whether threads wait, the number, and how many threads."""


_COPY = re.compile(
    r"cp\.async\.c[ag]\.shared(?:::cta)?\.global(?:\.L2::(?:cache_hint|\d+B))*\s+"
    r"\[\s*([^\]]+?)\s*\]\s*,\s*\[\s*([^\]]+?)\s*\]\s*,\s*(%?\d+)\s*(?:,\s*(%?\d+))?$"
)
"""An asynchronous copy: where to, where from, the bytes, and those of them that are read, if the others are zeros."""
_WAIT_GROUP = re.compile(r"cp\.async\.wait_group\s+(%?\d+)$")
_MATRICES = ("ldmatrix", "stmatrix", "mma", "wmma", "wgmma")


class Assembly(Copies):
    """Translates statements of assembly."""

    def asm(self, node: Node) -> None:
        """Translate a statement of assembly: barriers and fences of a whole block, warp or device."""
        text = ""
        for token in node.cursor.get_tokens():
            if token.spelling in (":", "::", ":::"):  # the operands follow
                break
            text += token.spelling[1:-1] if token.spelling.startswith('"') else ""
        line = self.line(node)
        instructions = [
            part.strip() for part in text.replace("\\n", " ").replace("\\t", " ").split(";") if part.strip()
        ]
        for instruction in instructions:
            register = _REGISTER.match(instruction)
            if register is not None and len(operands(node)) == 1:
                place = self.place(operands(node)[0])
                made = self._special_register(line, register[1])
                self.store(line, place, build.converted(made, scalar_of_type(place.type, U32)))
                continue
            if instruction == "trap":
                self.trap(node, ())
                continue
            if self._asynchronous(node, instruction):
                continue
            scope = _ASSEMBLY.get(instruction)
            named = _NAMED_BARRIER.match(instruction)
            if scope is None and named is not None:
                self._named_barrier(node, named[2], named[3], waits=named[1] == "sync")
                continue
            if scope is not None:
                self.emit(ir.Barrier(line, scope))
            elif not self._instruction(node, instruction):
                raise node.refused(f"the assembly '{instruction}'", _instead(instruction))

    def _instruction(self, node: Node, instruction: str) -> bool:
        """Translate an instruction on numbers, a load or a store; return whether it is one that is known."""
        found = _INSTRUCTION.match(instruction)
        if found is None:
            return False
        words = found[1].split(".")
        parts = [part.strip() for part in re.findall(r"\{[^}]*\}|[^,{}]*[^,{}\s][^,{}]*", found[2])]
        if words[0] in ("ld", "st"):
            return len(parts) == 2 and self._load_or_store(node, words, parts)
        return self._computation(node, "_".join(one for one in words if one not in _MODIFIERS), parts)

    def _asynchronous(self, node: Node, instruction: str) -> bool:
        """Translate an instruction of asynchronous copies; return whether it is one."""
        line = self.line(node)
        if instruction in ("cp.async.commit_group", "cp.async.wait_all"):
            self.commit_copies(node)
            if instruction == "cp.async.wait_all":
                self.await_copies(node, build.literal(line, 0, I32))
            return True
        group, copied = _WAIT_GROUP.match(instruction), _COPY.match(instruction)
        if group is not None:
            self.await_copies(node, self._stated(node, group[1]))
            return True
        if copied is None:
            return False
        target, origin = (self._operand_address(node, text) for text in copied.group(1, 2))
        size = self._stated(node, copied[3])
        given = None if copied[4] is None else self._stated(node, copied[4])
        self.aligned_copy(line, (target, origin), size)
        self.begin_copy(line, target, origin, size, given)
        return True

    def aligned_copy(self, line: int, pointers: Sequence[Ptr], size: ir.Expr) -> None:
        """Emit that the pointers of a copy are multiples of its size, as cp.async requires."""
        for at in pointers:
            if isinstance(size, ir.Literal) and at.bases:
                self.aligned(line, at, int(size.value))

    def _stated(self, node: Node, text: str) -> ir.Expr:
        """Return the number that an operand of assembly is: a literal, or an operand of the statement."""
        found = _operand(node, text)
        if found is not None:
            return self.number(found)
        if not text.lstrip("-").isdigit():
            raise node.refused(f"the operand '{text}' of assembly", "a number, or one such as %2")
        return build.literal(self.line(node), int(text), I32)

    def _operand_address(self, node: Node, text: str) -> Ptr:
        """Return the pointer that an operand of assembly is: a pointer, or an address in shared memory."""
        found, offset = _operand(node, text.partition("+")[0].strip()), text.partition("+")[2].strip()
        if found is None or (offset and not offset.isdigit()):
            raise node.refused(f"the address '{text}' in assembly", "an operand such as [%0]")
        if isinstance(found.type, Pointer):
            at = self.pointer(found)
        else:
            at = self.of_shared_address(self.line(node), self.number(found))
        return self.hold_pointer(at.moved(int(offset or 0), 1))

    def _load_or_store(self, node: Node, words: Sequence[str], parts: Sequence[str]) -> bool:
        """Translate a load or a store of one number or several, which is atomic if it states an order."""
        where, numbers = parts if words[0] == "st" else (parts[1], parts[0])
        address = re.fullmatch(r"\[\s*(%\d+)\s*(?:\+\s*(\d+)\s*)?\]", where)
        at = None if address is None else _operand(node, address[1])
        if at is None or address is None:
            return False
        pointer = self.pointer(at).moved(int(address[2] or 0), 1)
        if numbers.startswith("{"):
            return self._load_or_store_several(node, words, numbers.strip("{}").split(","), pointer)
        number = _operand(node, numbers)
        if number is None or len(words) - len(_MODIFIERS & set(words)) > 2:
            return False
        kind = number.type
        if not isinstance(kind, Number):
            return False
        line, memory = self.line(node), Mem(pointer, kind)
        if not {"volatile", "relaxed", "acquire", "release"} & set(words):
            target, source = (memory, self.place(number)) if words[0] == "st" else (self.place(number), memory)
            self.store(line, target, self.load(line, source))
        elif words[0] == "ld":
            value = self.atomic_read(node, memory.at, kind, relaxed="acquire" not in words)
            self.store(line, self.place(number), value)
        else:
            if "release" in words:
                self.emit(ir.Barrier(line, "fence.device"))
            self.atomic(node, "store", memory.at, kind, [self.number(number)], relaxed=True)
        return True

    def _load_or_store_several(self, node: Node, words: Sequence[str], names: Sequence[str], at: Ptr) -> bool:
        """Translate a load or a store of a vector: ``ld.global.v4.f32 {%0, %1, %2, %3}, [%4]``."""
        numbers = [_operand(node, name.strip()) for name in names]
        kinds = [number.type for number in numbers if number is not None]
        if f"v{len(names)}" not in words or len(kinds) < len(numbers) or {"relaxed", "acquire", "release"} & set(words):
            return False
        line, first = self.line(node), kinds[0]
        if not isinstance(first, Number) or any(kind.size != first.size for kind in kinds):
            return False
        self.aligned(line, at, len(names) * first.size)
        for place, number in enumerate(numbers):
            assert number is not None  # noqa: S101  they have been counted
            own, memory = self.place(number), Mem(at.moved(place, first.size), number.type)
            target, source = (memory, own) if words[0] == "st" else (own, memory)
            self.store(line, target, self.load(line, source))
        return True

    def _computation(self, node: Node, name: str, parts: Sequence[str]) -> bool:
        """Translate an instruction on numbers by the function of our header that has its name and types."""
        known = (one for one in node.unit.declarations() if one.kind == "FUNCTION_DECL")
        function = next((one for one in known if one.name == f"__wt_ptx_{name}"), None)
        first = _operand(node, parts[0])
        if function is None or first is None:
            return False
        kinds = [kid.type for kid in function.kids if kid.kind == "PARM_DECL"]
        if len(kinds) != len(parts) - 1:
            return False
        line = self.line(node)
        values: list[ir.Expr] = []
        for kind, text in zip(kinds, parts[1:], strict=True):
            assert isinstance(kind, Number)  # noqa: S101  as the header declares it
            source = _operand(node, text)
            if source is None and not re.fullmatch(r"-?(?:0[xX][0-9a-fA-F]+|\d+)", text):
                return False
            value = build.literal(line, int(text, 0), kind.scalar) if source is None else self.number(source)
            values.append(_as_bits(value, kind.scalar))
        made = self.helper(node, function.name, values)
        place = self.place(first)
        assert isinstance(made, ir.Expr)  # noqa: S101  as the header declares it
        self.store(line, place, _as_bits(made, scalar_of_type(place.type, U32)))
        return True

    def _named_barrier(self, node: Node, number: str, count: str | None, *, waits: bool) -> None:
        """Translate a barrier of a number, of so many threads; without it, of all threads of the block."""
        line = self.line(node)

        def given(text: str) -> ir.Expr:
            if text.startswith("%"):
                return build.converted(self.number(operands(node)[int(text[1:])]), I32)
            return build.literal(line, int(text, 0), I32)

        threads: ir.Expr = build.literal(line, 1, I32)
        for axis in range(3):
            threads = build.binary(line, "*", threads, ir.Index(line, "block_size", axis, type=I32))
        values = [given(number), threads if count is None else given(count), build.literal(line, waits, BOOL)]
        self.helper(node, "__wt_named_barrier", values)

    def _special_register(self, line: int, name: str) -> ir.Expr:
        """Return the number of a lane, and the lanes below or above it."""
        lane = build.converted(ir.Warp(line, "lane", [], type=I32), U32)
        one = build.literal(line, 1, U32)
        if name == "laneid":
            return lane
        own = self.hold(build.binary(line, "<<", one, lane))
        below = self.hold(build.binary(line, "-", own, one))
        if name == "lanemask_eq":
            return own
        if name in ("lanemask_lt", "lanemask_ge"):
            return below if name == "lanemask_lt" else build.unary(line, "~", below)
        up_to = build.binary(line, "|", below, own)
        return up_to if name == "lanemask_le" else build.unary(line, "~", up_to)

    def trap(self, node: Node, arguments: Sequence[Node]) -> Value:
        """Emit the finding that a trap is reached."""
        del arguments
        line = self.line(node)
        self.emit(ir.Require(line, build.literal(line, False, BOOL), ASSERTION, "the trap is reached"))
        return None


def _instead(instruction: str) -> str:
    """Return what to write in place of an instruction that is not known."""
    if instruction.split(".", maxsplit=1)[0] in _MATRICES:
        return "matrices of a warp by nvcuda::wmma (<mma.h>), or __shfl_sync and fma"
    if instruction.startswith(("{", ".reg", "@")):
        return "one instruction after another, without registers of its own"
    return "functions of the language (__syncthreads)"


def _operand(node: Node, text: str) -> Node | None:
    """Return the expression that an operand such as ``%1`` stands for; None for another one."""
    given = operands(node)
    number = int(text[1:]) if re.fullmatch(r"%\d+", text) else len(given)
    return given[number] if number < len(given) else None


def _as_bits(value: ir.Expr, kind: Scalar) -> ir.Expr:
    """Return a number of a register as another type: of the same bits between floats and integers."""
    assert value.type is not None  # noqa: S101  all expressions here have types
    if (value.type.kind == "float") != (kind.kind == "float") and value.type.bits == kind.bits:
        return build.bits_as(value, kind)
    return build.converted(value, kind)
