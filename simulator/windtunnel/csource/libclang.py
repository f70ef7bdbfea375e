"""The module of libclang, with the functions that its Python interface does not declare."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from windtunnel.core.errors import InputError


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
    lib.clang_getCursorPrintingPolicy.argtypes = [cindex.Cursor]
    lib.clang_getCursorPrintingPolicy.restype = ctypes.c_void_p
    lib.clang_PrintingPolicy_dispose.argtypes = [ctypes.c_void_p]
    lib.clang_getCursorPrettyPrinted.argtypes = [cindex.Cursor, ctypes.c_void_p]
    lib.clang_getCursorPrettyPrinted.restype = cindex._CXString
    lib.clang_getCursorPrettyPrinted.errcheck = cindex._CXString.from_result
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
