"""The emitter of all dialects of C: CUDA C++, HIP, OpenCL C, Metal, C++ for high-level synthesis, and GLSL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from windtunnel.codegen.c_expressions import CExpressions
from windtunnel.codegen.signature import Argument, Buffer, Value
from windtunnel.codegen.text import EQUAL, PRIMARY, UNARY, Piece, c_string
from windtunnel.codegen.tokens import AtomicRule
from windtunnel.language import ir
from windtunnel.language.types import BOOL, F64, I32, SCALARS, U32, U64, Scalar


class CEmitter(CExpressions):
    """Writes one kernel in a dialect of C that ``tokens`` describes."""

    prints = False
    """Whether the kernel prints."""

    # The whole.

    def whole(self, body: Sequence[str]) -> Iterator[str]:
        """Yield headers, helper functions and the kernel."""
        tokens, tops = self.tokens, self.lines_of(self.tops)
        if tokens.f64_extension and F64 in self.every_type():
            self.extensions.add(tokens.f64_extension)
        yield from (f"#include <{name}>" for name in self._headers(body))
        yield from tokens.prologue
        yield from (tokens.extension.format(name) for name in sorted(self.extensions))
        yield ""
        yield from self.helper_lines(body)
        yield from self._head()
        yield from tops
        yield from self._scalar_copies()
        yield from body
        yield "}"

    def _headers(self, body: Sequence[str]) -> Iterator[str]:
        yield from self.tokens.headers
        for feature, header in self.tokens.feature_headers.items():
            elements = (array.element.name for array in self.program.arrays.values())
            in_helpers = any(name.endswith(f"_{feature}") for name in self.helpers)
            if in_helpers or feature in elements or any(f"this_{feature}()" in line for line in body):
                yield header

    def _head(self) -> Iterator[str]:
        tokens = self.tokens
        arguments = [self.argument(argument) for argument in self.sorted_arguments()]
        arguments += [text for index, text in tokens.builtin_arguments.items() if index in self.used]
        head = tokens.entry.format(name=self.spelled[self.program.name], arguments="\n")
        if not tokens.entry_lines:
            yield head.replace("\n", ", ".join(arguments))
            return
        first, last = head.split("\n")
        yield first
        yield from (f"    {text}," for text in arguments[:-1])
        yield f"    {arguments[-1]}{last}" if arguments else last

    def argument(self, argument: Argument) -> str:
        """Return a parameter of the kernel."""
        if isinstance(argument, Buffer):
            return self.tokens.pointer.format(
                const="" if argument.written else "const ",
                volatile=self._volatile(argument.name),
                type=self.array_type(argument.element, declared=False),
                name=self.spelled[argument.name],
                position=argument.position,
            )
        kind, name = "int", self.spelled[argument.name]
        if isinstance(argument, Value):
            kind = self.tokens.passed_bool if argument.type == BOOL else self.tokens.types[argument.passed.name]
            name = f"wt_{name}" if self.is_copied(argument) else name
        return self.tokens.scalar.format(type=kind, name=name, position=argument.position)

    def is_copied(self, value: Value) -> bool:
        """Return whether a scalar parameter is copied to a variable, because its name or type differs."""
        is_changed = value.name in self.facts.assigned or value.type not in (value.passed, BOOL)
        return self.tokens.copies_scalars and is_changed

    def _scalar_copies(self) -> Iterator[str]:
        for argument in self.sorted_arguments():
            if isinstance(argument, Value) and self.is_copied(argument):
                kind, name = self.tokens.types[argument.type.name], self.spelled[argument.name]
                yield f"    {kind} {name} = ({kind})wt_{name};"

    def every_type(self) -> set[Scalar]:
        """Return the types of all arrays, variables and expressions."""
        kinds = {*self.kinds.values(), *(array.element for array in self.program.arrays.values())}
        for statement in ir.walk(self.body):
            kinds |= {e.type for e in ir.expressions(statement) if e.type is not None}
        return kinds

    # Arrays.

    def _volatile(self, array: str) -> str:
        return self.tokens.volatile if array in self.facts.atomic else ""

    def declare_array(self, array: ir.Declare) -> None:
        """Declare a shared or local array."""
        kind, name = self.array_type(array.element, declared=True), self.name(array.name)
        if array.shape == (0,) and self.tokens.dynamic_shared is not None:
            self.put(self.tokens.dynamic_shared.format(type=kind, name=name))
            return
        space = self.tokens.shared if array.space == "shared" else ""
        self.put(f"{space}{self._volatile(array.name)}{kind} {name}[{self.sides_product(array.shape)}];")

    def sides_product(self, shape: Sequence[int]) -> str:
        """Return the number of elements of a declared array as a product."""
        return " * ".join(map(str, shape))

    def _template(self, templates: Mapping[str, str], array: str) -> str | None:
        """Return the template of an access whose value needs a conversion."""
        kind = self.program.arrays[array].element
        plain = kind in self.tokens.emulated and array in self.program.declared and not self.tokens.narrow_declared
        return None if plain else templates.get(kind.name)

    def _filled(self, template: str, array: str, indices: Sequence[ir.Expr], value: str = "") -> str:
        place = self.expression(self.place(array, indices), address=True).text
        text = self.named(template)
        return text.format(element=f"{self.name(array)}[{place}]", array=self.name(array), place=place, value=value)

    def load(self, e: ir.Load) -> Piece:
        """Return the value of an element."""
        template = self._template(self.tokens.loads, e.array)
        if template is None:
            return super().load(e)
        return Piece(self._filled(template, e.array, e.indices), EQUAL if e.type == BOOL else PRIMARY)

    def store(self, store: ir.Store) -> None:
        """Write an assignment to an element."""
        template = self._template(self.tokens.stores, store.array)
        if template is None and self.tokens.compound_stores:
            super().store(store)
            return
        template = template or "{element} = {value};"
        if self.tokens.helper_first:
            template = self.named(template)
        value = self.expression(store.value)
        if self.tokens.stores_round:
            value = self._unrounded(value, self.program.arrays[store.array].element)
        self.put(self._filled(template, store.array, store.indices, value.text))

    def _unrounded(self, piece: Piece, kind: Scalar) -> Piece:
        """Remove the last rounding of a value, which the store repeats."""
        head = f"wt_round_{kind}("
        if piece.text.startswith(head) and piece.text.find(")") == len(piece.text) - 1:
            return Piece(piece.text[len(head) : -1], 0)
        return piece

    def do(self, e: ir.Expr) -> None:
        """Write an expression for its effect; the unused result of an atomic operation needs no cast."""
        if not isinstance(e, ir.Atomic):
            super().do(e)
            return
        text = self.expression(e).text
        casts = (f"({self.tokens.types[kind]})" for kind in ("i64", "i32"))
        self.put(f"{text.removeprefix(next((cast for cast in casts if text.startswith(cast)), ''))};")

    def require(self, statement: ir.Require) -> None:
        """Write an assertion: where it does not hold, the kernel ends."""
        if self.tokens.trap is None:
            super().require(statement)
        elif isinstance(statement.condition, ir.Literal):
            self.put(self.tokens.trap if not statement.condition.value else "")
        else:
            self.put(f"if (!{self.at(self.expression(statement.condition), UNARY)}) {self.tokens.trap}")

    def print_line(self, statement: ir.Print) -> None:
        """Write a line that each thread prints, in C's format."""
        if self.tokens.prints is None:
            super().print_line(statement)
            return
        if "%v" in statement.form:
            self.refuse(statement.line, "vectors in the format of printf", "one number after another")
        numbers = iter(statement.numbers)
        values = [c_string(text) if text is not None else self._printed(next(numbers)) for text in statement.texts]
        self.prints = True
        self.put(self.tokens.prints.format(form=c_string(statement.form), values="".join(f", {v}" for v in values)))

    def _printed(self, e: ir.Expr) -> str:
        """Return an argument of ``printf``, in its own type: a built-in index may be of another one."""
        piece = self.expression(e)
        assert e.type is not None  # noqa: S101  the tree is typed
        return piece.text if isinstance(e, (ir.Literal, ir.Variable)) else self.cast(e.type, piece).text

    # Barriers and warps.

    def barrier(self, barrier: ir.Barrier) -> None:
        """Write a barrier or a fence."""
        lines = self.tokens.barriers.get(barrier.scope)
        if lines is None:
            self.refuse(barrier.line, f"{self.tokens.title} has no warps", "syncthreads()")
        if barrier.scope in self.tokens.barrier_features:
            self.extensions.add(self.tokens.barrier_features[barrier.scope])
        for line in lines:
            mask = self.expression(barrier.mask).text if barrier.mask is not None and "{mask}" in line else ""
            self.put(self.named(line.replace("{mask}", mask)))

    def warp(self, e: ir.Warp) -> Piece:
        """Return an exchange between the threads of a warp; in CUDA and HIP with a mask of the threads."""
        tokens = self.tokens
        if not tokens.shuffle:
            return super().warp(e)
        if e.op == "lane":
            return self.function(self.need("lane_i32"))
        if e.op == "warp_size":
            return Piece("warpSize", PRIMARY)
        if e.op == "active":
            return super().warp(e) if tokens.active is None else Piece(tokens.active, PRIMARY)
        mask, value, *rest = (self.expression(argument) for argument in e.arguments)
        kind, how = e.type, e.op.partition(".")[2].replace("index", "")
        assert kind is not None  # noqa: S101  inference has been here
        if e.op.startswith("vote"):
            vote = Piece(tokens.vote.format(how=how, mask=mask.text, value=value.text), PRIMARY)
            if e.op == "vote.ballot":
                return self.cast(U32, vote) if tokens.ballot_is_wide else vote
            return self.infix("!=", vote, Piece("0", PRIMARY))
        narrow = kind.bits < 32 and kind.kind != "float"
        if narrow:
            value = self.cast(I32, value)
        how = f"_{how}" if how else ""
        text = tokens.shuffle.format(how=how, mask=mask.text, value=value.text, lane=rest[0].text)
        return self.cast(kind, Piece(text, PRIMARY)) if narrow else Piece(text, PRIMARY)

    def check_exchange(self, kind: Scalar, line: int) -> None:
        """Raise KernelError if the threads of a warp cannot exchange numbers of a type."""
        if kind.bits > self.tokens.exchange_bits:
            self.refuse(line, f"{self.tokens.short_title}'s simdgroups exchange no {kind}", "two exchanges of 32 bits")

    # Atomic operations.

    def atomically(self, e: ir.Atomic) -> Piece:
        """Return an atomic operation: the language's own, or a call of a helper function."""
        kind, op, tokens = e.type, e.op.rstrip("_"), self.tokens
        assert kind is not None  # noqa: S101  inference has been here
        if kind.bits > tokens.atomic_bits:
            problem = f"{tokens.short_title} has no atomic operations on {kind}"
            self.refuse(e.line, problem, f"elements of {tokens.atomic_bits} bits")
        at = Piece(f"&{self.element(e.array, e.indices)}", PRIMARY)
        space = tokens.spaces[e.array in self.program.declared]
        helper = tokens.atomic_helper.format(op=op, kind=kind, space=space)
        if tokens.helper_first:
            self.need(helper)
        values = [self.expression(value) for value in e.values]
        rule = next((r for r in tokens.atomics if kind.name in r.kinds and op in r.ops), None)
        if rule is not None and rule.extension:
            self.extensions.add(rule.extension)
        if rule is None or not rule.template:
            return self.function(self.need(helper), at, *values)
        return self._native_atomic(rule, e, kind, at, values, space)

    def _native_atomic(
        self, rule: AtomicRule, e: ir.Atomic, kind: Scalar, at: Piece, values: Sequence[Piece], space: str
    ) -> Piece:
        op, types = e.op.rstrip("_"), self.tokens.types
        words = {
            "at": at.text, "values": ", ".join(value.text for value in values), "space": space,
            "op": rule.names.get(op, op), "type": types[kind.name], "word": types[f"u{max(kind.bits, 32)}"],
        }  # fmt: skip
        if "{negative}" in rule.template:
            words["negative"] = self.minus(values[0]).text
        if "{bits}" not in rule.template:
            return Piece(rule.template.format(**words), PRIMARY)
        # On the bits, as an unsigned number of the same width.
        to, back = self.bits_and_back(kind)
        bits = [to(v.text) for v in values] if kind.kind == "float" else [self.unsigned(v).text for v in e.values]
        if op == "sub":
            bits = [self.infix("-", self.literal(0, U64), self.unsigned(e.values[0])).text]
        call = back(rule.template.format(**words, bits=", ".join(bits)))
        return Piece(call, PRIMARY if kind.kind in ("float", "uint") else UNARY)

    def helper_text(self, helper: str, name: str) -> str:
        """Return the source of a helper function."""
        return self._atomic_text(helper, name) if helper.startswith("atomic_") else super().helper_text(helper, name)

    def _atomic_text(self, helper: str, name: str) -> str:
        """Return the helper of an atomic operation that the language lacks."""
        tokens = self.tokens
        _, op, *space, kind_name = helper.split("_")
        kind = SCALARS[kind_name]
        to, back = self.bits_and_back(kind)
        text = tokens.atomic_cas if op == "cas" else tokens.atomic_loop
        values = {
            "word": tokens.types[f"u{kind.bits}"], "space": "".join(space), "expected": to("expected"),
            "seen": back("seen"), "atom": "atomic" if kind.bits == 32 else "atom", "new": to("value"),
            "from_bits": (tokens.word if kind.bits == 32 else tokens.long_word)[1],
        }  # fmt: skip
        value = Piece("value", PRIMARY)
        if op != "cas" and "$change$" in text:
            values["change"] = self.changed(op, kind, Piece(tokens.atomic_old, PRIMARY), value, 0)
        elif op != "cas":
            values["new"] = to(self.changed(op, kind, Piece(back(tokens.atomic_old), PRIMARY), value, 0))
        return self.filled(text, name, kind_name, values)

    def changed(self, op: str, kind: Scalar, old: Piece, value: Piece, line: int) -> str:
        """Return the new value of an atomic operation."""
        match op:
            case "add" | "sub" if kind.kind == "int":
                t, u = self.tokens.types[kind.name], self.tokens.types[f"u{kind.bits}"]
                return f"({t})(({u}){old.text} {'+' if op == 'add' else '-'} ({u}){value.text})"
            case "add" | "sub":
                return self.infix("+" if op == "add" else "-", old, value).text
            case "and" | "or" | "xor":
                return self.infix({"and": "&", "or": "|", "xor": "^"}[op], old, value).text
            case "min" | "max" if kind.kind == "float":
                return self.function(self.math(f"f{op}", kind, line), old, value).text
            case "min" | "max":
                return self.integer_extreme(op, kind, [old, value]).text
            case "inc":
                return f"{old.text} >= {value.text} ? 0u : {old.text} + 1u"
            case "dec":
                return f"{old.text} == 0u || {old.text} > {value.text} ? {value.text} : {old.text} - 1u"
            case "exch":
                return value.text
        raise AssertionError(op)
