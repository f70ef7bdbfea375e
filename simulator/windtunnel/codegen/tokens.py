"""Token tables: everything in which one target's source text differs from another's, as data and a few functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from windtunnel.codegen.keywords import RESERVED
from windtunnel.codegen.signature import Conventions
from windtunnel.codegen.text import PRIMARY
from windtunnel.language.types import Scalar


@dataclass(frozen=True, kw_only=True)
class Subgroup:
    """How the threads of a warp exchange values in languages that have no masks."""

    lane: str
    """The index of a thread in its warp, an unsigned number."""
    size: str
    """The number of threads of a warp."""
    one: str = "1"
    """The number 1 in the type of ``size``."""
    ballot: str
    """The template of a ballot; ``{}`` is the predicate."""
    ballot_level: int = PRIMARY
    any: str
    all: str
    vote_is_number: bool = False
    """Whether a vote gives a number instead of a bool."""
    shuffle: str
    index_cast: str = "{}"
    """A template that converts the index of the source lane."""
    source_arguments: Sequence[str] = ()
    """The arguments of the helper ``source_lane`` after the wanted lane."""
    bool_as: Scalar | None = None
    """The type in which a bool is exchanged; None if it is exchanged as it is."""
    features: Mapping[str, str] = field(default_factory=dict)
    """The extension, or the built-in argument, that ``any``, ``ballot``, ``vote`` and ``shuffle`` need."""


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The properties of a target that all emitters read."""

    title: str
    """The name of the language in messages and in the source's first comment."""
    conventions: Conventions = field(default_factory=Conventions)
    reserved: frozenset[str] = RESERVED
    """Names that no variable may have."""
    grid_barrier: bool = False
    """Whether the language has a barrier of all blocks of a grid."""
    dynamic_shared: str | None = None
    """The template of a shared array whose size the launch sets; None if the language has none."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """The types that the language lacks, each with the types to use instead."""
    emulated: frozenset[Scalar] = frozenset()
    """The 16-bit floats that are computed in f32 and rounded after every operation."""
    wraps: bool = False
    """Whether signed integers wrap around on overflow."""
    options: Sequence[str] = ()
    """The compiler options for the emulator's numbers."""
    option_note: str = ""
    subgroup: Subgroup | None = None


ATOMICS = frozenset(("add", "sub", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"))


class AtomicRule(NamedTuple):
    """An atomic operation that a language has.

    ``template`` has ``{at}``, ``{values}``, ``{negative}`` (the value with the opposite sign), ``{op}``, ``{space}``
    and ``{type}``. ``{word}`` is the unsigned type of the same width, and ``{bits}`` are the operands in that type. An
    empty template means a helper function.
    """

    kinds: tuple[str, ...]
    template: str = ""
    ops: AbstractSet[str] = ATOMICS
    names: Mapping[str, str] = {}
    """The language's names of operations, where they differ."""
    extension: str = ""


@dataclass(frozen=True, kw_only=True)
class CTokens(Tokens):
    """The tokens of a language that is a dialect of C.

    Templates are filled by ``str.format``. In helper texts and loads, ``$name$`` is the name of the helper ``name``.
    """

    types: Mapping[str, str]
    """The language's name of each type of the kernel language."""
    array_types: Mapping[str, str] = field(default_factory=dict)
    """The types of array elements, where they differ from ``types``."""
    short_title: str = ""
    """The name of the language in messages about missing functions."""
    wide_suffix: str = "ll"
    """The suffix of 64-bit integer literals."""
    float_suffixes: Mapping[str, str] = field(default_factory=lambda: {"f64": ""})
    """The suffix of float literals by type; ``f`` for all others."""
    cast_literals: frozenset[str] = frozenset()
    """The float types without literals: a literal is an f32 that is converted."""
    infinity: str = "INFINITY"
    not_a_number: str = "NAN"
    short_suffix: str = "f"
    """The suffix of the C functions' names for f32; empty where functions are overloaded."""
    no_functions: frozenset[str] = frozenset()
    """The functions of ``math`` that the language lacks."""
    more_functions: frozenset[str] = frozenset()
    """The functions that only kernels in C call (`c_numbers.BEYOND_PYTHON`) and the language has."""
    truncates: bool = True
    """Whether ``/`` and ``%`` of integers are C's, also for numbers below 0."""
    directed: Mapping[str, str] = field(default_factory=dict)
    """The functions that convert an f64 to an f32 in a direction: rz, ru, rd."""
    prints: str | None = None
    """The template of ``printf``: ``{form}`` and ``{values}``, which begins with a comma; None if there is none."""
    trap: str | None = None
    """The statement that ends the kernel where an assertion fails; None if there is none."""
    active: str | None = None
    """The lanes of the warp that execute an instruction together; None if the language does not say."""
    integer_extremes: bool = True
    """Whether the language has ``min`` and ``max`` of integers."""
    has_rsqrt: bool = True

    helper: str = "static inline"
    """The words before the return type of a helper function."""
    helpers: Mapping[str, str] = field(default_factory=dict)
    """Helper texts beside the common ones: by whole name (``round_f16``), or by name without its type (``popc``)."""
    word: tuple[str, str] = ("", "")
    """The functions from f32 to the u32 with the same bits, and back."""
    long_word: tuple[str, str] = ("", "")
    """The same for f64 and u64."""
    tf32_half: tuple[str, str] = ("0xfffu + ((b >> 13) & 1u)", "to even")
    """How tf32 is rounded: what is added to the bits, and how a tie is resolved."""

    prologue: Sequence[str] = ()
    """The lines before the first function, after the headers."""
    headers: Sequence[str] = ()
    """The headers that every kernel includes."""
    feature_headers: Mapping[str, str] = field(default_factory=dict)
    """The headers of a type (``f16``) or of the grid's barrier (``grid``)."""
    extension: str = ""
    """The template of a line that enables an extension."""
    f64_extension: str = ""
    entry: str = ""
    """The template of the kernel's head: ``{name}`` and ``{arguments}``."""
    entry_lines: bool = False
    """Whether each argument is on a line of its own."""
    pointer: str = "{const}{type} *{name}"
    """The template of an array parameter; also ``{volatile}`` and ``{position}``."""
    scalar: str = "{type} {name}"
    """The template of a scalar parameter; also ``{position}``."""
    passed_bool: str = "bool"
    copies_scalars: bool = False
    """Whether a scalar parameter that the kernel assigns is copied to a variable first."""
    builtin_arguments: Mapping[str, str] = field(default_factory=dict)
    """Parameters for thread indices, added where the kernel uses them."""
    indices: Mapping[str, str] = field(default_factory=dict)
    """Templates of thread indices: ``{x}`` is the axis' letter and ``{axis}`` its number."""
    signed_indices: bool = False
    folds_indices: bool = False
    """Whether sums and products of thread indices are computed on unsigned numbers as they stand."""

    shared: str = ""
    """The words before the type of a shared array."""
    volatile: str = ""
    """The qualifier of arrays with atomic operations."""
    narrow_declared: bool = False
    """Whether shared and local arrays hold 16-bit floats in 16 bits, as global arrays do."""
    loads: Mapping[str, str] = field(default_factory=dict)
    """Templates of a load by type: ``{element}``, or ``{array}`` and ``{place}``."""
    stores: Mapping[str, str] = field(default_factory=dict)
    """Templates of a store by type: the same, and ``{value}``."""
    stores_round: bool = False
    """Whether a store rounds, so that a rounding of the value before it is omitted."""
    compound_stores: bool = True
    """Whether a store may be written as ``a[i] += x``."""

    barriers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The lines of each barrier and fence: ``{mask}``, and ``$name$`` for a helper."""
    barrier_features: Mapping[str, str] = field(default_factory=dict)
    """The extensions that barriers need."""
    shuffle: str = ""
    """The template of a shuffle with a mask: ``{how}``, ``{mask}``, ``{value}``, ``{lane}``."""
    vote: str = ""
    """The template of a vote with a mask: ``{how}``, ``{mask}``, ``{value}``."""
    ballot_is_wide: bool = False
    """Whether a ballot gives more than 32 bits."""
    exchange_bits: int = 64
    """The widest numbers that the threads of a warp exchange."""

    atomics: Sequence[AtomicRule] = ()
    """The atomic operations of the language; the first matching rule applies. All others are helper functions."""
    atomic_bits: int = 64
    """The widest numbers of atomic operations."""
    atomic_helper: str = "atomic_{op}_{kind}"
    """The name of the helper for an atomic operation; ``{space}`` is ``space[declared]``."""
    spaces: tuple[str, str] = ("", "")
    """The address spaces of global and of shared arrays."""
    atomic_loop: str = ""
    """The helper's text: a compare-exchange loop. ``$new$`` is the new value's bits, ``$change$`` the new value."""
    atomic_cas: str = ""
    """The helper's text for a compare-exchange."""
    atomic_old: str = "seen"
    """The variable in ``atomic_loop`` that holds the old value, or its bits."""
    helper_first: bool = False
    """Whether the helper of a store or an atomic operation precedes those of its operands in the source."""
