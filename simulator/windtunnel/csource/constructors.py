"""Constructors: the members of an object get their initial values, then the body is translated."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from windtunnel.csource.clang import Node
from windtunnel.csource.ctype import Array, CType, Record
from windtunnel.csource.expressions import Expressions
from windtunnel.csource.places import bare, operands
from windtunnel.csource.values import Aggregate, Closure, Frame, Mem, Place, Reg, Value


class Constructors(Expressions):
    """Translates constructors."""

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
        if target is None:
            made = self.variable("made", kind) if not (isinstance(kind, Record) and kind.in_memory) else None
            target = (
                Reg(made, 0, kind)
                if made is not None
                else Mem(self.start_of(self.new_object("made", "local", kind.size, kind, line)), kind)
            )
        self.inlined(node, definition, given, target)
        return target

    def _defaults(
        self, node: Node, declared: Node, kind: CType, target: Place | None, but: Collection[str] = ()
    ) -> Value | Place:
        """Initialise members by their default values; without any, the object stays as it is."""
        record = declared.cursor.semantic_parent
        # An instance of a class template has no children, but its type has the members.
        values = [Node(node.unit, one) for one in record.type.get_fields()]
        initial = {one.name: found for one in values if (found := _default_of(one)) is not None}
        if not initial or not isinstance(kind, Record):
            return target if target is not None else Aggregate(kind, {})
        if target is None:
            target = Reg(self.variable("made", kind), 0, kind)
        for name, value in initial.items():
            member = kind.member(name)
            if member is not None and name not in but:
                place = self.part(target, member.offset, member.type)
                if bare(value).kind == "INIT_LIST_EXPR":
                    made = self.listed(bare(value), member.type)
                else:
                    made = self._to(value, self.value(value), value.type, member.type)
                self.store(self.line(value), place, made)
        return target

    # Long: one case for each kind of entry of a list of members.
    def _initialised(self, function: Node) -> None:
        """Translate a constructor's list of members."""
        if function.kind != "CONSTRUCTOR":
            return
        this = self.frame.this
        if this is not None:
            named = {kid.name for kid in function.kids if kid.kind == "MEMBER_REF"}
            self._defaults(function, function, this.type, this, named)
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


def _default_of(field: Node) -> Node | None:
    kids = [kid for kid in operands(field) if "ATTR" not in kid.kind and not kid.kind.endswith("_DECL")]
    if field.cursor.is_bitfield():  # libclang shows the number of bits, and no initial value
        if any(token.spelling in ("=", "{") for token in field.cursor.get_tokens()):
            raise field.refused(f"an initial value of the bit-field '{field.name}'", "an assignment")
        return None
    if not kids or isinstance(field.type, Array):
        return None
    return kids[-1]
