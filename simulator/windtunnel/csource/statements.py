"""Statements of C: declarations, branches, loops, switches and jumps."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.csource import build
from windtunnel.csource.calls import Calls
from windtunnel.csource.clang import Node
from windtunnel.csource.ctype import Array, CType, Number, Pointer, Record, Void
from windtunnel.csource.labels import label_among, leaves_a_loop, target
from windtunnel.csource.places import bare, operands
from windtunnel.csource.returns import ends, has_destructor, has_return, sides
from windtunnel.csource.switches import breaks, jumps_out, sections_of
from windtunnel.csource.uses import place_of
from windtunnel.csource.values import Aggregate, Closure, Given, Mem, Place, Ptr, Reg, Value, Var
from windtunnel.language import ir
from windtunnel.language.types import BOOL, I32

_LOOPED = 32
"""Zeros at the end of a list in braces that are written by a loop if there are more."""
_REFUSED = {
    "INDIRECT_GOTO_STMT": "goto of an address", "ASM_STMT": "assembly (asm)",
    "CXX_TRY_STMT": "try", "MS_ASM_STMT": "assembly (asm)",
}  # fmt: skip


class _Loop:
    """A loop or a switch around a statement: what ``break`` and ``continue`` mean in it."""

    def __init__(self, kind: str, step: Node | None = None, test: Node | None = None) -> None:
        self.kind, self.step, self.test = kind, step, test
        self.continued: str | None = None
        """For a switch: the variable that says that ``continue`` was met in it."""
        self.counter: str | None = None
        """The variable that counts the elements of a loop over an array."""


class Statements(Calls):
    """Translates statements."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.loops: list[_Loop] = []
        self.current: Node | None = None
        """The statement that is being translated."""

    def space_of(self, node: Node) -> str | None:
        """Return the memory that a variable is declared in: shared, global; None for a thread's own."""
        raise NotImplementedError

    def static(self, node: Node, space: str) -> Place:
        """Return the place of a variable that all threads of a block, or of the grid, share."""
        raise NotImplementedError

    def statements(self, node: Node) -> None:
        """Translate a block, or one statement."""
        if node.kind == "COMPOUND_STMT":
            self._listed(node.kids)
        else:
            self.statement(node)

    def _listed(self, kids: Sequence[Node]) -> None:
        """Translate statements. What stands before a label that it goes to is a loop of one turn."""
        place = label_among(kids)
        if place is not None:
            label, line = kids[place], self.line(kids[place])
            if any(leaves_a_loop(kid) for kid in kids[:place]):
                raise label.refused(f"goto {label.name} beside a break or continue of a loop around it", "if")
            flag = self.fresh("goes")
            self.variables[flag] = BOOL
            self.frame.labels[label.name] = flag
            self.emit(ir.Assign(line, flag, build.literal(line, False, BOOL)))
            self.frame.depth += 1
            with self.block() as inner:
                self._listed(kids[:place])
                self.emit(ir.Break(line))
            self.frame.depth -= 1
            del self.frame.labels[label.name]
            self.emit(ir.While(line, build.literal(line, True, BOOL), inner))
            self._leave_if_returned(line, inner)
            kids = kids[place:]
        for number, kid in enumerate(kids):
            if self.frame.divides and has_return(kid):
                self._last(kid, kids[number + 1 :])
                return
            self.statement(kid)

    def _last(self, node: Node, rest: Sequence[Node]) -> None:
        """Translate a statement that returns, and what follows it, in a function whose returns divide it."""
        if node.kind == "COMPOUND_STMT":
            self._listed(node.kids)
        elif node.kind == "IF_STMT":
            yes, no = sides(node)
            if ends(yes):
                self._if(node, [yes], [*no, *rest])
            else:
                self._if(node, [yes, *rest], no)
        else:
            self.statement(node)

    def _goto(self, node: Node) -> None:
        flag, line = self.frame.labels.get(target(node)), self.line(node)
        if flag is None:
            raise node.refused("goto that goes back, or into another block", "a loop")
        self.emit(ir.Assign(line, flag, build.literal(line, True, BOOL)))
        self.emit(ir.Break(line))

    # Long: one case for each kind of statement.
    def statement(self, node: Node) -> None:
        """Translate a statement."""
        kind, line = node.kind, self.line(node)
        self.current = node
        if kind == "COMPOUND_STMT":
            self.statements(node)
        elif kind == "DECL_STMT":
            for kid in node.kids:
                self.declaration(kid)
        elif kind == "IF_STMT":
            self._if(node)
        elif kind == "FOR_STMT":
            self._for(node)
        elif kind == "CXX_FOR_RANGE_STMT":
            self._range(node)
        elif kind == "WHILE_STMT":
            *before, condition, body = node.kids
            for kid in before:
                self.declaration(kid)
            self._loop(node, condition, body, None)
        elif kind == "DO_STMT":
            body, condition = node.kids
            self._loop(node, None, body, None, after=condition)
        elif kind == "SWITCH_STMT":
            self._switch(node)
        elif kind == "BREAK_STMT":
            self._break(line)
        elif kind == "CONTINUE_STMT":
            self._continue(node)
        elif kind == "RETURN_STMT":
            self._return(node)
        elif kind == "GOTO_STMT":
            self._goto(node)
        elif kind == "LABEL_STMT":
            self.statement(node.kids[-1])
        elif kind == "NULL_STMT":
            pass
        elif kind in ("CASE_STMT", "DEFAULT_STMT"):
            raise node.refused("a case within a statement of a switch", "cases directly in the switch")
        elif kind in _REFUSED:
            if "ASM" not in kind:
                raise node.refused(_REFUSED[kind], "if, for, while, do, switch")
            self.asm(node)
        elif kind.endswith("_STMT"):
            kids = [kid for kid in node.kids if not kid.kind.endswith("_ATTR")]
            if kind == "UNEXPOSED_STMT" and len(kids) == 1:  # an attribute, such as unroll
                self.statement(kids[0])
            else:
                raise node.refused(f"the statement {kind.lower()}", "if, for, while, do, switch")
        else:
            self.discarded(node)

    def asm(self, node: Node) -> None:
        """Translate a statement of assembly."""
        raise NotImplementedError

    # Declarations.

    # Long: one case for each kind of declaration.
    def declaration(self, node: Node) -> None:
        """Translate a declaration within a function."""
        if node.kind == "UNEXPOSED_DECL" and node.name.startswith("["):
            self._structured(node)
            return
        if node.kind != "VAR_DECL":
            if node.kind in ("TYPEDEF_DECL", "STRUCT_DECL", "CLASS_DECL", "UNION_DECL", "ENUM_DECL", "TYPE_ALIAS_DECL",
                             "USING_DECLARATION", "USING_DIRECTIVE", "NAMESPACE_ALIAS", "STATIC_ASSERT",
                             "FUNCTION_DECL", "UNEXPOSED_DECL"):  # fmt: skip
                return
            raise node.refused(f"the declaration of '{node.name}'")
        line, kind = self.line(node), node.type
        if isinstance(kind, Void) and kind.is_opaque:
            return
        space = self.space_of(node)
        if space is not None:
            self.frame.bound[node.key] = self.static(node, space)
            return
        initial = node.initial
        if isinstance(kind, Pointer) and kind.reference:
            self._reference(node, kind, initial)
            return
        if isinstance(kind, Record) and kind.is_lambda:
            if initial is None:
                raise node.refused("a lambda without its expression")
            self.frame.bound[node.key] = self._closure(bare(initial))
            return
        function = self.function
        if node.cursor.storage_class.name == "STATIC":
            self.frame.bound[node.key] = self.static(node, "global")
            return
        if isinstance(kind, Pointer) and initial is not None and node.key not in self.uses.assigned(function):
            value = self._to(initial, self.value(initial), initial.type, kind)
            if isinstance(value, Ptr):
                self.frame.bound[node.key] = self.hold_pointer(value)
                return
        if isinstance(kind, Array) and kind.count is None:
            raise node.refused(f"the array '{node.name}' of a size that is not known when it is compiled")
        if isinstance(kind, Void) and kind.name not in ("event_t",):
            raise node.refused(f"the variable '{node.name}' of type {kind.name}")
        if isinstance(kind, Record) and has_destructor(node):
            raise node.refused(f"the variable '{node.name}' of a class with a destructor")
        made = self.new_place(node, kind, line, function)
        place: Place = Reg(made, 0, kind) if isinstance(made, Var) else made
        if (initial is None or isinstance(kind, Record)) and any(loop.kind == "loop" for loop in self.loops):
            self.forget(line, place)  # what it held in the iteration before
        if initial is not None:
            self._initial(node, initial, place, kind)
        self.frame.bound[node.key] = made

    def _structured(self, node: Node) -> None:
        """Translate ``auto [a, b] = x``: names of the members of a copy, or of the object itself."""
        line, kind = self.line(node), node.type
        names, initial = [kid for kid in node.kids if kid.kind == "UNEXPOSED_DECL"], node.kids[-1]
        if isinstance(kind, Pointer) and kind.reference:
            whole = self.fixed(self.place(initial))
        elif isinstance(kind, Array):
            whole = self.copied_array(node, kind, self.place(initial.kids[0]), line, self.function)
        else:
            made = self.bind(
                node, kind, self._to(initial, self.value(initial), initial.type, kind), line, self.function
            )
            whole = Reg(made, 0, kind) if isinstance(made, Var) else made
        within = whole.type
        if isinstance(within, Array):
            parts = [self.part(whole, n * within.element.size, within.element) for n in range(len(names))]
        elif isinstance(within, Record) and len(within.fields) == len(names):
            parts = [self.part(whole, one.offset, one.type) for one in within.fields]
        else:
            raise node.refused("names of the parts of this type", "a struct or an array")
        for name, part in zip(names, parts, strict=True):
            self.frame.bound[name.key] = part

    @property
    def function(self) -> Node:
        """The function whose body is being translated."""
        return self.functions[-1]

    def _reference(self, node: Node, kind: Pointer, initial: Node | None) -> None:
        if initial is None:
            raise node.refused(f"the reference '{node.name}' to nothing")
        if isinstance(kind.pointee, Record) and kind.pointee.is_lambda:
            self.frame.bound[node.key] = self._closure(bare(initial))
            return
        place = self.fixed(self.place(initial))
        if isinstance(place, Given):
            held = self.hold_value(place.value)
            assert isinstance(held, Aggregate)  # noqa: S101  holding keeps the kind
            place = Given(held, place.offset, place.type)
        self.frame.bound[node.key] = place

    def _initial(self, node: Node, initial: Node, place: Place, kind: CType) -> None:
        line, inner = self.line(initial), bare(initial)
        while inner.kind == "UNEXPOSED_EXPR" and len(inner.kids) == 1 and inner.type == inner.kids[0].type:
            inner = bare(inner.kids[0])
        if inner.kind == "INIT_LIST_EXPR":
            self._list(inner, place, kind)
            return
        if inner.kind == "STRING_LITERAL" and isinstance(kind, Array):
            text = str(inner.evaluated() or "").encode() + b"\0"
            for number, byte in enumerate(text[: kind.count or 0]):
                self.store(line, self.part(place, number, kind.element), build.literal(line, byte, I32))
            return
        if inner.kind == "CALL_EXPR" and isinstance(kind, Record):
            made = self.call(inner, place)
            if isinstance(made, Place):
                if made == place:
                    return
                made = self.load(line, made)
            if isinstance(made, Aggregate) and not made.parts:
                return
            self.store(line, place, made)
            return
        if isinstance(kind, Array):
            if inner.kind == "CALL_EXPR":
                return
            raise node.refused(f"this initial value of the array '{node.name}'", "a list in braces")
        value = self._to(initial, self.value(initial), initial.type, kind)
        self.store(line, place, value)

    def _list(self, node: Node, place: Place, kind: CType) -> None:
        """Store the values of a list in braces, and zeros in the rest: by a loop where there are many."""
        line = self.line(node)
        if not isinstance(kind, Array) or len(kind.leaves) <= _LOOPED or not isinstance(kind.element, Number):
            self.store(line, place, self.listed(node, kind))
            return
        assert isinstance(place, Mem)  # noqa: S101  arrays are in memory
        given = operands(node)
        for number, one in enumerate(given):
            value = self._to(one, self.value(one), one.type, kind.element)
            self.store(line, self.part(place, number * kind.element.size, kind.element), value)
        counter = self.fresh("zero")
        self.variables[counter] = I32
        with self.block() as body:
            at = place.at.moved(ir.Variable(line, counter, type=I32), kind.element.size)
            self.store(line, Mem(at, kind.element), build.literal(line, 0, kind.element.scalar))
        first, last, step = (build.literal(line, n, I32) for n in (len(given), kind.count or 0, 1))
        if len(given) < (kind.count or 0):
            self.emit(ir.For(line, counter, first, last, step, body))

    def is_swapped(self, node: Node) -> bool:
        """Return whether a place is also one that the function compares and swaps."""
        keys = self.uses.swapped(self.function)
        return bool(keys) and place_of(node) in keys

    # Branches and loops.

    def _if(self, node: Node, yes_body: Sequence[Node] | None = None, no_body: Sequence[Node] = ()) -> None:
        kids = node.kids
        while kids[0].kind in ("DECL_STMT", "VAR_DECL"):
            (self.statement if kids[0].kind == "DECL_STMT" else self.declaration)(kids[0])
            kids = kids[1:]
        line = self.line(node)
        condition = self.condition(kids[0])
        if yes_body is None:
            yes_body, no_body = [kids[1]], kids[2:]
        if isinstance(condition, ir.Literal):
            self._branch(yes_body if condition.value else no_body)
            return
        with self.block() as yes:
            self._branch(yes_body)
        with self.block() as no:
            self._branch(no_body)
        self.emit(ir.If(line, condition, yes, no))

    def _branch(self, body: Sequence[Node]) -> None:
        self._listed(body[0].kids if len(body) == 1 and body[0].kind == "COMPOUND_STMT" else body)

    def _for(self, node: Node) -> None:
        first, condition, step, body = _parts(node)
        if first is not None:
            self.statement(first)
        self._loop(node, condition, body, step)

    def _range(self, node: Node) -> None:
        """Translate a loop over an array."""
        variable, subject, body = node.kids[0], node.kids[-2], node.kids[-1]
        line, whole = self.line(node), self.fixed(self.place(subject))
        kind = whole.type
        if not isinstance(kind, Array) or not isinstance(whole, Mem) or kind.count is None:
            raise node.refused("a loop over something that is no array", "for (int i = 0; i < n; ++i)")
        counter = self.fresh("element")
        self.variables[counter] = I32
        at = ir.Variable(line, counter, type=I32)
        element = Mem(whole.at.moved(at, kind.element.size), kind.element)
        self.emit(ir.Assign(line, counter, build.literal(line, 0, I32)))
        loop = _Loop("loop")
        loop.counter = counter
        self.loops.append(loop)
        self.frame.depth += 1
        with self.block() as inner:
            if isinstance(variable.type, Pointer) and variable.type.reference:
                self.frame.bound[variable.key] = element
            else:
                self.frame.bound[variable.key] = self.bind(
                    variable, variable.type, self.load(line, element), line, self.function
                )
            self.statements(body)
            self._next(loop, line)
        self.frame.depth -= 1
        self.loops.pop()
        self.emit(ir.While(line, build.binary(line, "<", at, build.literal(line, kind.count, I32)), inner))
        self._leave_if_returned(line, inner)

    def _loop(
        self, node: Node, condition: Node | None, body: Node, step: Node | None, after: Node | None = None
    ) -> None:
        """Translate a loop: ``condition`` before and ``after`` the body, and ``step`` after it."""
        line = self.line(condition or after or node)
        with self.block() as before:
            test = build.literal(line, True, BOOL) if condition is None else self.condition(condition)
        loop = _Loop("loop", step, after)
        self.loops.append(loop)
        self.frame.depth += 1
        with self.block() as inner:
            self.statements(body)
            self._next(loop, line)
        self.frame.depth -= 1
        self.loops.pop()
        if before:
            leave = ir.If(line, build.unary(line, "not", test), [ir.Break(line)], [])
            inner[:0] = [*before, leave]
            test = build.literal(line, True, BOOL)
        self.emit(ir.While(line, test, inner))
        self._leave_if_returned(line, inner)

    def _next(self, loop: _Loop, line: int) -> None:
        """Emit what follows the body of an iteration."""
        if loop.counter is not None:
            at = ir.Variable(line, loop.counter, type=I32)
            self.emit(ir.Assign(line, loop.counter, build.binary(line, "+", at, build.literal(line, 1, I32))))
        if loop.step is not None:
            self.discarded(loop.step)
        if loop.test is not None:
            test = self.condition(loop.test)
            if not isinstance(test, ir.Literal):
                self.emit(ir.If(line, build.unary(line, "not", test), [ir.Break(line)], []))
            elif not test.value:
                self.emit(ir.Break(line))

    def _leave_if_returned(self, line: int, inner: Sequence[ir.Stmt]) -> None:
        """Emit that a loop is left if a return or goto of the function left the loop within."""
        for name in (self.frame.returned, *self.frame.labels.values()):
            if name is not None and _assigns(inner, name):
                self.emit(ir.If(line, ir.Variable(line, name, type=BOOL), [ir.Break(line)], []))

    def _break(self, line: int) -> None:
        loop = self.loops[-1]
        if loop.kind == "chain":
            raise AssertionError("a switch without jumps has no break")
        self.emit(ir.Break(line))

    def _continue(self, node: Node) -> None:
        line = self.line(node)
        around = next(number for number in range(len(self.loops) - 1, -1, -1) if self.loops[number].kind == "loop")
        loop = self.loops[around]
        switches = self.loops[around + 1 :]
        if not switches:
            self._next(loop, line)
            self.emit(ir.Continue(line))
            return
        for one in switches:
            one.continued = one.continued or self.fresh("continued")
            self.variables[one.continued] = BOOL
            self.emit(ir.Assign(line, one.continued, build.literal(line, True, BOOL)))
        self.emit(ir.Break(line))

    def _return(self, node: Node) -> None:
        line, frame = self.line(node), self.frame
        given = operands(node)
        if frame.kernel:
            if given:
                self.discarded(given[0])
            self.emit(ir.Return(line))
            return
        if given:
            self._result(node, given[0])
        if not frame.jumps:
            return
        if frame.depth:
            if frame.returned is None:
                frame.returned = self.fresh("returned")
                self.variables[frame.returned] = BOOL
            self.emit(ir.Assign(line, frame.returned, build.literal(line, True, BOOL)))
        self.emit(ir.Break(line))

    def _result(self, node: Node, given: Node) -> None:
        line, frame = self.line(node), self.frame
        if frame.by_reference:
            if frame.place is not None:
                raise node.refused("a second return of a reference")
            frame.place = self.fixed(self.place(given))
        elif frame.result is None:
            if isinstance(frame.returns, Record) and frame.returns.is_lambda:
                frame.closure = self._closure(bare(given))
            else:
                self.discarded(given)
        else:
            kind = frame.result.type
            inner = bare(given)
            if inner.kind == "INIT_LIST_EXPR":
                value: Value = self.listed(inner, kind)
            elif inner.kind == "CALL_EXPR" and isinstance(kind, Record):
                made = self.call(inner)
                value = self.load(line, made) if isinstance(made, Place) else made
            else:
                value = self._to(given, self.value(given), given.type, kind)
            if not isinstance(value, Closure):
                self.store(line, frame.result, value)

    # Switches.

    def _switch(self, node: Node) -> None:
        *before, subject, body = node.kids
        for kid in before:
            (self.statement if kid.kind == "DECL_STMT" else self.declaration)(kid)
        line = self.line(node)
        found = self.number(subject)
        assert found.type is not None  # noqa: S101  all expressions here have types
        value = self.hold(found, "subject")
        sections = sections_of(body)
        if sections is None:
            raise node.refused("a switch whose cases are not directly in it", "cases directly in the switch")
        if all(breaks(statements) for _, statements in sections[:-1]) and not any(
            jumps_out(statements) for _, statements in sections
        ):
            self._chain(line, value, sections)
            return
        loop = _Loop("switch")
        self.loops.append(loop)
        self.frame.depth += 1
        entered = self.fresh("entered")
        self.variables[entered] = BOOL
        with self.block() as inner:
            self.emit(ir.Assign(line, entered, build.literal(line, False, BOOL)))
            for number, (labels, statements) in enumerate(sections):
                at = self.line(labels[0])
                matches = self._matches(at, value, labels, sections)
                self.emit(ir.If(at, matches, [ir.Assign(at, entered, build.literal(at, True, BOOL))], []))
                with self.block() as section:
                    for one in statements:
                        self.statement(one)
                self.emit(ir.If(at, ir.Variable(at, entered, type=BOOL), section, []))
                del number
            self.emit(ir.Break(line))
        self.frame.depth -= 1
        self.loops.pop()
        if loop.continued is not None:
            self.emit(ir.Assign(line, loop.continued, build.literal(line, False, BOOL)))
        self.emit(ir.While(line, build.literal(line, True, BOOL), inner))
        self._leave_if_returned(line, inner)
        if loop.continued is not None:
            with self.block() as jump:
                self._continue(node)
            self.emit(ir.If(line, ir.Variable(line, loop.continued, type=BOOL), jump, []))

    def _chain(self, line: int, value: ir.Expr, sections: Sequence[tuple[list[Node], list[Node]]]) -> None:
        """Translate a switch of which each case ends by itself: as a chain of branches."""
        ordered = sorted(sections, key=lambda section: any(label.kind == "DEFAULT_STMT" for label in section[0]))
        chain: list[ir.Stmt] = []
        for labels, statements in reversed(ordered):
            at = self.line(labels[0])
            with self.block() as body:
                for one in statements:
                    if one.kind != "BREAK_STMT":
                        self.statement(one)
            if any(label.kind == "DEFAULT_STMT" for label in labels):
                chain = body
            else:
                chain = [ir.If(at, self._matches(at, value, labels, sections), body, chain)]
        self.body += chain

    def _matches(
        self, line: int, value: ir.Expr, labels: Sequence[Node], sections: Sequence[tuple[list[Node], list[Node]]]
    ) -> ir.Expr:
        """Return the condition that one of the labels is that of a value."""
        assert value.type is not None  # noqa: S101  all expressions here have types
        if any(label.kind == "DEFAULT_STMT" for label in labels):
            others = [one for group, _ in sections if not any(label is one for label in labels for one in group)
                      for one in group]  # fmt: skip
            if not others:
                return build.literal(line, True, BOOL)
            return build.unary(line, "not", self._matches(line, value, others, sections))
        result: ir.Expr | None = None
        for label in labels:
            first = build.converted(self.number(operands(label)[0]), value.type)
            equal = build.binary(line, "==", value, first)
            if len(label.kids) > 2:  # a range of cases
                last = build.converted(self.number(operands(label)[1]), value.type)
                sides = (build.binary(line, ">=", value, first), build.binary(line, "<=", value, last))
                equal = ir.Logic(line, "and", *sides, type=BOOL)
            result = equal if result is None else ir.Logic(line, "or", result, equal, type=BOOL)
        assert result is not None  # noqa: S101  a section has a label
        return result


def _parts(node: Node) -> tuple[Node | None, Node | None, Node | None, Node]:
    """Return the parts of a ``for``: Clang leaves out those that are missing."""
    *parts, body = node.kids
    declared = [kid for kid in parts[1:] if kid.kind == "VAR_DECL"]
    parts = [kid for kid in parts if kid not in declared]
    if len(parts) == 3:
        return parts[0], parts[1], parts[2], body
    semicolons: list[int] = []
    depth = 0
    for token in node.cursor.get_tokens():
        text = token.spelling
        if text in "([{":
            depth += 1
        elif text in ")]}":
            depth -= 1
            if depth == 0:
                break
        elif text == ";" and depth == 1:
            semicolons.append(token.extent.start.offset)
    found: list[Node | None] = [None, None, None]
    for kid in parts:
        if len(semicolons) == 2:
            number = 0 if kid.start <= semicolons[0] else 1 if kid.start <= semicolons[1] else 2
        else:  # in a macro
            steps = kid.kind in ("COMPOUND_ASSIGNMENT_OPERATOR", "UNARY_OPERATOR") or (
                kid.kind == "BINARY_OPERATOR" and kid.binary == "="
            )
            number = 0 if kid.kind == "DECL_STMT" else 2 if steps else 1
        found[number] = kid
    return found[0], found[1], found[2], body


def _assigns(body: Sequence[ir.Stmt], name: str) -> bool:
    return any(isinstance(one, ir.Assign) and one.name == name for one in ir.walk(body))
