"""Calls: functions, methods and lambdas are translated in place of their call; the device's own are `intrinsics`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from windtunnel.csource import build
from windtunnel.csource.clang import Node
from windtunnel.csource.constructors import Constructors, is_implicit
from windtunnel.csource.ctype import Array, CType, Number, Pointer, Record, Vector, Void
from windtunnel.csource.labels import LOOPS
from windtunnel.csource.memory import NOT_FOLLOWED
from windtunnel.csource.places import bare, is_this, operands
from windtunnel.csource.returns import branches_only, has_goto, returns_early
from windtunnel.csource.uses import Uses
from windtunnel.csource.values import (
    NULL,
    Aggregate,
    Closure,
    Frame,
    Given,
    Mem,
    Place,
    Ptr,
    Reg,
    Value,
    Var,
    copied,
    is_whole,
)
from windtunnel.language import ir, types
from windtunnel.language.types import BOOL, U64

_MAX_DEPTH = 60
"""The largest depth of calls."""
_RECURSION = (0, 24, 6, 4)
"""How often a function is translated within itself, by the number of calls of itself that its body has."""
_LOOPED = 4  # if it has loops, which Python nests 20 deep
_METHODS = ("CXX_METHOD", "CONSTRUCTOR", "CONVERSION_FUNCTION", "DESTRUCTOR")


class Calls(Constructors):
    """Translates calls."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.stack: list[int] = []
        self.uses = Uses()
        self.code: dict[str, Node] = {}
        """The functions of which a pointer is taken, by the name of their object."""
        self._early: dict[int, tuple[bool, bool]] = {}
        self._recursion: dict[int, int] = {}
        self.functions: list[Node] = []
        """The functions that are being translated, innermost last."""

    def intrinsic(self, node: Node, name: str, arguments: Sequence[Node]) -> Value | None:
        """Translate a call of one of the device's own functions; NotImplemented if there is none of this name."""
        raise NotImplementedError

    def statements(self, node: Node) -> None:
        """Translate the body of a function."""
        raise NotImplementedError

    # Long: one case for each kind of callee.
    def call(self, node: Node, target: Place | None = None) -> Value | Place:
        """Translate a call; a reference that it returns is a place. ``target``: where a constructor builds."""
        given = [Node(node.unit, one) for one in node.cursor.get_arguments()]
        declared = node.referred
        if (
            (declared is None or declared.kind in ("VAR_DECL", "PARM_DECL", "FIELD_DECL"))
            and node.kids
            and (isinstance(node.kids[0].type, Pointer))
        ):
            return self._through_pointer(node, given)
        if declared is None:
            if not node.kids and isinstance(node.type, (Record, Number, Vector)):
                return self.zero(node, node.type)
            if len(given) == 1 and not isinstance(node.type, Void) and len(operands(node)) == 1:
                return self.value(given[0])
            raise node.refused(f"this call of '{node.name}'", "a call of a function by its name")
        if declared.kind == "CONSTRUCTOR":
            return self._construct(node, declared, given, target)
        if declared.kind in ("VAR_DECL", "PARM_DECL", "FIELD_DECL"):
            raise node.refused(f"a call through the pointer '{declared.name}'", "a call of a function by its name")
        definition = declared.definition
        if declared.kind == "DESTRUCTOR":
            return None
        if declared.kind in _METHODS:
            return self._method(node, declared, definition, given)
        if definition is None:
            made = self.intrinsic(node, declared.name, given)
            if made is NotImplemented:
                raise node.refused(
                    f"the function '{declared.name}', which is not known",
                    "a function with a body, or one of docs/check.md",
                )
            return made
        return self.inlined(node, definition, given, None)

    # Functions as values.

    def function_pointer(self, node: Node, function: Node) -> Ptr:
        """Return the pointer to a function."""
        definition = function.definition
        if definition is None:
            raise node.refused(f"a pointer to '{function.name}', which has no body")
        known = next((name for name, one in self.code.items() if one.key == definition.key), None)
        if known is None:
            made = self.new_object(f"function_{function.name}", "code", 0, Void(), self.line(node), definition.key)
            self.code[made.name] = self.found.of_file[made.name] = definition
            known = made.name
        return Ptr(frozenset({known}))

    def _through_pointer(self, node: Node, given: Sequence[Node]) -> Value | Place:
        """Translate a call through a pointer: of each function that it may point to."""
        at = self.hold_pointer(self.pointer(node.kids[0]))
        if not at.bases:  # not known in this pass
            return None if isinstance(node.type, Void) else self.zero(node, node.type)
        unknown = [base for base in at.bases if base != NULL and base not in self.code]
        if unknown:
            raise node.refused("a call through a pointer that may point to something else than a known function")
        if len(at.bases) == 1 and NULL not in at.bases:
            return self.inlined(node, self.code[next(iter(at.bases))], given, None)
        line, result = self.line(node), None
        if not isinstance(node.type, Void):
            result = self.variable("called", node.type)

        def call(base: str) -> None:
            if base == NULL:
                self.fail_null(line)
                return
            value = self.inlined(node, self.code[base], given, None)
            if isinstance(value, Place):
                value = self.load(line, value)
            if result is not None:
                self.store(line, Reg(result, 0, result.type), value)

        self._dispatch(line, at, call)
        return None if result is None else self.load(line, Reg(result, 0, result.type))

    # Long: one case for each way of naming a method and its object.
    def _method(self, node: Node, declared: Node, definition: Node | None, given: list[Node]) -> Value | Place:
        callee = bare(node.kids[0]) if node.kids else node
        while callee.kind == "UNEXPOSED_EXPR" and callee.kids and callee.name == declared.name:
            callee = bare(callee.kids[0])
        stated = len(list(declared.cursor.type.argument_types()))
        operator = declared.name.startswith("operator") and len(given) == stated + 1
        if operator and given:
            whole, given = given[0], given[1:]
        elif callee.kind == "MEMBER_REF_EXPR" and operands(callee):
            whole = operands(callee)[0]
        else:
            whole = None
        if whole is None:
            this = None if declared.cursor.is_static_method() else self._this(node)
        else:
            inner = _as_declared(whole)
            if isinstance(inner.type, Record) and inner.type.is_lambda:
                return self._lambda(node, inner, given, definition)
            if isinstance(inner.type, Pointer) and not inner.type.reference:
                this = self._this(inner) if is_this(inner) else Mem(self.pointer(inner), inner.type.pointee)
            else:
                this = self.place(inner)
        if declared.cursor.is_virtual_method() and not is_whole(this):
            raise node.refused(
                f"a call of the virtual method '{declared.name}' of an object that may be of a derived class",
                "a method that is not virtual, or a reference to the derived class",
            )
        if (
            declared.name == "operator="
            and (definition is None or is_implicit(declared))
            and this is not None
            and given
        ):
            self.store(self.line(node), this, self.value(given[0]))
            return this
        if definition is None:
            made = self.intrinsic(node, f"{_class_of(declared)}::{declared.name}", given)
            if made is NotImplemented:
                raise node.refused(f"the method '{declared.name}', which has no body")
            return made
        if this is not None:
            of = node.unit.type_of(declared.cursor.semantic_parent.type, node)
            this = self.fixed(self._as_base(this, of))
        return self.inlined(node, definition, given, this)

    def _lambda(self, node: Node, whole: Node, given: list[Node], body: Node | None) -> Value | Place:
        value = self.value(whole)
        while isinstance(value, Closure) and value.node.kind != "LAMBDA_EXPR":
            value = self.value(value.node)
        if not isinstance(value, Closure):
            raise node.refused("a call of something that is no lambda here")
        # Of a generic lambda, only the instance that is called has types.
        return self.inlined(node, body or value.node, given, None, outer=value.frame)

    def _captured(self, node: Node) -> Frame:
        """Return the frame of a lambda: names captured by value hold what they are now."""
        frame = Frame("lambda", outer=self.frame)
        text = node.unit.text_of(node.place[0], node.place[1])
        kids = [kid for kid in node.kids if kid.kind == "VARIABLE_REF"]
        for kid in kids:
            target = kid.referred
            bound = None if target is None else self.frame.find(target.key)
            by_reference = f"&{kid.name}" in text.replace(" ", "") or "[&]" in text
            if target is None or not isinstance(bound, Var) or by_reference:
                continue
            copy = self.variable(kid.name, bound.type)
            line = self.line(kid)
            self.store(line, Reg(copy, 0, copy.type), self.load(line, Reg(bound, 0, bound.type)))
            frame.bound[target.key] = copy
        return frame

    # Functions in place of their calls.

    # Long: the steps of a call, in order.
    def inlined(
        self, node: Node, function: Node, given: Sequence[Node], this: Place | None, outer: Frame | None = None
    ) -> Value | Place:
        """Translate a function's body in place of a call of it."""
        function.require_known()
        line = self.line(node)
        if (within := self.stack.count(function.key)) and self._too_deep(function, within):
            return self._unfollowed(node, function, within)
        if len(self.stack) >= _MAX_DEPTH:
            raise node.refused(f"calls within each other, {_MAX_DEPTH} deep", "a loop")
        frame = Frame(function.name, this=this, outer=outer)
        parameters = [kid for kid in function.kids if kid.kind == "PARM_DECL"]
        fixed = self.uses.assigned(function)
        for number, parameter in enumerate(parameters):
            argument = given[number] if number < len(given) else None
            if argument is None or (argument.kind == "UNEXPOSED_EXPR" and not argument.kids and parameter.kids):
                argument = operands(parameter)[-1] if operands(parameter) else None
            if argument is None:
                raise node.refused(f"no argument for '{parameter.name}'")
            frame.bound[parameter.key] = self._argument(parameter, argument, function, fixed)
        returned = _returned(function, node)
        frame.returns = returned
        if isinstance(returned, Pointer) and returned.reference:
            frame.by_reference = True
        elif not isinstance(returned, Void) and not (isinstance(returned, Record) and returned.is_lambda):
            result = self.variable(f"{function.name or 'lambda'}_result", returned)
            frame.result = Reg(result, 0, result.type)
        caller, self.frame = self.frame, frame
        known = len(self.objects)
        self.stack.append(function.key)
        self.functions.append(function)
        self.called_at.append(line)
        self._initialised(function)
        self.function_body(line, function)
        self.stack.pop()
        self.functions.pop()
        self.called_at.pop()
        self.frame = caller
        self._end_life(line, frame, known)
        if frame.by_reference:
            if frame.place is None:
                raise node.refused(f"'{function.name}' returns no reference")
            return frame.place
        if frame.closure is not None:
            return frame.closure
        return None if frame.result is None else self.load(line, frame.result)

    def _end_life(self, line: int, frame: Frame, known: int) -> None:
        """Let the variables of a function that has returned not be set, if a pointer to them is what it returns."""
        held: frozenset[str] = frozenset()
        if frame.by_reference:
            held = frame.place.at.bases if isinstance(frame.place, Mem) else held
        elif frame.result is not None and isinstance(frame.returns, Pointer):
            held = self.found.bases.get(frame.result.var.leaves[0], held)
        for name in list(self.objects)[known:]:
            made = self.objects[name]
            if name in held and made.space == "local":
                self.forget(line, Mem(self.start_of(made), made.type))

    def helper(self, node: Node, name: str, values: Sequence[ir.Expr]) -> Value:
        """Translate a call of a function of our own headers, and return what it returns."""
        function = next(one for one in node.unit.declarations() if one.kind == "FUNCTION_DECL" and one.name == name)
        line = self.line(node)
        caller, self.frame = self.frame, Frame(name)
        for parameter, value in zip((kid for kid in function.kids if kid.kind == "PARM_DECL"), values, strict=True):
            kind = parameter.type
            self.frame.bound[parameter.key] = Given(Aggregate(kind, {0: self.hold(value)}), 0, kind)
        returned = _returned(function, node)
        self.frame.returns = returned
        if not isinstance(returned, Void):
            self.frame.result = Reg(self.variable(f"{name}_result", returned), 0, returned)
        self.called_at.append(line)
        self.functions.append(function)
        self.function_body(line, function)
        self.functions.pop()
        self.called_at.pop()
        result = self.frame.result
        self.frame = caller
        return None if result is None else self.load(line, result)

    def allocated(self, node: Node) -> Ptr:
        """Translate ``new``: memory from the heap, and the initial value."""
        line, kind = self.line(node), node.type
        assert isinstance(kind, Pointer)  # noqa: S101  as its type says
        words = [token.spelling for token in node.cursor.get_tokens()]
        head = words[1 : next((n for n, word in enumerate(words) if n > 1 and word in "([{"), len(words)) + 1]
        kids = operands(node)
        if "(" in words[1:2]:
            raise node.refused("new at a place that is given", "new T, or an assignment")
        count: ir.Expr | None = build.converted(self.number(kids.pop(0)), U64) if head[-1:] == ["["] else None
        size: ir.Expr = build.literal(line, kind.pointee.size, U64)
        made = self.helper(node, "malloc", [size if count is None else build.binary(line, "*", size, count)])
        assert isinstance(made, Ptr)  # noqa: S101  as the header declares it
        made = self.hold_pointer(made)
        place = Mem(made, kind.pointee)
        for kid in kids:
            constructor = kid.referred if kid.kind == "CALL_EXPR" else None
            if constructor is None or constructor.kind != "CONSTRUCTOR":
                self.store(line, place, self._to(kid, self.value(kid), kid.type, kind.pointee))
                continue
            if count is not None:
                if not is_implicit(constructor):
                    raise node.refused("new of an array of objects with a constructor", "a loop")
                continue
            value = self.call(kid, place)
            if value is not None and not isinstance(value, Place):
                self.store(line, place, value)
        return made

    def _too_deep(self, function: Node, within: int) -> bool:
        """Return whether a function that calls itself is not translated once more."""
        most = self._recursion.get(function.key)
        if most is None:
            around = self.functions[len(self.functions) - len(self.stack) + self.stack.index(function.key) :]
            own = {one.key for one in around}
            calls = max(sum(self._calls_one_of(one, own) for one in body.walk()) for body in around)
            most = _RECURSION[min(calls, len(_RECURSION) - 1)]
            if not all(branches_only(body.kids[-1:]) and not any(one.kind in LOOPS for one in body.walk())
                       for body in around):  # fmt: skip
                most = min(most, _LOOPED)
            self._recursion[function.key] = most
        return within > most or len(self.stack) >= _MAX_DEPTH

    def _calls_one_of(self, node: Node, functions: Collection[int]) -> bool:
        declared = node.referred if node.kind == "CALL_EXPR" else None
        definition = None if declared is None else declared.definition
        return definition is not None and definition.key in functions

    def _unfollowed(self, node: Node, function: Node, within: int) -> Value | Place:
        """Emit the error that a recursion is deeper than it is translated, and return a value of its type."""
        line = self.line(node)
        message = f"'{function.name or 'the lambda'}' calls itself more than {within - 1} times, which is not followed"
        self.emit(ir.Require(line, build.literal(line, False, BOOL), NOT_FOLLOWED, message))
        kind = _returned(function, node)
        if isinstance(kind, Pointer) and kind.reference:
            return Given(Aggregate(kind.pointee, {}), 0, kind.pointee)
        return None if isinstance(kind, Void) else self.zero(node, kind)

    def function_body(self, line: int, function: Node) -> None:
        """Translate a body; its returns leave a loop around it, unless they all end it anyway."""
        body = next(kid for kid in function.kids if kid.kind == "COMPOUND_STMT")
        frame = self.frame
        early = self._early.get(function.key)
        if early is None:
            divides = branches_only([body]) and not has_goto(body)
            early = self._early[function.key] = (returns_early(body), divides)
        frame.divides = all(early)
        if early != (True, False):
            self.statements(body)
            return
        frame.jumps = True
        with self.block() as inner:
            self.statements(body)
            self.emit(ir.Break(line))
        first: list[ir.Stmt] = []
        if frame.returned is not None:
            first.append(ir.Assign(line, frame.returned, build.literal(line, False, BOOL)))
        self.body += first
        self.emit(ir.While(line, build.literal(line, True, BOOL), inner))

    def _argument(
        self, parameter: Node, argument: Node, function: Node, assigned: frozenset[int]
    ) -> Var | Place | Ptr | Closure:
        kind, line = parameter.type, self.line(argument)
        self._note_image(parameter, argument)
        if isinstance(kind, Void) and kind.is_opaque:
            return Given(Aggregate(kind, {}), 0, kind)
        if isinstance(kind, Pointer) and kind.reference:
            inner = bare(argument)
            if isinstance(kind.pointee, Record) and kind.pointee.is_lambda:
                return self._closure(inner)
            return self.fixed(self.place(argument))
        if isinstance(kind, Record) and kind.is_lambda:
            return self._closure(bare(argument))
        value = self._to(argument, self.value(argument), argument.type, kind)
        if isinstance(value, ir.Expr) and self.uses.shuffles(function):
            value = copied(value)  # lanes pass what only one of them has set to a shuffle
        if isinstance(kind, Pointer) and isinstance(value, Ptr) and parameter.key not in assigned:
            return self.hold_pointer(value)
        if isinstance(kind, Number) and isinstance(value, ir.Literal) and parameter.key not in assigned:
            return Given(Aggregate(kind, {0: value}), 0, kind)
        return self.bind(parameter, kind, value, line, function)

    def _note_image(self, parameter: Node, argument: Node) -> None:
        """Note which image a parameter stands for; surfaces and textures are numbers."""
        kind, image = parameter.type, bare(argument)
        if not (isinstance(kind, Void) and kind.is_opaque) and kind != Number(types.U64):
            return
        while image.kind == "UNEXPOSED_EXPR" and len(image.kids) == 1:
            image = bare(image.kids[0])
        self.images.pop(parameter.key, None)
        if image.kind == "DECL_REF_EXPR" and image.referred is not None:
            self.images[parameter.key] = self.images.get(image.referred.key, image.referred)

    def _closure(self, node: Node) -> Closure:
        while node.kind in ("UNEXPOSED_EXPR", "CALL_EXPR") and len(node.kids) == 1:
            node = bare(node.kids[0])
        value = self.value(node)
        if not isinstance(value, Closure):
            raise node.refused("a value that is no lambda here")
        return value

    def bind(self, declared: Node, kind: CType, value: Value, line: int, function: Node) -> Var | Place:
        """Return a new variable with a value: in memory if its address is taken."""
        made = self.new_place(declared, kind, line, function)
        place: Place = Reg(made, 0, kind) if isinstance(made, Var) else made
        self.store(line, place, value)
        return made

    def copied_array(self, declared: Node, kind: Array, source: Place, line: int, function: Node) -> Place:
        """Return a new array with the elements of another one."""
        made = self.new_place(declared, kind, line, function)
        assert isinstance(made, Mem)  # noqa: S101  arrays are in memory
        source = self.fixed(source)
        for offset, leaf in kind.leaves:
            self.store(line, self.part(made, offset, leaf), self.load(line, self.part(source, offset, leaf)))
        return made

    def new_place(self, declared: Node, kind: CType, line: int, function: Node) -> Var | Mem:
        """Return the place of a new variable: in memory if it is an array or its address is taken."""
        in_memory = isinstance(kind, Array) or (isinstance(kind, Record) and kind.in_memory)
        if in_memory or declared.key in self.uses.in_memory(function):
            made = self.new_object(declared.name, "local", kind.size, kind, line)
            return Mem(self.start_of(made), kind)
        return self.variable(declared.name, kind)


def _as_declared(node: Node) -> Node:
    """Return an object without the conversion to the base class that has the method which is called."""
    node = bare(node)
    while node.kind == "UNEXPOSED_EXPR" and len(operands(node)) == 1 and isinstance(operands(node)[0].type, Record):
        node = bare(operands(node)[0])
    return node


def _class_of(declared: Node) -> str:
    parent = declared.cursor.semantic_parent
    return str(parent.spelling).split("<")[0] if parent is not None else ""


def _returned(function: Node, call: Node) -> CType:
    kind = function.cursor.result_type
    if function.kind == "LAMBDA_EXPR":
        declared = call.referred
        assert declared is not None  # noqa: S101  the call names its operator()
        return call.unit.type_of(declared.cursor.result_type, function)
    if function.kind == "CONSTRUCTOR":
        return Void()
    return function.unit.type_of(kind, function)
