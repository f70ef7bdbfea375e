"""The functions of numbers and vectors that OpenCL C has beside those of C."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from windtunnel.csource import build
from windtunnel.csource.clang import Node
from windtunnel.csource.ctype import Vector
from windtunnel.csource.values import Value
from windtunnel.csource.vectors import Vectors
from windtunnel.language import ir, types
from windtunnel.language.types import BOOL, F32, I32, Scalar

_RELATIONS = {
    "isequal": "==", "isnotequal": "!=", "isgreater": ">", "isgreaterequal": ">=", "isless": "<", "islessequal": "<=",
}  # fmt: skip
Act = Callable[[list[ir.Expr], Scalar], ir.Expr]


class OpenCLNumbers(Vectors):
    """Translates functions of numbers and vectors."""

    # Long: a table.
    def _acts(self, line: int) -> Mapping[str, Act]:
        """Return the functions that work on each element alone."""

        def op(name: str, *row: ir.Expr) -> ir.Expr:
            return build.binary(line, name, *row)

        def lit(value: float, kind: Scalar) -> ir.Expr:
            return build.literal(line, value, kind)

        def pick(which: str, kind: Scalar, *row: ir.Expr) -> ir.Expr:
            return ir.Binary(line, which, *(build.converted(one, kind) for one in row), type=kind)

        def fma(row: Sequence[ir.Expr], kind: Scalar) -> ir.Expr:
            return ir.Call(line, "fma", list(row), type=kind)

        def mad(row: list[ir.Expr], kind: Scalar) -> ir.Expr:
            return op("+", op("*", row[0], row[1]), row[2])

        def mix(row: list[ir.Expr], kind: Scalar) -> ir.Expr:
            a, b, t = (build.converted(one, kind) for one in row)
            return op("+", a, op("*", op("-", b, a), t))

        def smooth(row: list[ir.Expr], kind: Scalar) -> ir.Expr:
            low, high, x = (build.converted(one, kind) for one in row)
            t = op("/", op("-", x, low), op("-", high, low))
            t = self.hold(pick("min", kind, pick("max", kind, t, lit(0, kind)), lit(1, kind)))
            return op("*", op("*", t, t), op("-", lit(3, kind), op("*", lit(2, kind), t)))

        def sign(row: list[ir.Expr], kind: Scalar) -> ir.Expr:
            x = row[0]
            zero = lit(0, kind)
            positive = build.select(line, op(">", x, zero), lit(1, kind), zero)
            return build.select(line, op("<", x, zero), lit(-1, kind), positive)

        def rotate(row: list[ir.Expr], kind: Scalar) -> ir.Expr:
            unsigned = types.SCALARS[f"u{kind.bits}"]
            x = self.hold(build.converted(row[0], unsigned))
            by = self.hold(op("&", build.converted(row[1], unsigned), lit(kind.bits - 1, unsigned)))
            back = op("&", op("-", lit(kind.bits, unsigned), by), lit(kind.bits - 1, unsigned))
            return build.converted(op("|", op("<<", x, by), op(">>", x, back)), kind)

        def halved(row: list[ir.Expr], kind: Scalar, *, up: bool) -> ir.Expr:
            a, b = self.hold(row[0]), self.hold(row[1])
            one = lit(1, kind)
            shared = op("|", a, b) if up else op("&", a, b)
            sum_of_halves = op("+", op(">>", a, one), op(">>", b, one))
            return op("+", sum_of_halves, op("&", shared, one))

        def high(row: Sequence[ir.Expr], kind: Scalar) -> ir.Expr:
            wide = types.SCALARS[f"{kind.name[0]}{min(kind.bits * 2, 64)}"]
            if kind.bits == 64:
                return ir.Call(line, "int.high", [row[0], row[1]], type=kind)
            product = op("*", build.converted(row[0], wide), build.converted(row[1], wide))
            return build.converted(op(">>", product, lit(kind.bits, wide)), kind)

        def difference(row: list[ir.Expr], kind: Scalar) -> ir.Expr:
            a, b = self.hold(row[0]), self.hold(row[1])
            return build.converted(build.select(line, op(">", a, b), op("-", a, b), op("-", b, a)), kind)

        def summed(row: list[ir.Expr], kind: Scalar, name: str) -> ir.Expr:
            return ir.Call(line, f"int.{name}_sat", [build.converted(one, kind) for one in row], type=kind)

        def chosen(row: list[ir.Expr], kind: Scalar) -> ir.Expr:
            a, b, c = row
            assert c.type is not None  # noqa: S101  all expressions here have types
            condition = op("<", c, lit(0, c.type)) if vector and c.type.kind == "int" else build.truth(c)
            if vector and c.type.kind == "uint":
                top = lit(1 << (c.type.bits - 1), c.type)
                condition = build.truth(op("&", c, top))
            return build.select(line, condition, build.converted(b, kind), build.converted(a, kind))

        def bits(row: list[ir.Expr], kind: Scalar) -> ir.Expr:
            unsigned = types.SCALARS[f"u{kind.bits}"]
            a, b, c = (self.hold(build.bits_as(one, unsigned)) for one in row)
            made = op("|", op("&", a, build.unary(line, "~", c)), op("&", b, c))
            return build.bits_as(made, kind)

        def upsample(row: list[ir.Expr], kind: Scalar) -> ir.Expr:
            low = row[1].type
            assert low is not None  # noqa: S101  all expressions here have types
            moved = op("<<", build.converted(row[0], kind), lit(low.bits, kind))
            return op("|", moved, build.converted(build.converted(row[1], types.SCALARS[f"u{low.bits}"]), kind))

        def product_and_sum(row: list[ir.Expr], kind: Scalar) -> ir.Expr:
            a, b, c = (self.hold(build.converted(one, kind)) for one in row)
            if kind.bits < 64:
                wide = types.SCALARS[f"{kind.name[0]}64"]
                exact = op("+", op("*", build.converted(a, wide), build.converted(b, wide)), build.converted(c, wide))
                return self.saturated(line, exact, kind)
            # Of 64 bits, the upper half tells whether the product and the sum fit.
            low = self.hold(op("*", a, b))
            total = self.hold(op("+", low, c))
            upper = self.hold(ir.Call(line, "int.high", [a, b], type=kind))
            zero, top = lit(0, kind), lit(2**63 - 1 if kind.kind == "int" else 2**64 - 1, kind)
            if kind.kind == "uint":
                fits: ir.Expr = ir.Logic(line, "and", op("==", upper, zero), op(">=", total, low), type=BOOL)
                return build.select(line, fits, total, top)
            sign = op(">>", c, lit(63, kind))
            unsigned = types.SCALARS["u64"]
            carry = op("<", build.converted(total, unsigned), build.converted(low, unsigned))
            whole = self.hold(op("+", op("+", upper, sign), build.converted(carry, kind)))
            fits = op("==", whole, op(">>", total, lit(63, kind)))
            limit = build.select(line, op("<", whole, zero), lit(-(2**63), kind), top)
            return build.select(line, fits, total, limit)

        def trailing(row: list[ir.Expr], kind: Scalar) -> ir.Expr:
            x = self.hold(row[0])
            below = op("&", build.unary(line, "~", x), op("-", x, lit(1, kind)))
            return build.converted(ir.Call(line, "bits.popc", [build.converted(below, kind)], type=I32), kind)

        def by_size(row: list[ir.Expr], kind: Scalar, which: str) -> ir.Expr:
            a, b = (self.hold(build.converted(one, kind)) for one in row)
            x, y = (self.hold(ir.Call(line, "math.fabs", [one], type=kind)) for one in (a, b))
            first, second = (">", "<") if which == "max" else ("<", ">")
            otherwise = build.select(line, op(second, x, y), b, pick(which, kind, a, b))
            return build.select(line, op(first, x, y), a, otherwise)

        def root(row: list[ir.Expr], kind: Scalar) -> ir.Expr:
            x, n = self.hold(row[0]), self.hold(row[1])
            assert n.type is not None  # noqa: S101  all expressions here have types
            odd = build.truth(op("&", n, lit(1, n.type)))
            whole = self.hold(ir.Logic(line, "and", odd, op("<", x, lit(0, kind)), type=BOOL))
            positive = build.select(line, whole, build.unary(line, "-", x), x)
            power = [positive, op("/", lit(1, kind), build.converted(n, kind))]
            made = self.hold(ir.Call(line, "math.pow", power, type=kind))
            return build.select(line, whole, build.unary(line, "-", made), made)

        def exponent(row: list[ir.Expr], kind: Scalar) -> ir.Expr:
            x = self.hold(row[0])
            assert x.type is not None  # noqa: S101  all expressions here have types
            found = build.converted(ir.Call(line, "math.logb", [x], type=x.type), kind)
            finite = ir.Call(line, "math.isfinite", [x], type=BOOL)
            found = build.select(line, finite, found, lit(2**31 - 1, kind))
            return build.select(line, op("==", x, lit(0, x.type)), lit(-(2**31), kind), found)

        def power(row: list[ir.Expr], kind: Scalar) -> ir.Expr:
            """``powr``, which is not defined for negative numbers, nor for 0 to the 0 and similar limits."""
            x, y = self.hold(row[0]), self.hold(row[1])
            zero, one, infinite = lit(0, kind), lit(1, kind), lit(float("inf"), kind)
            size = self.hold(ir.Call(line, "math.fabs", [y], type=kind))
            wrong: ir.Expr = op("<", x, zero)
            for a, b in (((x, zero), (y, zero)), ((x, infinite), (y, zero)), ((x, one), (size, infinite))):
                both = ir.Logic(line, "and", op("==", *a), op("==", *b), type=BOOL)
                wrong = ir.Logic(line, "or", wrong, both, type=BOOL)
            return build.select(line, wrong, lit(float("nan"), kind), ir.Call(line, "math.pow", [x, y], type=kind))

        vector = self._vector
        return {
            "powr": power,
            "mad_sat": product_and_sum, "ctz": trailing, "rootn": root, "ilogb": exponent,
            "nan": lambda row, kind: lit(float("nan"), kind),
            "maxmag": lambda row, kind: by_size(row, kind, "max"),
            "minmag": lambda row, kind: by_size(row, kind, "min"),
            "clamp": lambda row, kind: pick("min", kind, pick("max", kind, row[0], row[1]), row[2]),
            "mad": mad, "mad24": mad, "mix": mix, "smoothstep": smooth, "sign": sign, "rotate": rotate,
            "mul24": lambda row, kind: op("*", row[0], row[1]),
            "hadd": lambda row, kind: halved(row, kind, up=False),
            "rhadd": lambda row, kind: halved(row, kind, up=True),
            "mul_hi": high, "mad_hi": lambda row, kind: op("+", high(row, kind), row[2]),
            "abs_diff": difference, "select": chosen, "bitselect": bits, "upsample": upsample,
            "add_sat": lambda row, kind: summed(row, kind, "add"),
            "sub_sat": lambda row, kind: summed(row, kind, "sub"),
            "popcount": lambda row, kind: build.converted(ir.Call(line, "bits.popc", [row[0]], type=I32), kind),
            "clz": lambda row, kind: build.converted(ir.Call(line, "bits.clz", [row[0]], type=I32), kind),
            "step": lambda row, kind: build.select(
                line, op("<", build.converted(row[1], kind), build.converted(row[0], kind)), lit(0, kind), lit(1, kind)
            ),
            "degrees": lambda row, kind: op("*", row[0], lit(57.29577951308232, kind)),
            "radians": lambda row, kind: op("*", row[0], lit(0.017453292519943295, kind)),
            "native_recip": lambda row, kind: op("/", lit(1, kind), row[0]),
            "half_recip": lambda row, kind: op("/", lit(1, kind), row[0]),
            "native_divide": lambda row, kind: op("/", row[0], row[1]),
            "half_divide": lambda row, kind: op("/", row[0], row[1]),
            "fma": fma,
        }  # fmt: skip

    _vector = False

    def opencl_numbers(self, node: Node, name: str, arguments: Sequence[Node]) -> Any:
        """Translate a function of numbers or vectors; NotImplemented if there is none of this name."""
        line = self.line(node)
        if name in ("dot", "length", "distance", "normalize", "cross") or name.startswith("fast_"):
            return self._geometry(node, name.removeprefix("fast_"), arguments)
        if name in ("any", "all"):
            return self._tested(node, name, arguments)
        if name in ("shuffle", "shuffle2"):
            return self._shuffled(node, arguments)
        if name in _RELATIONS or name in ("isordered", "isunordered", "islessgreater"):
            return self._related(node, name, arguments)
        self._vector = isinstance(node.type, Vector)
        act = self._acts(line).get(name)
        if act is None:
            return NotImplemented
        return self.elementwise(node, [self.value(one) for one in arguments], act)

    def saturated(self, line: int, e: ir.Expr, kind: Scalar) -> ir.Expr:
        """Return an integer in another type, limited to its range."""
        assert e.type is not None  # noqa: S101  all expressions here have types
        if not build.is_integer(e.type):
            return build.converted(e, kind)
        return ir.Call(line, f"int.limited_{kind.name}", [e], type=kind)

    def half(self, line: int, e: ir.Expr, mode: str | None) -> ir.Expr:
        """Return a number as a half: the nearest, or in a direction (``_rtz``, ``_rtp``, ``_rtn``) the next."""
        nearest = build.converted(e, types.F16)
        if mode in (None, "_rte"):
            return nearest
        x, nearest = self.hold(e), self.hold(nearest)
        assert x.type is not None  # noqa: S101  all expressions here have types
        back = self.hold(build.converted(nearest, x.type))
        size = types.U16
        bits = self.hold(build.bits_as(nearest, size))
        one = build.literal(line, 1, size)
        larger, smaller = (build.binary(line, way, bits, one) for way in ("+", "-"))
        negative = build.binary(line, ">=", bits, build.literal(line, 0x8000, size))
        above, below = build.binary(line, ">", back, x), build.binary(line, "<", back, x)
        down = build.select(line, above, build.select(line, negative, larger, smaller), bits)
        up = build.select(line, below, build.select(line, negative, smaller, larger), bits)
        made = {"_rtn": down, "_rtp": up, "_rtz": build.select(line, negative, up, down)}[mode or ""]
        return build.bits_as(build.converted(made, size), types.F16)

    def _geometry(self, node: Node, name: str, arguments: Sequence[Node]) -> Value:
        line = self.line(node)
        values = [self.hold_value(self.value(one)) for one in arguments]
        kind = arguments[0].type
        count = kind.count if isinstance(kind, Vector) else 1
        rows = [self.parts_of(node, value, count) for value in values]
        scalar = rows[0][0].type or F32
        if name == "cross":
            (a, b), made = rows, []
            for i, j in ((1, 2), (2, 0), (0, 1)):
                left, right = build.binary(line, "*", a[i], b[j]), build.binary(line, "*", a[j], b[i])
                made.append(build.binary(line, "-", left, right))
            made += [build.literal(line, 0, scalar)] * (count - 3)
            assert isinstance(node.type, Vector)  # noqa: S101  a cross product is a vector
            return self.vector(node.type, made)
        if name == "distance":
            rows = [[self.hold(build.binary(line, "-", x, y)) for x, y in zip(*rows, strict=True)]]
        pairs = zip(rows[0], rows[1] if name == "dot" else rows[0], strict=True)
        total: ir.Expr | None = None
        for x, y in pairs:
            product = build.binary(line, "*", x, y)
            total = product if total is None else build.binary(line, "+", total, product)
        assert total is not None  # noqa: S101  a vector has an element
        if name == "dot":
            return total
        length = self.hold(ir.Call(line, "math.sqrt", [total], type=scalar))
        if name != "normalize":
            return length
        scaled = [build.binary(line, "/", part, length) for part in rows[0]]
        return self.vector(node.type, scaled) if isinstance(node.type, Vector) else scaled[0]

    def _tested(self, node: Node, name: str, arguments: Sequence[Node]) -> Value:
        """Translate ``any`` and ``all``: of the top bits of a vector's elements."""
        line = self.line(node)
        kind = arguments[0].type
        parts = self.parts_of(node, self.value(arguments[0]), 1)
        result: ir.Expr | None = None
        for part in parts:
            assert part.type is not None  # noqa: S101  all expressions here have types
            negative = build.binary(line, "<", part, build.literal(line, 0, part.type))
            word = "or" if name == "any" else "and"
            result = negative if result is None else ir.Logic(line, word, result, negative, type=BOOL)
        assert result is not None  # noqa: S101  a vector has an element
        del kind
        return build.converted(result, I32)

    def _shuffled(self, node: Node, arguments: Sequence[Node]) -> Value:
        line = self.line(node)
        *sources, mask = (self.hold_value(self.value(one)) for one in arguments)
        numbers = [part for source in sources for part in self.parts_of(node, source, 1)]
        made = []
        for which in self.parts_of(node, mask, 1):
            assert which.type is not None  # noqa: S101  all expressions here have types
            low = build.binary(line, "&", which, build.literal(line, len(numbers) - 1, which.type))
            result = numbers[0]
            for number, part in enumerate(numbers[1:], start=1):
                equal = build.binary(line, "==", low, build.literal(line, number, which.type))
                result = build.select(line, equal, part, result)
            made.append(result)
        assert isinstance(node.type, Vector)  # noqa: S101  a shuffle is a vector
        return self.vector(node.type, made)

    def _related(self, node: Node, name: str, arguments: Sequence[Node]) -> Value:
        line = self.line(node)
        values = [self.hold_value(self.value(one)) for one in arguments]

        def act(row: list[ir.Expr], kind: Scalar) -> ir.Expr:
            a, b = row
            if name in _RELATIONS:
                condition = build.binary(line, _RELATIONS[name], a, b)
            elif name == "islessgreater":
                condition = ir.Logic(
                    line, "or", build.binary(line, "<", a, b), build.binary(line, ">", a, b), type=BOOL
                )
            else:
                condition = ir.Logic(
                    line, "and", build.binary(line, "==", a, a), build.binary(line, "==", b, b), type=BOOL
                )
                condition = condition if name == "isordered" else build.unary(line, "not", condition)
            true = -1 if isinstance(node.type, Vector) else 1
            return build.select(line, condition, build.literal(line, true, kind), build.literal(line, 0, kind))

        return self.elementwise(node, values, act)
