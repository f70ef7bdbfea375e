"""Policies of a user's own: a function in a Python file beside the scenario, ``./mine.py:choose``.

The same function runs in both engines: as it is in the process engine, and compiled by Numba in the other. A route
takes a `Candidate` and gives a number, or two that are compared in order; the device with the least gets the job. An
order takes a `JobKey` and gives a number; the job with the least goes first. Attributes of the function say the rest,
as the decorators of shipped policies do: ``choose.rank_by = "backlog"``, ``choose.requires = ("price",)``.

The file is inside the scenario's folder, unless the user allows other code. What it may take is limited: see `bounded`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, get_args

from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.files import CODE_BYTES, read_bytes
from windtunnel.core.policy import Candidate, Index, JobKey, Order, OwnFunction, Route
from windtunnel.core.renamed import RENAMED, renamed_error
from windtunnel.core.time_limits import VARIABLE, time_limit
from windtunnel.policies.bounded import ENDLESS, TimeLimitError, compile_bounded, time_limited

_SPELLED = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)")
_REQUIREMENTS = ("price", "deadline", "use_case")
_LOADING_S = 60.0
"""How long a policy file may take to be loaded, and each of its functions to answer one example."""
_CANDIDATE = Candidate(1, 0.5, 0.25, 0.25, 0.001, 10.0, 1.0, 3, 0.0, 0.0, 1000, 512, 4000, 100_000, 8, 1, 1)
_JOB = JobKey(10**12, 1, 2 * 10**12, 0.25)


def is_own(text: str | None) -> bool:
    """Whether a policy's name is a file and a function in it."""
    return text is not None and _SPELLED.fullmatch(text) is not None


def own_route(text: str, folder: Path, outside: bool = False) -> Route:
    """The route that ``text`` names, its file relative to ``folder``; InputError for what is wrong with it.

    ``outside``: the file may be outside of ``folder``.
    """
    function = _load(text, folder, outside)
    for old in RENAMED["policy function"]:
        if hasattr(function, old):
            raise renamed_error("policy function", old, _place(function)) or AssertionError
    index: Any = getattr(function, "rank_by", "jobs")
    if index not in get_args(Index):
        raise renamed_error("rank_by", str(index), _place(function)) or InputError(
            f"'{text}': {index!r} is not a valid `rank_by`", expected=list_choices(get_args(Index))
        )
    requires = _requires(function, text)
    answer = _tried(function, _CANDIDATE, text)
    numbers = len(answer) if isinstance(answer, tuple) else 1
    if numbers not in (1, 2):
        raise InputError(f"'{text}' gives {answer!r}", where=_place(function), expected="a number, or two")
    own = OwnFunction(function, text, function.__code__.co_filename, numbers, pair=True)
    _checked(own, _CANDIDATE)
    return Route(text, (function.__doc__ or "").strip(), own, index, requires)


def own_order(text: str, folder: Path, outside: bool = False) -> Order:
    """The order that ``text`` names, its file relative to ``folder``; InputError for what is wrong with it.

    ``outside``: the file may be outside of ``folder``.
    """
    function = _load(text, folder, outside)
    own = OwnFunction(function, text, function.__code__.co_filename, 1, pair=False)
    _tried(function, _JOB, text)
    _checked(own, _JOB)
    return Order(text, (function.__doc__ or "").strip(), own, _requires(function, text))


def _load(text: str, folder: Path, outside: bool) -> Callable[..., Any]:
    match = _SPELLED.fullmatch(text)
    assert match is not None  # noqa: S101  asked for only where it is spelled so
    path = folder / match["file"]
    if not outside and not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(
            f"the policy file '{path}' is outside the scenario's folder",
            expected=f"a file in '{folder}', or --allow-outside-code",
        )
    source = read_bytes(path, "policy file", CODE_BYTES, Location())
    # A name of its own, so that two files called alike do not meet.
    module_name = f"windtunnel_own_{hashlib.blake2b(str(path.resolve()).encode(), digest_size=6).hexdigest()}"
    module = ModuleType(module_name)
    module.__file__ = str(path)
    try:
        with _limited(path):
            exec(compile_bounded(source, str(path)), vars(module))  # noqa: S102  the user's own code
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"'{path}' cannot be run: {type(error).__name__}: {error}") from error
    functions = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    if match["name"] not in functions:
        raise InputError(
            f"'{path}' has no function '{match['name']}'",
            expected=list_choices(functions) if functions else "a function",
            nearest=nearest(match["name"], functions),
        )
    function: Callable[..., Any] = vars(module)[match["name"]]
    if not isinstance(function, FunctionType):
        raise InputError(f"'{match['name']}' in '{path}' is a {type(function).__name__}", expected="a function")
    return function


@contextmanager
def _limited(file: Path | str) -> Iterator[None]:
    """Raise InputError if loading or trying a policy takes too long."""
    limit_s = time_limit(_LOADING_S)
    try:
        with time_limited(limit_s):
            yield
    except TimeLimitError:
        raise InputError(
            f"this policy file takes more than {limit_s:g} s to be loaded and to answer one example",
            where=Location(str(file)),
            expected=f"functions that answer at once; {VARIABLE} multiplies the limit on a slow machine",
        ) from None


def _requires(function: Callable[..., Any], text: str) -> tuple[str, ...]:
    requires = tuple(getattr(function, "requires", ()))
    for name in requires:
        if name not in _REQUIREMENTS:
            raise renamed_error("requires", str(name), _place(function)) or InputError(
                f"'{text}': {name!r} is not a valid entry of `requires`",
                expected=list_choices(_REQUIREMENTS),
                nearest=nearest(str(name), _REQUIREMENTS),
            )
    return requires


def _tried(function: Callable[..., Any], example: Candidate | JobKey, text: str) -> Any:
    try:
        with _limited(function.__code__.co_filename):
            return function(example)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, AttributeError) and isinstance(error.obj, Candidate):
            renamed = renamed_error("Candidate", str(error.name), _place(function))
            if renamed is not None:
                raise renamed from error
        if ENDLESS in str(error):
            raise InputError(
                f"'{text}' gives no answer to an example: {error}",
                where=_place(function),
                expected="a function whose loops end",
            ) from error
        raise InputError(
            f"'{text}' fails on an example: {type(error).__name__}: {error}",
            where=_place(function),
            expected=f"a function of one {type(example).__name__}: {', '.join(example._fields)}",
        ) from error


def _checked(own: OwnFunction, example: Candidate | JobKey) -> None:
    """Refuse what gives no number, and what gives another number for the same example: a run has to be repeatable."""
    if own(example) != own(example):
        raise InputError(
            f"'{own.text}' gives different numbers for the same {type(example).__name__}",
            where=_place(own.function),
            expected="the same answer to the same question: a run is the same whenever and wherever it is run",
        )


def _place(function: Callable[..., Any]) -> Location:
    return Location(function.__code__.co_filename, function.__code__.co_firstlineno)
