"""The syntax tree of a C file, as libclang gives it: functions, expressions with their types, and errors."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from windtunnel.core.errors import InputError, Location
from windtunnel.csource import ctype
from windtunnel.csource.ctype import CType
from windtunnel.csource.includes import check_includes, without_comments
from windtunnel.language import types

PRELUDE = Path(__file__).parent / "prelude"
"""The headers that stand for those of the vendors."""

BINARY = (
    "", ".*", "->*", "*", "/", "%", "+", "-", "<<", ">>", "<=>", "<", ">", "<=", ">=", "==", "!=", "&", "^", "|", "&&",
    "||", "=", "*=", "/=", "%=", "+=", "-=", "<<=", ">>=", "&=", "^=", "|=", ",",
)  # fmt: skip
"""Operators by Clang's number (``CXBinaryOperatorKind``)."""
UNARY = ("", "x++", "x--", "++x", "--x", "&", "*", "+", "-", "~", "!", "real", "imag", "extension", "co_await")
"""Operators by Clang's number (``CXUnaryOperatorKind``)."""


@cache
def library() -> Any:
    """Return the module ``clang.cindex``. Raises InputError if libclang is not installed."""
    try:
        from clang import cindex
    except ImportError:
        raise InputError(
            "C sources are read by libclang, which is not installed", expected="pip install 'windtunnel[check]'"
        ) from None
    lib = cindex.conf.lib
    for name in ("clang_getCursorBinaryOperatorKind", "clang_getCursorUnaryOperatorKind"):
        function = getattr(lib, name)
        function.argtypes, function.restype = [cindex.Cursor], ctypes.c_int
    lib.clang_Cursor_getVarDeclInitializer.argtypes = [cindex.Cursor]
    lib.clang_Cursor_getVarDeclInitializer.restype = cindex.Cursor
    lib.clang_Type_getValueType.argtypes, lib.clang_Type_getValueType.restype = [cindex.Type], cindex.Type
    lib.clang_Type_getValueType.errcheck = cindex.Type.from_result
    lib.clang_Cursor_Evaluate.argtypes, lib.clang_Cursor_Evaluate.restype = [cindex.Cursor], ctypes.c_void_p
    for name, result in (
        ("clang_EvalResult_getKind", ctypes.c_int),
        ("clang_EvalResult_getAsLongLong", ctypes.c_longlong),
        ("clang_EvalResult_isUnsignedInt", ctypes.c_uint),
        ("clang_EvalResult_getAsUnsigned", ctypes.c_ulonglong),
        ("clang_EvalResult_getAsDouble", ctypes.c_double),
        ("clang_EvalResult_getAsStr", ctypes.c_char_p),
        ("clang_EvalResult_dispose", None),
    ):
        function = getattr(lib, name)
        function.argtypes, function.restype = [ctypes.c_void_p], result
    return cindex


class Node:
    """A cursor of Clang's tree: an expression, a statement or a declaration."""

    __slots__ = ("_kids", "_name", "_place", "_referred", "_type", "cursor", "kind", "unit")

    def __init__(self, unit: Unit, cursor: Any) -> None:
        self.unit, self.cursor, self.kind = unit, cursor, cursor.kind.name
        self._kids: list[Node] | None = None
        self._type: CType | None = None
        self._name: str | None = None
        self._place: tuple[str, int, int] | None = None
        self._referred: Node | Literal[False] | None = False

    @property
    def kids(self) -> list[Node]:
        """The nodes directly below."""
        if self._kids is None:
            self._kids = [Node(self.unit, one) for one in self.cursor.get_children()]
        return self._kids

    @property
    def type(self) -> CType:
        """The type of an expression or a declaration."""
        if self._type is None:
            self._type = self.unit.type_of(self.cursor.type, self)
            if self.kind == "PARM_DECL" and isinstance(self._type, ctype.Array):
                self._type = ctype.Pointer(self._type.element)  # as C adjusts it
        return self._type

    @property
    def name(self) -> str:
        """The name of a declaration, or of what an expression refers to."""
        if self._name is None:
            self._name = str(self.cursor.spelling)
        return self._name

    @property
    def referred(self) -> Node | None:
        """The declaration that a name refers to."""
        if self._referred is False:
            target = self.cursor.referenced
            self._referred = None if target is None or target == self.cursor else self.unit.declaration(target)
        return self._referred

    @property
    def key(self) -> int:
        """A number that identifies a declaration."""
        return int(self.cursor.hash)

    @property
    def binary(self) -> str:
        """The operator of a binary expression or an assignment."""
        return BINARY[library().conf.lib.clang_getCursorBinaryOperatorKind(self.cursor)]

    @property
    def unary(self) -> str:
        """The operator of a unary expression."""
        return UNARY[library().conf.lib.clang_getCursorUnaryOperatorKind(self.cursor)]

    @property
    def initial(self) -> Node | None:
        """The initial value of a variable; None if it has none."""
        found = library().conf.lib.clang_Cursor_getVarDeclInitializer(self.cursor)
        if found.kind.is_invalid():
            return None
        found._tu = self.cursor._tu
        return Node(self.unit, found)

    def evaluated(self) -> int | float | str | None:
        """Return the value of a constant expression; None if it is not constant."""
        lib = library().conf.lib
        result = lib.clang_Cursor_Evaluate(self.cursor)
        if not result:
            return None
        try:
            kind = lib.clang_EvalResult_getKind(result)
            if kind == 1:
                if lib.clang_EvalResult_isUnsignedInt(result):
                    return int(lib.clang_EvalResult_getAsUnsigned(result))
                return int(lib.clang_EvalResult_getAsLongLong(result))
            if kind == 2:
                return float(lib.clang_EvalResult_getAsDouble(result))
            if kind in (3, 4):
                text = lib.clang_EvalResult_getAsStr(result)
                return text.decode(errors="replace") if text is not None else None
            return None
        finally:
            lib.clang_EvalResult_dispose(result)

    @property
    def place(self) -> tuple[str, int, int]:
        """File, line and column; of a macro, where it is used."""
        if self._place is None:
            where = self.cursor.location
            file = where.file
            self._place = (self.unit.file if file is None else str(file.name)), where.line, where.column
        return self._place

    @property
    def selected(self) -> str | None:
        """The elements of a vector that an expression selects (``v.xy``); None for other expressions."""
        if self.kind != "UNEXPOSED_EXPR" or len(self.kids) != 1 or not isinstance(self.kids[0].type, ctype.Vector):
            return None
        kid = self.kids[0]
        if kid.cursor.extent.end.offset == self.cursor.extent.end.offset:
            have, want = kid.type, self.type
            if not (isinstance(have, ctype.Vector) and have != want):
                return None
        names = [token.spelling for token in self.cursor.get_tokens()]
        return names[-1] if names else None

    @property
    def start(self) -> int:
        """Offset of the beginning in the file."""
        return int(self.cursor.extent.start.offset)

    def has(self, *attributes: str) -> bool:
        """Return whether a declaration has one of these attributes."""
        return any(kid.kind in attributes for kid in self.kids)

    def refused(self, problem: str, expected: str | None = None) -> InputError:
        """Return the error that something at this node is not supported."""
        file, line, column = self.place
        return InputError(problem, where=Location(file, line, column), expected=expected)


class Unit:
    """A parsed C file.

    Args:
        file: The file, ``.cu`` or ``.cl``.
        defines: Macros, as ``NAME`` or ``NAME=VALUE``.
        include: Folders of headers.
        text: Its text; by default it is read from the file.
        instance: An instance of a template to be made, such as ``scale<float>``.

    Raises InputError with Clang's message if it does not compile, and for an include that is not allowed.
    """

    def __init__(
        self,
        file: str,
        defines: Sequence[str] = (),
        include: Sequence[str] = (),
        text: str | None = None,
        instance: str | None = None,
    ) -> None:
        self.file = file
        self.opencl = Path(file).suffix == ".cl"
        if text is None:
            try:
                text = Path(file).read_text(encoding="utf-8", errors="replace")
            except OSError as error:
                raise InputError(
                    f"{error.strerror}", where=Location(file), expected="a CUDA C or OpenCL C file"
                ) from None
        check_includes(file, text, include, PRELUDE)
        cindex = library()
        self.instances: list[str] = [] if self.opencl else _instantiated(text)
        """The instances of templates that the file names explicitly (``scale<float>``), and one that is asked."""
        if instance is not None:
            self.instances.append(instance)
        # A reference to an instance is what Clang shows its body for.
        named = [f"static auto *__wt_instance_{n} = &{name};" for n, name in enumerate(self.instances)]
        unsaved = [(file, "\n".join([text, *named, ""]) if named else text)]
        self._unit = cindex.Index.create().parse(file, args=self._arguments(defines, include), unsaved_files=unsaved)
        self.lines = text.splitlines()
        self._texts: dict[str, list[str]] = {file: self.lines}
        self._types: dict[str, CType] = {}
        self._records: dict[int, ctype.Record] = {}
        self._declarations: dict[int, Node] = {}
        self.notes: list[str] = []
        """What was left out: errors in functions of the host, which are not run."""
        host: list[tuple[str, int, int]] | None = None
        for found in self._unit.diagnostics:
            if found.severity >= cindex.Diagnostic.Error:
                where = found.location
                if host is None:
                    host = [] if self.opencl else list(self._host_functions())
                place = (str(where.file), where.line)
                if found.severity == cindex.Diagnostic.Error and any(
                    place[0] == name and first <= place[1] <= last for name, first, last in host
                ):
                    self.notes.append(
                        f"{place[0]}:{place[1]}: in a function of the host, which is not run: {found.spelling}"
                    )
                    continue
                name = str(where.file) if where.file is not None else file
                raise InputError(f"{found.spelling}", where=Location(name, where.line or None, where.column or None))

    def __deepcopy__(self, memo: object) -> Unit:
        """Return the unit itself, to which copies of a tree refer."""
        return self

    def _host_functions(self) -> Iterator[tuple[str, int, int]]:
        """Yield file, first and last line of the functions that run on the host only."""
        for node in self.declarations():
            if (
                node.kind == "FUNCTION_DECL"
                and node.cursor.is_definition()
                and not node.has("CUDAGLOBAL_ATTR", "CUDADEVICE_ATTR")
            ):
                extent = node.cursor.extent
                yield node.place[0], extent.start.line, extent.end.line

    def _arguments(self, defines: Sequence[str], include: Sequence[str]) -> list[str]:
        given = [f"-D{one}" for one in defines]
        given += [f"-I{folder}" for folder in include]
        given += ["-nostdinc", "-w", "-ferror-limit=0"]
        if self.opencl:
            prelude = str(PRELUDE / "opencl.h")
            return [
                "-x", "cl", "-cl-std=CL2.0", "-target", "spir64", "-Xclang", "-fdeclare-opencl-builtins",
                "-Xclang", "-cl-ext=+all", "-cl-no-stdinc", "-include", prelude, *given,
            ]  # fmt: skip
        return [
            "-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "--cuda-gpu-arch=sm_80", "-std=c++17",
            "-nostdinc++", "-fno-exceptions", "-include", str(PRELUDE / "cuda.h"), *given, f"-isystem{PRELUDE}",
        ]  # fmt: skip

    def text_of(self, file: str, line: int) -> str:
        """Return a line of a source file, stripped."""
        if file not in self._texts:
            try:
                self._texts[file] = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                self._texts[file] = []
        lines = self._texts[file]
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def declaration(self, cursor: Any) -> Node:
        """Return the node of a declaration: one for all that refer to it, so that its parts are read once."""
        key = int(cursor.hash)
        known = self._declarations.get(key)
        if known is None:
            known = self._declarations[key] = Node(self, cursor)
        return known

    def declarations(self) -> Iterator[Node]:
        """Yield the declarations at the top and in namespaces, in order."""

        def inside(node: Node) -> Iterator[Node]:
            for kid in node.kids:
                if kid.kind in ("NAMESPACE", "LINKAGE_SPEC", "UNEXPOSED_DECL"):
                    yield from inside(kid)
                else:
                    yield kid

        yield from inside(Node(self, self._unit.cursor))

    def named_instances(self) -> Iterator[tuple[str, Node]]:
        """Yield the instances of templates that the file names explicitly, by their names, and that is asked."""
        for node in self.declarations():
            if node.kind != "VAR_DECL" or not node.name.startswith("__wt_instance_"):
                continue
            for one in node.cursor.walk_preorder():
                target = one.referenced if one.kind.name == "DECL_REF_EXPR" else None
                if target is not None and target.kind.name == "FUNCTION_DECL":
                    yield self.instances[int(node.name.rpartition("_")[2])], self.declaration(target)
                    break

    # Types.

    def type_of(self, kind: Any, node: Node) -> CType:
        """Return the type of C that a type of Clang is."""
        spelled = kind.get_canonical()
        key = spelled.spelling
        known = self._types.get(key)
        if known is None:
            known = self._made(spelled, node)
            # Local types of two functions may have one name.
            if not isinstance(known, ctype.Record):
                self._types[key] = known
        return known

    # Long: one case for each kind of type.
    def _made(self, kind: Any, node: Node) -> CType:
        name = kind.kind.name
        if name in _NUMBERS:
            return ctype.Number(_NUMBERS[name])
        if name in ("POINTER", "LVALUEREFERENCE", "RVALUEREFERENCE"):
            inner = kind.get_pointee()
            space = next((s for s in ("local", "constant", "global") if f"__{s} " in f"{inner.spelling} "), "")
            return ctype.Pointer(self.type_of(inner, node), space, name != "POINTER")
        if name == "CONSTANTARRAY":
            return ctype.Array(self.type_of(kind.element_type, node), kind.element_count)
        if name == "INCOMPLETEARRAY":
            return ctype.Array(self.type_of(kind.element_type, node), None)
        if name in ("EXTVECTOR", "VECTOR"):
            element = self.type_of(kind.element_type, node)
            assert isinstance(element, ctype.Number)  # noqa: S101  C has no other vectors
            return ctype.Vector(element, kind.element_count)
        if name == "ENUM":
            return self.type_of(kind.get_declaration().enum_type, node)
        if name == "RECORD":
            return self._record(kind)
        if name in ("VOID", "FUNCTIONPROTO", "FUNCTIONNOPROTO", "OVERLOAD", "DEPENDENT", "UNEXPOSED", "MEMBERPOINTER"):
            return ctype.Void(name)
        if name == "NULLPTR":
            return ctype.Pointer(ctype.VOID)
        if name == "ATOMIC":
            return self.type_of(library().conf.lib.clang_Type_getValueType(kind), node)
        if name == "OCLEVENT":
            return ctype.INT
        if name == "OCLSAMPLER" or name.startswith("OCLIMAGE"):
            return ctype.Void(kind.spelling)
        return ctype.Void(kind.spelling or name)

    def _record(self, kind: Any) -> ctype.Record:
        declaration = kind.get_declaration()
        key = int(declaration.hash)
        if key in self._records:
            return self._records[key]
        union = declaration.kind.name == "UNION_DECL" or "union " in kind.spelling.split("(")[0]
        made = ctype.Record(
            kind.spelling, max(kind.get_size(), 0), max(kind.get_align(), 1), union, "(lambda at" in kind.spelling
        )
        self._records[key] = made
        at = Node(self, declaration)
        for child in declaration.get_children():
            if child.kind.name == "CXX_BASE_SPECIFIER":
                base = self.type_of(child.type, at)
                used = max((one.offset + one.type.size for one in made.fields), default=0)
                made.fields.append(ctype.Field("", used if base.size > 1 else 0, base))
        for member in kind.get_fields():
            if member.is_bitfield():
                raise Node(self, member).refused(f"the bit-field '{member.spelling}'", "a member of a whole type")
            offset = member.get_field_offsetof() // 8
            name = "" if member.spelling.startswith("(anonymous") or "(unnamed" in member.spelling else member.spelling
            made.fields.append(ctype.Field(name, offset, self.type_of(member.type, Node(self, member))))
        return made


def _instantiated(text: str) -> list[str]:
    """Return the instances of kernels that a text instantiates explicitly."""
    found = re.finditer(
        r"\btemplate\s+(?!<)[^;{}()]*?__global__[^;{}()]*?\b(\w+\s*<[^;{}()]*>)\s*\(", without_comments(text)
    )
    return list(dict.fromkeys("".join(one[1].split()) for one in found))


_NUMBERS = {
    "BOOL": types.BOOL, "CHAR_U": types.U8, "UCHAR": types.U8, "CHAR_S": types.I8, "SCHAR": types.I8,
    "USHORT": types.U16, "SHORT": types.I16, "UINT": types.U32, "INT": types.I32, "ULONG": types.U64,
    "LONG": types.I64, "ULONGLONG": types.U64, "LONGLONG": types.I64, "FLOAT": types.F32, "DOUBLE": types.F64,
    "HALF": types.F16, "CHAR16": types.U16, "CHAR32": types.U32, "WCHAR": types.I32,
}  # fmt: skip
