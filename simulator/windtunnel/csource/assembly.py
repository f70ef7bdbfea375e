"""Assembly in C: barriers, fences, registers of a lane, and instructions of PTX on numbers and memory."""

from __future__ import annotations

import re
from collections.abc import Sequence

from windtunnel.csource import build
from windtunnel.csource.asm_text import assembled
from windtunnel.csource.clang import Node
from windtunnel.csource.copies import Copies
from windtunnel.csource.ctype import Number, Pointer
from windtunnel.csource.memory import ASSERTION
from windtunnel.csource.places import operands, scalar_of_type
from windtunnel.csource.values import Mem, Place, Ptr, Reg, Value
from windtunnel.language import ir
from windtunnel.language.types import BOOL, I32, SCALARS, U32, U64, Scalar

_ASSEMBLY = {
    "bar.sync 0": "block", "barrier.sync 0": "block", "bar.warp.sync 0xffffffff": "warp", "membar.gl": "fence.device",
    "membar.sys": "fence.device", "membar.cta": "fence.block", "fence.acq_rel.gpu": "fence.device",
    "fence.sc.gpu": "fence.device", "fence.acq_rel.cta": "fence.block",
}  # fmt: skip
"""Instructions of assembly that are barriers and fences."""
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
CARRY = "carry_of_the_thread"
"""The variable of the carry, which lasts from one statement to the next."""
_MATRICES = ("ldmatrix", "stmatrix", "mma", "wmma", "wgmma")
_PLACES = {"tid": "thread", "ntid": "block_size", "ctaid": "block", "nctaid": "grid_size"}
_COMPARED = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">=",
}  # fmt: skip
_CARRIED = ("add", "addc", "sub", "subc", "mad", "madc")
_ATOMIC_NAMES = {
    "add": "add", "min": "min", "max": "max", "and": "and_", "or": "or_", "xor": "xor", "exch": "exch", "cas": "cas",
    "inc": "inc", "dec": "dec",
}  # fmt: skip


def _type_of(name: str) -> Scalar | None:
    """Return the type of numbers that the last word of an instruction names; bits are unsigned integers."""
    found = re.fullmatch(r"([busf])(8|16|32|64)", name)
    return None if found is None else SCALARS[{"b": "u", "s": "i"}.get(found[1], found[1]) + found[2]]


class Assembly(Copies):
    """Translates statements of assembly."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self._registers: dict[str, Reg | Ptr] = {}
        """The registers that the statement declares; one that was set to a pointer is the pointer."""

    def thread_rank(self, line: int) -> ir.Expr:
        """Return the number of a thread in its block."""
        raise NotImplementedError

    def asm(self, node: Node) -> None:
        """Translate a statement of assembly, instruction by instruction."""
        text = assembled(node)
        self._registers = {}
        for name, kind in text.registers.items():
            made = self.variable(name.lstrip("%"), Number(kind))
            self._registers[name] = Reg(made, 0, made.type)
        for one in text.instructions:
            if not one.guard:
                self._assembled(node, one.text)
                continue
            predicate = self._registers.get(one.guard)
            if not isinstance(predicate, Reg):
                raise node.refused(f"the predicate '{one.guard}' of assembly", "a register .pred of the statement")
            line, condition = self.line(node), build.truth(self._number_at(node, predicate))
            with self.block() as inner:
                self._assembled(node, one.text)
            self.emit(ir.If(line, build.unary(line, "not", condition) if one.negated else condition, inner, []))

    def _assembled(self, node: Node, instruction: str) -> None:
        line, scope = self.line(node), _ASSEMBLY.get(instruction)
        if instruction == "trap":
            self.trap(node, ())
            return
        if scope is not None:
            self.emit(ir.Barrier(line, scope))
            return
        if instruction.split(".", maxsplit=1)[0] in ("prefetch", "prefetchu") or self._asynchronous(node, instruction):
            return
        named = _NAMED_BARRIER.match(instruction)
        if named is not None:
            self._named_barrier(node, named[2], named[3], waits=named[1] == "sync")
        elif not self._instruction(node, instruction):
            raise node.refused(f"the assembly '{instruction}'", _instead(instruction))

    # Long: one case for each kind of instruction.
    def _instruction(self, node: Node, instruction: str) -> bool:
        """Translate an instruction on numbers, a load or a store; return whether it is one that is known."""
        found = _INSTRUCTION.match(instruction)
        if found is None:
            return False
        words = found[1].split(".")
        parts = [part.strip() for part in re.findall(r"\{[^}]*\}|[^,{}]*[^,{}\s][^,{}]*", found[2])]
        kind = _type_of(words[-1])
        if words[0] in ("ld", "st"):
            return len(parts) == 2 and self._load_or_store(node, words, parts)
        if words[0] in ("atom", "red"):
            return kind is not None and self._atomic_instruction(node, words, parts, kind)
        if words[0] == "setp" and len(words) == 3 and kind is not None and len(parts) == 3:
            return words[1] in _COMPARED and self._comparison(node, _COMPARED[words[1]], parts, kind)
        if words[0] == "selp" and kind is not None and len(parts) == 4:
            condition = self._operand_number(node, parts[3], BOOL)
            yes, no = (self._operand_number(node, text, kind) for text in parts[1:3])
            if condition is None or yes is None or no is None:
                return False
            return self._set_operand(node, parts[0], build.select(self.line(node), condition, yes, no))
        if words[0] in _CARRIED and ("cc" in words or words[0].endswith("c")) and kind is not None:
            return self._carried(node, words, parts, kind)
        if words[0] == "cvt" and len(parts) == 2:
            return self._converted_operand(node, words, parts)
        if words[0] in ("mov", "cvta") and len(parts) == 2 and self._moved(node, words, parts):
            return True
        return self._computation(node, "_".join(one for one in words if one not in _MODIFIERS), parts)

    # Operands: those of the statement, registers that it declares, registers of a thread, and literals.

    def _number_at(self, node: Node, place: Place) -> ir.Expr:
        value = self.load(self.line(node), place)
        assert isinstance(value, ir.Expr)  # noqa: S101  it is a number
        return value

    def _operand_number(self, node: Node, text: str, kind: Scalar) -> ir.Expr | None:
        """Return the number of a type that an operand is; None for one that is not known."""
        line, given, own = self.line(node), _operand(node, text), self._registers.get(text)
        if given is not None:
            return _as_bits(self.number(given), kind)
        if own is not None:
            return _as_bits(self.encoded(line, own) if isinstance(own, Ptr) else self._number_at(node, own), kind)
        if text.startswith("%"):
            made = self._special_register(node, text[1:])
            return None if made is None else _as_bits(made, kind)
        return _literal(line, text, kind)

    def _operand_place(self, node: Node, text: str) -> Place | None:
        """Return the place of a number that an operand is; None for one that is none."""
        given, own = _operand(node, text), self._registers.get(text)
        if given is not None:
            return None if isinstance(given.type, Pointer) and not given.type.reference else self.place(given)
        return own if isinstance(own, Reg) else None

    def _set_operand(self, node: Node, text: str, value: ir.Expr) -> bool:
        """Emit that an operand gets a number, of which the bits are kept; return whether it has a place."""
        place = self._operand_place(node, text)
        if place is None:
            return False
        self.store(self.line(node), place, _as_bits(value, scalar_of_type(place.type, U32)))
        return True

    # Instructions on numbers.

    def _comparison(self, node: Node, op: str, parts: Sequence[str], kind: Scalar) -> bool:
        left, right = (self._operand_number(node, text, kind) for text in parts[1:])
        if left is None or right is None:
            return False
        return self._set_operand(node, parts[0], build.binary(self.line(node), op, left, right))

    def _converted_operand(self, node: Node, words: Sequence[str], parts: Sequence[str]) -> bool:
        """Translate ``cvt.u32.u64``: a conversion as C has it."""
        to, kind = _type_of(words[-2]), _type_of(words[-1])
        rounded = set(words[1:-2]) - {"ftz"}
        if to is None or kind is None or not rounded <= ({"rzi"} if to.kind != "float" else {"rn"}):
            return False
        if kind.kind == "float" and to.kind != "float" and not rounded:
            return False
        value = self._operand_number(node, parts[1], kind)
        return value is not None and self._set_operand(node, parts[0], build.converted(value, to))

    def _moved(self, node: Node, words: Sequence[str], parts: Sequence[str]) -> bool:
        """Translate a move of a pointer, of an address of shared memory, or between a number and its two halves."""
        line, (target, source) = self.line(node), parts
        given, own = _operand(node, source), self._registers.get(source)
        pointer = own if isinstance(own, Ptr) else None
        if given is not None and isinstance(given.type, Pointer):
            pointer = self.hold_pointer(self.pointer(given))
        if pointer is not None and words[:3] == ["cvta", "to", "shared"]:
            return self._set_operand(node, target, self.shared_address(line, pointer))
        if pointer is not None:
            if target in self._registers:
                self._registers[target] = pointer
                return True
            return self._set_operand(node, target, self.encoded(line, pointer))
        if words[-1] != "b64" or "{" not in target + source:
            return False
        halves = [text.strip() for text in (target if "{" in target else source).strip("{}").split(",")]
        if len(halves) != 2:
            return False
        shift = build.literal(line, 32, U64)
        if "{" in target:
            whole = self._operand_number(node, source, U64)
            if whole is None:
                return False
            whole = self.hold(whole)
            high = build.binary(line, ">>", whole, shift)
            return self._set_operand(node, halves[0], build.converted(whole, U32)) and self._set_operand(
                node, halves[1], build.converted(high, U32)
            )
        low, upper = (self._operand_number(node, text, U32) for text in halves)
        if low is None or upper is None:
            return False
        moved = build.binary(line, "<<", build.converted(upper, U64), shift)
        return self._set_operand(node, target, build.binary(line, "|", moved, build.converted(low, U64)))

    def _carried(self, node: Node, words: Sequence[str], parts: Sequence[str], kind: Scalar) -> bool:
        """Translate an addition or a subtraction that sets the carry (``.cc``) or takes it (``addc``)."""
        line, name = self.line(node), words[0]
        kind = U64 if kind.bits == 64 else U32
        values = [self._operand_number(node, text, kind) for text in parts[1:]]
        held = [self.hold(value) for value in values if value is not None]
        if len(held) != (3 if name.startswith("mad") else 2) or len(held) < len(values):
            return False
        if name.startswith("mad"):
            half = next((word for word in words if word in ("lo", "hi")), "")
            product = self.helper(node, f"__wt_ptx_mul_{half}_u{kind.bits}", held[:2]) if half else None
            if not isinstance(product, ir.Expr):
                return False
            held = [self.hold(product), held[2]]
        left, right = held
        self.variables[CARRY] = U64
        carry: ir.Expr = build.converted(ir.Variable(line, CARRY, type=U64), kind)
        op, takes = ("-" if name.startswith("sub") else "+"), name.endswith("c")
        made = self.hold(build.binary(line, op, left, right))
        over = self._beyond(line, op, left, made)
        if takes:
            further = self.hold(build.binary(line, op, made, carry))
            over = ir.Logic(line, "or", over, self._beyond(line, op, made, further), type=BOOL)
            made = further
        if "cc" in words:
            self.emit(ir.Assign(line, CARRY, build.converted(over, U64)))
        return self._set_operand(node, parts[0], made)

    def _beyond(self, line: int, op: str, before: ir.Expr, after: ir.Expr) -> ir.Expr:
        """Return whether a sum or a difference has a carry."""
        return build.binary(line, "<" if op == "+" else ">", after, before)

    def _atomic_instruction(self, node: Node, words: Sequence[str], parts: Sequence[str], kind: Scalar) -> bool:
        """Translate ``atom`` and ``red``: an atomic operation of one number."""
        op = next((_ATOMIC_NAMES[word] for word in words if word in _ATOMIC_NAMES), None)
        where = parts[1:] if words[0] == "atom" else parts
        if op is None or not where or not where[0].startswith("[") or "noftz" in words:
            return False
        values = [self._operand_number(node, text, kind) for text in where[1:]]
        known = [value for value in values if value is not None]
        if len(known) < len(values) or len(known) != (2 if op == "cas" else 1):
            return False
        line, at = self.line(node), self._operand_address(node, where[0].strip("[] "))
        if {"release", "acq_rel"} & set(words):
            self.emit(ir.Barrier(line, "fence.device"))
        before = self.atomic(node, op, at, Number(kind), known, of_block="cta" in words)
        if {"acquire", "acq_rel"} & set(words):
            self.emit(ir.Barrier(line, "fence.device"))
        return words[0] == "red" or parts[0] == "_" or self._set_operand(node, parts[0], before)

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
        name, _, offset = (part.strip() for part in text.partition("+"))
        found, own = _operand(node, name), self._registers.get(name)
        if (found is None and own is None) or (offset and not offset.isdigit()):
            raise node.refused(f"the address '{text}' in assembly", "an operand such as [%0]")
        if isinstance(own, Ptr):
            at = own
        elif own is not None:
            at = self.of_shared_address(self.line(node), self._number_at(node, own))
        elif found is not None and isinstance(found.type, Pointer):
            at = self.pointer(found)
        else:
            assert found is not None  # noqa: S101  as it was seen
            at = self.of_shared_address(self.line(node), self.number(found))
        return self.hold_pointer(at.moved(int(offset or 0), 1))

    def _load_or_store(self, node: Node, words: Sequence[str], parts: Sequence[str]) -> bool:
        """Translate a load or a store of one number or several, which is atomic if it states an order."""
        where, numbers = parts if words[0] == "st" else (parts[1], parts[0])
        kind = _type_of(words[-1])
        if not (where.startswith("[") and where.endswith("]")) or kind is None:
            return False
        names = [name.strip() for name in numbers.strip("{}").split(",")]
        if numbers.startswith("{"):
            return self._load_or_store_several(node, words, names, self._operand_address(node, where.strip("[] ")))
        if len(words) - len(_MODIFIERS & set(words)) > 2:
            return False
        place = self._operand_place(node, numbers)
        if place is not None and place.type.size == kind.bits // 8 and isinstance(place.type, Number):
            kind = place.type.scalar  # registers have bits, and memory has the type of what is read from it
        line, memory = self.line(node), Mem(self._operand_address(node, where.strip("[] ")), Number(kind))
        ordered = {"volatile", "relaxed", "acquire", "release"} & set(words)
        if words[0] == "ld":
            value = (
                self.atomic_read(node, memory.at, memory.type, relaxed="acquire" not in words)
                if ordered and isinstance(memory.type, Number)
                else self._number_at(node, memory)
            )
            return self._set_operand(node, numbers, value)
        number = self._operand_number(node, numbers, kind)
        if number is None:
            return False
        if not ordered:
            self.store(line, memory, number)
            return True
        if "release" in words:
            self.emit(ir.Barrier(line, "fence.device"))
        self.atomic(node, "store", memory.at, Number(kind), [number], relaxed=True)
        return True

    def _load_or_store_several(self, node: Node, words: Sequence[str], names: Sequence[str], at: Ptr) -> bool:
        """Translate a load or a store of a vector: ``ld.global.v4.f32 {%0, %1, %2, %3}, [%4]``."""
        places = [self._operand_place(node, name) for name in names]
        known = [place for place in places if place is not None]
        if f"v{len(names)}" not in words or len(known) < len(places) or {"relaxed", "acquire", "release"} & set(words):
            return False
        line, size = self.line(node), known[0].type.size
        if any(not isinstance(place.type, Number) or place.type.size != size for place in known):
            return False
        self.aligned(line, at, len(names) * size)
        for number, own in enumerate(known):
            memory = Mem(at.moved(number, size), own.type)
            target, source = (memory, own) if words[0] == "st" else (own, memory)
            self.store(line, target, self.load(line, source))
        return True

    def _computation(self, node: Node, name: str, parts: Sequence[str]) -> bool:
        """Translate an instruction on numbers by the function of our header that has its name and types."""
        known = (one for one in node.unit.declarations() if one.kind == "FUNCTION_DECL")
        function = next((one for one in known if one.name == f"__wt_ptx_{name}"), None)
        if function is None:
            return False
        kinds = [kid.type for kid in function.kids if kid.kind == "PARM_DECL"]
        if len(kinds) != len(parts) - 1:
            return False
        values: list[ir.Expr] = []
        for kind, text in zip(kinds, parts[1:], strict=True):
            assert isinstance(kind, Number)  # noqa: S101  as the header declares it
            value = self._operand_number(node, text, kind.scalar)
            if value is None:
                return False
            values.append(value)
        made = self.helper(node, function.name, values)
        assert isinstance(made, ir.Expr)  # noqa: S101  as the header declares it
        return self._set_operand(node, parts[0], made)

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

    def _special_register(self, node: Node, name: str) -> ir.Expr | None:
        """Return a register of a thread: its place in the grid or the warp, the lanes below or above it, a clock."""
        line = self.line(node)
        where = re.fullmatch(r"(tid|ntid|ctaid|nctaid)\.([xyz])", name)
        if where is not None:
            return ir.Index(line, _PLACES[where[1]], "xyz".index(where[2]), type=I32)
        if name in ("clock", "clock64", "globaltimer"):
            return self.clock(line)
        if name == "warpid":
            return build.binary(line, "/", self.thread_rank(line), build.literal(line, 32, I32))
        if name != "laneid" and not re.fullmatch(r"lanemask_(?:eq|lt|le|gt|ge)", name):
            return None
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
    if re.match(r"(?:bra|call|ret|exit)\b|[\w$]+:", instruction):
        return "instructions without jumps"
    return "functions of the language (__syncthreads)"


def _operand(node: Node, text: str) -> Node | None:
    """Return the expression that an operand such as ``%1`` stands for; None for another one."""
    given = operands(node)
    number = int(text[1:]) if re.fullmatch(r"%\d+", text) else len(given)
    return given[number] if number < len(given) else None


def _literal(line: int, text: str, kind: Scalar) -> ir.Expr | None:
    """Return a literal of assembly: an integer, the bits of a float (``0f3F800000``), or a float."""
    bits = re.fullmatch(r"0([fFdD])([0-9a-fA-F]+)", text)
    if bits is not None:
        wide = SCALARS["u32" if bits[1] in "fF" else "u64"]
        return _as_bits(build.literal(line, int(bits[2], 16), wide), kind)
    if re.fullmatch(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?", text):
        return build.literal(line, int(text.rstrip("U"), 0 if "x" in text.lower() else 10), kind)
    if kind.kind == "float" and re.fullmatch(r"-?\d+\.\d*(?:[eE][-+]?\d+)?", text):
        return build.literal(line, float(text), kind)
    return None


def _as_bits(value: ir.Expr, kind: Scalar) -> ir.Expr:
    """Return a number of a register as another type: of the same bits between floats and integers."""
    assert value.type is not None  # noqa: S101  all expressions here have types
    if (value.type.kind == "float") != (kind.kind == "float") and value.type.bits == kind.bits:
        return build.bits_as(value, kind)
    return build.converted(value, kind)
