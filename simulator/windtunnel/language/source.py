"""A kernel's source: its syntax tree, its lines, its names, and whether it is written for one thread."""

from __future__ import annotations
import __future__

import ast
import builtins
import inspect
import linecache
import sys
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from tokenize import TokenError
from types import CodeType, FunctionType
from typing import Any, Final

from windtunnel.core.errors import InputError, Location
from windtunnel.core.stencil import StencilForm, form_of
from windtunnel.language.ir import Program
from windtunnel.language.names import POSITION, Group, Name
from windtunnel.language.types import Array, Scalar

UNKNOWN: Final = object()
"""What a name means that is known only while the kernel runs."""
_FUTURE = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
"""The flags of a code object that say how its text was compiled."""


class KernelError(InputError):
    """A kernel's source is not in the kernel language. The message has the file, the line and what was expected."""

    @property
    def file(self) -> str | None:
        """The kernel's file, as in a finding; None if the source cannot be read."""
        return self.where.file

    @property
    def lines(self) -> tuple[int, ...]:
        """The line of the error, as in a finding; empty if it concerns no line."""
        return () if self.where.line is None else (self.where.line,)


class UnreadableSourceError(KernelError):
    """The source of a Python function cannot be read, so that it is unknown what kind of kernel it is."""


@dataclass(frozen=True)
class OwnText:
    """A kernel's own source, for a compiler of its language.

    Attributes:
        text: The source, as the compiler of the target takes it.
        name: The kernel, as the compiler names it: an instance of a template with its arguments.
        options: The compiler's options.
        arguments: What the kernel takes, in order: (name, role, type). The role is ``array``, ``number``, ``struct`` (a
            value of several numbers) or ``local`` (bytes of shared memory). The type is None where there is no single
            one.
        file: The loaded file. All kernels of one file have one text, and share its variables.
        kernels: The names of all kernels of the file.
    """

    text: str
    name: str
    options: Sequence[str]
    arguments: Sequence[tuple[str, str, Scalar | None]]
    file: Hashable
    kernels: Sequence[str]


class KernelSource:
    """A kernel of threads, in any language: its typed tree, which all devices and targets take.

    ``name`` is the kernel's name, and ``form`` the tile and the halo of a stencil (None for others).
    """

    name: str
    form: StencilForm | None = None
    structs = False
    """Whether an argument may be a sequence of numbers, for a struct that is passed by value."""

    def typed(self, arguments: Sequence[Any], starts: Sequence[int] = ()) -> Program:
        """Return the typed tree for the arguments of a launch; the same object for launches that it fits.

        ``starts``: for each argument, the byte of its array that a pointer points to. The default is the first one.
        An argument is a number, or an array or buffer with ``dtype`` and ``shape``. The tree must not be changed.
        Raises KernelError or InputError, with the line, for a kernel that is not supported.
        """
        raise NotImplementedError

    def declared(self, local_bytes: Mapping[str, int]) -> Program:
        """Return the typed tree by the declaration of the kernel alone.

        ``local_bytes`` are the sizes of ``__local`` parameters. Raises KernelError or InputError, with the line, for a
        kernel that is not supported, and for a parameter whose type or size is not stated.
        """
        raise NotImplementedError

    def adapted(self, arguments: Sequence[Any], starts: Sequence[int] = ()) -> Sequence[tuple[int | None, Any]]:
        """Return the arguments of the tree's parameters for those of a launch.

        Each is given with the number of the launch's argument that it comes from; None if it comes from none. Arrays
        have the elements of the tree. Buffers are returned as they are. ``starts``: as for `typed`.
        """
        del starts
        return list(enumerate(arguments))

    def own_text(self, target: str) -> OwnText | None:
        """Return the kernel's own source, where the compiler of a target takes it; None if it takes the tree only."""
        del target
        return None

    def own_arguments(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """Return what the kernel's own source takes: buffers, numbers of its types, bytes of structs, sizes."""
        raise NotImplementedError


@dataclass(frozen=True)
class Source:
    """The source of a function. The line numbers of ``tree`` are those of the file, plus ``raised``."""

    function: Callable[..., Any]
    file: str
    line: int
    lines: tuple[str, ...]
    tree: ast.FunctionDef
    environment: Mapping[str, object]
    """Globals, closure and builtins that its names may refer to."""
    assigned: frozenset[str] = field(default=frozenset())
    """The function's parameters and all names that it assigns."""
    raised: int = 0
    """The offset of ``tree``'s line numbers (``ir.RAISED``)."""

    @cached_property
    def positions(self) -> frozenset[str]:
        """The parameters annotated ``GridPos``: a stencil's position, which no caller passes."""
        given = self.tree.args
        parameters = (*given.posonlyargs, *given.args)
        return frozenset(argument.arg for argument in parameters if self._annotation(argument) is POSITION)

    def _annotation(self, argument: ast.arg) -> Any:
        node = argument.annotation
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        if isinstance(node, ast.Name):  # a parameter may have the name of its type
            return self.environment.get(node.id, UNKNOWN)
        return UNKNOWN if node is None else self.static(node)

    def error(
        self, node: ast.AST, problem: str, *, expected: str | None = None, nearest: str | None = None
    ) -> KernelError:
        """Return an error at a node of the tree."""
        line = getattr(node, "lineno", self.line + self.raised) - self.raised
        where = Location(self.file, line, getattr(node, "col_offset", -1) + 1 or None)
        return KernelError(problem, where=where, expected=expected, nearest=nearest)

    def raised_by(self, lines: int) -> Source:
        """Return the same source with higher line numbers in its tree."""
        tree = deepcopy(self.tree)
        ast.increment_lineno(tree, lines)
        return replace(self, tree=tree, raised=self.raised + lines)

    def static(self, node: ast.AST) -> Any:
        """Return the outside object that names and attributes refer to; UNKNOWN for another expression."""
        if isinstance(node, ast.Name):
            return UNKNOWN if node.id in self.assigned else self.environment.get(node.id, UNKNOWN)
        if isinstance(node, ast.Attribute):
            base = self.static(node.value)
            if base is UNKNOWN:
                return UNKNOWN
            try:
                return getattr(base, node.attr)
            except AttributeError as error:
                if isinstance(base, (Group, Name)):
                    raise self.error(node, str(error)) from None
                return UNKNOWN
        return UNKNOWN


@cache
def source_of(function: Callable[..., Any]) -> Source:
    """Return the source of a function; KernelError if it cannot be read."""
    plain = inspect.unwrap(function)
    name = getattr(plain, "__name__", repr(plain))
    if not inspect.isfunction(plain):
        raise KernelError(f"'{name}' is not a Python function", expected="a function, defined with def")
    code = plain.__code__
    if code.co_name == "<lambda>" or code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        where = Location(code.co_filename, code.co_firstlineno)
        raise KernelError(f"'{name}' is not a plain function", where=where, expected="def, not async or lambda")
    lines, first, file, definition = _text_of(plain)
    return Source(plain, file, first, tuple(lines), definition, _environment(plain), _assigned(definition))


def _text_of(function: FunctionType) -> tuple[list[str], int, str, ast.FunctionDef]:
    """Return the lines of a function, the number of the first, their file, and the syntax tree.

    They are taken from the file, or from `linecache`, where notebooks and generators of code put the text that they
    execute. Raises UnreadableSourceError for another text than the one that the function was compiled from.
    """
    text, compiled = compiled_text(function)
    for node in ast.walk(text.tree):
        if isinstance(node, ast.FunctionDef) and node.name == compiled.co_name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == compiled.co_firstlineno:
                return list(text.lines[first - 1 : node.end_lineno]), first, text.file, node
    raise _unreadable(function)


@dataclass(frozen=True)
class _Text:
    """The text of a file, its tree, and the functions that it is compiled to."""

    file: str
    lines: Sequence[str]
    tree: ast.Module
    functions: Sequence[CodeType]


def compiled_text(function: Callable[..., Any]) -> tuple[_Text, CodeType]:
    """Return the text that a function was compiled from, and the function as it is compiled from this text now.

    The instructions are compared: the file may have changed, the code been replaced, or other text been executed under
    its name. Functions may have moved to other lines. Raises UnreadableSourceError if there is no such function.
    """
    code = function.__code__
    file = code.co_filename
    linecache.checkcache(file)
    lines = linecache.getlines(file, function.__globals__)
    for tried in (lines, _alone(lines, code.co_firstlineno)):
        try:
            text = _compiled(tuple(tried), file, code.co_flags & _FUTURE)
        except (SyntaxError, ValueError):
            continue
        found = [one for one in text.functions if _same_code(one, code)]
        if found:  # of several, the one in its place
            places = (code.co_qualname, code.co_firstlineno)
            return text, min(found, key=lambda one: (one.co_qualname != places[0], abs(one.co_firstlineno - places[1])))
    raise _unreadable(function)


def _alone(lines: list[str], first: int) -> list[str]:
    """Return a definition in its place without the rest of its file, which may be a text with blocks of Python."""
    try:
        block = inspect.getblock(lines[first - 1 :])
    except (SyntaxError, TokenError):
        return []
    before = ["\n"] * (first - 1)
    if block and block[0][:1].isspace():
        before[-1:] = ["if True:\n"]
    return [*before, *block]


@lru_cache(maxsize=64)
def _compiled(lines: tuple[str, ...], file: str, flags: int) -> _Text:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse("".join(lines))
        flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # of notebooks
        functions = _functions(compile(tree, file, "exec", flags, dont_inherit=True))
    return _Text(file, lines, tree, functions)


def _functions(code: CodeType) -> list[CodeType]:
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return [found for one in inner for found in (one, *_functions(one))]


def _same_code(compiled: CodeType, code: CodeType) -> bool:
    """Return whether a function is the one that a text was compiled to, but for the numbers of its lines."""
    if any(name.startswith("@") for name in (*code.co_names, *code.co_varnames)):
        # pytest has replaced the assertions: its variables have names that no source has.
        stated = [(one.co_name, one.co_firstlineno, one.co_varnames[: one.co_argcount]) for one in (compiled, code)]
        return stated[0] == stated[1]
    return compiled.co_name == code.co_name and _without_lines(compiled) == _without_lines(code)


def _without_lines(code: CodeType) -> CodeType:
    consts = tuple(_without_lines(const) if isinstance(const, CodeType) else const for const in code.co_consts)
    return code.replace(co_linetable=b"", co_firstlineno=1, co_consts=consts)


def _unreadable(function: Callable[..., Any]) -> UnreadableSourceError:
    code = function.__code__
    return UnreadableSourceError(
        f"the source of '{function.__name__}' cannot be read: it was defined in {code.co_filename!r}, line "
        f"{code.co_firstlineno}, and no text is there that compiles to it",
        expected="a function in a file that was not changed since, in a notebook, or in text that is in "
        "linecache.cache under the name that was given to compile(); kernels are compiled from their source",
    )


def _environment(function: Callable[..., Any]) -> dict[str, object]:
    closure = inspect.getclosurevars(function)
    # Names that no instruction mentions, such as those of annotations, are globals too.
    return {**vars(builtins), **function.__globals__, **closure.nonlocals}


def _assigned(tree: ast.FunctionDef) -> frozenset[str]:
    names = {argument.arg for argument in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)}
    names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return frozenset(names)


def by_thread(function: Callable[..., Any]) -> bool:
    """Return whether a function is written for one thread instead of for whole arrays.

    It is, if the function or one that it calls uses a name of the kernel language, or a parameter is annotated with one
    of its types. It also is, if the function only reads and assigns single elements of its parameters (``a[0] += 1``).

    Raises UnreadableSourceError for a Python function without source. Called on whole arrays it would compute something
    else, if it was written for one thread.
    """
    if isinstance(function, KernelSource):
        return True
    try:
        source = source_of(function)
    except UnreadableSourceError:
        raise
    except KernelError:
        return False  # a callable that is no plain function, such as one of NumPy's, works on whole arrays
    if source.positions or form_of(function) is not None:
        return True
    return _annotated(source) or _worded(source, set()) or _single_elements(source)


def _annotated(source: Source) -> bool:
    """Return whether a parameter is annotated with a type of the kernel language."""
    for argument in source.tree.args.args:
        stated = argument.annotation.value if isinstance(argument.annotation, ast.Subscript) else argument.annotation
        if isinstance(stated, (ast.Name, ast.Attribute)) and isinstance(_quiet(source, stated), (Scalar, Array)):
            return True
    return False


def _worded(source: Source, seen: set[Any]) -> bool:
    """Return whether a function, or one that it calls, uses a name of the kernel language; ``seen``: those visited."""
    seen.add(source.function)
    tree = source.tree
    if any(isinstance(source.static(node), (Name, Group)) for node in ast.walk(tree) if isinstance(node, ast.Name)):
        return True
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(_quiet(source, node), (Name, Group)):
            return True
    for node in ast.walk(tree):
        called = _quiet(source, node.func) if isinstance(node, ast.Call) else None
        plain = getattr(called, "function", called)
        # Installed libraries do not use the kernel language.
        if inspect.isfunction(plain) and plain not in seen and not _installed(plain):
            try:
                if _worded(source_of(plain), seen):
                    return True
            except KernelError:
                continue
    return False


def _installed(function: Any) -> bool:
    """Return whether a function belongs to an installed library."""
    return "site-packages" in function.__code__.co_filename or function.__module__ in sys.stdlib_module_names


def _quiet(source: Source, node: ast.expr) -> Any:
    try:
        return source.static(node)
    except KernelError:
        return None


# Long: one decision over all kinds of syntax nodes, which would be harder to follow in parts.
def _single_elements(source: Source) -> bool:
    parameters = {argument.arg for argument in source.tree.args.args}
    stores = 0
    in_subscript = set()
    body = [node for statement in source.tree.body for node in ast.walk(statement)]
    for node in body:
        if isinstance(node, ast.Subscript):
            indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if any(isinstance(i, ast.Slice) or (isinstance(i, ast.Constant) and i.value is ...) for i in indices):
                return False
            if isinstance(node.value, ast.Name):
                in_subscript.add(id(node.value))
                stores += isinstance(node.ctx, ast.Store) and node.value.id in parameters
        elif isinstance(node, (ast.Return, ast.Yield, ast.Await, ast.With, ast.Try, ast.Raise, ast.Import)):
            if not (isinstance(node, ast.Return) and node.value is None):
                return False
        elif isinstance(node, ast.Call) and not isinstance(node.func, ast.Name):
            return False
    bare = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Name) and node.id in parameters and id(node) not in in_subscript
    ]
    # A parameter that stands alone may be an array. Only parameters in indices and values are certainly numbers.
    arrays = {
        node.value.id
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)
    }
    return stores > 0 and not any(node.id in arrays or isinstance(node.ctx, ast.Store) for node in bare)
