"""Images, textures and surfaces, of which no argument states the contents: their texels are made up.

A texel is a number that depends on its coordinates alone: a float from 0 to 1, an integer from 0 to 255. What is
written to an image is not kept. `windtunnel check` says so in a note; kernels of `windtunnel.load` are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from windtunnel.csource import build
from windtunnel.csource.clang import Node
from windtunnel.csource.ctype import Number, Pointer, Record, Vector, Void
from windtunnel.csource.intrinsics import Intrinsics
from windtunnel.csource.values import Aggregate, Mem, Value
from windtunnel.language import ir, types
from windtunnel.language.types import F32, I32, U32

_READS = re.compile(r"tex(?:[123]D|Cubemap)\w*$|surf(?:[123]D|Cubemap)\w*read$|read_image(?:f|i|ui|h)$")
_WRITES = re.compile(r"surf(?:[123]D|Cubemap)\w*write$|write_image(?:f|i|ui|h)$")
_SIZES = re.compile(r"get_image_(width|height|depth|dim|array_size|channel_data_type|channel_order|num_\w+)$")
_AXES = {"width": 0, "height": 1, "depth": 2, "array_size": 2}
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
        numbers: list[ir.Expr] = []
        for one in arguments:
            if not _is_opaque(one):
                value = self.hold_value(self.value(one))
                if isinstance(value, (ir.Expr, Aggregate)):
                    numbers += self.parts_of(one, value, 1)
        if writes:
            return None
        kind = node.type if result is None else getattr(result.type, "pointee", node.type)
        made = self._texel(node, numbers, kind)
        if result is None:
            return made
        self.store(self.line(node), Mem(self.pointer(result), kind), made)
        return None

    def parts_of(self, node: Node, value: Value, count: int) -> list[ir.Expr]:
        """Return the numbers of a value: ``count`` times a single one."""
        raise NotImplementedError

    def _texel(self, node: Node, coordinates: Sequence[ir.Expr], kind: Any) -> Value:
        line = self.line(node)

        def op(which: str, a: ir.Expr, b: ir.Expr) -> ir.Expr:
            return build.binary(line, which, a, b)

        def unsigned(value: int) -> ir.Expr:
            return build.literal(line, value, U32)

        mixed: ir.Expr = unsigned(0x27D4EB2F)
        for one in coordinates:
            bits = build.bits_as(build.converted(one, F32), U32)
            mixed = self.hold(op("*", op("^", mixed, bits), unsigned(0x9E3779B1)))
            mixed = self.hold(op("^", mixed, op(">>", mixed, unsigned(15))))
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
