"""docs/kernels.md, "The language": every name that the language knows stands there."""

from __future__ import annotations

import builtins
import re
from pathlib import Path

import pytest

from windtunnel.language.expressions import _NUMPY_MATH, MATH
from windtunnel.language.names import ATOMICS, AXES, THREAD_LANGUAGE, Group
from windtunnel.language.types import ALIASES, SCALARS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kernels.md"
SECTION = PAGE.read_text().partition("\n## The language\n")[2].partition("\n## ")[0]
SAID = set(re.findall(r"[\w.]+", " ".join(re.findall(r"`([^`]+)`", SECTION))))
"""The words that are code there."""
BARE = {word.rpartition(".")[2] for word in SAID}
INDICES = ("threadIdx", "blockIdx", "blockDim", "gridDim")


def test_every_name_of_the_thread_language_is_on_its_page() -> None:
    names = {name for name, one in THREAD_LANGUAGE.items() if not isinstance(one, Group)}
    assert names <= SAID, sorted(names - SAID)


@pytest.mark.parametrize("name", [name for name, one in THREAD_LANGUAGE.items() if isinstance(one, Group)])
def test_every_member_of_a_group_is_on_the_page(name: str) -> None:
    group = THREAD_LANGUAGE[name]
    assert isinstance(group, Group)
    if name in INDICES:
        assert f"`{name}.x`, `.y`, `.z`" in SECTION
        assert set(group.members) == set(AXES)
    else:
        members = {f"{name}.{member}" for member in group.members}
        assert all(any(word == m or word.startswith(f"{m}.") for word in SAID) or f"{m}()" in SECTION for m in members)


@pytest.mark.parametrize("op", ATOMICS)
def test_every_atomic_operation_is_on_the_page_with_its_arguments(op: str) -> None:
    assert f"| `atomic.{op}(array, index" in SECTION


def test_every_function_of_numbers_is_on_the_page() -> None:
    names = {*MATH, *_NUMPY_MATH}
    assert names <= BARE, sorted(names - BARE)


def test_every_type_is_on_the_page() -> None:
    names = {*SCALARS, *ALIASES}
    assert names <= SAID, sorted(names - SAID)


def test_a_star_import_has_the_names_of_the_language_and_no_builtin() -> None:
    module: dict[str, object] = {}
    exec("from windtunnel import *", module)  # noqa: S102  a star import is allowed at the top of a module only
    assert {*THREAD_LANGUAGE, *SCALARS, *ALIASES} - {"bool"} <= set(module)
    assert {"kernel", "device", "errors"} <= set(module)
    assert not (set(module) - {"__builtins__"}) & set(dir(builtins))
