"""Images, textures and surfaces, of which no argument states the contents: their texels are made up.

A texel is a number that depends on its coordinates alone: a float from 0 to 1, an integer from 0 to 255. What is
written to an image is not kept, but races on texels are found: each image that a kernel writes has an array in which a
number stands for each texel near the origin. `windtunnel check` says so in a note; kernels of `windtunnel.load` are
refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from windtunnel.csource import build
from windtunnel.csource.clang import Node
from windtunnel.csource.ctype import Array, Number, Pointer, Record, Vector, Void
from windtunnel.csource.intrinsics import Intrinsics
from windtunnel.csource.values import Aggregate, Mem, Value
from windtunnel.language import ir, types
from windtunnel.language.types import BOOL, F32, I32, U32

_READS = re.compile(r"tex(?:[123]D|Cubemap)\w*$|surf(?:[123]D|Cubemap)\w*read$|read_image(?:f|i|ui|h)$")
_WRITES = re.compile(r"surf(?:[123]D|Cubemap)\w*write$|write_image(?:f|i|ui|h)$")
_SURFACE = re.compile(r"surf([123])D(Layered)?")
_SIZES = re.compile(r"get_image_(width|height|depth|dim|array_size|channel_data_type|channel_order|num_\w+)$")
_AXES = {"width": 0, "height": 1, "depth": 2, "array_size": 2}
_TEXELS, _SIDES = 1 << 18, ((1 << 18,), (1 << 11, 1 << 7), (1 << 8, 1 << 5, 1 << 5))
"""The texels of an image of which races are found: their number, and the sides by the number of coordinates. Those of
surfaces are bytes along x."""
MADE_UP = "the contents of images and textures are made up, and what is written to them is not kept"


class Texels(Intrinsics):
    """Translates accesses of images, textures and surfaces."""

    def texels(self, node: Node, name: str, arguments: Sequence[Node]) -> Any:
        """Translate a function of images; NotImplemented if there is none of this name."""
        reads, writes, sizes = _READS.match(name), _WRITES.match(name), _SIZES.match(name)
        if not (reads or writes or sizes):
            return NotImplemented
        if not self.unit.made_up:
            raise node.refused(f"'{name}': the contents of images and textures are not known here", "buffers")
        if MADE_UP not in self.unit.notes:
            self.unit.notes.append(MADE_UP)
        if sizes:
            return self._image_size(node, sizes[1])
        result = None
        first = arguments[0].type
        if isinstance(node.type, Void) and isinstance(first, Pointer) and not first.reference and reads:
            result, arguments = arguments[0], arguments[1:]
        held: dict[int, list[ir.Expr]] = {}
        for number, one in enumerate(arguments):
            if not _is_opaque(one):
                value = self.hold_value(self.value(one))
                if isinstance(value, (ir.Expr, Aggregate)):
                    held[number] = self.parts_of(one, value, 1)
        self._access(node, name, arguments, held, writes=writes is not None)
        if writes:
            return None
        numbers = [e for row in held.values() for e in row]
        kind = node.type if result is None else getattr(result.type, "pointee", node.type)
        made = self._texel(node, numbers, kind)
        if result is None:
            return made
        self.store(self.line(node), Mem(self.pointer(result), kind), made)
        return None

    def _access(
        self, node: Node, name: str, arguments: Sequence[Node], held: dict[int, list[ir.Expr]], *, writes: bool
    ) -> None:
        """Emit the access of the number that stands for a texel, for races on it.

        Of an image, coordinates follow and then the value; of a surface, the value is ahead, and coordinates follow.
        """
        surface = _SURFACE.match(name)
        first = 1 if surface is not None and writes else 0
        root = self._root_of(arguments[first])
        # A fourth coordinate of an image is not used, and what follows those of a surface is a mode.
        integers = held[min(held)][:3]
        if surface is not None:
            after = [e for number, row in held.items() if number > first for e in row]
            integers = after[: int(surface[1]) + (surface[2] is not None)]
        if root is None or not 0 < len(integers) <= 3 or not all(build.is_integer(e.type) for e in integers):
            return
        line = self.line(node)
        if writes:
            self.found.written.add(root.key)
        elif root.key not in self.facts.written:
            return  # no thread writes it
        texel, inside = self._texel_of(line, root, integers)
        with self.block() as body:
            if writes:
                # A struct is not held: it is a value that is there in any case.
                given = 0 if surface is not None else len(arguments) - 1
                self.store(line, texel, self._mixed(line, held.get(given) or self._members(arguments[given])))
            else:
                read = self.load(line, texel)
                assert isinstance(read, ir.Expr)  # noqa: S101  it is a number
                self.hold(read)
        self.emit(ir.If(line, inside, body, []))

    def _members(self, node: Node) -> list[ir.Expr]:
        """Return the numbers of a struct."""
        value = self.hold_value(self.value(node))
        members = value.parts.values() if isinstance(value, Aggregate) else ()
        return [part for part in members if isinstance(part, ir.Expr)]

    def _texel_of(self, line: int, root: Node, integers: Sequence[ir.Expr]) -> tuple[Mem, ir.Expr]:
        """Return the number that stands for a texel, and whether there is one for these coordinates."""
        key = -root.key
        if key not in self.statics:
            kind = Array(Number(U32), _TEXELS)
            made = self.statics[key] = self.new_object(root.name, "global", kind.size, kind, line)
            made.declared = f"texels of {root.name}, line {root.place[1]}"
            self.hidden.append(made.name)
        sides = _SIDES[len(integers) - 1]
        inside: ir.Expr = build.literal(line, True, BOOL)
        place: ir.Expr = build.literal(line, 0, I32)
        for e, side in zip(reversed(integers), reversed(sides), strict=True):
            own = self.hold(build.converted(e, I32))
            below = build.binary(line, "<", build.converted(own, U32), build.literal(line, side, U32))
            inside = ir.Logic(line, "and", inside, below, type=BOOL)
            place = build.binary(line, "+", build.binary(line, "*", place, build.literal(line, side, I32)), own)
        return Mem(self.start_of(self.statics[key]).moved(place, 4), Number(U32)), inside

    def _root_of(self, image: Node) -> Node | None:
        """Return the parameter of the kernel, or the variable of the file, that an image is; None for another one."""
        while image.kind in ("UNEXPOSED_EXPR", "PAREN_EXPR") and len(image.kids) == 1:
            image = image.kids[0]
        target = image.referred if image.kind == "DECL_REF_EXPR" else None
        target = None if target is None else self.images.get(target.key, target)
        if target is None or (
            target.kind == "PARM_DECL" and all(kid.key != target.key for kid in self.functions[0].kids)
        ):
            return None
        return target

    def parts_of(self, node: Node, value: Value, count: int) -> list[ir.Expr]:
        """Return the numbers of a value: ``count`` times a single one."""
        raise NotImplementedError

    def _texel(self, node: Node, coordinates: Sequence[ir.Expr], kind: Any) -> Value:
        line = self.line(node)

        def op(which: str, a: ir.Expr, b: ir.Expr) -> ir.Expr:
            return build.binary(line, which, a, b)

        def unsigned(value: int) -> ir.Expr:
            return build.literal(line, value, U32)

        mixed = self._mixed(line, coordinates)
        parts: dict[int, ir.Expr] = {}
        for number, (offset, leaf) in enumerate(kind.leaves):
            if not isinstance(leaf, Number):
                raise node.refused("a texel of this type")
            own = self.hold(op("*", op("+", mixed, unsigned(number * 0x632BE5AB & 0xFFFFFFFF)), unsigned(0x85EBCA6B)))
            own = op(">>", own, unsigned(8))
            if leaf.scalar.kind == "float":
                part = op("*", build.converted(own, types.F64), build.literal(line, 2.0**-24, types.F64))
            else:
                part = op("&", own, unsigned(255))
            parts[offset] = build.converted(part, leaf.scalar)
        if isinstance(kind, Number):
            return parts[0]
        return Aggregate(kind, parts)

    def _mixed(self, line: int, numbers: Sequence[ir.Expr]) -> ir.Expr:
        """Return a number that depends on all the numbers given."""
        mixed: ir.Expr = build.literal(line, 0x27D4EB2F, U32)
        for one in numbers:
            bits = build.bits_as(build.converted(one, F32), U32)
            turned = build.binary(line, "^", mixed, bits)
            mixed = self.hold(build.binary(line, "*", turned, build.literal(line, 0x9E3779B1, U32)))
            high = build.binary(line, ">>", mixed, build.literal(line, 15, U32))
            mixed = self.hold(build.binary(line, "^", mixed, high))
        return mixed

    def _image_size(self, node: Node, what: str) -> Value:
        """Return a size of an image: that of the launch along the same axis."""
        line = self.line(node)

        def along(axis: int) -> ir.Expr:
            sides = (ir.Index(line, side, axis, type=I32) for side in ("grid_size", "block_size"))
            return ir.Binary(line, "*", *sides, type=I32)

        if isinstance(node.type, Vector):
            sizes = [along(axis) for axis in range(min(node.type.count, 3))]
            sizes += [build.literal(line, 0, I32)] * (node.type.count - len(sizes))
            element = node.type.element
            return Aggregate(
                node.type, {n * element.size: build.converted(s, element.scalar) for n, s in enumerate(sizes)}
            )
        assert isinstance(node.type, Number)  # noqa: S101  a size is a number
        made = along(_AXES[what]) if what in _AXES else build.literal(line, 0, I32)
        return build.converted(made, node.type.scalar)


def _is_opaque(node: Node) -> bool:
    """Return whether an argument is an image, a sampler, a texture or a mode of reading, and no coordinate."""
    kind = node.type
    if isinstance(kind, Pointer):
        kind = kind.pointee
    return isinstance(kind, (Void, Record))
