"""Constructors: the members of an object get their initial values, then the body is translated."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from windtunnel.csource.clang import Node
from windtunnel.csource.ctype import Array, CType, Record
from windtunnel.csource.expressions import Expressions
from windtunnel.csource.places import bare, operands
from windtunnel.csource.values import Aggregate, Closure, Frame, Mem, Place, Reg, Value


class Constructors(Expressions):
    """Translates constructors."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._defaulted: dict[int, bool] = {}
        """Whether a part of an object has a default value, by the class."""

    def inlined(
        self, node: Node, function: Node, given: Sequence[Node], this: Place | None, outer: Frame | None = None
    ) -> Value | Place:
        """Translate a function's body in place of a call of it."""
        raise NotImplementedError

    def _closure(self, node: Node) -> Closure:
        """Return a lambda."""
        raise NotImplementedError

    def _construct(self, node: Node, declared: Node, given: list[Node], target: Place | None) -> Value | Place:
        kind, line = node.type, self.line(node)
        if isinstance(kind, Record) and kind.is_lambda:
            return self._closure(bare(given[0]))
        definition = declared.definition
        if isinstance(kind, Array):
            return None  # an array of records that need no constructor
        if definition is None or is_implicit(declared):
            if given:
                return self.value(given[0])
            return self._defaults(node, declared, kind, target)
        target = self._new_place(kind, line) if target is None else target
        self.inlined(node, definition, given, target)
        return target

    def _new_place(self, kind: CType, line: int) -> Place:
        if isinstance(kind, Record) and kind.in_memory:
            return Mem(self.start_of(self.new_object("made", "local", kind.size, kind, line)), kind)
        return Reg(self.variable("made", kind), 0, kind)

    def _defaults(
        self, node: Node, declared: Node, kind: CType, target: Place | None, but: Collection[str] = ()
    ) -> Value | Place:
        """Initialise bases and members by their default values; without any, the object stays as it is.

        ``but``: the names of the members and of the types of the bases that get other values.
        """
        of = declared.cursor.semantic_parent.type
        if not isinstance(kind, Record) or not self._has_defaults(node, of):
            return target if target is not None else Aggregate(kind, {})
        target = self._new_place(kind, self.line(node)) if target is None else target
        self._begin(node, of, target, but)
        return target

    def _has_defaults(self, node: Node, of: Any) -> bool:
        """Return whether a part of an object of a class of Clang has a value without being given one."""
        key = int(of.get_declaration().hash)
        if key not in self._defaulted:
            self._defaulted[key] = any(
                _default_of(Node(node.unit, one)) is not None
                or _constructor(node, one.type) is not None
                or self._has_defaults(node, one.type)
                for one in (*_bases(of), *of.get_fields())
            )
        return self._defaulted[key]

    def _begin(self, node: Node, of: Any, target: Place, but: Collection[str]) -> None:
        """Give the parts of an object of a class of Clang their default values."""
        assert isinstance(target.type, Record)  # noqa: S101  as the caller has seen
        for base in _bases(of):
            if base.type.get_canonical().spelling not in but:
                self._construct_part(node, base.type, self._as_base(target, node.unit.type_of(base.type, node)))
        # An instance of a class template has no children, but its type has the members.
        for one in of.get_fields():
            if not one.spelling or "(" in one.spelling:  # members of an unnamed one are named as those of the object
                self._begin(node, one.type, target, but)
                continue
            member, value = target.type.member(one.spelling), _default_of(Node(node.unit, one))
            if member is None or one.spelling in but:
                continue
            place = self.part(target, member.offset, member.type)
            if value is None:
                self._construct_part(node, one.type, place)
                continue
            if bare(value).kind == "INIT_LIST_EXPR":
                made = self.listed(bare(value), member.type)
            else:
                made = self._to(value, self.value(value), value.type, member.type)
            self.store(self.line(value), place, made)

    def _construct_part(self, node: Node, of: Any, target: Place) -> None:
        """Initialise a base or a member that is given no value."""
        constructor = _constructor(node, of)
        if constructor is not None:
            self.inlined(node, constructor, [], target)
        elif isinstance(target.type, Record) and self._has_defaults(node, of):
            self._begin(node, of, target, ())

    # Long: one case for each kind of entry of a list of members.
    def _initialised(self, function: Node) -> None:
        """Translate a constructor's list of members."""
        if function.kind != "CONSTRUCTOR":
            return
        this = self.frame.this
        if this is not None:
            named = {kid.name for kid in function.kids if kid.kind == "MEMBER_REF"}
            bases = {kid.cursor.type.get_canonical().spelling for kid in function.kids if kid.kind == "TYPE_REF"}
            if function.cursor.semantic_parent.type.get_canonical().spelling not in bases:
                self._defaults(function, function, this.type, this, named | bases)
        kids = [
            kid for kid in function.kids if kid.kind not in ("PARM_DECL", "COMPOUND_STMT") and "ATTR" not in kid.kind
        ]
        member: Node | None = None
        for kid in kids:
            if kid.kind in ("MEMBER_REF", "TYPE_REF"):
                member = kid
                continue
            if member is None or this is None or not isinstance(this.type, Record):
                continue
            line = self.line(kid)
            if member.kind == "TYPE_REF" and bare(kid).kind == "INIT_LIST_EXPR":  # a base class without constructors
                base = next((one for one in this.type.fields if not one.name and one.type == kid.type), None)
                if base is None:
                    raise kid.refused("this initial value of a base class")
                made = self.listed(bare(kid), base.type)
                if made is not None:
                    self.store(line, self.part(this, base.offset, base.type), made)
                member = None
                continue
            if member.kind == "TYPE_REF":  # a base class, or a call of another constructor
                self.call(kid, this)
                member = None
                continue
            found = this.type.member(member.name)
            if found is None:
                raise kid.refused(f"the member '{member.name}'")
            place = self.part(this, found.offset, found.type)
            if bare(kid).kind == "CALL_EXPR" and isinstance(found.type, Record):
                value = self.call(bare(kid), place)
                if isinstance(value, Place):
                    value = None if value == place else self.load(line, value)
            elif bare(kid).kind == "INIT_LIST_EXPR":
                value = self.listed(bare(kid), found.type)
            else:
                value = self._to(kid, self.value(kid), kid.type, found.type)
            if value is not None:
                self.store(line, place, value)
            member = None


def is_implicit(declared: Node) -> bool:
    """Return whether Clang wrote a constructor itself: to copy, to move, or to do nothing."""
    parent = declared.cursor.semantic_parent
    return bool(declared.cursor.is_default_method()) or (
        parent is not None and parent.location == declared.cursor.location
    )


def _bases(of: Any) -> list[Any]:
    """Return the bases of a class of Clang, other than of an instance of a template."""
    return [kid for kid in of.get_declaration().get_children() if kid.kind.name == "CXX_BASE_SPECIFIER"]


def _constructor(node: Node, of: Any) -> Node | None:
    """Return the constructor without arguments that a class of Clang has in the source; None if it has none."""
    for kid in of.get_declaration().get_children():
        if kid.kind.name == "CONSTRUCTOR" and kid.is_default_constructor():
            declared = node.unit.declaration(kid)
            return None if is_implicit(declared) else declared.definition
    return None


def _default_of(field: Node) -> Node | None:
    kids = [kid for kid in operands(field) if "ATTR" not in kid.kind and not kid.kind.endswith("_DECL")]
    if field.cursor.is_bitfield():  # libclang shows the number of bits, and no initial value
        if any(token.spelling in ("=", "{") for token in field.cursor.get_tokens()):
            raise field.refused(f"an initial value of the bit-field '{field.name}'", "an assignment")
        return None
    if not kids or isinstance(field.type, Array):
        return None
    return kids[-1]
