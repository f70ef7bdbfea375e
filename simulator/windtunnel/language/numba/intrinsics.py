"""Calls of the names of ``numba.cuda`` in a kernel: indices, memory, barriers, atomic operations, warps."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from windtunnel.language import ir
from windtunnel.language.names import Name
from windtunnel.language.numba import arithmetic, rules
from windtunnel.language.numba.arithmetic import as_type, converted, truth
from windtunnel.language.numba.declarations import number_type
from windtunnel.language.numba.expressions import ExpressionReader
from windtunnel.language.numba.names import HALF, VectorType
from windtunnel.language.numba.reader import NeedsFlat
from windtunnel.language.numba.values import Const, Cplx, Num, Records, Tup, Value, View, literal
from windtunnel.language.types import BF16, BOOL, F16, I8, I32, I64, U8, U16, U32, U64, Array, Scalar
from windtunnel.language.words import many

_FULL = 0xFFFFFFFF
_POINTER = 8
"""The bytes of a pointer, of which an alignment is a multiple."""
_WARP = 32


def numba_words(value: Value) -> str:
    """Return the type of a value as Numba's messages write it."""
    match value:
        case Num() | Cplx():
            return rules.name_of(value.type)
        case Tup(items=items):
            return f"Tuple({', '.join(map(numba_words, items))})"
        case View(dims=()):
            return rules.name_of(value.element)
        case View(dims=dims):
            layout = "C" if value.contiguous and value.whole else "A"
            return f"array({rules.name_of(value.element)}, {len(dims)}d, {layout})"
        case Const(value=bool() | int() | str() as known):
            return f"Literal[{type(known).__name__}]({known})"
        case Const(value=known):
            found = number_type(known)
            return f"class({rules.name_of(found)})" if found is not None else str(known)
        case _:
            return value.description


class IntrinsicReader(ExpressionReader):
    """Reads calls of the names of the kernel language."""

    def intrinsic(self, node: ast.Call, called: Name, given: list[Value], named: Mapping[str, Value]) -> Value:
        """Return the value of a call; statements that it stands for are emitted."""
        kind, _, rest = called.op.partition(".")
        handler = getattr(self, f"_call_{kind}", None)
        if handler is None:
            self.refuse(node, f"{called.spelling} in an expression", "a line of its own for it")
        if named and kind not in ("shared", "local", "constant"):
            self.refuse(node, f"an argument of {called.spelling} by its name", "arguments in order")
        result: Value = (
            handler(node, called, given, named) if kind in ("shared", "local") else handler(node, rest, given)
        )
        return result

    def _wanted(self, node: ast.AST, what: str, given: Sequence[Value], *counts: int) -> None:
        if len(given) not in counts:
            self.refuse(node, f"{what} of {many(len(given), 'value')}", " or ".join(map(str, counts)))

    # Indices.

    def _call_grid(self, node: ast.Call, _: str, given: list[Value]) -> Value:
        return self._positions(node, given, whole=False)

    def _call_gridsize(self, node: ast.Call, _: str, given: list[Value]) -> Value:
        return self._positions(node, given, whole=True)

    def _positions(self, node: ast.Call, given: list[Value], *, whole: bool) -> Value:
        count = given[0].value if len(given) == 1 and isinstance(given[0], Const) else None
        if count not in (1, 2, 3):
            self.refuse(node, f"{ast.unparse(node)} (RequireLiteralValue)", "the literal 1, 2 or 3")
        line, made = node.lineno, []
        for axis in range(count):

            def index(what: str, axis: int = axis) -> ir.Expr:
                return converted(ir.Index(line, what, axis, type=I32), I64)

            e = ir.Binary(line, "*", index("grid_size" if whole else "block"), index("block_size"), type=I64)
            made.append(Num(e if whole else ir.Binary(line, "+", e, index("thread"), type=I64)))
        return made[0] if count == 1 else Tup(tuple(made))

    def _call_lane(self, node: ast.Call, _: str, given: list[Value]) -> Value:
        self.refuse(node, "a call of laneid", "cuda.laneid without brackets")

    # Memory.

    def _call_shared(self, node: ast.Call, called: Name, given: list[Value], named: Mapping[str, Value]) -> Value:
        return self._declared(node, called, given, named)

    def _call_local(self, node: ast.Call, called: Name, given: list[Value], named: Mapping[str, Value]) -> Value:
        return self._declared(node, called, given, named)

    def _declared(self, node: ast.Call, called: Name, given: list[Value], named: Mapping[str, Value]) -> Value:
        stated = dict(zip(("shape", "dtype", "alignment"), given, strict=False)) | dict(named)
        if not {"shape", "dtype"} <= set(stated) <= {"shape", "dtype", "alignment"}:
            self.refuse(
                node, f"{called.spelling} of {', '.join(stated) or 'nothing'}", f"{called.spelling}(shape, dtype)"
            )
        dtype = stated["dtype"]
        if not isinstance(dtype, Const):
            self.refuse(node, f"{dtype.description} as a dtype", "a type: float32, np.int64 ...")
        shape = self._shape(node, called, stated["shape"], dtype)
        self._check_alignment(node, stated.get("alignment", Const(None)))
        kind = dtype.value
        if isinstance(kind, str) or type(kind).__module__.startswith("numba."):
            kind = self.record_dtype(kind)
        if isinstance(kind, VectorType):
            self.refuse(node, f"an array of {kind.name}", "an array of numbers with a further dimension")
        if 0 in shape:
            return self._dynamic(node, kind)
        return self.declare(node, called.op, shape, kind)

    def record_dtype(self, kind: Any) -> Any:
        """Return the NumPy dtype of Numba's type of records, and any other type unchanged."""
        dtype = getattr(kind, "dtype", None)
        return dtype if isinstance(dtype, np.dtype) and dtype.names else kind

    def _dynamic(self, node: ast.Call, kind: Any) -> Value:
        """Return the shared array whose size the launch sets. All such arrays of a kernel are the same memory."""
        declared = next((one for one in self.declared.values() if one.shape[:1] == (0,)), None)
        if declared is None:
            return self.declare(node, "shared", (0,), kind)
        element = self.element_type(node, kind)
        if isinstance(element, rules.Complex) or len(declared.shape) > 1:
            self.refuse(
                node,
                f"two shared arrays whose size the launch sets, one of them of {kind}",
                "arrays of real numbers, or of constant sizes",
            )
        if element.bits < declared.element.bits or (declared.element == BOOL and element != BOOL):
            raise NeedsFlat(declared.name, f"u{min(element.bits, declared.element.bits) // 8}")
        return View(declared.name, element, (self.dynamic_dim(node, declared, element),), (None,), space="shared")

    def _check_alignment(self, node: ast.Call, given: Value) -> None:
        """Refuse an alignment as Numba does. Raises ValueError for a number that is none."""
        at = given.value if isinstance(given, Const) else given
        if at is None:
            return
        if isinstance(at, bool) or not isinstance(at, (int, np.integer)):
            self.refuse(node, "RequireLiteralValue: alignment must be a constant integer", "8, 16, 32 ...")
        if at <= 0 or at & (at - 1) or at % _POINTER:
            wanted = "positive" if at <= 0 else "a power of 2" if at & (at - 1) else f"a multiple of {_POINTER}"
            raise ValueError(f"Alignment must be {wanted}")

    def _shape(self, node: ast.Call, called: Name, value: Value, dtype: Const) -> tuple[int, ...]:
        items = value.items if isinstance(value, Tup) else (value,)
        sides: list[int] = []
        for item in items:
            known = item.value if isinstance(item, Const) else None
            if isinstance(item, Num) and isinstance(item.expr, ir.Literal):
                known = item.expr.value
            if known is not None and not isinstance(known, bool) and hasattr(known, "__index__"):
                sides.append(int(known))
                continue
            function = f"<function {called.spelling.rpartition('cuda.')[2]}>"
            signature = f"array(shape={numba_words(value)}, dtype={numba_words(dtype)})"
            self.refuse(
                node,
                f"No implementation of function Function({function}) found for signature:\n \n >>> {signature}\n \n"
                "a shape of an array that is known only while the kernel runs",
                "whole numbers that are constants",
            )
        dynamic = called.op == "shared" and len(sides) == 1
        if not sides or min(sides) < (0 if dynamic else 1):
            self.refuse(node, f"a shape of {tuple(sides)}", "whole numbers from 1")
        return tuple(sides)

    def _call_constant(self, node: ast.Call, _: str, given: list[Value]) -> Value:
        if len(given) != 1 or not isinstance(given[0], (View, Records)):
            self.refuse(node, "const.array_like of something that is not a known array", "a global NumPy array")
        return given[0]

    # Barriers.

    def _call_barrier(self, node: ast.Call, _: str, given: list[Value]) -> Value:
        self._wanted(node, "syncthreads", given, 0)
        self.emit(ir.Barrier(node.lineno, "block"))
        return Const(None)

    def _call_warp_barrier(self, node: ast.Call, _: str, given: list[Value]) -> Value:
        self._wanted(node, "syncwarp", given, 0, 1)
        mask = converted(self.integer(node, given[0]), U32) if given else None
        self.emit(ir.Barrier(node.lineno, "warp", mask))
        return Const(None)

    def _call_fence(self, node: ast.Call, scope: str, given: list[Value]) -> Value:
        self._wanted(node, "a fence", given, 0)
        self.emit(ir.Barrier(node.lineno, f"fence.{scope}"))
        return Const(None)

    def _call_this_grid(self, node: ast.Call, _: str, given: list[Value]) -> Value:
        self._wanted(node, "this_grid", given, 0)
        self.cooperative = True
        return Const(GRID)

    def _call_grid_sync(self, node: ast.Call, _: str, given: list[Value]) -> Value:
        del given
        self.emit(ir.Barrier(node.lineno, "grid"))
        return Const(1)

    def _call_sleep(self, node: ast.Call, _: str, given: list[Value]) -> Value:
        self._wanted(node, "nanosleep", given, 1)
        return Const(None)

    def _call_counted(self, node: ast.Call, how: str, given: list[Value]) -> Value:
        """Read ``syncthreads_count`` and its kin: a counter in shared memory between barriers."""
        self._wanted(node, f"syncthreads_{how}", given, 1)
        line = node.lineno
        holds = self.hold(truth(self.numeric(node, given[0])))
        name = self.fresh("barrier_count")
        self.declared[name] = ir.Declare(line, name, "shared", (1,), I32)
        self.arrays[name] = Array(I32, 1)
        at = literal(line, 0, I32)
        first: ir.Expr = literal(line, True, BOOL)
        for axis in range(3):
            is_zero = ir.Binary(line, "==", ir.Index(line, "thread", axis, type=I32), literal(line, 0, I32), type=BOOL)
            first = is_zero if axis == 0 else ir.Logic(line, "and", first, is_zero, type=BOOL)
        self.emit(ir.If(line, first, [ir.Store(line, name, [at], literal(line, 0, I32))], []))
        self.emit(ir.Barrier(line, "block"))
        atomic = ir.Atomic(line, "add", name, [copy(at)], [converted(holds, I32)], type=I32)
        self.emit(ir.ExpressionStatement(line, atomic))
        self.emit(ir.Barrier(line, "block"))
        count = self.hold_always(ir.Load(line, name, [copy(at)], type=I32), "count")
        self.emit(ir.Barrier(line, "block"))
        if how == "count":
            return Num(count)
        threads: ir.Expr = literal(line, 1, I32)
        for axis in range(3):
            threads = ir.Binary(line, "*", threads, ir.Index(line, "block_size", axis, type=I32), type=I32)
        against = threads if how == "and" else literal(line, 0, I32)
        decided = ir.Binary(line, "==" if how == "and" else "!=", count, against, type=BOOL)
        return Num(converted(decided, I32))

    # Atomic operations.

    def _call_atomic(self, node: ast.Call, op: str, given: list[Value]) -> Value:
        if op == "compare_and_swap":
            self._wanted(node, "atomic.compare_and_swap", given, 3)
            given = [given[0], Const(0), *given[1:]]
            op = "cas"
        self._wanted(node, f"atomic.{op.rstrip('_')}", given, 4 if op == "cas" else 3)
        owner, index, *values = given
        if not isinstance(owner, View) or not owner.dims:
            self.refuse(node, f"an atomic operation on {owner.description}", "an array, an index and a value")
        places = list(index.items) if isinstance(index, Tup) else [index]
        where = self.part(node, owner, places)
        if not isinstance(where, View) or where.dims:
            self.refuse(node, f"{many(len(places), 'index')} for {owner.description}", f"{len(owner.dims)}")
        if not owner.writable:
            self.refuse(node, "an atomic operation on a constant array", "another array")
        if where.others:
            held = [self.stored(self.num(node, value), "operand") for value in values]
            found = self.of_each(node, where, lambda one: self._atomic_at(node, op, one, held))
            assert found is not None  # noqa: S101  each has a result
            return found
        return self._atomic_at(node, op, where, values)

    def _atomic_at(self, node: ast.Call, op: str, where: View, values: Sequence[Value]) -> Num:
        line, owner = node.lineno, where
        element = self.arrays[owner.base].element
        seen = owner.element
        if isinstance(seen, Scalar) and seen != element:
            return self._atomic_on_bits(node, op, where, values, seen)
        name = {"nanmax": "max", "nanmin": "min"}.get(op, op)
        if op in ("max", "min") and element.kind == "float":
            name = f"{op}_number"
        self._check_atomic(node, op.rstrip("_"), owner, element)
        operands = [converted(self.num(node, value).expr, element) for value in values]
        indices = [literal(line, 0) if start is None else start for start in where.origin]
        return Num(ir.Atomic(line, name, owner.base, indices, operands, type=element))

    def _atomic_on_bits(self, node: ast.Call, op: str, where: View, values: Sequence[Value], seen: Scalar) -> Num:
        """Return an atomic operation on an array that is seen as another type: its memory becomes one of that type."""
        element = self.arrays[where.base].element
        if where.space == "global" and where.base in self.captured:
            self.refuse(node, "an atomic operation on a captured array that is seen as another type", "an argument")
        same_size = {seen.kind, element.kind} <= {"int", "uint"} and seen.bits == element.bits
        if same_size and op in ("add", "sub", "and_", "or_", "xor", "exch", "cas"):
            operands = [Num(as_type(converted(self.num(node, value).expr, seen), element)) for value in values]
            found = self._atomic_at(node, op, replace(where, element=element), operands)
            return Num(as_type(found.expr, seen))
        if seen.kind not in ("int", "uint") or seen.bits > element.bits or self.flattened.get(where.base):
            self.refuse(node, f"an atomic operation on {rules.name_of(element)} that is seen as {rules.name_of(seen)}",
                        "integers of the size of the elements, of one type in the whole kernel")  # fmt: skip
        raise NeedsFlat(where.base, seen.dtype.str[1:])

    def _check_atomic(self, node: ast.Call, op: str, owner: View, element: Scalar) -> None:
        """Refuse what Numba CUDA has no atomic operation for."""
        if isinstance(owner.element, rules.Complex):
            self.refuse(node, "an atomic operation on complex numbers", "real numbers")
        if op in ("and", "or", "xor", "exch", "cas") and element.kind not in ("int", "uint"):
            self.refuse(node, f"atomic.{op} on {rules.name_of(element)}", "integers")
        if op in ("inc", "dec") and element.kind != "uint":
            self.refuse(node, f"atomic.{op} on {rules.name_of(element)}", "unsigned integers")
        if element.bits < 32:
            self.refuse(node, f"an atomic operation on {rules.name_of(element)}", "elements of 32 or 64 bits")

    # Warps.

    def _call_shuffle(self, node: ast.Call, mode: str, given: list[Value]) -> Value:
        line = node.lineno
        if mode == "numbered":
            self._wanted(node, "shfl_sync_intrinsic", given, 5)
            how = given[1].value if isinstance(given[1], Const) else None
            mode = {0: "index", 1: "up", 2: "down", 3: "xor"}.get(how, "")  # type: ignore[arg-type]
            given = [given[0], given[2], given[3]]
        self._wanted(node, f"a shuffle ({mode})", given, 3)
        mask, value, lane = given
        moved = self.numeric(node, value)
        place = converted(self.integer(node, lane), I32)
        stated = converted(self.integer(node, mask), U32)
        if isinstance(moved, Cplx):
            self.refuse(node, "a shuffle of complex numbers", "a shuffle of each part")
        made = ir.Warp(line, f"shuffle.{mode}", [stated, moved.expr, place], type=moved.type)
        return Num(self.hold_always(made, "shuffled"))

    def _call_vote(self, node: ast.Call, how: str, given: list[Value]) -> Value:
        line = node.lineno
        if how == "numbered":
            self.refuse(node, "vote_sync_intrinsic", "all_sync, any_sync or ballot_sync")
        self._wanted(node, f"{how}_sync", given, 2)
        mask = converted(self.integer(node, given[0]), U32)
        predicate = truth(self.numeric(node, given[1]))
        if how == "eq":
            held = [self.hold(mask), self.hold(predicate)]
            sides = []
            for inverted in (False, True):
                e = copy(held[1])
                asked: ir.Expr = ir.Unary(line, "not", e, type=BOOL) if inverted else e
                sides.append(self.hold_always(ir.Warp(line, "vote.all", [copy(held[0]), asked], type=BOOL), "vote"))
            return Num(ir.Logic(line, "or", *sides, type=BOOL))
        if how == "ballot":  # Numba's is signed
            ballot = self.hold_always(ir.Warp(line, "vote.ballot", [mask, predicate], type=U32), "vote")
            return Num(converted(ballot, I32))
        return Num(self.hold_always(ir.Warp(line, f"vote.{how}", [mask, predicate], type=BOOL), "vote"))

    def _call_active(self, node: ast.Call, _: str, given: list[Value]) -> Value:
        self._wanted(node, "activemask", given, 0)
        return Num(self.hold_always(ir.Warp(node.lineno, "active", [], type=U32), "active"))

    def _call_lanes_below(self, node: ast.Call, _: str, given: list[Value]) -> Value:
        self._wanted(node, "lanemask_lt", given, 0)
        line = node.lineno
        lane = converted(ir.Warp(line, "lane", [], type=I32), U32)
        bit = ir.Binary(line, "<<", literal(line, 1, U32), lane, type=U32)
        return Num(ir.Binary(line, "-", bit, literal(line, 1, U32), type=U32))

    def _call_match(self, node: ast.Call, how: str, given: list[Value]) -> Value:
        """Read ``match_any_sync`` and ``match_all_sync``: every lane's value is compared with the thread's own."""
        self._wanted(node, f"match_{how}_sync", given, 2)
        line = node.lineno
        mask = self.hold(converted(self.integer(node, given[0]), U32))
        # Lanes that the mask names and that are not there, or have ended, take no part.
        everyone = ir.Warp(line, "vote.ballot", [copy(mask), literal(line, True, BOOL)], type=U32)
        there = self.hold_always(everyone, "lanes")
        made = self.num(node, given[1])
        if made.type.kind == "float":  # the bits are compared
            made = Num(as_type(made.expr, arithmetic.UNSIGNED[made.type.bits]))
        value = self.hold(made.expr)
        same = self.variable("same", U32)
        self.emit(ir.Assign(line, same, literal(line, 0, U32)))
        lane = self.variable("lane", I32)
        here = self.read(line, lane)
        other = self.variable("other", made.type)
        shuffle = ir.Warp(line, "shuffle.index", [copy(mask), copy(value), copy(here)], type=made.type)
        bit = ir.Binary(line, "<<", literal(line, 1, U32), converted(copy(here), U32), type=U32)
        bit = ir.Binary(line, "&", bit, copy(there), type=U32)
        equal = ir.Binary(line, "==", self.read(line, other), copy(value), type=BOOL)
        joined = ir.Binary(line, "|", self.read(line, same), bit, type=U32)
        chosen = ir.Select(line, equal, joined, self.read(line, same), type=U32)
        body: list[ir.Stmt] = [ir.Assign(line, other, shuffle), ir.Assign(line, same, chosen)]
        bounds = [literal(line, number, I32) for number in (0, _WARP, 1)]
        self.emit(ir.For(line, lane, bounds[0], bounds[1], bounds[2], body))
        if how == "any":
            return Num(converted(self.read(line, same), I32))
        held = self.hold(ir.Binary(line, "==", self.read(line, same), copy(there), type=BOOL))
        result = ir.Select(line, copy(held), copy(there), literal(line, 0, U32), type=U32)
        return Tup((Num(converted(result, I32)), Num(copy(held))))

    # Numbers.

    def _call_bits(self, node: ast.Call, op: str, given: list[Value]) -> Value:
        self._wanted(node, op, given, 1)
        truth_value = isinstance(given[0], Num) and given[0].type == BOOL
        value = converted(self.num(node, given[0]).expr, I8) if truth_value else self.integer(node, given[0])
        assert value.type is not None  # noqa: S101  it is an integer
        line, bits = node.lineno, value.type.bits
        if op == "brev":
            kind = value.type if value.type == U64 else U32
            return Num(ir.Call(line, f"bits.{op}", [converted(value, kind)], type=kind))
        if op == "ffs":
            lowest = ir.Call(line, f"bits.{op}", [converted(value, I64 if bits > 32 else I32)], type=I32)
            return Num(converted(lowest, U32))
        own = value.type  # narrow integers are counted in their own width
        if bits < 32:
            value = converted(converted(value, U16 if bits == 16 else U8), U32)
        made: ir.Expr = ir.Call(line, f"bits.{op}", [value], type=I32)
        if op == "clz" and bits < 32:
            made = ir.Binary(line, "-", made, literal(line, 32 - bits, I32), type=I32)
        return Num(converted(made, own))

    def _call_fma(self, node: ast.Call, _: str, given: list[Value]) -> Value:
        self._wanted(node, "fma", given, 3)
        return self._fused(node, self._as_floats(node, given))

    def _fused(self, node: ast.Call, given: list[Num]) -> Value:
        made = arithmetic.function(node.lineno, "fma", given)
        assert isinstance(made.expr, ir.Call)  # noqa: S101  it is a call of fma
        made.expr.op = "fma"
        return made

    def _call_math(self, node: ast.Call, name: str, given: list[Value]) -> Value:
        return arithmetic.function(node.lineno, name, self._as_floats(node, given))

    def _as_floats(self, node: ast.Call, given: list[Value]) -> list[Num]:
        """Return the arguments of a function that is there for float32 and float64."""
        numbers = [self.num(node, value) for value in given]
        kind = rules.of_float(*(value.type for value in numbers))
        return [Num(converted(value.expr, kind)) for value in numbers]

    def _call_select(self, node: ast.Call, _: str, given: list[Value]) -> Value:
        self._wanted(node, "selp", given, 3)
        yes, no = (self.num(node, side) for side in given[1:])
        if yes.type != no.type or yes.type in (BOOL, I8, U8, F16, BF16):
            names = " and ".join(rules.name_of(side.type) for side in (yes, no))
            self.refuse(node, f"selp of {names}", "two numbers of one type of 16 bits or more, not float16")
        chosen = truth(self.numeric(node, given[0]))
        return Num(ir.Select(node.lineno, chosen, yes.expr, no.expr, type=yes.type))

    def _call_half(self, node: ast.Call, name: str, given: list[Value]) -> Value:
        kind, op = HALF[name]
        numbers = [Num(converted(self.num(node, value).expr, F16)) for value in given]
        if name == "hne":  # of a NaN and a number it is false, other than `!=`
            a, b = (self.held(one).expr for one in numbers)  # type: ignore[union-attr]
            sides = [ir.Binary(node.lineno, op, copy(a), copy(b), type=BOOL) for op in ("<", ">")]
            return Num(ir.Logic(node.lineno, "or", *sides, type=BOOL))
        if kind == "binary":
            return self.binary(node, op, *numbers)
        if kind == "unary":
            return self.unary(node, op, numbers[0])
        if kind == "extreme":
            return arithmetic.extreme(node.lineno, op, *numbers)
        if op == "fma":
            return self._fused(node, numbers)
        return Num(converted(arithmetic.function(node.lineno, op, numbers).expr, F16))

    def _call_hinted_load(self, node: ast.Call, name: str, given: list[Value]) -> Value:
        self._wanted(node, name, given, 2)
        return self._at_hint(node, name, given)

    def _call_hinted_store(self, node: ast.Call, name: str, given: list[Value]) -> Value:
        self._wanted(node, name, given, 3)
        self.store_value(node, self._at_hint(node, name, given), given[2])
        return Const(None)

    def _at_hint(self, node: ast.Call, name: str, given: list[Value]) -> Value:
        owner, index = given[:2]
        if not isinstance(owner, View) or not owner.dims:
            self.refuse(node, f"{name} operates on arrays or pointers. Got type {owner.description}", "an array")
        places = list(index.items) if isinstance(index, Tup) else [index]
        if len(places) != len(owner.dims):
            what = "a scalar" if not isinstance(index, Tup) else str(len(places))
            self.refuse(node, f"Expected {len(owner.dims)} indices, got {what}", "an index for each dimension")
        return self.part(node, owner, list(places))

    def vector(self, node: ast.Call, kind: VectorType, given: list[Value]) -> Value:
        """Return a vector made from numbers and other vectors."""
        parts: list[Value] = []
        for value in given:
            parts += value.items if isinstance(value, Tup) else [value]
        if len(parts) != kind.size:
            self.refuse(node, f"{kind.name} of {len(parts)} numbers", f"{kind.size}")
        element = rules.NUMBA_NAMES[kind.element]
        assert isinstance(element, Scalar)  # noqa: S101  vectors are of real numbers
        items = [Num(self.hold(converted(self.num(node, part).expr, element))) for part in parts]
        return Tup(tuple(items), kind.names)


class _Grid:
    """The grid of cooperative groups."""

    sync = Name("sync", "grid_sync")

    def __repr__(self) -> str:
        return "the grid of cooperative groups"


GRID = _Grid()
