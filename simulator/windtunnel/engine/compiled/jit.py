"""Compiles the transitions with Numba, in variants that leave out the features that a run does not use.

A transition is a plain function (`engine/transitions`). For each variant it is compiled from the same code, with the
feature constants of that variant and with the compiled forms of the functions that it calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, cast

import llvmlite.binding as llvm
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from windtunnel.engine.compiled.machine_code import ObjectCode
from windtunnel.engine.transitions import containers, heap
from windtunnel.engine.transitions.features import FEATURES, INLINED


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(_typing: Any, rows: Any, at: Any) -> Any:
    """Prefetch the cache line at which record ``at`` of ``rows`` begins, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, arguments[0])
        place = [arguments[1]] + [context.get_constant(types.intp, 0)] * (kind.ndim - 1)
        pointer = cgutils.get_item_pointer(context, builder, kind, array, place)
        anywhere = ir.IntType(8).as_pointer()
        number = ir.IntType(32)
        kind_of = ir.FunctionType(ir.VoidType(), [anywhere, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind_of, "llvm.prefetch.p0")
        # Arguments: read access, all cache levels, data.
        builder.call(function, [builder.bitcast(pointer, anywhere), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(rows, at), generate


@intrinsic  # type: ignore[untyped-decorator]
def lowest_bit(_typing: Any, word: Any) -> Any:
    """Return the number of the lowest bit of a 64-bit word that is set, which is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.int64(types.int64), generate


_INSTRUCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    heap.prefetch: prefetch,
    containers.lowest_bit: lowest_bit,
}
"""The transitions that are one instruction of the processor."""


def object_code(function: Callable[..., Any], signature: Any, **options: Any) -> ObjectCode:
    """Compile a function for a signature; raises Numba's error for a function that does not compile.

    Numba names symbols after all types of all tables. They are renamed, as they would take most of the file.
    """
    dispatcher = njit(signature, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)(function)
    (compiled,) = dispatcher.overloads.values()
    module = llvm.parse_bitcode(compiled.library._final_module.as_bitcode())
    externals, symbol, arguments = [], "", 0
    for number, value in enumerate([*module.functions, *module.global_variables]):
        if not value.is_declaration:
            is_entry, new = value.name == compiled.fndesc.llvm_func_name, f"windtunnel_{number}"
            if is_entry:
                symbol, arguments = new, len(list(value.arguments)) - 2  # without the places of result and exception
            value.name = new
        elif not value.name.startswith("llvm."):
            externals.append(value.name)
    return ObjectCode(symbol, arguments, tuple(externals), compiled.library.codegen._tm.emit_object(module))


class Variant:
    """The transitions, compiled with some of the features.

    Args:
        name: The name of the variant, which distinguishes its machine code in the cache.
        features: The features that it has (``transitions.features.FEATURES``).
    """

    def __init__(self, name: str, features: frozenset[str]) -> None:
        self._name = name
        self._constants = {feature: feature in features for feature in FEATURES}
        self._scopes: dict[int, dict[str, Any]] = {}
        self._compiled: dict[Callable[..., Any], Callable[..., Any]] = {**_INSTRUCTIONS}

    def __getitem__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the compiled form of a transition. Numba compiles it at its first call.

        No transition allocates an array, so Numba need not count references (``_nrt``). That reduces the time of a job
        by two thirds.
        """
        if function not in self._compiled:
            inline = {"forceinline": True} if INLINED[cast(FunctionType, function)] else {}
            inline |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
            copy = self._copy(function)
            self._compiled[function] = njit(_nrt=False, error_model="numpy", **inline)(copy)
        return self._compiled[function]

    def entry(self, function: Callable[..., Any], signature: Any) -> ObjectCode:
        """Return the machine code of a transition for a signature."""
        return object_code(self._copy(function), signature, _nrt=False, error_model="numpy")

    def _copy(self, function: Callable[..., Any]) -> FunctionType:
        """Return the function with the variant's constants and functions in place of its own."""
        own = cast(FunctionType, function)
        copy = FunctionType(own.__code__, self._scope(own.__globals__), own.__name__, own.__defaults__)
        copy.__module__, copy.__doc__ = own.__module__, own.__doc__
        copy.__qualname__ = f"{own.__qualname__}_{self._name}"
        return copy

    def _scope(self, names: Mapping[str, Any]) -> dict[str, Any]:
        scope = self._scopes.get(id(names))
        if scope is None:
            scope = self._scopes[id(names)] = {**names}
            for name, value in names.items():
                if name in self._constants:
                    scope[name] = self._constants[name]
                elif isinstance(value, FunctionType) and value in INLINED:
                    scope[name] = self[value]
        return scope
