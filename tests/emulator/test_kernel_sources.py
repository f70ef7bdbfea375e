"""Kernels whose source is not in a file: taken from the line cache, or refused."""

from __future__ import annotations

import linecache
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel.language.source import KernelError

COUNTS = """
from windtunnel import atomic, grid

def count(total):
    atomic.add(total, 0, 1)
"""
DOUBLES = """
def double(a):
    a[0] = a[0] * 2
"""
WHOLE = """
def add(a):
    a[...] = a + 1
"""


def executed(text: str, file: str, name: str) -> Any:
    module: dict[str, Any] = {}
    exec(compile(text, file, "exec"), module)  # noqa: S102  the text is this file's
    return module[name]


@pytest.fixture
def cached() -> Iterator[Any]:
    """Put text into the line cache, as notebooks do."""
    files = []

    def put(text: str, file: str) -> None:
        files.append(file)
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)

    yield put
    for file in files:
        linecache.cache.pop(file, None)


@pytest.mark.parametrize(("text", "name"), [(COUNTS, "count"), (DOUBLES, "double"), (WHOLE, "add")])
def test_a_kernel_without_source_is_refused_whatever_it_is(text: str, name: str) -> None:
    with windtunnel.device("l4") as accelerator:
        total = accelerator.to_device(np.zeros(4, np.int32))
        for kernel in (executed(text, "<generated>", name), windtunnel.kernel(executed(text, "<string>", name))):
            with pytest.raises(KernelError, match=f"the source of '{name}' cannot be read.*line .*linecache"):
                accelerator.launch(kernel, 1, 8, total)
        assert not accelerator.to_host(total).any()


def test_a_kernel_in_the_line_cache_is_compiled(cached: Any) -> None:
    cached(COUNTS, "<cell 1>")
    with windtunnel.device("l4") as accelerator:
        total = accelerator.to_device(np.zeros(1, np.int32))
        accelerator.launch(executed(COUNTS, "<cell 1>", "count"), 2, 8, total)
        assert accelerator.to_host(total) == [16]


def test_another_text_under_the_same_name_is_not_taken(cached: Any, tmp_path: Path) -> None:
    cached(DOUBLES, "<cell 2>")
    other = tmp_path / "other.py"
    other.write_text(WHOLE + WHOLE + "\ndef count(other):\n    other[0] = 1\n")
    with windtunnel.device("l4") as accelerator:
        total = accelerator.to_device(np.zeros(1, np.int32))
        for file in ("<cell 2>", str(other), __file__):
            with pytest.raises(KernelError, match="cannot be read"):
                accelerator.launch(executed(COUNTS, file, "count"), 2, 8, total)


def test_a_file_that_was_changed_is_read_only_where_it_compiles_to_the_same(tmp_path: Path) -> None:
    file = tmp_path / "edited.py"
    first, second = "def two(a):\n    a[0] = 2\n", "def three(a):\n    a[0] = 3\n"
    file.write_text(first + second)
    two, three = (executed(first + second, str(file), name) for name in ("two", "three"))
    replaced = executed(first + second, str(file), "two")
    consts = tuple(5 if const == 2 else const for const in replaced.__code__.co_consts)
    replaced.__code__ = replaced.__code__.replace(co_consts=consts)
    file.write_text(first.replace("= 2", "= 999") + "\n# a comment\n" + second)
    with windtunnel.device("l4") as accelerator:
        total = accelerator.to_device(np.zeros(1, np.int32))
        accelerator.launch(three, 1, 1, total)
        assert accelerator.to_host(total) == [3]
        for kernel in (two, replaced):
            with pytest.raises(KernelError, match="no text is there that compiles to it; expected .*not changed since"):
                accelerator.launch(kernel, 1, 1, total)


def test_functions_of_libraries_still_work_on_whole_arrays() -> None:
    with windtunnel.device("l4") as accelerator:
        a = accelerator.to_device(np.ones(3, np.float32))
        accelerator.launch(np.negative, 1, 1, a, a)
        assert (accelerator.to_host(a) == -1).all()


def test_a_script_from_standard_input_says_so() -> None:
    text = f"""
import numpy as np, windtunnel
{COUNTS}
accelerator = windtunnel.device("l4")
accelerator.launch(count, 1, 8, accelerator.to_device(np.zeros(1, np.int32)))
"""
    done = subprocess.run([sys.executable, "-"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the source of 'count' cannot be read" in done.stderr


WITHIN = '''
from windtunnel import f32

def made():
    def right(a: f32[:]):
        """The text of a kernel may begin further left,
as here."""
        a[0] = 3
# and so may a comment
        a[0] += 1

    def wrong(a: f32[:]):
        a[0] = 1 + missing
    return right, wrong
'''


def test_a_kernel_within_a_function_is_read_with_the_lines_and_columns_of_its_file(cached: Any) -> None:
    cached(WITHIN, "<cell 3>")
    right, wrong = executed(WITHIN, "<cell 3>", "made")()
    with windtunnel.device("l4") as accelerator:
        total = accelerator.to_device(np.zeros(1, np.float32))
        accelerator.launch(right, 1, 1, total)
        assert accelerator.to_host(total) == [4]
        with pytest.raises(KernelError, match="'missing'") as raised:
            accelerator.launch(wrong, 1, 1, total)
    line, column = raised.value.where.line, raised.value.where.column
    assert line is not None and column is not None
    assert WITHIN.splitlines()[line - 1][column - 1 :] == "missing"
