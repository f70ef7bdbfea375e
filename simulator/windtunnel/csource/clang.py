"""The syntax tree of a C file, as libclang gives it: functions, expressions with their types, and errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from windtunnel.core.errors import InputError, Location
from windtunnel.csource import ctype
from windtunnel.csource.bases import MEMBER, base_members
from windtunnel.csource.ctype import CType
from windtunnel.csource.diagnostics import Unknown, note_missing, note_warnings, sort_errors
from windtunnel.csource.edits import Edits, outermost_locals, with_edits
from windtunnel.csource.includes import ABSENT, PRELUDE, absent_text, check_includes, check_read
from windtunnel.csource.instances import instantiated, references
from windtunnel.csource.libclang import library
from windtunnel.language import types

BINARY = (
    "", ".*", "->*", "*", "/", "%", "+", "-", "<<", ">>", "<=>", "<", ">", "<=", ">=", "==", "!=", "&", "^", "|", "&&",
    "||", "=", "*=", "/=", "%=", "+=", "-=", "<<=", ">>=", "&=", "^=", "|=", ",",
)  # fmt: skip
"""Operators by Clang's number (``CXBinaryOperatorKind``)."""
_MACROS = str(ABSENT / "macros of the command line")
"""The name of the text that defines them, which is no file."""
_ACCEPTED = (
    "register", "implicit-int", "int-conversion", "incompatible-pointer-types", "incompatible-function-pointer-types",
    "c++11-narrowing", "reserved-user-defined-literal", "writable-strings", "return-type", "address-of-temporary",
    "implicit-function-declaration", "unknown-argument", "extra-tokens",
)  # fmt: skip
"""What Clang makes errors and the vendors' compilers do not."""
_ASSEMBLY = re.compile(r"\b(?:asm|__asm__|__asm)\b")
_REGISTER = re.compile(
    r"(?<![%\w])%(?=(?:laneid|lanemask_\w\w|n?warpid|n?smid|gridid|clock|clock64|globaltimer|n?tid\.[xyz]|n?ctaid\.[xyz])\b)"
)
"""A register of PTX in assembly, whose name nvcc takes with one ``%`` and Clang with two."""
_MIXED = "scalar operand type has greater rank"
"""Clang's error if a vector of floats meets a constant such as 0.5, which is a double where there are doubles."""
_EXTENSIONS = "-cl-ext=+all," + ",".join(
    f"-{name}"
    for name in ("cl_amd_media_ops", "cl_amd_media_ops2", "cl_intel_subgroups", "cl_intel_subgroups_short",
                 "cl_intel_device_side_avc_motion_estimation")
)  # fmt: skip
"""Extensions of OpenCL C: those of Khronos, and none of a vendor whose functions are not known."""
_FIRST_NUMBER = 0x4000
"""The number of the first function or variable of the file; lower ones are those of a kernel's own objects."""
UNARY = ("", "x++", "x--", "++x", "--x", "&", "*", "+", "-", "~", "!", "real", "imag", "extension", "co_await")
"""Operators by Clang's number (``CXUnaryOperatorKind``)."""
_CONTRACT = re.compile(
    r"\s*#\s*pragma\s+(?:(?:STDC|OPENCL)\s+FP_CONTRACT\s+(\w+)|clang\s+fp\s+contract\s*\(\s*(\w+)\s*\))"
)


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
    def definition(self) -> Node | None:
        """A function's declaration that has its body; None if it has no body."""
        defined = self.cursor.get_definition()
        for one in (self, *([] if defined is None else [self.unit.declaration(defined)])):
            if any(kid.kind == "COMPOUND_STMT" for kid in one.kids):
                return one
        return None

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
            line, name = where.line, self.unit.file if file is None else str(file.name)
            self._place = (*self.unit.origin(name, line), where.column)
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
        if len(names) > 1 and names[-2] == "." and _ELEMENTS.fullmatch(names[-1]) and names[-1] not in self.unit.macros:
            return str(names[-1])
        return self.unit.selections.get(self.key)  # a macro stands for it

    @property
    def start(self) -> int:
        """Offset of the beginning in the file."""
        return int(self.cursor.extent.start.offset)

    def walk(self) -> Iterator[Node]:
        """Yield the node and all below it, in order."""
        pending = [self]
        while pending:
            one = pending.pop()
            yield one
            pending += reversed(one.kids)

    def has(self, *attributes: str) -> bool:
        """Return whether a declaration has one of these attributes."""
        return any(kid.kind in attributes for kid in self.kids)

    def require_known(self) -> None:
        """Raise the error of a function that has names in it which are not known."""
        for one in self.unit.unknown:
            extent = self.cursor.extent
            if (
                extent.start.offset <= one.first
                and one.last <= extent.end.offset
                and (str(extent.start.file) == one.file)
            ):
                raise one.error()

    def refused(self, problem: str, expected: str | None = None) -> InputError:
        """Return the error that something at this node is not supported."""
        file, line, column = self.place
        return InputError(problem, where=Location(file, line, column), expected=expected)


def _definitions(defines: Sequence[str]) -> str:
    """Return definitions of the macros of the command line as text, without reserved names."""
    named = [one.partition("=") for one in defines if not one.startswith("_")]
    return "".join(f"#define {name} {value if equals else 1}\n" for name, equals, value in named)


class Unit:
    """A parsed C file.

    Args:
        file: The file, ``.cu`` or ``.cl``.
        defines: Macros, as ``NAME`` or ``NAME=VALUE``.
        include: Folders of headers.
        text: Its text; by default it is read from the file.
        instances: Instances of templates to be made, such as ``scale<float>``.
        origins: For each line of the text, the file and line that it comes from, if it was taken from elsewhere.
        warnings: Whether Clang's warnings are kept in ``notes``.
        fmad: Whether a product and a sum are one operation, as nvcc's option of this name says.

    Raises InputError with Clang's message if it does not compile, and for an include that is not allowed.
    """

    def __init__(
        self,
        file: str,
        defines: Sequence[str] = (),
        include: Sequence[str] = (),
        text: str | None = None,
        instances: Sequence[str] = (),
        origins: Sequence[tuple[str, int]] = (),
        *,
        warnings: bool = False,
        fmad: bool = True,
    ) -> None:
        self.file, self.fmad, self._origins = file, fmad, origins
        self.opencl = Path(file).suffix == ".cl"
        self.made_up = False
        """Whether images and textures have made-up contents."""
        self._numbers: dict[int, int] = {}
        if text is None:
            try:
                text = Path(file).read_text(encoding="utf-8", errors="replace")
            except OSError as error:
                raise InputError(
                    f"{error.strerror}", where=Location(file), expected="a CUDA C or OpenCL C file"
                ) from None
        own = ABSENT if self.opencl else PRELUDE
        missing = {str(ABSENT / name): name for name in check_includes(file, text, include, own, defines)}
        cindex = library()
        self.instances: list[str] = [] if self.opencl else instantiated(text)
        """The instances of templates that the file names explicitly (``scale<float>``), and those that are asked."""
        self.instances += instances
        arguments = [*self._arguments(defines, include), "-Wall" if warnings else "-w"]
        absent = [(path, absent_text(name, opencl=self.opencl)) for path, name in missing.items()]
        absent.append((_MACROS, _definitions(defines)))

        def parse(inside: Mapping[str, Sequence[str]], edits: Edits = MappingProxyType({})) -> Any:
            # A reference to an instance is what Clang shows its body for.
            whole = "\n".join([text.rstrip(), *references(self.instances, inside), ""]) if self.instances else text
            if not self.opencl and _ASSEMBLY.search(whole):
                whole = "\n".join(_REGISTER.sub("%%", line) if '"' in line else line for line in whole.split("\n"))
            files = [*with_edits(edits, {file: whole}), *absent]
            return cindex.Index.create().parse(file, args=arguments, unsaved_files=files)

        self._declarations: dict[int, Node] = {}
        self.clang = parse({})
        check_read(self.clang.get_includes(), file, include, PRELUDE)
        inside = self._namespaces() if self.instances and "namespace" in text else {}
        edits = outermost_locals(self.clang, file, text) if self.opencl else base_members(self.clang.cursor)
        if inside or edits:
            self._declarations.clear()
            self.clang = parse(inside, edits)
        self.single = self.opencl and any(_MIXED in found.spelling for found in self.clang.diagnostics)
        """Whether constants such as 0.5 are floats, as they are on devices without doubles."""
        if self.single:
            arguments.append("-cl-single-precision-constant")
            self.clang = parse({}, edits)
        self.lines = text.splitlines()
        self._texts: dict[str, list[str]] = {} if origins else {file: self.lines}
        self._pragmas: dict[str, list[tuple[int, bool]]] = {}
        self._types: dict[str, CType] = {}
        self._records: dict[int, ctype.Record] = {}
        self.wrong: dict[tuple[str, int], str] = {}
        """Errors that only the host's declarations have, by file and line."""
        self.notes: list[str] = []
        """What was left out: errors in functions of the host, which are not run, and headers that are not found; and
        warnings, if they are kept."""
        self.unknown: list[Unknown] = []
        """Errors in functions of the device, which concern the kernels that call these."""
        if self.single:
            self.notes.append(f"{file}: constants without a suffix are floats, because vectors of floats meet them")
        note_missing(self, missing)
        note_warnings(self)
        sort_errors(self, text.rstrip().count("\n") + 1, len(self.instances) - len(instances))

    def origin(self, file: str, line: int) -> tuple[str, int]:
        """Return the file and line that a line of the text comes from."""
        if self._origins and file == self.file and 0 < line <= len(self._origins):
            return self._origins[line - 1]
        return file, line

    def __deepcopy__(self, memo: object) -> Unit:
        """Return the unit itself, to which copies of a tree refer."""
        return self

    def _arguments(self, defines: Sequence[str], include: Sequence[str]) -> list[str]:
        # The prelude tests reserved names. Other macros, such as -DN=4 and -DT=float, must not change its own names.
        given = [f"-D{one}" for one in defines if one.startswith("_")]
        given += ["-include", _MACROS, *(f"-I{folder}" for folder in include)]
        given += ["-nostdinc", "-ferror-limit=0", *(f"-Wno-{name}" for name in _ACCEPTED)]
        if self.opencl:
            prelude = str(PRELUDE / "opencl.h")
            return [
                "-x", "cl", "-cl-std=CL2.0", "-target", "spir64", "-Xclang", "-fdeclare-opencl-builtins",
                "-Xclang", _EXTENSIONS, "-cl-no-stdinc", "-include", prelude, *given, f"-isystem{ABSENT}",
            ]  # fmt: skip
        return [
            "-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "--cuda-gpu-arch=sm_80", "-std=c++17",
            "-nostdinc++", "-fno-exceptions", "-include", str(PRELUDE / "cuda.h"), *given, f"-isystem{PRELUDE}",
            f"-isystem{ABSENT}",
        ]  # fmt: skip

    def own_text(self, file: str, line: int) -> str:
        """Return a line of what Clang read, stripped, whatever the line comes from."""
        if file == self.file:
            return self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""
        return self.text_of(file, line)

    def text_of(self, file: str, line: int) -> str:
        """Return a line of a source file, stripped."""
        if file not in self._texts:
            try:
                self._texts[file] = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                self._texts[file] = []
        lines = self._texts[file]
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def contracts(self, file: str, line: int) -> bool:
        """Return whether a product and a sum of this line are one operation: unless a pragma before it says no."""
        if file not in self._pragmas:
            self.text_of(file, line)
            found = ((n, _CONTRACT.match(text)) for n, text in enumerate(self._texts[file], 1) if "#" in text)
            self._pragmas[file] = [(n, (one[1] or one[2]).lower() != "off") for n, one in found if one is not None]
        return next((on for n, on in reversed(self._pragmas[file]) if n < line), self.fmad)

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

        yield from inside(Node(self, self.clang.cursor))

    def _namespaces(self) -> dict[str, list[str]]:
        """Return the namespaces, from the outermost one, of templates of kernels whose instances are named without."""
        wanted = {one.partition("<")[0] for one in self.instances}
        found: dict[str, list[str]] = {}
        for node in self.declarations():
            if node.kind == "FUNCTION_TEMPLATE" and node.name in wanted:
                names: list[str] = []
                at = node.cursor.semantic_parent
                while at is not None and at.kind.name == "NAMESPACE":
                    names.insert(0, str(at.spelling))
                    at = at.semantic_parent
                if names:
                    found.setdefault(node.name, names)
        return found

    def named_instances(self) -> Iterator[tuple[str, Node]]:
        """Yield the instances of templates that the file names explicitly, by their names, and that is asked."""
        for node in self.declarations():
            if node.kind != "VAR_DECL" or not node.name.startswith("__wt_instance_"):
                continue
            for one in node.walk():
                target = one.referred if one.kind == "DECL_REF_EXPR" else None
                if target is not None and target.kind == "FUNCTION_DECL":
                    yield self.instances[int(node.name.rpartition("_")[2])], target
                    break

    def number_of(self, declaration: int) -> int:
        """Return the number of a function or a variable of the file in pointers that memory holds.

        It is the same for all kernels of the file, which share its variables.
        """
        return self._numbers.setdefault(declaration, _FIRST_NUMBER + len(self._numbers))

    @cached_property
    def macros(self) -> frozenset[str]:
        """The names of the macros of the file."""
        found = (re.match(r"\s*#\s*define\s+(\w+)", line) for line in self.lines)
        return frozenset(one[1] for one in found if one is not None)

    @cached_property
    def selections(self) -> dict[int, str]:
        """The elements of vectors that expressions select, by their cursors' hashes, with macros replaced.

        Clang names them only in the text that it prints of a function. The members in that text come in the order in
        which the tree has them.
        """
        found: dict[int, str] = {}
        for node in self.declarations():
            if node.kind == "FUNCTION_DECL" and node.cursor.is_definition():
                selected: list[tuple[int, str]] = []
                _members(node.cursor, selected)
                names = [one[1] for one in _MEMBER.finditer(_printed(node.cursor)) if one[1]]
                known = [name for _, name in selected]
                if len(names) == len(known) and all(b in ("", a) for a, b in zip(names, known, strict=True)):
                    found |= {key: name for (key, one), name in zip(selected, names, strict=True) if not one}
        return found

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
            return ctype.Void("sampler" if name == "OCLSAMPLER" else "image")
        return ctype.Void(kind.spelling or name)

    def _bit_field(self, record: ctype.Record, member: Any) -> None:
        """Add a bit-field to a record: bits of a number of its type."""
        kind = self.type_of(member.type, Node(self, member))
        first, size = member.get_field_offsetof(), kind.size * 8
        offset = first // size * kind.size
        for other in record.fields:
            apart = other.offset + other.type.size <= offset or offset + kind.size <= other.offset
            same = other.bits is not None and other.offset == offset and other.type.size == kind.size
            if not (apart or same or record.union):
                raise Node(self, member).refused(
                    f"the bit-field '{member.spelling}' beside a member of another size", "members of one size"
                )
        record.fields.append(
            ctype.Field(str(member.spelling), offset, kind, (first % size, int(member.get_bitfield_width())))
        )

    def _record(self, kind: Any) -> ctype.Record:
        declaration = kind.get_declaration()
        key = int(declaration.hash)
        if key in self._records:
            return self._records[key]
        at = Node(self, declaration)
        span, own = declaration.extent, str(declaration.location.file)
        for (file, line), problem in self.wrong.items():
            if file == own and span.start.line <= line <= span.end.line:
                raise InputError(problem, where=Location(*self.origin(file, line)))
        union = declaration.kind.name == "UNION_DECL" or "union " in kind.spelling.split("(")[0]
        made = ctype.Record(
            kind.spelling, max(kind.get_size(), 0), max(kind.get_align(), 1), union, "(lambda at" in kind.spelling
        )
        self._records[key] = made
        members = list(kind.get_fields())
        bases = [one.type for one in declaration.get_children() if one.kind.name == "CXX_BASE_SPECIFIER"]
        bases += [one.type.element_type.get_pointee() for one in members if one.spelling.startswith(MEMBER)]
        for one in bases:
            base = self.type_of(one, at)
            used = max((one.offset + one.type.size for one in made.fields), default=0)
            used += -used % max(base.align, 1)
            made.fields.append(ctype.Field("", used if base.size > 1 else 0, base))
        for member in members:
            if member.spelling.startswith(MEMBER):
                continue
            if member.is_bitfield():
                self._bit_field(made, member)
                continue
            offset = member.get_field_offsetof() // 8
            name = "" if "(" in member.spelling else member.spelling  # one without a name is shown by its place
            made.fields.append(ctype.Field(name, offset, self.type_of(member.type, Node(self, member))))
        return made


_ELEMENTS = re.compile(r"[xyzw]+|[rgba]+|[sS][0-9a-fA-F]+|lo|hi|even|odd")
"""Names of elements of a vector."""
_MEMBER = re.compile(r"""\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\d[\w.]*|\w+|(?:\.|->)\s*([A-Za-z_]\w*)""")
"""Literals, names, and members with their name."""


def _printed(cursor: Any) -> str:
    """Return the text of a function that Clang prints, with macros replaced."""
    lib = library().conf.lib
    policy = lib.clang_getCursorPrintingPolicy(cursor)
    try:
        return str(lib.clang_getCursorPrettyPrinted(cursor, policy))
    finally:
        lib.clang_PrintingPolicy_dispose(policy)


def _members(cursor: Any, found: list[tuple[int, str]]) -> None:
    """Collect the members that an expression names, in order; the name is empty for elements of a vector."""
    kids = list(cursor.get_children())
    for kid in kids:
        _members(kid, found)
    kind = cursor.kind.name
    if kind in ("MEMBER_REF_EXPR", "MEMBER_REF") and "(" not in cursor.spelling and cursor.spelling:
        found.append((0, str(cursor.spelling)))
    elif (
        kind == "UNEXPOSED_EXPR"
        and len(kids) == 1
        and kids[0].type.get_canonical().kind.name in ("EXTVECTOR", "VECTOR")
    ):
        have, want = kids[0].type.get_canonical(), cursor.type.get_canonical()
        vector = want.kind.name in ("EXTVECTOR", "VECTOR")
        inner = kids[0]
        while inner.kind.name == "PAREN_EXPR":
            inner = next(inner.get_children())
        # The value of a variable has its type without an address space; elements of a variable keep it.
        if not cursor.spelling and (
            want.spelling == have.spelling and inner.kind.name not in ("COMPOUND_LITERAL_EXPR", "INIT_LIST_EXPR")
            if vector and want.element_count == have.element_count
            else True
        ):
            found.append((int(cursor.hash), ""))


_NUMBERS = {
    "BOOL": types.BOOL, "CHAR_U": types.U8, "UCHAR": types.U8, "CHAR_S": types.I8, "SCHAR": types.I8,
    "USHORT": types.U16, "SHORT": types.I16, "UINT": types.U32, "INT": types.I32, "ULONG": types.U64,
    "LONG": types.I64, "ULONGLONG": types.U64, "LONGLONG": types.I64, "FLOAT": types.F32, "DOUBLE": types.F64,
    "HALF": types.F16, "CHAR16": types.U16, "CHAR32": types.U32, "WCHAR": types.I32,
}  # fmt: skip
